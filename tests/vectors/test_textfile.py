"""Vectors as text: complete reading of real files, detection of formats, and broken files."""

import gzip
import lzma

import numpy as np
import pytest
from checks import refused

from polyembed.vectors import TextVectors


def read_plainly(path):
    """Return the first row of each word, by the simplest possible reading."""
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    rows = {}
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        word, *numbers = line.rstrip(" ").split(" ")
        if len(numbers) > 1:
            rows.setdefault(word, np.array(numbers, np.float32))
    return rows


@pytest.mark.parametrize(
    ("name", "dim", "count"),
    [
        ("fasttext/crime-and-punishment.vec", 5, 291),
        ("fasttext/pang_lee_polarity_fasttext.vec", 100, 1694),  # not all of it is UTF-8
        ("zhang2017/es-en/word2vec.es", 50, 4774),
        ("glove/glove.6B.300d.sample.txt.gz", 300, 100),
    ],
)
def test_real_files_are_read_whole(data_folder, name, dim, count):
    path = data_folder / "vectors" / name
    expected = read_plainly(path)
    vectors = TextVectors(path)
    assert (vectors.dim, len(expected), vectors.words) == (dim, count, list(expected))
    backwards = list(expected)[::-1]
    np.testing.assert_array_equal(
        vectors.vectors(backwards), [expected[word] for word in backwards]
    )


@pytest.mark.parametrize(
    "text",
    [
        "hola 1 2 3\nhello 4 5 6\n",
        "2 3\nhola 1 2 3 \nhello 4 5 6 ",
        "2 3\r\nhola 1 2 3\r\nhello 4 5 6\r\n",
        "\ufeffhola 1 2 3\nhello 4 5 6\n",
        "\ufeff3 3\nhola 1 2 3\nhello 4 5 6\nhola 7 8 9\n",
    ],
)
@pytest.mark.parametrize(
    ("suffix", "compress"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)]
)
def test_headers_line_ends_and_compression_are_recognised(write, text, suffix, compress):
    vectors = TextVectors(write(compress(text.encode()), f"file.vec{suffix}"))
    rows = [[4, 5, 6], [1, 2, 3], [0, 0, 0], [4, 5, 6]]
    assert vectors.vectors(["hello", "hola", "x", "hello"]).tolist() == rows
    assert vectors.words == ["hola", "hello"]


def test_words_may_hold_spaces_and_other_white_space(write):
    words = ["hola", ". . .", "at name@domain.com", "\u00a0", "\u3000", "\u0085", "a\u00a0b"]
    vectors = TextVectors(write("".join(f"{word} {i} 2\n" for i, word in enumerate(words))))
    assert vectors.words == words
    assert vectors.vectors(words)[:, 0].tolist() == list(range(7))


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("2 1\n3 4\n5 6\n", {}, {"2": [0], "3": [4]}),
        ("5 1.5\n7 2\n", {}, {"5": [1.5], "7": [2]}),
        ("mp3 1 2\n", {"dim": 2}, {"mp3": [1, 2]}),
        ("3 1 2\n", {}, {"3": [1, 2]}),
    ],
)
def test_two_whole_numbers_are_a_header(write, text, options, expected):
    vectors = TextVectors(write(text), **options)
    assert vectors.vectors(list(expected)).tolist() == list(expected.values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hola 1 2\nhello 3\n", "file.vec, line 2, must hold a word and 2 numbers, got 'hello"),
        ("hola 1 2\nhello  3 4\n", "line 2, must hold a word and 2 numbers, got 'hello  3 4'"),
        ("hola 1 2\nhello 3 x\n", "file.vec, word 'hello', must have numbers, got .*'x'"),
        ("3 2\nhola 1 2\nhello 3 4\n", "file.vec must hold the 3 rows that .* promises, got 2"),
        ("a 1 2\nb 3 4\rc 5 6\n", r"line 2, must end in .*, got 'b 3 4"),
        ("", "file.vec, line 1, must hold a word and its numbers, got ''"),
        ("2 2\nthe 1 2 3 4\nof 5 6 7 8\n", "line 1, must lead to vectors of 2 numbers, got '2 2'"),
        ("1 1000000000000\nhola 1\n", "line 2, must hold a word and 1000000000000 numbers"),
    ],
)  # fmt: skip
def test_broken_files_say_where(write, text, message):
    with pytest.raises(ValueError, match=message):
        TextVectors(write(text)).vectors(["hello"])


@pytest.mark.parametrize("text", ["the 1 2 3 4\nof 5 6 7 8\n", "2 4\nthe 1 2 3 4\nof 5 6 7 8\n"])
def test_dim_must_be_that_of_the_file(write, text):
    refused(ValueError, "must lead to vectors of 2 numbers", TextVectors, write(text), dim=2)


@pytest.mark.parametrize("header", ["", "3 3\n"])
def test_words_that_end_in_numbers(write, header):
    """The header or `dim` gives the length of a vector."""
    path = write(header + "preço .1 .2 .3\nR$ 00 .4 .5 .6\n10 000 .7 .8 .9\n")
    vectors = TextVectors(path, **({} if header else {"dim": 3}))
    assert vectors.words == ["preço", "R$ 00", "10 000"]
    assert vectors.vectors(["10 000", "R$ 00"])[:, 0].tolist() == pytest.approx([0.7, 0.4])


@pytest.mark.parametrize(
    "text", ["a\t1 2\nb\t3 4\n", "2 2\na\t1\t2\nb\t3\t4\n", "a\t1\t2\nb\t3\t4"]
)
def test_tabs_before_the_numbers(write, text):
    vectors = TextVectors(write(text))
    assert vectors.dim == 2
    assert vectors.vectors(["b", "a"]).tolist() == [[3, 4], [1, 2]]
