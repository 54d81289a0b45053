"""word2vec's binary format against gensim, and errors that name broken files."""

import struct

import numpy as np
import pytest
from checks import refused

from polyembed.vectors import TextVectors, Word2VecBinaryVectors

WORDS = ["hola", "ñandú", "कविता", "\u00a0", "a\tb", "🙂", "</s>"]
RULE = r"^path must name a whole word2vec \.bin file, got .*file\.bin "


def rows_of(count):
    return np.random.default_rng(0).normal(size=(count, 5)).astype("<f4")


def encode(words, rows, *, end):
    """Write the format by hand."""
    parts = [b"%d %d\n" % rows.shape]
    for word, row in zip(words, rows, strict=True):
        parts += [word.encode("utf-8", "surrogateescape"), b" ", row.tobytes(), end]
    return b"".join(parts)


@pytest.mark.parametrize("end", [b"\n", b""])
def test_line_feeds_may_be_left_out_and_numbers_may_look_like_them(write, end):
    """The bytes of the numbers are 0x20 and 0x0a throughout."""
    spaces, feeds = struct.unpack("<f", b"    ")[0], struct.unpack("<f", b"\n\n\n\n")[0]
    rows = np.array([[spaces, feeds], [feeds, spaces], [spaces] * 2, [feeds] * 2], "<f4")
    data = encode("abcd", rows, end=end)
    for content in {data, data[: len(data) - len(end)]}:
        vectors = Word2VecBinaryVectors(write(content, "file.bin"))
        np.testing.assert_array_equal(vectors.vectors(list("dcba")), rows[::-1])


@pytest.mark.parametrize("end", [b"\n", b""])
@pytest.mark.parametrize(
    "words",
    [
        ["New York", "b", "c"],
        ["a", "New York City", "b x"],
        ["New York", "می\u200cخواهم", "\u00a0\u00ad"],
        ["a\nb", "b", "c"],
        ["b", "\udcff\udcfe", "c"],
        ["b", "c", "\udcff"],
    ],
)
def test_words_with_spaces_line_feeds_and_other_bytes(words, end, write):
    vectors = Word2VecBinaryVectors(write(encode(words, rows := rows_of(3), end=end)))
    assert vectors.words == words
    np.testing.assert_array_equal(vectors.vectors(words), rows)


def test_a_large_file_with_spaces_is_read_where_rows_end_in_line_feeds(write):
    rows = np.random.default_rng(0).normal(size=(5000, 50)).astype("<f4")
    words = [f"new york{i}" if i % 3 else f"word{i}" for i in range(5000)]
    data = encode(words, rows, end=b"\n")
    for content in (data, data[:-1]):
        assert Word2VecBinaryVectors(write(content)).words == words
    data = write(encode(words, rows, end=b""), "file.bin")
    refused(ValueError, RULE + ".no whole row", Word2VecBinaryVectors, data)


def test_files_of_gensim_are_read(tmp_path):
    gensim = pytest.importorskip("gensim")
    rows = rows_of(len(WORDS))
    keyed = gensim.models.KeyedVectors(5)
    keyed.add_vectors(WORDS, rows)
    for reader, binary in ((Word2VecBinaryVectors, True), (TextVectors, False)):
        keyed.save_word2vec_format(path := str(tmp_path / "peer"), binary=binary)
        source = reader(path)
        assert sorted(source.words) == sorted(WORDS)
        np.testing.assert_array_equal(source.vectors(WORDS), rows)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"hola 1 2 3\n", r"not a header of two whole numbers, or compressed: b'hola 1 2 3'"),
        (b"1 1000000000000\na \0\0\0\0\n", r"23 bytes for 1 rows of 1000000000000"),
        (b"1 1\nabcde\0\0", r"no whole row 1 of 1 at byte 4 of 11"),
        (b"1 1\na \0\0\0\0\nb \0\0\0\0\n", r"7 bytes after the 1 rows of its header"),
        (
            encode(["New York", "me", "\udcc3", "no"], rows_of(4), end=b"\n"),
            "no whole row",
        ),
        (b"2 3\nhola 0.25 0.5 0.75\nhello 0.125 0.25 0.5\n", r"file\.bin \("),
    ],
)
def test_a_broken_file_says_why(write, data, message):
    with pytest.raises(ValueError, match=RULE) as error:
        Word2VecBinaryVectors(write(data, "file.bin"))
    assert error.match(message)
