import copy
import io
import pickle
import random
import tarfile

import bpemb
import numpy as np
import pytest
from network import Server

from polyembed.vectors import BPEmbVectors, WordVectors

WORDS = [
    "Hello",
    "World",
    "Don't",
    "ñandú",
    "कविता",
    "2021",
    "٣",
    "a b",
    "",
    " ",
    "\u200b",
    "🙂",
    "x" * 200,
    "STRASSE",
]


@pytest.fixture(scope="module")
def folder(data_folder):
    return data_folder / "subwords"


@pytest.fixture
def dutch(folder):
    stem = folder / "bpemb_nl" / "nl.wiki.bpe.vs1000"
    return {
        "model_file": stem.with_name(f"{stem.name}.model"),
        "vectors_file": stem.with_name(f"{stem.name}.d25.w2v.bin"),
    }


def test_real_models_give_what_the_package_gives(folder):
    stem = str(folder / "bpemb_en" / "en.wiki.bpe.vs1000")
    peer = bpemb.BPEmb(model_file=f"{stem}.model", emb_file=f"{stem}.d25.w2v.bin", dim=25)
    vectors = BPEmbVectors(model_file=f"{stem}.model", vectors_file=f"{stem}.d25.w2v.bin")
    np.testing.assert_allclose(vectors.table, peer.vectors, rtol=0, atol=1e-6)
    assert vectors.table.dtype == np.float32
    assert (vectors.num_pieces, vectors.dim) == (1000, 25)
    assert vectors.piece_ids(WORDS) == peer.encode_ids(WORDS)
    assert [vectors.pieces(word) for word in WORDS] == peer.encode(WORDS)
    assert vectors.unknown_id == peer.spm.unk_id()
    expected = [
        peer.vectors[ids].mean(0) if (ids := peer.encode_ids(word)) else np.zeros(25)
        for word in WORDS
    ]
    np.testing.assert_allclose(vectors.vectors(WORDS), expected, rtol=0, atol=1e-6)
    assert isinstance(vectors, WordVectors)


def test_an_object_of_the_package_is_accepted(dutch):
    files = {"model_file": dutch["model_file"], "emb_file": dutch["vectors_file"]}
    vectors = BPEmbVectors.from_bpemb(
        bpemb.BPEmb(**files, dim=25, preprocess=False, add_pad_emb=True)
    )
    np.testing.assert_array_equal(vectors.table, BPEmbVectors(**dutch).table)
    assert (vectors.files(), vectors.get_config()) == (dutch, {"preprocess": False})
    for value in (bpemb.BPEmb(**files, segmentation_only=True), "nl"):
        with pytest.raises(
            TypeError, match=r"bpemb must be a bpemb.BPEmb with vectors, got (BPEmb|str)"
        ):
            BPEmbVectors.from_bpemb(value)


def write_table(path, names, table):
    rows = b"".join(
        name.encode() + b" " + row.astype("<f4").tobytes() + b"\n"
        for name, row in zip(names, table, strict=True)
    )
    path.write_bytes(f"{len(names)} {table.shape[1]}\n".encode() + rows)
    return path


def test_rows_follow_the_names_of_the_pieces(dutch, tmp_path):
    """As text or not; a few names may be damaged, in which case the order tells."""
    right = BPEmbVectors(**dutch)
    text = BPEmbVectors(
        model_file=dutch["model_file"], vectors_file=dutch["vectors_file"].with_suffix(".txt")
    )
    np.testing.assert_allclose(text.table, right.table, rtol=0, atol=1e-6)
    names = [right._bpemb.spm.id_to_piece(i) for i in range(1000)]
    order = np.random.default_rng(0).permutation(1000)
    path = write_table(tmp_path / "shuffled.bin", [names[i] for i in order], right.table[order])
    np.testing.assert_array_equal(
        BPEmbVectors(model_file=dutch["model_file"], vectors_file=path).table, right.table
    )
    names[7] = "damaged"
    path = write_table(tmp_path / "damaged.bin", names, right.table)
    np.testing.assert_array_equal(
        BPEmbVectors(model_file=dutch["model_file"], vectors_file=path).table, right.table
    )
    path = write_table(tmp_path / "nan.bin", names, np.full_like(right.table, np.nan))
    with pytest.raises(
        ValueError, match=r"vectors_file must hold finite numbers, got NaN or an infinity in .*nan"
    ):
        BPEmbVectors(model_file=dutch["model_file"], vectors_file=path)


@pytest.mark.parametrize(
    "header", [b"999999999999 300", b"1 999999999999", b"9" * 5000 + b" 3", b"0 25", b"-1 25"]
)
@pytest.mark.parametrize("name", ["absurd.bin", "absurd.txt"])
def test_absurd_vectors_are_a_clear_error(dutch, tmp_path, header, name):
    (tmp_path / name).write_bytes(header + b"\n" + b"x" * 1000)
    with pytest.raises(ValueError, match=r"vectors_file must name .*absurd\."):
        BPEmbVectors(model_file=dutch["model_file"], vectors_file=tmp_path / name)


@pytest.mark.parametrize("size", [0, 8, 50, 105_329, 200_000])
def test_truncated_vectors_are_a_clear_error(dutch, tmp_path, size):
    whole = dutch["vectors_file"].with_suffix(".txt") if size == 200_000 else dutch["vectors_file"]
    path = tmp_path / f"cut{whole.suffix}"
    path.write_bytes(whole.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"vectors_file must .*cut\."):
        BPEmbVectors(model_file=dutch["model_file"], vectors_file=path)


def test_truncated_and_damaged_models_never_crash(dutch, tmp_path):
    whole, path, rng = dutch["model_file"].read_bytes(), tmp_path / "broken.model", random.Random(0)
    for content in (
        b"",
        b"hello world",
        b"\0" * 1000,
        *(whole[: rng.randrange(len(whole))] for _ in range(20)),
    ):
        path.write_bytes(content)
        with pytest.raises(
            ValueError, match=r"model_file must name a SentencePiece model, got .*broken"
        ):
            BPEmbVectors(model_file=path, vectors_file=dutch["vectors_file"])
    for _ in range(20):
        damaged = bytearray(whole)
        damaged[rng.randrange(3000)] = rng.randrange(256)
        path.write_bytes(damaged)
        try:
            BPEmbVectors(model_file=path, vectors_file=dutch["vectors_file"]).vectors(["hallo"])
        except ValueError as error:
            if "broken.model" not in str(error):
                raise


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "lang must be given, or else both model_file and vectors_file, got"),
        ({"lang": "nl", "model_file": "a"}, ValueError, "lang must be given, or else both"),
        ({"vectors_file": "a"}, ValueError, "lang must be given, or else both"),
        ({"lang": "../es"}, ValueError, r"lang must be a Wikipedia code or 'multi', got '\.\./es'"),
        ({"lang": "es", "dim": 0}, ValueError, "dim must be a positive integer"),
        (
            {"model_file": "no", "vectors_file": "{nl}"},
            FileNotFoundError,
            "model_file must name a file",
        ),
        (
            {"model_file": "{model}", "vectors_file": "no"},
            FileNotFoundError,
            "vectors_file must name a file",
        ),
        (
            {"model_file": "{model}", "vectors_file": "{en}"},
            ValueError,
            r"the pieces of .*, got \d+ of 1000",
        ),
        (
            {"model_file": "{large}", "vectors_file": "{nl}"},
            ValueError,
            "got 1000 rows for 8000 pieces in .*nl",
        ),
    ],
)
def test_bad_arguments_are_clear_errors(folder, dutch, arguments, error, message):
    files = {
        "model": dutch["model_file"],
        "nl": dutch["vectors_file"],
        "en": folder / "bpemb_en" / "en.wiki.bpe.vs1000.d25.w2v.bin",
        "large": folder / "sentencepiece_wiki8k" / "nlwiki.8k.2023-11-17.model",
    }
    arguments = {
        name: value.format(**files) if isinstance(value, str) else value
        for name, value in arguments.items()
    }
    with pytest.raises(error, match=message):
        BPEmbVectors(**arguments)
    with pytest.raises(
        TypeError, match="words must be a sequence of words, got the string 'hallo'"
    ):
        BPEmbVectors(**dutch).vectors("hallo")


def test_copies_are_rebuilt_from_the_files(dutch):
    vectors = BPEmbVectors(**dutch, preprocess=False)
    for twin in (pickle.loads(pickle.dumps(vectors)), copy.deepcopy(vectors)):
        np.testing.assert_array_equal(twin.vectors(WORDS), vectors.vectors(WORDS))
    assert repr(vectors).startswith("BPEmbVectors(model_file='")
    assert repr(vectors).endswith("preprocess=False)")


def archive(data, names=("data/nl/nl.wiki.bpe.vs1000.d25.w2v.bin",)):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


MODEL_URL = "https://bpemb.h-its.org/nl/nl.wiki.bpe.vs1000.model"
VECTORS_URL = "https://bpemb.h-its.org/nl/nl.wiki.bpe.vs1000.d25.w2v.bin.tar.gz"


def files_in(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_language_is_fetched_once(dutch, tmp_path, monkeypatch):
    answers = {
        MODEL_URL: dutch["model_file"].read_bytes(),
        VECTORS_URL: archive(dutch["vectors_file"].read_bytes()),
    }
    server = Server(monkeypatch, answers)
    monkeypatch.setenv("HOME", str(tmp_path))  # where the package keeps its cache
    vectors = BPEmbVectors("nl", vocab_size=1000, dim=25)
    assert server.asked == [MODEL_URL, VECTORS_URL]
    np.testing.assert_array_equal(vectors.table, BPEmbVectors(**dutch).table)
    cache = tmp_path / ".cache" / "bpemb"
    assert files_in(cache / "nl") == ["nl.wiki.bpe.vs1000.d25.w2v.bin", "nl.wiki.bpe.vs1000.model"]
    again = BPEmbVectors("nl", vocab_size=1000, dim=25, cache_dir=cache)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(again)).table, vectors.table)
    assert len(server.asked) == 2


def test_the_multilingual_model_has_its_own_place(tmp_path, monkeypatch):
    server = Server(monkeypatch, {})
    with pytest.raises(FileNotFoundError):
        BPEmbVectors("multi", vocab_size=100000, dim=300, cache_dir=tmp_path)
    assert server.asked == ["https://bpemb.h-its.org/multi/multi/multi.wiki.bpe.vs100000.model"]


def test_out_of_reach_says_how_to_get_the_files(tmp_path, monkeypatch):
    Server(monkeypatch, {})
    message = (
        r"lang must name a language that BPEmb has with vocab_size 1000 and dim 25, within reach, "
        r"got 'nl' \(.*no network.*\). "
        rf"Fetch {MODEL_URL} and {VECTORS_URL} by other means, unpack the latter, "
        r"and open them with BPEmbVectors\(model_file=..., vectors_file=...\)"
    )
    with pytest.raises(FileNotFoundError, match=message):
        BPEmbVectors("nl", vocab_size=1000, dim=25, cache_dir=tmp_path)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("fault", ["cut model", "cut", "cut archive", "two members", "no archive"])
def test_a_broken_download_leaves_nothing(dutch, tmp_path, monkeypatch, fault):
    model, whole = dutch["model_file"].read_bytes(), archive(dutch["vectors_file"].read_bytes())
    answer = {
        "cut": whole[:1000],
        "cut archive": whole[: len(whole) // 2],
        "two members": archive(b"x", names=("a", "b")),
        "no archive": b"<html>",
    }.get(fault, whole)
    cut = fault == "cut model"
    lengths = {MODEL_URL: len(model), **({VECTORS_URL: len(whole)} if fault == "cut" else {})}
    Server(monkeypatch, {MODEL_URL: model[:1000] if cut else model, VECTORS_URL: answer}, lengths)
    rule = rf"ended after 1000 of {len(model)} bytes" if cut else "within reach"
    with pytest.raises(FileNotFoundError, match=rule):
        BPEmbVectors("nl", vocab_size=1000, dim=25, cache_dir=tmp_path)
    assert [path.name for path in (tmp_path / "nl").iterdir()] == ["nl.wiki.bpe.vs1000.model"] * (
        not cut
    )


def test_no_words_what_is_not_text_and_cased_words(dutch):
    vectors, cased = BPEmbVectors(**dutch), BPEmbVectors(**dutch, preprocess=False)
    assert vectors.vectors([]).shape == (0, 25)
    assert vectors.piece_ids(["a\ud800"]) == [[]]
    assert not vectors.vectors(["a\ud800", ""]).any()
    assert cased.pieces("Amsterdam7") != vectors.pieces("Amsterdam7") == cased.pieces("amsterdam0")
