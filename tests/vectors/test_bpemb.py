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

WORDS = ["Hello", "World", "Don't", "ñandú", "कविता", "2021", "٣", "a b", "", " ", "\u200b", "🙂", "x" * 200, "STRASSE"]


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


@pytest.mark.parametrize("language", ["en", "nl"])
def test_real_models_give_what_the_package_gives(folder, language):
    stem = str(folder / f"bpemb_{language}" / f"{language}.wiki.bpe.vs1000")
    peer = bpemb.BPEmb(model_file=f"{stem}.model", emb_file=f"{stem}.d25.w2v.bin", dim=25)
    vectors = BPEmbVectors(model_file=f"{stem}.model", vectors_file=f"{stem}.d25.w2v.bin")
    np.testing.assert_allclose(vectors.table, peer.vectors, rtol=0, atol=1e-6)
    assert vectors.table.dtype == np.float32
    assert (vectors.num_pieces, vectors.dim) == (1000, 25)
    assert vectors.piece_ids(WORDS) == peer.encode_ids(WORDS)
    assert [vectors.pieces(word) for word in WORDS] == peer.encode(WORDS)
    assert vectors.unknown_id == peer.spm.unk_id()
    expected = [peer.vectors[ids].mean(0) if (ids := peer.encode_ids(word)) else np.zeros(25) for word in WORDS]
    np.testing.assert_allclose(vectors.vectors(WORDS), expected, rtol=0, atol=1e-6)
    assert isinstance(vectors, WordVectors)


def test_an_object_of_the_package_is_accepted(dutch):
    peer = bpemb.BPEmb(model_file=dutch["model_file"], emb_file=dutch["vectors_file"], dim=25, preprocess=False)
    vectors = BPEmbVectors.from_bpemb(peer)
    np.testing.assert_array_equal(vectors.table, peer.vectors)
    assert vectors.pieces("Amsterdam7") == peer.encode("Amsterdam7")
    assert vectors.files() == dutch
    padded = bpemb.BPEmb(model_file=dutch["model_file"], emb_file=dutch["vectors_file"], dim=25, add_pad_emb=True)
    np.testing.assert_array_equal(BPEmbVectors.from_bpemb(padded).table, peer.vectors)
    no_vectors = bpemb.BPEmb(model_file=dutch["model_file"], emb_file=dutch["vectors_file"], segmentation_only=True)
    for value in (no_vectors, "nl"):
        with pytest.raises(TypeError, match=r"bpemb must be a bpemb.BPEmb with vectors, got (BPEmb|str)"):
            BPEmbVectors.from_bpemb(value)


def test_vectors_that_are_not_numbers_are_refused(dutch, tmp_path):
    vectors = BPEmbVectors(**dutch)
    table = vectors.table.copy()
    names = [vectors._bpemb.spm.id_to_piece(i) for i in range(1000)]
    for value in (np.nan, np.inf):
        table[7, 3] = value
        path = write_table(tmp_path / "bad.bin", names, table)
        with pytest.raises(ValueError, match=r"vectors_file must hold finite numbers, got NaN or an infinity in .*bad"):
            BPEmbVectors(model_file=dutch["model_file"], vectors_file=path)


def test_a_string_is_no_list_of_words(dutch):
    with pytest.raises(TypeError, match="words must be a sequence of words, got the string 'hallo'"):
        BPEmbVectors(**dutch).vectors("hallo")


def test_text_and_binary_vectors_are_the_same(dutch):
    binary = BPEmbVectors(**dutch)
    text = BPEmbVectors(model_file=dutch["model_file"], vectors_file=dutch["vectors_file"].with_suffix(".txt"))
    np.testing.assert_allclose(text.table, binary.table, rtol=0, atol=1e-6)


def test_preprocessing_is_optional(dutch):
    cased = BPEmbVectors(**dutch, preprocess=False)
    plain = BPEmbVectors(**dutch)
    assert cased.pieces("Amsterdam7") != plain.pieces("Amsterdam7") == cased.pieces("amsterdam0")
    assert plain.pieces("Amsterdam7")[0].startswith("▁")


def test_no_words_and_what_is_not_text(dutch):
    vectors = BPEmbVectors(**dutch)
    assert vectors.vectors([]).shape == (0, 25)
    assert vectors.piece_ids([]) == []
    assert vectors.piece_ids(["a\ud800", "hallo"])[0] == []
    assert vectors.pieces("a\ud800") == []
    assert not vectors.vectors(["a\ud800", ""]).any()


def write_table(path, names, table):
    rows = b"".join(
        name.encode() + b" " + row.astype("<f4").tobytes() + b"\n" for name, row in zip(names, table, strict=True)
    )
    path.write_bytes(f"{len(names)} {table.shape[1]}\n".encode() + rows)
    return path


def test_rows_follow_the_names_of_the_pieces(dutch, tmp_path):
    right = BPEmbVectors(**dutch)
    names = [right._bpemb.spm.id_to_piece(i) for i in range(1000)]
    order = np.random.default_rng(0).permutation(1000)
    path = write_table(tmp_path / "shuffled.bin", [names[i] for i in order], right.table[order])
    np.testing.assert_array_equal(BPEmbVectors(model_file=dutch["model_file"], vectors_file=path).table, right.table)
    names[7] = "damaged"
    path = write_table(tmp_path / "damaged.bin", names, right.table)
    np.testing.assert_array_equal(BPEmbVectors(model_file=dutch["model_file"], vectors_file=path).table, right.table)


def test_files_that_do_not_belong_together_are_refused(folder, dutch, tmp_path):
    english = folder / "bpemb_en" / "en.wiki.bpe.vs1000.d25.w2v.bin"
    with pytest.raises(
        ValueError, match=r"vectors_file must hold the vectors of the pieces of model_file .*, got \d+ of 1000 in"
    ):
        BPEmbVectors(model_file=dutch["model_file"], vectors_file=english)
    other = folder / "sentencepiece_wiki8k" / "nlwiki.8k.2023-11-17.model"
    with pytest.raises(
        ValueError, match=r"must hold the vectors of the pieces .*, got 1000 rows for 8000 pieces in .*nl"
    ):
        BPEmbVectors(model_file=other, vectors_file=dutch["vectors_file"])


@pytest.mark.parametrize("size", [0, 1, 5, 8, 9, 50, 1000, 105_000, 105_329])
def test_truncated_vectors_are_a_clear_error(dutch, tmp_path, size):
    path = tmp_path / "cut.bin"
    path.write_bytes(dutch["vectors_file"].read_bytes()[:size])
    with pytest.raises(ValueError, match=r"vectors_file must name a whole word2vec .bin or text file, got .*cut\.bin"):
        BPEmbVectors(model_file=dutch["model_file"], vectors_file=path)


@pytest.mark.parametrize(
    "header",
    [b"999999999999 300\n", b"1 999999999999\n", b"9" * 5000 + b" 3\n", b"0 25\n", b"-1 25\n", b"1000 0\n", b"hello\n"],
)
def test_absurd_vectors_are_a_clear_error(dutch, tmp_path, header):
    for name in ("absurd.bin", "absurd.txt"):
        (tmp_path / name).write_bytes(header + b"x" * 1000)
        with pytest.raises(ValueError, match=r"vectors_file must name .*absurd\."):
            BPEmbVectors(model_file=dutch["model_file"], vectors_file=tmp_path / name)


def test_truncated_text_vectors_are_a_clear_error(dutch, tmp_path):
    path = tmp_path / "cut.txt"
    path.write_bytes(dutch["vectors_file"].with_suffix(".txt").read_bytes()[:200_000])
    with pytest.raises(ValueError, match=r"cut\.txt"):
        BPEmbVectors(model_file=dutch["model_file"], vectors_file=path)


@pytest.mark.parametrize("junk", [b"", b"hello world", b"\0" * 1000])
def test_what_is_no_sentencepiece_model_is_a_clear_error(dutch, tmp_path, junk):
    path = tmp_path / "junk.model"
    path.write_bytes(junk)
    with pytest.raises(ValueError, match=r"model_file must name a SentencePiece model, got .*junk\.model"):
        BPEmbVectors(model_file=path, vectors_file=dutch["vectors_file"])


def test_truncated_and_damaged_models_never_crash(dutch, tmp_path):
    whole, path, rng = dutch["model_file"].read_bytes(), tmp_path / "broken.model", random.Random(0)
    for _ in range(40):
        path.write_bytes(whole[: rng.randrange(len(whole))])
        with pytest.raises(ValueError, match=r"broken\.model"):
            BPEmbVectors(model_file=path, vectors_file=dutch["vectors_file"])
        damaged = bytearray(whole)
        damaged[rng.randrange(3000)] = rng.randrange(256)
        path.write_bytes(damaged)
        try:
            BPEmbVectors(model_file=path, vectors_file=dutch["vectors_file"]).vectors(["hallo"])
        except ValueError as error:
            if "broken.model" not in str(error):
                raise


@pytest.mark.parametrize(
    "arguments", [{}, {"lang": "nl", "model_file": "a"}, {"model_file": "a"}, {"vectors_file": "a"}]
)
def test_either_a_language_or_two_files(arguments):
    with pytest.raises(ValueError, match="lang must be given, or else both model_file and vectors_file, got"):
        BPEmbVectors(**arguments)


def test_bad_arguments_are_clear_errors(dutch, tmp_path):
    with pytest.raises(ValueError, match=r"lang must be a Wikipedia code or 'multi', got '\.\./es'"):
        BPEmbVectors("../es")
    with pytest.raises(ValueError, match="dim must be a positive integer"):
        BPEmbVectors("es", dim=0)
    with pytest.raises(FileNotFoundError, match="model_file must name a file"):
        BPEmbVectors(model_file=tmp_path / "no", vectors_file=dutch["vectors_file"])
    with pytest.raises(FileNotFoundError, match="vectors_file must name a file"):
        BPEmbVectors(model_file=dutch["model_file"], vectors_file=tmp_path / "no")


def test_copies_are_rebuilt_from_the_files(dutch):
    vectors = BPEmbVectors(**dutch, preprocess=False)
    for twin in (pickle.loads(pickle.dumps(vectors)), copy.deepcopy(vectors)):
        np.testing.assert_array_equal(twin.vectors(WORDS), vectors.vectors(WORDS))
    assert vectors.files() == dutch
    assert vectors.get_config() == {"preprocess": False}
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
    answers = {MODEL_URL: dutch["model_file"].read_bytes(), VECTORS_URL: archive(dutch["vectors_file"].read_bytes())}
    server = Server(monkeypatch, answers)
    call = {"vocab_size": 1000, "dim": 25, "cache_dir": tmp_path}
    vectors = BPEmbVectors("nl", **call)
    assert server.asked == [MODEL_URL, VECTORS_URL]
    np.testing.assert_array_equal(vectors.table, BPEmbVectors(**dutch).table)
    assert files_in(tmp_path) == ["nl.wiki.bpe.vs1000.d25.w2v.bin", "nl.wiki.bpe.vs1000.model"]
    again = BPEmbVectors("nl", **call)
    assert len(server.asked) == 2
    twin = pickle.loads(pickle.dumps(again))
    np.testing.assert_array_equal(twin.table, vectors.table)
    assert vectors.files()["model_file"] == tmp_path / "nl" / "nl.wiki.bpe.vs1000.model"


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


@pytest.mark.parametrize("fault", ["cut", "cut archive", "two members", "no archive"])
def test_a_broken_download_leaves_nothing(dutch, tmp_path, monkeypatch, fault):
    whole = archive(dutch["vectors_file"].read_bytes())
    answer = {
        "cut": whole[:1000],
        "cut archive": whole[: len(whole) // 2],
        "two members": archive(b"x", names=("a", "b")),
        "no archive": b"<html>",
    }[fault]
    lengths = {VECTORS_URL: len(whole)} if fault == "cut" else {}
    Server(monkeypatch, {MODEL_URL: dutch["model_file"].read_bytes(), VECTORS_URL: answer}, lengths)
    with pytest.raises(FileNotFoundError, match="within reach"):
        BPEmbVectors("nl", vocab_size=1000, dim=25, cache_dir=tmp_path)
    assert files_in(tmp_path) == ["nl.wiki.bpe.vs1000.model"]
    assert [path.name for path in (tmp_path / "nl").iterdir()] == ["nl.wiki.bpe.vs1000.model"]


def test_a_download_that_ends_early_is_no_file(dutch, tmp_path, monkeypatch):
    whole = dutch["model_file"].read_bytes()
    Server(monkeypatch, {MODEL_URL: whole[:1000]}, {MODEL_URL: len(whole)})
    with pytest.raises(FileNotFoundError, match=rf"ended after 1000 of {len(whole)} bytes"):
        BPEmbVectors("nl", vocab_size=1000, dim=25, cache_dir=tmp_path)
    assert files_in(tmp_path) == []


def test_the_cache_is_where_the_package_keeps_it(dutch, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    Server(
        monkeypatch,
        {MODEL_URL: dutch["model_file"].read_bytes(), VECTORS_URL: archive(dutch["vectors_file"].read_bytes())},
    )
    BPEmbVectors("nl", vocab_size=1000, dim=25)
    assert len(files_in(tmp_path / ".cache" / "bpemb" / "nl")) == 2
