"""Folders of a stranger: no code is run, no file outside is read, and errors name the folder."""

import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from saving.folders import build_tagger, change, only, unopened
from tiny_models import tiny_model, word_piece_tokenizer

import polyembed as pe
from polyembed.saving import PretrainedModule

SENTENCES = [["me", "gusta"], ["that", "song"]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "tagger"
    build_tagger().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "tagger")


def _nodes(tree: Any) -> list[dict[str, Any]]:
    if isinstance(tree, list):
        return [node for item in tree for node in _nodes(item)]
    if not isinstance(tree, dict):
        return []
    inside = [node for item in tree.values() for node in _nodes(item)]
    return [tree, *inside] if "class" in tree else inside


EDITS = {
    "no digests": lambda config: config.pop("digests"),
    "no digest of the weights": lambda config: config["digests"].pop(config["weights"]),
    "no weights": lambda config: config.pop("weights"),
    "an unknown argument": lambda config: config["config"].update(unknown=1),
    "an object before it is built": lambda config: config["config"].update(encoder={"same_as": 0}),
    "an object of another kind": lambda config: config["config"].update(encoder={"same_as": 1}),
    "a tie to nothing": lambda config: config.update(tied={"decoder.linear.weight": "x.y"}),
    "a wider encoder": lambda config: config["config"]["encoder"]["config"].update(hidden_size=17),
    "an enormous encoder": lambda config: config["config"]["encoder"]["config"].update(
        hidden_size=2**40
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_strange_configuration_is_refused(name: str, folder: Path):
    change(folder, EDITS[name])
    unopened(folder, str(folder))


@pytest.mark.parametrize(
    "name",
    [
        "subprocess:Popen",
        "builtins:eval",
        "torch.nn:Linear",
        "polyembed.saving.config:sys.exit",
        "polyembed.nothing:X",
        "antigravity:x",
        "polyembed.text:Lexicon.load",
    ],
)
def test_classes_are_configurable_ones_that_the_program_has(name: str, folder: Path):
    change(folder, lambda config: config["config"]["embedder"].update({"class": name}))
    modules = set(sys.modules)
    unopened(folder, "class must be")
    assert set(sys.modules) == modules


@pytest.mark.parametrize("name", ["../x.json", "/etc/passwd", "..", "", "a/b", "nothing", 7])
def test_no_value_of_files_names_a_place(name: Any, folder: Path):
    def edit(config):
        node = next(node for node in _nodes(config) if node.get("files"))
        node["files"] = dict.fromkeys(node["files"], name)

    change(folder, edit)
    unopened(folder, "a file must have a plain name and a digest")


def test_no_argument_of_a_configuration_names_a_place(folder: Path):
    def edit(config):
        node = next(node for node in _nodes(config) if node.get("files"))
        node["config"] |= dict.fromkeys(node.pop("files"), "/etc/passwd")

    change(folder, edit)
    unopened(folder, r"files must be for .* alone")


def test_a_vector_source_brings_all_its_files(folder: Path):
    """Without the check, BPEmbVectors would download missing files."""
    evil = {"class": "polyembed.vectors.bpemb:BPEmbVectors", "config": {"lang": "en"}}
    change(folder, lambda config: config["config"].update(decoder=evil))
    unopened(folder, r"files must hold all files of a BPEmbVectors, got \[\]")


def test_links_out_of_the_folder_are_refused(folder: Path, tmp_path: Path):
    path = only(folder, "lexicon-*")
    path.rename(tmp_path / "secret")
    path.symlink_to(tmp_path / "secret")
    unopened(folder, "must be a file of the folder itself, got a link to")


class Evil:
    """A hostile object that runs code when its pickle is opened."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (f"open({str(self.mark)!r}, 'w').close()",)


def test_no_code_from_a_folder_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder, mark = tmp_path / "evil", tmp_path / "mark"
    encoder = pe.PretrainedWordEncoder(tiny_model("bert"), word_piece_tokenizer())
    classifier = pe.SequenceClassifier(encoder, ["no", "yes"]).eval()
    classifier.save_pretrained(folder)
    source = f"open({str(mark)!r}, 'w').close()\nclass Evil: pass\n"
    for name in ("__init__", "modeling_evil", "configuration_evil", "conftest", "sitecustomize"):
        (folder / f"{name}.py").write_text(source)
    for name in ("pytorch_model.bin", "model.pkl", "training_args.bin"):
        (folder / name).write_bytes(pickle.dumps(Evil(mark)))
    pickle.loads((folder / "model.pkl").read_bytes())
    assert mark.exists(), "it would run"
    mark.unlink()

    def refuse(*_, **__):
        raise AssertionError("asked or unpickled")

    monkeypatch.setattr("builtins.input", refuse)
    monkeypatch.setattr(torch, "load", refuse)
    again = PretrainedModule.from_pretrained(folder)
    assert again.predict(SENTENCES) == classifier.predict(SENTENCES)
    assert not mark.exists()
    assert not any("evil" in name for name in sys.modules)
