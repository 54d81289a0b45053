"""A folder of somebody else: it writes nowhere, and reads nothing but its own regular files."""

import json
import shutil
import socket
import time
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hostile.mutations import change, mutations, reseal
from hostile.strange import FOLDERS, doubled, lexicon_of
from tiny_models import tiny_model, word_piece_tokenizer
from toys import TAGS, ToyVectors, toy_lexicon

import polyembed as pe
from polyembed.encoders import CachedEmbedder
from polyembed.saving import PretrainedModule
from polyembed.text import FastBPETokenizer, PieceDictionary, SentencePieceTokenizer
from polyembed.vectors import (
    BPEmbVectors,
    ClusterFeatures,
    FastTextVectors,
    JoinedVectors,
    TextVectors,
    Word2VecBinaryVectors,
)


@pytest.fixture
def encoder_folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    pe.PretrainedWordEncoder(tiny_model("bert"), word_piece_tokenizer()).save_pretrained(
        tmp_path / "saved"
    )
    return tmp_path / "saved"


@pytest.fixture(scope="module")
def good_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    lexicon = toy_lexicon()
    embedder = pe.SpelledEmbedding.from_characters(lexicon, pe.CharCNN(lexicon.num_characters, 5))
    encoder = pe.TransformerSequenceEncoder(
        5, hidden_size=6, num_layers=1, num_heads=2, feed_forward_size=8
    )
    folder = tmp_path_factory.mktemp("good") / "saved"
    pe.SequenceTagger(embedder, TAGS, encoder=encoder).save_pretrained(folder)
    return folder


@pytest.fixture
def tagger_folder(good_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good_folder, tmp_path / "saved"))


def outcome(folder: Path) -> str | None:
    """Load a folder, and return the error's message, if it is one of the two kinds that are promised."""
    try:
        PretrainedModule.from_pretrained(folder)
    except (ValueError, FileNotFoundError) as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", FOLDERS)
def test_a_strange_folder_is_refused(name: str, tagger_folder: Path) -> None:
    FOLDERS[name](tagger_folder)
    started = time.process_time()
    message = outcome(tagger_folder)
    assert message is not None, "it was loaded"
    assert str(tagger_folder) in message, "the error names no file"
    assert " must " in message
    assert time.process_time() - started < 3, "it took long"


def peak_of_opening(folder: Path) -> tuple[str | None, int]:
    """Return the outcome, and the most bytes that Python's objects took."""
    outcome(folder)  # imports are not counted
    tracemalloc.start()
    try:
        return outcome(folder), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_layers_without_weights_take_no_memory(tagger_folder: Path) -> None:
    lstm = {
        "class": "LSTMSequenceEncoder",
        "config": {"input_size": 5, "hidden_size": 3, "num_layers": 10**7},
    }
    change(tagger_folder, lambda config: config["config"].update(encoder=lstm))
    message, peak = peak_of_opening(tagger_folder)
    assert "config must have parts that" in str(message)
    assert peak < 2e7


def test_the_good_folder_opens(tagger_folder: Path) -> None:
    reseal(tagger_folder)
    assert outcome(tagger_folder) is None


def test_a_module_in_more_and_more_places(tmp_path: Path) -> None:
    """A few objects, each of them twice in the next: what walks through all places must not be reached."""
    embedder = pe.SourceEmbedding(ToyVectors(3), toy_lexicon())
    pe.MetaEmbedding.concat([embedder, embedder]).save_pretrained(tmp_path)
    tree = json.loads((tmp_path / "config.json").read_text())
    change(tmp_path, lambda config: config.update(doubled(tree, 1)))
    assert outcome(tmp_path) is None
    for levels in (16, 24):
        change(tmp_path, lambda config, levels=levels: config.update(doubled(tree, levels)))
        assert "config must have at most 20000 places of objects" in str(outcome(tmp_path))


def test_joined_vectors_in_more_and_more_places(tmp_path: Path) -> None:
    """A look-up asks every source in each of its places."""
    (tmp_path / "me.vec").write_text("me 1 2 3\n")
    source = JoinedVectors([TextVectors(tmp_path / "me.vec")])
    pe.SourceEmbedding(source, toy_lexicon()).save_pretrained(tmp_path / "saved")
    arguments = json.loads((tmp_path / "saved" / "config.json").read_text())["config"]

    def nest(levels: int) -> str | None:
        inner = arguments["source"]["config"]["sources"][0]
        for level in reversed(
            range(levels)
        ):  # the embedder is number 0, its lexicon 1, the sources follow
            inner = {
                "class": "JoinedVectors",
                "config": {"sources": [inner, {"same_as": level + 3}]},
            }
        change(tmp_path / "saved", lambda config: config["config"].update(source=inner))
        return outcome(tmp_path / "saved")

    assert nest(4) is None
    assert "config must have at most 20000 places of objects" in str(nest(16))


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "lexicon.json"])
def test_mutated_files(file: str, tagger_folder: Path) -> None:
    """Whatever a file holds, loading ends soon: with a module, or with an error that names a file."""
    good, others = (tagger_folder / file).read_bytes(), (tagger_folder / "config.json").read_bytes()
    opened = 0
    for mutated in mutations(good, 100):
        (tagger_folder / "config.json").write_bytes(others)
        (tagger_folder / file).write_bytes(mutated)
        if file != "config.json":
            reseal(tagger_folder)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            message = outcome(tagger_folder)
        opened += message is None
        assert message is None or str(tagger_folder) in message, mutated
    assert opened < 75, "the mutations damage too little"


def all_files(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "key",
    [
        "tokenizer-../../stolen.txt",
        "tokenizer-{root}/stolen.txt",
        "tokenizer-..",
        "tokenizer-sub/x.json",
        "path",
    ],
)
def test_no_key_of_files_names_a_place(encoder_folder: Path, tmp_path: Path, key: str) -> None:
    key = key.format(root=tmp_path)
    (encoder_folder / "evil.txt").write_text("from a stranger")
    change(encoder_folder, lambda config: config["files"].update({key: "evil.txt"}))
    before = all_files(tmp_path)
    with pytest.raises(ValueError, match=r"files must be among .* of PretrainedWordEncoder, got"):
        pe.PretrainedWordEncoder.from_pretrained(encoder_folder)
    assert all_files(tmp_path) == before


@pytest.mark.parametrize(
    "name", ["../outside.json", "{root}/outside.json", "..", "", "sub/lexicon.json", 7, None]
)
def test_no_value_of_files_names_a_place(tagger_folder: Path, tmp_path: Path, name: Any) -> None:
    (tmp_path / "outside.json").write_bytes((tagger_folder / "lexicon.json").read_bytes())
    name = name.format(root=tmp_path) if isinstance(name, str) else name
    change(tagger_folder, lambda config: lexicon_of(config)["files"].update(path=name))
    with pytest.raises(
        (ValueError, FileNotFoundError), match=r"files.path must be a plain file name"
    ):
        pe.SequenceTagger.from_pretrained(tagger_folder)


def test_links_inside_a_snapshot_of_the_hub_are_followed(
    tagger_folder: Path, tmp_path: Path
) -> None:
    snapshot, blobs = (
        tmp_path / "models--a--b" / "snapshots" / "1234",
        tmp_path / "models--a--b" / "blobs",
    )
    snapshot.parent.mkdir(parents=True)
    tagger_folder.rename(snapshot)
    blobs.mkdir()
    for path in list(snapshot.iterdir()):
        path.rename(blobs / path.name)
        path.symlink_to(Path("../../blobs") / path.name)
    assert pe.SequenceTagger.from_pretrained(snapshot).tags == tuple(TAGS)


HOSTILE = {
    TextVectors: ["path"],
    FastTextVectors: ["path"],
    ClusterFeatures: ["path"],
    Word2VecBinaryVectors: ["path"],
    BPEmbVectors: ["model_file", "vectors_file"],
    CachedEmbedder: ["store"],
    pe.Lexicon: ["path"],
    PieceDictionary: ["pieces"],
    FastBPETokenizer: ["merges"],
    SentencePieceTokenizer: ["model"],
}


@pytest.mark.parametrize("cls", HOSTILE, ids=lambda cls: cls.__name__)
def test_a_configuration_opens_no_file(tagger_folder: Path, tmp_path: Path, cls: type) -> None:
    secret = tmp_path / "secret.vec"
    secret.write_text("me 1.0 2.0\n")
    evil = {"class": cls.__name__, "config": dict.fromkeys(HOSTILE[cls], str(secret)), "files": {}}
    change(tagger_folder, lambda config: config["config"].update(decoder=evil))
    with pytest.raises(
        ValueError, match=r"config must name no file: those are listed in files, got"
    ):
        pe.SequenceTagger.from_pretrained(tagger_folder)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("no_network")
def test_a_configuration_opens_no_connection(tagger_folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    evil = {"class": "BPEmbVectors", "config": {"lang": "en", "cache_dir": str(cache)}, "files": {}}
    change(tagger_folder, lambda config: config["config"].update(decoder=evil))
    assert "files must hold all files of BPEmbVectors, got none for" in str(outcome(tagger_folder))
    assert not cache.exists()


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize(
    ("model", "architecture"),
    [
        ({"model_type": "detr", "use_timm_backbone": False, "backbone": "them/model"}, None),
        ({"model_type": "detr"}, None),
        ({"model_type": "upernet", "backbone": "them/model"}, "UperNetForSemanticSegmentation"),
        ({"model_type": "dpt", "backbone": "/some/folder"}, "DPTForDepthEstimation"),
    ],
)
def test_a_model_of_transformers_fetches_no_other(
    model: dict, architecture: str | None, encoder_folder: Path
) -> None:
    model = {"use_pretrained_backbone": True, "backbone_config": None, **model}
    change(
        encoder_folder,
        lambda config: config["config"].update(model=model, architecture=architecture),
    )
    assert "model must be described without a backbone" in str(outcome(encoder_folder))
