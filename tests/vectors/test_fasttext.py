import copy
import multiprocessing
import pickle
import random
import re
import struct
import sys
import tracemalloc
from pathlib import Path

import fasttext
import huggingface_hub
import numpy as np
import pytest
from checks import refused
from huggingface_hub.errors import LocalEntryNotFoundError

from polyembed.vectors import FastTextVectors, WordVectors
from polyembed.vectors.fasttext import CHUNK_BYTES

MODELS = ["crime-and-punishment", "lee_fasttext_new", "pang_lee_polarity_fasttext"]
WORDS = ["sol", "año", "</s>", "солнце"]
MAGIC = struct.pack("<2i", 793712314, 12)


def unseen_words(count=250):
    rng = random.Random(0)
    ranges = [(32, 127), (0xA0, 0x600), (0x900, 0x980), (0x4E00, 0x9FFF), (0x1F300, 0x1F600)]
    made = [
        "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(rng.randrange(1, 12)))
        for _ in range(count)
    ]
    return [
        "",
        "a",
        "ä",
        "中",
        "<",
        ">",
        "<>",
        "a b",
        "a\0b",
        "\u200b",
        "🙂",
        "👨‍👩‍👧",
        "x" * 700,
        "é" * 300,
        *made,
    ]


def is_text(word):
    return not any("\ud800" <= character <= "\udfff" for character in word)


def write_model(
    path, words, rows, *, version=12, bucket, min_n, max_n, pruned=None, model=2, labels=()
):
    """Write a model by hand, from the description of the format."""
    dim = rows.shape[1]
    entries = [*((word, 0) for word in words), *((label, 1) for label in labels)]
    parts = [struct.pack("<2i", 793712314, version)] if version else []
    parts.append(
        struct.pack("<12id", dim, 5, 5, 1, 5, 1, 1, model, bucket, min_n, max_n, 100, 1e-4)
    )
    parts.append(struct.pack("<3iq", len(entries), len(words), len(labels), 99))
    if version:
        parts.append(struct.pack("<q", -1 if pruned is None else len(pruned)))
    parts += [word.encode() + b"\0" + struct.pack("<qb", 7, kind) for word, kind in entries]
    parts += [struct.pack("<2i", *pair) for pair in (pruned or {}).items()]
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


def expected_vector(word, words, rows, *, bucket, min_n, max_n, pruned=None):
    """The mean of a word's rows, by the definition."""
    ids = [words.index(word)] if word in words else []
    spelled = f"<{word}>" if word != "</s>" else ""
    for start in range(len(spelled)):
        for n in range(max(min_n, 1), max_n + 1):
            ngram = spelled[start : start + n]
            if len(ngram) < n or (n == 1 and start in (0, len(spelled) - 1)):
                continue
            number = fnv1a(ngram) % bucket
            row = number if pruned is None else pruned.get(number)
            ids += [] if row is None else [len(words) + row]
    return np.mean([rows[i] for i in ids], axis=0) if ids else np.zeros(rows.shape[1])


@pytest.fixture(scope="module")
def folder(data_folder):
    return data_folder / "vectors" / "fasttext"


@pytest.fixture
def handmade(tmp_path):
    sizes = {"bucket": 11, "min_n": 1, "max_n": 3}
    rows = np.random.default_rng(0).standard_normal((len(WORDS) + 11, 3)).astype(np.float32)
    return write_model(tmp_path / "handmade.bin", WORDS, rows, **sizes), WORDS, rows, sizes


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
    assert expected[: len(vectors) // 2].any(1).all()
    np.testing.assert_allclose(vectors.vectors(words), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["lee_fasttext", "pang_lee_polarity_fasttext"])
def test_real_models_give_the_vectors_published_with_them(folder, name):
    """The package refuses the first, whose file has no version number."""
    lines = (folder / f"{name}.vec").read_bytes().split(b"\n")[1:-1]
    words = [line.split(b" ")[0].decode("utf-8", "surrogateescape") for line in lines]
    expected = np.array([[float(number) for number in line.split()[1:]] for line in lines])
    vectors = FastTextVectors(folder / f"{name}.bin")
    assert vectors.words == words
    np.testing.assert_allclose(vectors.vectors(words), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("min_n", "max_n", "pruned"),
    [
        (1, 3, None),
        (0, 1, None),
        (3, 6, None),
        (4, 2, None),
        (1, 3, {}),
        (1, 3, {7: 1, 2: 0, 10: 2}),
    ],
)
def test_vectors_follow_the_definition(tmp_path, min_n, max_n, pruned):
    """A pruned model knows the n-grams that it kept."""
    sizes = {"bucket": 13, "min_n": min_n, "max_n": max_n, "pruned": pruned}
    num_ngrams = 13 if pruned is None else len(pruned)
    rows = np.random.default_rng(1).standard_normal((len(WORDS) + num_ngrams, 5)).astype(np.float32)
    vectors = FastTextVectors(write_model(tmp_path / "a.bin", WORDS, rows, **sizes))
    for asked in (["a"], [*WORDS, *unseen_words(60)]):
        expected = np.stack([expected_vector(word, WORDS, rows, **sizes) for word in asked])
        np.testing.assert_allclose(vectors.vectors(asked), expected, atol=1e-6)


def test_the_sentence_end_is_spelled_only_in_files_without_version(tmp_path):
    words, sizes = ["</s>", "a"], {"bucket": 7, "min_n": 2, "max_n": 3}
    rows = np.random.default_rng(3).standard_normal((9, 2)).astype(np.float32)
    new = FastTextVectors(write_model(tmp_path / "new.bin", words, rows, **sizes))
    old = FastTextVectors(write_model(tmp_path / "old.bin", words, rows, version=0, **sizes))
    np.testing.assert_array_equal(new.vectors(["</s>"])[0], rows[0])
    ngrams = [ngram for n in (2, 3) for ngram in ("<</s>>"[i : i + n] for i in range(7 - n))]
    expected = np.mean([rows[0], *(rows[2 + fnv1a(ngram) % 7] for ngram in ngrams)], axis=0)
    np.testing.assert_allclose(old.vectors(["</s>"])[0], expected, atol=1e-6)


def test_old_supervised_models_do_not_spell_and_labels_are_no_words(tmp_path):
    rows = np.arange(10.0, dtype=np.float32).reshape(5, 2)
    sizes = {"bucket": 3, "min_n": 1, "max_n": 3, "model": 3, "labels": ["__label__x"]}
    old = FastTextVectors(write_model(tmp_path / "a.bin", ["a", "b"], rows, version=11, **sizes))
    new = FastTextVectors(write_model(tmp_path / "b.bin", ["a", "b"], rows, version=12, **sizes))
    assert old.vectors(["b", "c", "__label__x"]).tolist() == [[2.0, 3.0], [0.0, 0.0], [0.0, 0.0]]
    assert new.vectors(["c"]).any()
    assert "__label__x" not in old
    assert old.words == ["a", "b"]


@pytest.mark.parametrize(("qnorm", "cutoff"), [(False, 0), (True, 700)])
def test_quantised_models_give_what_the_package_gives(tmp_path, qnorm, cutoff):
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefgé", k=5)) for _ in range(400)]
    corpus = "".join(f"__label__{i % 3} {' '.join(rng.choices(words, k=10))}\n" for i in range(300))
    (tmp_path / "corpus.txt").write_text(corpus, "utf-8")
    options = {
        "dim": 10,
        "minn": 2,
        "maxn": 4,
        "bucket": 3000,
        "thread": 10,
        "verbose": 0,
        "epoch": 2,
    }
    peer = fasttext.train_supervised(str(tmp_path / "corpus.txt"), **options)
    peer.quantize(qnorm=qnorm, cutoff=cutoff, dsub=3)
    peer.save_model(str(tmp_path / "model.ftz"))
    asked = [*words, *unseen_words(50)]
    expected = np.stack([peer.get_word_vector(word) for word in asked])
    assert expected.any(1).sum() > 300
    np.testing.assert_allclose(
        FastTextVectors(tmp_path / "model.ftz").vectors(asked), expected, rtol=0, atol=1e-6
    )


def test_no_words_repeated_words_and_what_is_not_text(handmade):
    vectors = FastTextVectors(handmade[0])
    assert isinstance(vectors, WordVectors)
    assert vectors.vectors([]).shape == (0, 3)
    assert vectors.vectors([]).dtype == np.float32
    twice = vectors.vectors(["sol", "x", "sol", "a\ud800"])
    np.testing.assert_array_equal(twice[0], twice[2])
    assert not twice[3].any()
    assert len(vectors) == 4
    assert [word in vectors for word in ("año", "\ud800", 3)] == [True, False, False]


def test_a_word_has_one_vector_whatever_is_asked_with_it(handmade):
    vectors = FastTextVectors(handmade[0])
    words = [f"palabra{i}" for i in range(2 * CHUNK_BYTES // 10)]
    together = vectors.vectors(words)
    for i in (0, len(words) // 2, len(words) - 1):
        np.testing.assert_array_equal(together[i], vectors.vectors([words[i]])[0])


def test_words_are_told_apart_where_their_hashes_are_one(handmade, monkeypatch):
    path, words, rows, sizes = handmade
    asked = [*words, "luna", "so", "sola", "", "año\0", "\ud800"]
    expected = FastTextVectors(path).vectors(asked)
    monkeypatch.setattr("polyembed.vectors._fasttext_file.hash", lambda word: -7, raising=False)
    vectors = FastTextVectors(path)
    assert [word in vectors for word in asked] == [True] * 4 + [False] * 6
    assert vectors.words == words
    np.testing.assert_array_equal(vectors.vectors(asked), expected)
    vectors = FastTextVectors(write_model(path, ["", "sol"], rows, **sizes))
    assert [word in vectors for word in ("", "sol", "\ud800")] == [True, True, False]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_that_of_the_rows_asked_for(tmp_path):
    """Each word takes some bytes; a few rows more are held than asked for; pages of the file go again."""
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
    entries = re.split(r"^(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    (entry,) = [entry for entry in entries if str(path) in entry]
    assert int(re.search(r"Rss: +(\d+) kB", entry)[1]) < 1024
    np.testing.assert_array_equal(vectors.vectors(words[:5]), found[:5])


def test_words_that_are_not_utf8_go_round(handmade):
    path = handmade[0]
    path.write_bytes(path.read_bytes().replace("año".encode(), b"a\xf1oo"))
    vectors = FastTextVectors(path)
    assert vectors.words[1] == "a\udcf1oo"
    assert vectors.words[1] in vectors
    assert vectors.vectors(vectors.words[1:2]).any()


def test_worker_processes_open_the_file_themselves(handmade, recwarn):
    vectors = FastTextVectors(handmade[0])
    with multiprocessing.get_context("fork").Pool(1) as pool:
        np.testing.assert_array_equal(
            pool.apply(vectors.vectors, (["sol", "x"],)), vectors.vectors(["sol", "x"])
        )


def test_copies_are_rebuilt_from_the_file(handmade, monkeypatch):
    monkeypatch.chdir(handmade[0].parent)
    vectors = FastTextVectors("handmade.bin")
    stored = pickle.dumps(vectors)
    assert len(stored) < 500
    monkeypatch.chdir("/")
    for twin in (pickle.loads(stored), copy.deepcopy(vectors)):
        np.testing.assert_array_equal(
            twin.vectors(["sol", "luna"]), vectors.vectors(["sol", "luna"])
        )
    assert (vectors.files(), vectors.get_config()) == ({"path": handmade[0]}, {})
    assert repr(vectors) == f"FastTextVectors(path={str(handmade[0])!r})"


@pytest.mark.parametrize("version", [0, 12])
def test_every_truncation_is_a_clear_error(tmp_path, handmade, version):
    _, words, rows, sizes = handmade
    whole = write_model(tmp_path / "whole.bin", words, rows, version=version, **sizes).read_bytes()
    path = tmp_path / "cut.bin"
    for size in range(0, len(whole), 3):
        path.write_bytes(whole[:size])
        with pytest.raises(
            ValueError, match=r"path must name a whole fastText .bin or .ftz file, got .*cut\.bin"
        ):
            FastTextVectors(path)


@pytest.mark.parametrize("name", ["lee_fasttext_new", "non_ascii_fasttext"])
def test_truncated_and_damaged_real_models_never_crash(folder, tmp_path, name):
    whole, path, rng = (
        (folder / f"{name}.bin").read_bytes(),
        tmp_path / "broken.bin",
        random.Random(0),
    )
    for _ in range(30):
        path.write_bytes(whole[: rng.randrange(len(whole))])
        with pytest.raises(ValueError, match=r"broken\.bin"):
            FastTextVectors(path)
        damaged = bytearray(whole)
        damaged[rng.randrange(200)] = rng.randrange(256)
        path.write_bytes(damaged)
        try:
            FastTextVectors(path).vectors(["hello", "жизнь"])
        except ValueError as error:
            if "broken.bin" not in str(error):
                raise


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, struct.pack("<i", 793712315), "no fastText header|bytes expected"),
        (4, struct.pack("<i", 13), "version 13; this library reads up to 12"),
        (8, struct.pack("<i", 2**31 - 1), "matrix and dictionary do not fit together"),
        (8, struct.pack("<i", 0), "no fastText header: dim 0"),
        (64, struct.pack("<2i", 2**31 - 1, 2**31 - 1), "a dictionary of .* of 2147483647 entries"),
        (64, struct.pack("<i", -1), "a dictionary of -1 entries"),
        (84, struct.pack("<q", 2**62), "bytes expected at byte"),
        ("matrix", struct.pack("<2q", 2**61, 2**61), r"handmade\.bin"),
        ("matrix", struct.pack("<2q", -1, 3), r"a size of -1 before byte"),
        ("matrix", struct.pack("<2q", 2**62, 0), r"handmade\.bin"),
    ],
)
def test_absurd_headers_are_clear_errors(handmade, place, value, message):
    path, _, rows, _ = handmade
    data = bytearray(path.read_bytes())
    place = data.index(struct.pack("<2q", *rows.shape)) if place == "matrix" else place
    data[place : place + len(value)] = value
    path.write_bytes(data)
    with pytest.raises(ValueError, match=message):
        FastTextVectors(path)


@pytest.mark.parametrize(
    "matrix",
    [
        b"\0" + struct.pack("<2q", 0, 2**31 - 1) + b"\0" + struct.pack("<2q", 0, 2**31 - 1),
        b"\1" + struct.pack("<?qqi4i", False, 0, 2**31 - 1, 0, 2**31 - 1, 2**31 - 1, 1, 1),
        b"\1" + struct.pack("<?qqi4i", False, 1, 2**31 - 1, 0, 2**31 - 1, 1, 2**31 - 1, 2**31 - 1),
    ],
    ids=["no rows", "many slices", "one slice"],
)
def test_a_small_file_does_not_allocate_much(tmp_path, matrix):
    path = tmp_path / "small.ftz"
    arguments = struct.pack("<12id", 2**31 - 1, 5, 5, 1, 5, 1, 1, 2, 0, 0, 0, 100, 1e-4)
    path.write_bytes(MAGIC + arguments + struct.pack("<3iqq", 0, 0, 0, 0, -1) + matrix)
    tracemalloc.start()
    try:
        with pytest.raises(
            ValueError, match=r"path must name a whole fastText .bin or .ftz file, got .*small\.ftz"
        ):
            FastTextVectors(path).vectors(["sol"])
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dim", [3, 16])
def test_training_is_silent_and_whole(tmp_path, capfd, dim):
    sentences = [["me", "gusta", "that", "canción"], ["that", "song"]] * 20
    settings = {"dim": dim, "model": "cbow", "min_count": 20, "bucket": 50, "epochs": 3, "seed": 1}
    vectors = FastTextVectors.train(
        iter([*sentences, ["rare"]]), tmp_path / "new" / "a.bin", **settings
    )
    assert set(vectors.words) == {"me", "gusta", "that", "canción", "song", "</s>"}
    words = [*vectors.words, "canciones"]
    peer = fasttext.load_model(str(tmp_path / "new" / "a.bin"))
    expected = np.stack([peer.get_word_vector(word) for word in words])
    assert expected.any(1).all()
    assert np.abs(expected).max() < 10, "a number was left undefined"
    np.testing.assert_allclose(vectors.vectors(words), expected, atol=1e-6)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["new", "new/a.bin"]
    assert capfd.readouterr() == ("", "")


def test_a_training_that_dies_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("polyembed.vectors.training.TRAINING", "raise SystemExit('out of luck')")
    with pytest.raises(
        RuntimeError, match=r"the fasttext package must finish its work, got 1 \(out of luck\)"
    ):
        FastTextVectors.train([["a"] * 9], tmp_path / "a.bin")
    assert not list(tmp_path.iterdir())


def test_a_published_model_comes_through_the_hub(handmade, monkeypatch):
    asked = []

    def fetch(repo_id, filename, **options):
        asked.append((repo_id, filename, options))
        return str(handmade[0])

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetch)
    vectors = FastTextVectors.from_pretrained("es", revision="abc", cache_dir="there")
    assert asked == [
        ("facebook/fasttext-es-vectors", "model.bin", {"revision": "abc", "cache_dir": "there"})
    ]
    assert "sol" in vectors


def test_a_model_out_of_reach_says_how_to_get_it(monkeypatch):
    def fetch(*_args, **_options):
        raise LocalEntryNotFoundError("offline")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetch)
    message = (
        r"language must name a model that huggingface_hub can fetch \(model.bin of facebook/fasttext-es-vectors\), "
        r"got 'es' \(offline\). Fetch https://huggingface.co/facebook/fasttext-es-vectors/resolve/main/model.bin by "
        r"other means and open it with FastTextVectors\(path\)"
    )
    with pytest.raises(FileNotFoundError, match=message):
        FastTextVectors.from_pretrained("es")


def test_other_errors(handmade, tmp_path):
    path, words, rows, sizes = handmade
    with pytest.raises(TypeError, match="words must be a sequence of words, got the string 'sol'"):
        FastTextVectors(path).vectors("sol")
    with pytest.raises(
        FileNotFoundError,
        match=r"path must name a file, got nothing at .*from_pretrained fetches one",
    ):
        FastTextVectors(tmp_path / "cc.es.300.bin")
    write_model(path, words, rows, pruned={1: 5}, **sizes)
    with pytest.raises(ValueError, match="an n-gram without a row"):
        FastTextVectors(path)


@pytest.mark.parametrize(
    ("sentences", "options", "error", "message"),
    [
        (
            [],
            {},
            ValueError,
            "sentences must hold a word that occurs at least 5 times, got 0 words",
        ),
        (
            [[], [""]],
            {},
            ValueError,
            "sentences must hold a word that occurs at least 5 times, got 0 words",
        ),
        (
            [["a", "b"]],
            {},
            ValueError,
            "sentences must hold a word that occurs at least 5 times, got 2 words",
        ),
        ([["a b"]], {}, ValueError, "sentences must hold words without white space, got 'a b'"),
        (
            [["\ud800"]],
            {},
            ValueError,
            r"sentences must hold words that UTF-8 can write, got '\\ud800'",
        ),
        (["abc"], {}, TypeError, "sentences must be lists of words, got the string 'abc'"),
        (
            [["a"]],
            {"model": "sup"},
            ValueError,
            "model must be one of 'skipgram', 'cbow', got 'sup'",
        ),
        ([["a"]], {"dim": 0}, ValueError, "dim must be a positive integer, got 0"),
        ([["a"]], {"threads": 10}, ValueError, r"threads must be at least 11, or .*, got 10"),
        ([["a"]], {"min_n": -1}, ValueError, "min_n and max_n must not be negative"),
    ],
)
def test_a_training_that_cannot_be_leaves_what_was_there(
    tmp_path, sentences, options, error, message
):
    path = tmp_path / "a.bin"
    path.write_bytes(b"before")
    with pytest.raises(error, match=message):
        FastTextVectors.train(sentences, path, **options)
    assert [file.name for file in tmp_path.iterdir()] == ["a.bin"]
    assert path.read_bytes() == b"before"


def test_labels_are_those_of_the_package(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("__label__es me gusta\n__label__en that song\n" * 40)
    peer = fasttext.train_supervised(
        str(tmp_path / "corpus.txt"), dim=4, minn=2, maxn=3, bucket=50, thread=12, verbose=0
    )
    peer.save_model(str(tmp_path / "model.bin"))
    vectors = FastTextVectors(tmp_path / "model.bin")
    words = ["gusta", "song", "songs", "🙂", "me gusta"]
    found = vectors.labels(words, k=2)
    for word, labels in zip(words, found, strict=True):
        expected = peer.f.predict(word + "\n", 2, 0.0, "strict")
        assert labels == {label.removeprefix("__label__"): value for value, label in expected}
        assert list(labels.values()) == sorted(labels.values(), reverse=True)
    assert [list(each) for each in vectors.labels(["gusta", "song"])] == [["es"], ["en"]]
    refused(ValueError, "words must hold words of one line", vectors.labels, ["me\ngusta"])
    refused(ValueError, "words must hold words of one line", vectors.labels, ["\ud800"])
    refused(ValueError, "k must be", vectors.labels, ["me"], k=0)


def test_labels_of_a_model_without_any(tmp_path: Path) -> None:
    vectors = FastTextVectors.train(
        [["me", "gusta"]] * 5, tmp_path / "model.bin", dim=2, min_count=1, bucket=5
    )
    refused(RuntimeError, "supervised", vectors.labels, ["me"])
