"""fastText's files against the package, the published vectors and the definition."""

import random
import struct
import tracemalloc
from pathlib import Path

import fasttext
import huggingface_hub
import numpy as np
import pytest
from checks import refused
from huggingface_hub.errors import LocalEntryNotFoundError

from polyembed.vectors import FastTextVectors

MODELS = ["crime-and-punishment", "lee_fasttext_new", "pang_lee_polarity_fasttext"]
WORDS = ["sol", "año", "</s>", "солнце"]
MAGIC = struct.pack("<2i", 793712314, 12)


def unseen_words(count=250):
    rng = random.Random(0)
    ranges = [(32, 127), (0xA0, 0x600), (0x900, 0x980), (0x4E00, 0x9FFF), (0x1F300, 0x1F600)]
    odd = ["", "a", "ä", "中", "<", ">", "<>", "a b", "a\0b", "\u200b", "👨\u200d👩\u200d👧"]
    made = (
        "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(rng.randrange(1, 12)))
        for _ in range(count)
    )
    return [*odd, "x" * 700, "é" * 300, *made]


def is_text(word):
    return not any("\ud800" <= character <= "\udfff" for character in word)


def write_model(path, words, rows, *, version=12, bucket, min_n, max_n, model=2, labels=()):
    """Write a model by hand, by the description of the format."""
    dim = rows.shape[1]
    entries = [*((word, 0) for word in words), *((label, 1) for label in labels)]
    parts = [struct.pack("<2i", 793712314, version)] if version else []
    parts.append(
        struct.pack("<12id", dim, 5, 5, 1, 5, 1, 1, model, bucket, min_n, max_n, 100, 1e-4)
    )
    parts.append(struct.pack("<3iq", len(entries), len(words), len(labels), 99))
    if version:
        parts.append(struct.pack("<q", -1))
    parts += [word.encode() + b"\0" + struct.pack("<qb", 7, kind) for word, kind in entries]
    for matrix in (rows, np.zeros((len(words), dim))):
        parts += [b"\0"] * bool(version) + [
            struct.pack("<2q", *matrix.shape),
            matrix.astype("<f4").tobytes(),
        ]
    path.write_bytes(b"".join(parts))
    return path


def fnv1a(text):
    value = 2166136261
    for byte in text.encode():
        value = ((value ^ (byte if byte < 128 else byte + 0xFFFFFF00)) * 16777619) % 2**32
    return value


def expected_vector(word, words, rows, *, version, bucket, min_n, max_n):
    """Return the mean of a word's rows, by the definition."""
    ids = [words.index(word)] if word in words else []
    spelled = "" if word == "</s>" and version else f"<{word}>"
    for start in range(len(spelled)):
        for n in range(max(min_n, 1), max_n + 1):
            ngram = spelled[start : start + n]
            if len(ngram) < n or (n == 1 and start in (0, len(spelled) - 1)):
                continue
            ids.append(len(words) + fnv1a(ngram) % bucket)
    return np.mean([rows[i] for i in ids], axis=0) if ids else np.zeros(rows.shape[1])


@pytest.fixture(scope="module")
def folder(data_folder):
    return data_folder / "vectors" / "fasttext"


@pytest.fixture
def handmade(tmp_path):
    sizes = {"bucket": 11, "min_n": 1, "max_n": 3}
    rows = np.random.default_rng(0).standard_normal((len(WORDS) + 11, 3)).astype(np.float32)
    return write_model(tmp_path / "handmade.bin", WORDS, rows, **sizes)


@pytest.mark.parametrize("name", MODELS)
def test_real_models_give_what_the_package_gives(folder, name):
    peer = fasttext.load_model(str(folder / f"{name}.bin"))
    vectors = FastTextVectors(folder / f"{name}.bin")
    words = [word for word in vectors.words if is_text(word)]
    assert words == [
        word for word in peer.get_words(on_unicode_error="replace") if "\ufffd" not in word
    ]
    words += [*unseen_words(), "</s>"]
    expected = np.stack([peer.get_word_vector(word) for word in words])
    assert expected[: len(vectors.words) // 2].any(1).all()
    np.testing.assert_allclose(vectors.vectors(iter(words)), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["lee_fasttext", "pang_lee_polarity_fasttext"])
def test_real_models_give_the_vectors_published_with_them(folder, name):
    """The package refuses the first model, whose file has no version number."""
    lines = (folder / f"{name}.vec").read_bytes().split(b"\n")[1:-1]
    words = [line.split(b" ")[0].decode("utf-8", "surrogateescape") for line in lines]
    expected = np.array([[float(number) for number in line.split()[1:]] for line in lines])
    vectors = FastTextVectors(folder / f"{name}.bin")
    assert vectors.words == words
    np.testing.assert_allclose(vectors.vectors(words), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("min_n", "max_n"), [(1, 3), (0, 1), (3, 6), (4, 2)])
@pytest.mark.parametrize("version", [0, 11, 12])
def test_vectors_follow_the_definition(tmp_path, min_n, max_n, version):
    """The end of a sentence has n-grams only in files without a version number."""
    sizes = {"version": version, "bucket": 13, "min_n": min_n, "max_n": max_n}
    rows = np.random.default_rng(1).standard_normal((len(WORDS) + 13, 5)).astype(np.float32)
    vectors = FastTextVectors(write_model(tmp_path / "a.bin", WORDS, rows, **sizes))
    asked = [*WORDS, *unseen_words(60)]
    expected = np.stack([expected_vector(word, WORDS, rows, **sizes) for word in asked])
    np.testing.assert_allclose(vectors.vectors(asked), expected, atol=1e-6)


def test_old_supervised_models_do_not_spell_and_labels_are_no_words(tmp_path):
    rows = np.arange(10.0, dtype=np.float32).reshape(5, 2)
    sizes = {"bucket": 3, "min_n": 1, "max_n": 3, "model": 3, "labels": ["__label__x"]}
    old = FastTextVectors(write_model(tmp_path / "a.bin", ["a", "b"], rows, version=11, **sizes))
    new = FastTextVectors(write_model(tmp_path / "b.bin", ["a", "b"], rows, version=12, **sizes))
    assert old.vectors(["b", "c", "__label__x"]).tolist() == [[2.0, 3.0], [0.0, 0.0], [0.0, 0.0]]
    assert new.vectors(["c"]).any()


def test_a_large_file_takes_little_memory(tmp_path):
    words = [f"palabra{i}" for i in range(4_000)]
    rows = np.random.default_rng(0).standard_normal((30_000, 170), dtype=np.float32)
    path = write_model(tmp_path / "large.bin", words, rows, bucket=26_000, min_n=3, max_n=6)
    tracemalloc.start()
    try:
        vectors = FastTextVectors(path)
        opened = tracemalloc.get_traced_memory()[0]
        assert opened < 30 * len(words) + 10_000
        tracemalloc.reset_peak()
        found = vectors.vectors(words)
        assert tracemalloc.get_traced_memory()[1] - opened < found.nbytes + 7 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (4, struct.pack("<i", 13), "version 13; this library reads up to 12"),
        (8, struct.pack("<i", 2**31 - 1), "matrix and dictionary do not fit together"),
        (64, struct.pack("<2i", 2**31 - 1, 2**31 - 1), "a dictionary of .* of 2147483647 entries"),
        (84, struct.pack("<q", 2), "a quantised model, which has labels only"),
    ],
)
def test_absurd_headers_are_clear_errors(handmade, place, value, message):
    path = handmade
    data = bytearray(path.read_bytes())
    data[place : place + len(value)] = value
    path.write_bytes(data)
    with pytest.raises(ValueError, match=message):
        FastTextVectors(path).vectors(["sol"])


def test_training_is_silent_and_whole(tmp_path, capfd):
    sentences = [*[["me", "that", "canción"], ["that", "song"]] * 20, ["rare"]]
    settings = {"model": "cbow", "min_count": 20, "bucket": 50, "epochs": 3, "seed": 1}
    path = tmp_path / "new" / "a.bin"
    vectors = FastTextVectors.train(iter(sentences), path, dim=16, **settings)
    assert set(vectors.words) == {"me", "that", "canción", "song", "</s>"}
    words = [*vectors.words, "canciones"]
    peer = fasttext.load_model(str(path))
    expected = np.stack([peer.get_word_vector(word) for word in words])
    assert expected.any(1).all()
    assert np.abs(expected).max() < 10, "a number was left undefined"
    np.testing.assert_allclose(vectors.vectors(words), expected, atol=1e-6)
    assert capfd.readouterr() == ("", "")


def test_a_published_model_comes_through_the_hub(handmade, monkeypatch):
    asked = []

    def fetch(*arguments, **options):
        asked.append((*arguments, options))
        return str(handmade)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetch)
    vectors = FastTextVectors.from_pretrained("es", revision="abc", cache_dir="there")
    options = {"revision": "abc", "cache_dir": "there"}
    assert asked == [("facebook/fasttext-es-vectors", "model.bin", options)]
    assert "sol" in vectors

    def fail(*_arguments, **_options):
        raise LocalEntryNotFoundError("offline")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    message = (
        r"language must name a model that huggingface_hub can fetch "
        r"\(facebook/fasttext-es-vectors\), got 'es' \(offline\). Fetch https://huggingface.co/"
        r"facebook/fasttext-es-vectors/resolve/main/model.bin by other means and open it with "
    )
    refused(FileNotFoundError, message, FastTextVectors.from_pretrained, "es")


def test_labels_are_those_of_the_package(tmp_path: Path):
    (tmp_path / "corpus.txt").write_text("__label__es me gusta\n__label__en that song\n" * 40)
    options = {"dim": 4, "minn": 2, "maxn": 3, "bucket": 300, "thread": 12, "verbose": 0}
    words = ["gusta", "song", "songs", "🙂", "me gusta"]
    peer = fasttext.train_supervised(str(tmp_path / "corpus.txt"), **options)
    peer.quantize()
    peer.save_model(str(tmp_path / "model.ftz"))
    vectors = FastTextVectors(tmp_path / "model.ftz")
    for word, labels in zip(words, vectors.labels(words, k=2), strict=True):
        found = peer.f.predict(word + "\n", 2, 0.0, "strict")
        expected = [(name.removeprefix("__label__"), value) for value, name in found]
        assert list(labels.items()) == expected
    assert vectors.labels(["\ud83d"]) == vectors.labels([""])
    trained = FastTextVectors.train([["a"]] * 5, tmp_path / "a.bin", dim=2, bucket=5)
    refused(ValueError, "supervised", trained.labels, ["me"])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda old, new: old.vectors("sol"), TypeError, "words must be a list of words, got the"),
        (
            lambda old, new: FastTextVectors(new),
            FileNotFoundError,
            "path must name a file, got nothing at .*from_pretrained fetches one",
        ),
        (
            lambda old, new: old.train([["a b"]], new),
            ValueError,
            "sentences must hold words without white space, got 'a b'",
        ),
        (
            lambda old, new: old.train([[word] for word in "abcde"], new, dim=2, bucket=9),
            ValueError,
            "sentences must hold a word 5 times",
        ),
        (
            lambda old, new: old.train([["a"]], new, threads=10),
            ValueError,
            "threads must be at least 11, or .*, got 10",
        ),
    ],
)
def test_what_cannot_be_read_or_trained_leaves_no_file(tmp_path, handmade, call, error, message):
    refused(error, message, call, FastTextVectors(handmade), tmp_path / "new.bin")
    assert [file.name for file in tmp_path.iterdir()] == ["handmade.bin"]
