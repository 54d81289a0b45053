"""Sharing on a hub: uploaded and removed files, revisions, and offline use."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
import torch
from saving.folders import CORPUS, UNSEEN, build_tagger

import polyembed as pe

COMMITS = ("a" * 40, "b" * 40)


class Hub:
    """A hub with one repository, which is a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def create_repo(self, repo_id, *, private, exist_ok) -> None:
        assert exist_ok
        self.folder.mkdir(exist_ok=True)

    def file_exists(self, repo_id, name, *, revision) -> bool:
        return (self.folder / name).exists()

    def hf_hub_download(self, repo_id, name, *, revision) -> str:
        return str(self.folder / name)

    def upload_folder(self, *, folder_path, delete_patterns, commit_message, **_) -> str:
        for pattern in delete_patterns:
            for path in self.folder.glob(pattern):
                path.unlink()
        shutil.copytree(folder_path, self.folder, dirs_exist_ok=True)
        return "https://hub/commit"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: Hub(folder))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **_: str(folder))
    return folder


def test_pushing_replaces_the_model_and_leaves_the_owners_files(hub: Path):
    old, new = build_tagger(seed=0), build_tagger(seed=1)
    assert old.push_to_hub("me/tagger", private=True) == "https://hub/commit"
    assert "library_name: polyembed" in (hub / "README.md").read_text("utf-8")
    (hub / "README.md").write_text("mine")
    (hub / "notes.txt").write_text("mine")
    new.push_to_hub("me/tagger")
    assert len(list(hub.glob("model-*"))) == 1
    assert [(hub / name).read_text() for name in ("README.md", "notes.txt")] == ["mine", "mine"]
    opened = pe.SequenceTagger.from_pretrained("me/tagger")
    assert torch.equal(opened.decoder.linear.weight, new.decoder.linear.weight)
    new.push_to_hub("me/tagger", card="a new card")
    assert (hub / "README.md").read_text() == "a new card"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Build a cache of huggingface_hub with two commits, whose files are links.

    The branch main is at the second commit, and v1 is at the first.
    """
    repository = tmp_path / "cache" / "models--me--tagger"
    (repository / "blobs").mkdir(parents=True)
    for seed, commit in enumerate(COMMITS):
        build_tagger(seed=seed).save_pretrained(tmp_path / commit)
        snapshot = repository / "snapshots" / commit
        snapshot.mkdir(parents=True)
        for file in (tmp_path / commit).iterdir():
            shutil.copyfile(file, repository / "blobs" / f"{seed}-{file.name}")
            (snapshot / file.name).symlink_to(Path("../../blobs") / f"{seed}-{file.name}")
    (repository / "refs").mkdir()
    for name, commit in (("main", COMMITS[1]), ("v1", COMMITS[0])):
        (repository / "refs" / name).write_text(commit)
    return tmp_path / "cache"


def test_a_revision_pins(cache: Path):
    options = {"cache_dir": cache, "local_files_only": True}
    for revision, seed in ((None, 1), ("main", 1), ("v1", 0), (COMMITS[0], 0)):
        found = pe.SequenceTagger.from_pretrained("me/tagger", revision=revision, **options)
        expected = build_tagger(seed=seed).decoder.linear.weight
        assert torch.equal(found.decoder.linear.weight, expected), revision
    for name in ("me/tagger", "me/other", "a name with spaces"):
        with pytest.raises(FileNotFoundError, match=r"^name_or_folder must be a folder or a repo"):
            pe.SequenceTagger.from_pretrained(name, revision="v2", **options)


def test_a_new_process_gives_the_same_tags_and_offline_opens_no_socket(cache: Path):
    program = (
        "import socket, polyembed as pe\n"
        "def refuse(*args, **kwargs): raise AssertionError('the network')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "import toys\n"
        f"print(pe.SequenceTagger.from_pretrained('me/tagger').predict({CORPUS[:3] + UNSEEN}))\n"
        "try: pe.SequenceTagger.from_pretrained('me/other', revision='main')\n"
        "except FileNotFoundError as error: print('at revision' in str(error))\n"
    )
    own = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(cache)}
    environment = {**os.environ, **own, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    expected = build_tagger(seed=1).predict(CORPUS[:3] + UNSEEN)
    assert done.stdout == f"{expected}\nTrue\n", done.stderr
