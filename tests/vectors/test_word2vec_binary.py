import copy
import gzip
import pickle
import struct
import tracemalloc

import numpy as np
import pytest
import torch

import polyembed as pe
from polyembed.vectors import FastTextVectors, TextVectors, Word2VecBinaryVectors, WordVectors

WORDS = ["hola", "ñandú", "कविता", "\u00a0", "a\tb", "🙂", "</s>"]
NEW = "palabra"
RULE = r"^path must name a whole word2vec \.bin file, got .*file\.bin "


def rows_of(count, dim=5):
    return np.random.default_rng(0).normal(size=(count, dim)).astype(np.float32)


def encode(words, rows, *, end=b"\n", header=None):
    """Write the format by hand."""
    parts = [b"%d %d\n" % (header or rows.shape)]
    for word, row in zip(words, rows, strict=True):
        parts += [
            word if isinstance(word, bytes) else word.encode(),
            b" ",
            struct.pack(f"<{len(row)}f", *row),
            end,
        ]
    return b"".join(parts)


@pytest.fixture
def write(tmp_path):
    def write_file(data, name="file.bin"):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write_file


@pytest.mark.parametrize("end", [b"\n", b""])
def test_every_word_has_its_row(write, end):
    rows = rows_of(len(WORDS))
    vectors = Word2VecBinaryVectors(write(encode(WORDS, rows, end=end)))
    assert isinstance(vectors, WordVectors)
    assert (vectors.dim, len(vectors), vectors.words) == (5, len(WORDS), WORDS)
    found = vectors.vectors([*WORDS[::-1], "adiós", "", WORDS[0]])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [*rows[::-1], *np.zeros((2, 5)), rows[0]])
    assert vectors.vectors([]).shape == (0, 5)


def test_the_last_line_feed_may_be_missing(write):
    data = encode(WORDS, rows_of(len(WORDS)))
    whole, cut = (
        Word2VecBinaryVectors(write(data)),
        Word2VecBinaryVectors(write(data[:-1], "cut.bin")),
    )
    np.testing.assert_array_equal(cut.vectors(WORDS), whole.vectors(WORDS))


@pytest.mark.parametrize("end", [b"\n", b""])
def test_numbers_may_look_like_spaces_and_line_feeds(write, end):
    """The bytes of the numbers are 0x20 and 0x0a throughout."""
    spaces, feeds = struct.unpack("<f", b"    ")[0], struct.unpack("<f", b"\n\n\n\n")[0]
    rows = np.array(
        [[spaces, feeds], [feeds, spaces], [spaces, spaces], [feeds, feeds]], np.float32
    )
    vectors = Word2VecBinaryVectors(write(encode("abcd", rows, end=end)))
    np.testing.assert_array_equal(vectors.vectors(list("dcba")), rows[::-1])


@pytest.mark.parametrize("language", ["en", "nl"])
def test_real_files_give_what_gensim_gives(data_folder, language):
    gensim = pytest.importorskip("gensim")
    path = (
        data_folder / "subwords" / f"bpemb_{language}" / f"{language}.wiki.bpe.vs1000.d25.w2v.bin"
    )
    peer = gensim.models.KeyedVectors.load_word2vec_format(str(path), binary=True)
    vectors = Word2VecBinaryVectors(path)
    assert (vectors.words, vectors.dim) == (peer.index_to_key, 25)
    np.testing.assert_array_equal(vectors.vectors(peer.index_to_key), peer.vectors)


def test_files_of_gensim_are_read(tmp_path):
    gensim = pytest.importorskip("gensim")
    rows = rows_of(len(WORDS))
    keyed = gensim.models.KeyedVectors(5)
    keyed.add_vectors(WORDS, rows)
    keyed.save_word2vec_format(str(tmp_path / "peer.bin"), binary=True)
    keyed.save_word2vec_format(str(tmp_path / "peer.vec"), binary=False)
    vectors, text = Word2VecBinaryVectors(tmp_path / "peer.bin"), TextVectors(tmp_path / "peer.vec")
    assert sorted(vectors.words) == sorted(text.words) == sorted(WORDS)
    np.testing.assert_array_equal(vectors.vectors(WORDS), rows)
    np.testing.assert_array_equal(text.vectors(WORDS), rows)


def test_the_first_of_repeated_words_wins(write):
    rows = rows_of(4)
    vectors = Word2VecBinaryVectors(write(encode(["a", "b", "a", "a"], rows)))
    np.testing.assert_array_equal(vectors.vectors(["a", "b"]), rows[:2])
    assert vectors.words == ["a", "b"]
    assert len(vectors) == 2


def test_words_are_told_apart_where_their_hashes_are_one(write, monkeypatch):
    asked = [*WORDS, "hol", "hola ", "holas", "", "\ud800"]
    path = write(encode([*WORDS, "hola"], rows_of(len(WORDS) + 1)))
    expected = Word2VecBinaryVectors(path).vectors(asked)
    for module in ("_fasttext_file", "word2vec_binary"):
        monkeypatch.setattr(f"polyembed.vectors.{module}.hash", lambda word: -7, raising=False)
    vectors = Word2VecBinaryVectors(path)
    assert vectors.words == WORDS
    np.testing.assert_array_equal(vectors.vectors(asked), expected)
    assert not expected[len(WORDS) :].any()


def test_a_word_of_the_file_is_in_the_vectors(write):
    vectors = Word2VecBinaryVectors(write(encode(["hola", "zero"], np.zeros((2, 3), np.float32))))
    assert [word in vectors for word in ("hola", "zero", "hol", "", "adiós")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert [word in vectors for word in (1, None, b"hola", "\ud800")] == [False] * 4


def test_words_that_are_not_utf8_keep_their_bytes(write):
    rows = rows_of(2)
    vectors = Word2VecBinaryVectors(write(encode([b"ni\xc3", "niño"], rows)))
    assert vectors.words == ["ni\udcc3", "niño"]
    np.testing.assert_array_equal(vectors.vectors(vectors.words), rows)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"no header of two whole numbers, but b''"),
        (b"1 1", r"no header of two whole numbers, but b'1 1'"),
        (b"hola 1 2 3\n", r"no header of two whole numbers, but b'hola 1 2 3\\n'"),
        (b"-1 3\n", r"no header"),
        (b"1 \xb2\n", r"no header"),
        (b"9" * 50 + b" 3\n" + bytes(99), r"no header"),
        (b"1" * 10**6, r"no header"),
        (struct.pack("<2i", 793712314, 12) + bytes(90), r"no header"),
        (gzip.compress(b"1 1\na \0\0\0\0\n", mtime=0), r"compressed; decompress it first"),
        (b"0 3\n", r"4 bytes for 0 rows of 3"),
        (b"3 0\na \nb \nc \n", r"13 bytes for 3 rows of 0"),
        (b"1 1000000000000\na \0\0\0\0\n", r"23 bytes for 1 rows of 1000000000000"),
        (
            b"999999999999999999 999999999999999999\na ",
            r"bytes for 999999999999999999 rows of 999999999999999999",
        ),
        (b"3 1\na \0\0\0\0\nb \0\0\0\0\n", r"18 bytes for 3 rows of 1"),
        (b"1 1\nabcde\0\0", r"no space after a word in row 1 of 1, at byte 4 of 11"),
        (b"1 1\n \0\0\0\0\0\0", r"no word in row 1 of 1, at byte 4 of 11"),
        (b"2 1\na \0\0\0\0\n \0\0\0\0\n", r"no word in row 2 of 2, at byte 11 of 17"),
        (b"1 1\nabc \0\0\0", r"4 bytes expected at byte 8 of 11, in row 1 of 1"),
        (b"1 1\na \0\0\0\0\n\n", r"2 bytes after the 1 rows that its header promises"),
        (b"1 1\na \0\0\0\0\nb \0\0\0\0\n", r"8 bytes after the 1 rows that its header promises"),
        (b"2 3\nhola 0.25 0.5 0.75\nhello 0.125 0.25 0.5\n", r"file\.bin \("),
    ],
)
def test_a_broken_file_says_why(write, data, message):
    with pytest.raises(ValueError, match=RULE) as error:
        Word2VecBinaryVectors(write(data))
    assert error.match(message)


@pytest.mark.parametrize("end", [b"\n", b""])
def test_every_truncation_is_a_clear_error(write, end):
    whole = encode(WORDS, rows_of(len(WORDS)), end=end)
    for size in range(len(whole) - len(end)):
        with pytest.raises(ValueError, match=RULE):
            Word2VecBinaryVectors(write(whole[:size]))


def outcome(path):
    """Open a file and ask for all its words; return the error's message."""
    try:
        vectors = Word2VecBinaryVectors(path)
        assert vectors.vectors(vectors.words).shape == (len(vectors), vectors.dim)
    except ValueError as error:
        return str(error)
    return None


def test_damaged_bytes_give_rows_or_a_clear_error(write):
    whole = encode(WORDS, rows_of(len(WORDS)))
    generator = np.random.default_rng(0)
    refused = 0
    for _ in range(500):
        data = bytearray(whole)
        data[generator.integers(len(data))] = generator.choice(list(b"\0\n 09\xff"))
        message = outcome(write(bytes(data)))
        assert message is None or (" must " in message and "file.bin" in message), data
        refused += message is not None
    assert 0 < refused < 500


def test_sizes_are_checked_before_memory_is_taken(write):
    path = write(b"100000000 300\n" + b"a" * 10**6)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="1000014 bytes for 100000000 rows of 300"):
            Word2VecBinaryVectors(path)
        assert tracemalloc.get_traced_memory()[1] < 10**5
    finally:
        tracemalloc.stop()


def test_a_word_without_end_takes_no_memory(write, monkeypatch):
    monkeypatch.setattr("polyembed.vectors.word2vec_binary.MAX_WORD", 1000)
    assert "a" * 999 in Word2VecBinaryVectors(write(b"1 1\n" + b"a" * 999 + b" \0\0\0\0"))
    with pytest.raises(ValueError, match="no space after a word in row 1 of 1, at byte 4 of 1009"):
        Word2VecBinaryVectors(write(b"1 1\n" + b"a" * 1000 + b" \0\0\0\0"))


def test_memory_is_that_of_the_rows_asked_for(write):
    words, rows = [f"palabra{i}" for i in range(20_000)], rows_of(20_000, 50)
    path = write(encode(words, rows))
    tracemalloc.start()
    try:
        vectors = Word2VecBinaryVectors(path)
        opened = tracemalloc.get_traced_memory()[0]
        assert opened < 22 * len(words)
        tracemalloc.reset_peak()
        assert vectors.vectors(words[:10]).any()
        assert tracemalloc.get_traced_memory()[1] - opened < 10**5
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_name_their_word(write, value):
    rows = np.array([[1, 2], [3, value]], np.float32)
    vectors = Word2VecBinaryVectors(write(encode(["hola", "hello"], rows)))
    assert vectors.vectors(["hola"]).tolist() == [[1, 2]]
    with pytest.raises(
        ValueError, match=r"file\.bin, word 'hello', must have finite numbers, got (nan|inf)$"
    ):
        vectors.vectors(["hola", "hello"])


def test_a_string_is_no_list_of_words(write):
    with pytest.raises(TypeError, match="words must be a sequence of words, got the string 'hola'"):
        Word2VecBinaryVectors(write(encode(["hola"], rows_of(1)))).vectors("hola")


def test_a_missing_file_says_so(tmp_path):
    for path in (tmp_path, tmp_path / "nothing.bin"):
        with pytest.raises(
            FileNotFoundError, match=r"path must name a file, got (a folder|nothing) at"
        ):
            Word2VecBinaryVectors(path)


def test_a_fasttext_model_is_told_apart(tmp_path, write):
    FastTextVectors.train(
        [["me", "gusta"]] * 5, tmp_path / "model.bin", dim=4, min_count=1, bucket=50
    )
    with pytest.raises(
        ValueError, match=r"path must name a whole word2vec \.bin file, got .*model.bin \(no header"
    ):
        Word2VecBinaryVectors(tmp_path / "model.bin")
    with pytest.raises(ValueError, match=r"path must name a whole fastText \.bin or \.ftz file"):
        FastTextVectors(write(encode(WORDS, rows_of(len(WORDS)))))


def test_copies_are_rebuilt_from_the_file(write, monkeypatch):
    path = write(encode(WORDS, rows_of(len(WORDS))))
    monkeypatch.chdir(path.parent)
    vectors = Word2VecBinaryVectors("file.bin")
    stored = pickle.dumps(vectors)
    monkeypatch.chdir("/")
    for twin in (pickle.loads(stored), copy.deepcopy(vectors)):
        np.testing.assert_array_equal(twin.vectors(WORDS), vectors.vectors(WORDS))
    assert len(stored) < 1000
    assert vectors.files() == {"path": path}
    assert vectors.get_config() == {}
    assert repr(vectors) == f"Word2VecBinaryVectors(path={str(path)!r})"


def test_a_saved_model_holds_the_file(write, tmp_path):
    """Later words have their vectors without the file that the model was built from."""
    path = write(encode([*WORDS, NEW], rows := rows_of(len(WORDS) + 1)))
    embedder = pe.SourceEmbedding(Word2VecBinaryVectors(path), pe.Lexicon(WORDS))
    pe.SequenceTagger(embedder, ["O", "B-X"]).save_pretrained(tmp_path / "tagger")
    path.unlink()
    loaded = pe.SequenceTagger.from_pretrained(tmp_path / "tagger").embedder
    assert isinstance(loaded.source, Word2VecBinaryVectors)
    assert loaded.source.path == tmp_path / "tagger" / "vectors-0-file.bin"
    more = loaded.with_words([NEW])
    expected = torch.from_numpy(rows)
    torch.testing.assert_close(more(torch.arange(2, len(more.lexicon))), expected, rtol=0, atol=0)


def test_a_damaged_file_in_a_saved_model_is_noticed(write, tmp_path):
    embedder = pe.SourceEmbedding(
        Word2VecBinaryVectors(write(encode(WORDS, rows_of(len(WORDS))))), pe.Lexicon(WORDS)
    )
    embedder.save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "vectors-0-file.bin").write_bytes(b"7 5\n")
    with pytest.raises(ValueError, match=r"vectors-0-file\.bin"):
        pe.SourceEmbedding.from_pretrained(tmp_path / "saved")


def test_the_fasttext_reader_names_the_right_class(tmp_path) -> None:
    path = tmp_path / "two.bin"
    path.write_bytes(b"2 3\nhola " + bytes(12) + b"\nhello " + bytes(12) + b"\n" + bytes(40))
    with pytest.raises(
        ValueError, match=r"word2vec's binary format, which Word2VecBinaryVectors reads"
    ):
        FastTextVectors(path)
