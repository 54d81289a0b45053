"""A folder of somebody else: it writes nowhere, and reads nothing but its own regular files."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import tiny_model, word_piece_tokenizer
from toys import TAGS, toy_lexicon

import polyembed as pe
from polyembed.vectors import BPEmbVectors, FastTextVectors, TextVectors


@pytest.fixture
def encoder_folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    pe.PretrainedWordEncoder(tiny_model("bert"), word_piece_tokenizer()).save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.fixture
def tagger_folder(tmp_path: Path) -> Path:
    lexicon = toy_lexicon()
    embedder = pe.SpelledEmbedding.from_characters(lexicon, pe.CharCNN(lexicon.num_characters, 5))
    pe.SequenceTagger(embedder, TAGS).save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    edit(config)
    path.write_text(json.dumps(config))


def all_files(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "key", ["tokenizer-../../stolen.txt", "tokenizer-{root}/stolen.txt", "tokenizer-..", "tokenizer-sub/x.json", "path"]
)
def test_no_key_of_files_names_a_place(encoder_folder: Path, tmp_path: Path, key: str) -> None:
    key = key.format(root=tmp_path)
    (encoder_folder / "evil.txt").write_text("from a stranger")
    change(encoder_folder, lambda config: config["files"].update({key: "evil.txt"}))
    before = all_files(tmp_path)
    with pytest.raises(ValueError, match=r"files must be among .* of PretrainedWordEncoder, got"):
        pe.PretrainedWordEncoder.from_pretrained(encoder_folder)
    assert all_files(tmp_path) == before


@pytest.mark.parametrize("name", ["../outside.json", "{root}/outside.json", "..", "", "sub/lexicon.json", 7, None])
def test_no_value_of_files_names_a_place(tagger_folder: Path, tmp_path: Path, name: Any) -> None:
    (tmp_path / "outside.json").write_bytes((tagger_folder / "lexicon.json").read_bytes())
    name = name.format(root=tmp_path) if isinstance(name, str) else name
    change(tagger_folder, lambda config: config["config"]["lexicon"]["files"].update(path=name))
    with pytest.raises((ValueError, FileNotFoundError), match=r"path must (be a plain file name|name a file)"):
        pe.SequenceTagger.from_pretrained(tagger_folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "lexicon.json"])
def test_a_link_out_of_the_folder_is_not_followed(tagger_folder: Path, tmp_path: Path, name: str) -> None:
    (tagger_folder / name).rename(tmp_path / "elsewhere")
    (tagger_folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"must be a file of the folder itself, got a link to"):
        pe.SequenceTagger.from_pretrained(tagger_folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "lexicon.json"])
def test_a_pipe_is_not_waited_for(tagger_folder: Path, name: str) -> None:
    (tagger_folder / name).unlink()
    os.mkfifo(tagger_folder / name)
    with pytest.raises(ValueError, match=r"must be a regular file, got a device or a pipe"):
        pe.SequenceTagger.from_pretrained(tagger_folder)


def test_links_inside_a_snapshot_of_the_hub_are_followed(tagger_folder: Path, tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "1234", tmp_path / "models--a--b" / "blobs"
    snapshot.parent.mkdir(parents=True)
    tagger_folder.rename(snapshot)
    blobs.mkdir()
    for path in list(snapshot.iterdir()):
        path.rename(blobs / path.name)
        path.symlink_to(Path("../../blobs") / path.name)
    assert pe.SequenceTagger.from_pretrained(snapshot).tags == tuple(TAGS)


HOSTILE = {
    TextVectors: {"path": "{file}"},
    FastTextVectors: {"path": "{file}"},
    BPEmbVectors: {"model_file": "{file}", "vectors_file": "{file}"},
    pe.Lexicon: {"path": "{file}"},
    pe.PieceDictionary: {"pieces": "{file}"},
    pe.FastBPETokenizer: {"merges": "{file}"},
    pe.SentencePieceTokenizer: {"model": "{file}"},
}


@pytest.mark.parametrize("cls", HOSTILE, ids=lambda cls: cls.__name__)
def test_a_configuration_opens_no_file(tagger_folder: Path, tmp_path: Path, cls: type) -> None:
    secret = tmp_path / "secret.vec"
    secret.write_text("me 1.0 2.0\n")
    arguments = {name: value.format(file=secret) for name, value in HOSTILE[cls].items()}
    evil = {"class": cls.__name__, "config": arguments, "files": {}}
    change(tagger_folder, lambda config: config["config"].update(decoder=evil))
    with pytest.raises(ValueError, match=r"config must name no file: those are listed in files, got"):
        pe.SequenceTagger.from_pretrained(tagger_folder)


def test_a_configuration_opens_no_connection(
    tagger_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    cache = tmp_path / "cache"
    evil = {"class": "BPEmbVectors", "config": {"lang": "en", "cache_dir": str(cache)}, "files": {}}
    change(tagger_folder, lambda config: config["config"].update(decoder=evil))
    with pytest.raises(ValueError, match=r"files must hold all files of BPEmbVectors, got none for"):
        pe.SequenceTagger.from_pretrained(tagger_folder)
    assert not cache.exists()
