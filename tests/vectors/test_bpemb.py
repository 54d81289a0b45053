"""BPEmb: the values of the package, files that do not fit or are cut off, and training."""

import io
import pickle
import tarfile
from pathlib import Path

import bpemb
import numpy as np
import pytest
from checks import refused
from network import Server

from polyembed.vectors import BPEmbVectors, WordVectors

WORDS = ["Hello", "Don't", "ñandú", "कविता", "2021", "٣", "a b", "", "\u200b", "🙂", "x" * 200]
CORPUS = [["me", "gusta", "that", "song"], ["no", "puedo", "open", "the", "door", "42"]] * 20
URL = "https://bpemb.h-its.org/nl/nl.wiki.bpe.vs1000"


@pytest.fixture(scope="module")
def folder(data_folder):
    return data_folder / "subwords"


@pytest.fixture
def dutch(folder):
    stem = f"{folder}/bpemb_nl/nl.wiki.bpe.vs1000"
    return {"model_file": f"{stem}.model", "vectors_file": f"{stem}.d25.w2v.bin"}


def test_real_models_give_what_the_package_gives(folder):
    stem = str(folder / "bpemb_en" / "en.wiki.bpe.vs1000")
    peer = bpemb.BPEmb(model_file=f"{stem}.model", emb_file=f"{stem}.d25.w2v.bin", dim=25)
    vectors = BPEmbVectors(peer.model_file, peer.emb_file)
    assert isinstance(vectors, WordVectors)
    np.testing.assert_array_equal(vectors.table, peer.vectors)
    assert vectors.piece_ids(WORDS) == peer.encode_ids(WORDS)
    assert [vectors.pieces(word) for word in WORDS] == peer.encode(WORDS)
    expected = [
        peer.vectors[ids].mean(0) if (ids := peer.encode_ids(word)) else np.zeros(25)
        for word in WORDS
    ]
    np.testing.assert_allclose(vectors.vectors(iter(WORDS)), expected, rtol=0, atol=1e-6)
    twin = pickle.loads(pickle.dumps(vectors))
    np.testing.assert_array_equal(twin.vectors(WORDS), vectors.vectors(WORDS))


def test_words_that_are_not_text_or_not_prepared(dutch):
    vectors, cased = BPEmbVectors(**dutch), BPEmbVectors(**dutch, preprocess=False)
    assert not vectors.vectors(["a\ud800", ""]).any()
    assert cased.pieces("Amsterdam7") != vectors.pieces("Amsterdam7") == cased.pieces("amsterdam0")
    refused(TypeError, "words must be a list of words, got the string", vectors.vectors, "hallo")


def test_the_text_format_has_the_same_rows_and_nan_is_refused(dutch, tmp_path):
    """A few damaged names are allowed, because some public files have them."""
    right = BPEmbVectors(**dutch)
    text = dutch["vectors_file"].replace(".bin", ".txt")
    table = BPEmbVectors(dutch["model_file"], text).table
    np.testing.assert_allclose(table, right.table, rtol=0, atol=1e-6)
    lines = Path(text).read_text("utf-8").split("\n")
    lines[7] = "damaged " + " ".join(["nan"] * 25)
    (tmp_path / "damaged.txt").write_text("\n".join(lines), "utf-8")
    rule = r"damaged.txt must hold finite numbers, got NaN or an infinity"
    refused(ValueError, rule, BPEmbVectors, dutch["model_file"], tmp_path / "damaged.txt")


@pytest.mark.parametrize(
    ("model", "vectors", "error", "message"),
    [
        ("no", "{nl}", FileNotFoundError, "model_file must name a file"),
        ("{model}", "no", FileNotFoundError, "vectors_file must name a file"),
        ("{nl}", "{nl}", ValueError, "model_file must name a SentencePiece model, got .*bin"),
        ("{model}", "{en}", ValueError, r"the pieces of .*, got 1000 rows for 1000 pieces, \d+ of"),
    ],
)
def test_files_that_do_not_fit_are_clear_errors(folder, dutch, model, vectors, error, message):
    files = {
        "model": dutch["model_file"],
        "nl": dutch["vectors_file"],
        "en": folder / "bpemb_en" / "en.wiki.bpe.vs1000.d25.w2v.bin",
    }
    refused(error, message, BPEmbVectors, model.format(**files), vectors.format(**files))


def archive(data, names=("data/nl/nl.wiki.bpe.vs1000.d25.w2v.bin",)):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def answers(dutch):
    model, vectors = (Path(path).read_bytes() for path in dutch.values())
    return {f"{URL}.model": model, f"{URL}.d25.w2v.bin.tar.gz": archive(vectors)}


def test_a_language_is_fetched_once(dutch, tmp_path, monkeypatch):
    server = Server(monkeypatch, answers(dutch))
    monkeypatch.setenv("HOME", str(tmp_path))  # the package keeps its cache there
    vectors = BPEmbVectors.from_pretrained("nl", vocab_size=1000, dim=25)
    assert server.asked == list(server.answers)
    np.testing.assert_array_equal(vectors.table, BPEmbVectors(**dutch).table)
    cache = tmp_path / ".cache" / "bpemb"
    names = ["nl.wiki.bpe.vs1000.d25.w2v.bin", "nl.wiki.bpe.vs1000.model"]
    assert sorted(path.name for path in (cache / "nl").iterdir()) == names


@pytest.mark.parametrize("fault", ["cut", "two members"])
def test_a_broken_download_leaves_nothing_and_says_how_to_get_the_files(
    dutch, tmp_path, monkeypatch, fault
):
    good = answers(dutch)
    _, vectors = good
    if fault == "two members":
        good[vectors] = archive(b"x", names=("a", "b"))
    Server(monkeypatch, good, [vectors] if fault == "cut" else ())
    rule = r"w2v.bin must be there or within reach, got neither \(.+\)"
    message = rf"{rule}. Fetch {URL}.* by other means, and put it \(unpacked\) at"
    fetch, sizes = BPEmbVectors.from_pretrained, {"vocab_size": 1000, "dim": 25}
    refused(FileNotFoundError, message, fetch, "nl", **sizes, cache_dir=tmp_path)
    found = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert found == ["nl.wiki.bpe.vs1000.model"]


def test_trained_pieces_open_and_spell(tmp_path):
    long = ["zorro", "\ud83d"] * 1_000
    trained = BPEmbVectors.train([*CORPUS, long], tmp_path / "pieces", vocab_size=40, dim=7)
    assert trained.unknown_id not in trained.piece_ids(iter(["zorro"]))[0]
    assert (trained.num_pieces, trained.dim) == (40, 7)
    assert "".join(trained.pieces("gusta")) == "▁gusta"
    assert trained.pieces("GUSTA 17")[-1] == trained.pieces("42")[-1], "lower-cased, digits are 0"
    assert np.abs(trained.vectors(["gusta", "doors"])).sum(1).all()
    names = sorted(path.name for path in (tmp_path / "pieces").iterdir())
    assert names == ["pieces.model", "pieces.vec"]


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ([[], [""]], r"sentences must hold at least one word, got none"),
        (CORPUS, r"vocab_size must leave room for the corpus's characters, got 3 \("),
    ],
)
def test_a_training_that_cannot_be_leaves_nothing(tmp_path, corpus, message):
    refused(ValueError, message, BPEmbVectors.train, corpus, tmp_path / "pieces", vocab_size=3)
    assert not (tmp_path / "pieces").exists()
