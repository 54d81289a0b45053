import gzip
import lzma
import pickle

import numpy as np
import pytest

from polyembed.vectors import TextVectors, WordVectors


@pytest.fixture
def write(tmp_path):
    def write_file(text, name="file.vec"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write_file


def read_plainly(path):
    """The first row of each word, by the simplest reading there is."""
    data = path.read_bytes()
    lines = (gzip.decompress(data) if path.suffix == ".gz" else data).decode().split("\n")
    rows = {}
    for line in lines:
        word, *numbers = line.rstrip(" ").split(" ")
        if len(numbers) > 1:
            rows.setdefault(word, np.array(numbers, np.float32))
    return rows


@pytest.mark.parametrize(
    ("name", "dim", "count"),
    [
        ("fasttext/crime-and-punishment.vec", 5, 291),
        ("zhang2017/es-en/word2vec.es", 50, 4774),
        ("glove/glove.6B.300d.sample.txt.gz", 300, 100),
    ],
)
def test_real_files_are_read_whole(data_folder, name, dim, count):
    path = data_folder / "vectors" / name
    expected = read_plainly(path)
    vectors = TextVectors(path)
    assert (vectors.dim, len(expected), vectors.words) == (dim, count, list(expected))
    rows = vectors.vectors([*expected, "no such word", ""])
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows[:-2], np.stack(list(expected.values())))
    assert not rows[-2:].any()


def test_a_file_that_is_not_utf8_names_its_line(data_folder):
    path = data_folder / "vectors" / "fasttext" / "pang_lee_polarity_fasttext.vec"
    with pytest.raises(
        ValueError, match=r"pang_lee_polarity_fasttext.vec, line \d+, must be UTF-8, got '.*\\x"
    ):
        TextVectors(path).vectors(["movie"])


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
@pytest.mark.parametrize("compress", [None, gzip.compress, lzma.compress])
def test_headers_line_ends_and_compression_are_recognised(write, text, compress):
    vectors = TextVectors(write(text if compress is None else compress(text.encode())))
    assert vectors.vectors(["hello", "hola", "x", "hello"]).tolist() == [
        [4, 5, 6],
        [1, 2, 3],
        [0, 0, 0],
        [4, 5, 6],
    ]
    assert vectors.vectors([]).shape == (0, 3)
    assert vectors.words == ["hola", "hello"]
    assert isinstance(vectors, WordVectors)


def test_words_may_hold_spaces_and_other_white_space(write):
    text = "hola 1 2\n. . . 3 4\nat name@domain.com 5 6\n\u00a0 7 8\n\u3000 9 1\n\u0085 2 2\na\u00a0b 3 3\n"
    vectors = TextVectors(write(text))
    words = [". . .", "at name@domain.com", "\u00a0", "\u3000", "\u0085", "a\u00a0b"]
    assert vectors.vectors(words).tolist() == [[3, 4], [5, 6], [7, 8], [9, 1], [2, 2], [3, 3]]
    assert vectors.words == ["hola", *words]


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("2 1\n3 4\n5 6\n", {}, {"2": [0], "3": [4]}),
        ("2 1\n3 4\n5 6\n", {"header": False}, {"2": [1], "3": [4]}),
        ("5 1.5\n7 2\n", {}, {"5": [1.5], "7": [2]}),
        ("mp3 1 2\n", {"dim": 2}, {"mp3": [1, 2]}),
        ("3 1 2\n", {}, {"3": [1, 2]}),
    ],
)
def test_two_whole_numbers_are_a_header_unless_told(write, text, options, expected):
    assert TextVectors(write(text), **options).vectors(list(expected)).tolist() == list(
        expected.values()
    )


def test_a_line_without_end_takes_no_memory(write, monkeypatch):
    monkeypatch.setattr("polyembed.vectors.textfile.MAX_LINE", 1000)
    with pytest.raises(ValueError, match=r"line 1, must be shorter than 1000 bytes, got '   "):
        TextVectors(write(gzip.compress(b" " * 10**6)))


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_every_truncation_of_a_compressed_file_is_a_clear_error(write, compress):
    whole = compress(b"2 3\nhola 1 2 3\nhello 4 5 6\n")
    for size in range(8, len(whole)):
        with pytest.raises(ValueError, match=r"file\.vec"):
            TextVectors(write(whole[:size])).vectors(["hola"])


def test_a_word_is_searched_once_and_only_rows_asked_for_are_kept(write):
    path = write("".join(f"w{i} {i} 1\n" for i in range(1000)))
    vectors = TextVectors(path)
    first = vectors.vectors(["w3", "nobody"])
    path.unlink()
    np.testing.assert_array_equal(vectors.vectors(["nobody", "w3"]), first[::-1])
    assert len(vectors._found) == 2
    with pytest.raises(FileNotFoundError):
        vectors.vectors(["w4"])


def test_copies_are_rebuilt_from_the_file(write, monkeypatch):
    path = write("2 1\n3 4\n")
    monkeypatch.chdir(path.parent)
    vectors = TextVectors("file.vec", header=False, dim=1)
    stored = pickle.dumps(vectors)
    monkeypatch.chdir("/")
    twin = pickle.loads(stored)
    assert twin.vectors(["2"]).tolist() == [[1]]
    assert vectors.files() == {"path": path}
    assert vectors.get_config() == {"header": False, "dim": 1}
    assert repr(vectors) == f"TextVectors(path={str(path)!r}, header=False, dim=1)"


def test_a_word_of_the_file_is_in_the_vectors(write):
    path = write("3 1\nhola 0\n. . . 2\nhola 3\n")
    vectors = TextVectors(path)
    assert [word in vectors for word in ("hola", ". . .", ".", "", "adiós")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert [word in vectors for word in (1, None, b"hola", ["hola"])] == [False] * 4
    path.unlink()
    assert "hola" in vectors, "the file is read once"
    assert vectors._found == {}


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "hola 1 2\nhello 3\n",
            {},
            r"file.vec, line 2, must hold a word and 2 numbers, got 'hello 3'",
        ),
        (
            "hola 1 2\nhello 3 4 5\n",
            {},
            r"file.vec, line 2, must hold a word and 2 numbers, got 'hello 3 4 5'",
        ),
        (
            "2 2\nhola 1 2\nhello\n",
            {},
            r"file.vec, line 3, must hold a word and 2 numbers, got 'hello'",
        ),
        (
            "hola 1 2\nhello 3 x\n",
            {},
            r"file.vec, line 2, must hold finite numbers after its word, got '3 x'",
        ),
        (
            "hola 1 2\nhello 3 nan\n",
            {},
            r"file.vec, line 2, must hold finite numbers after its word, got '3 nan'",
        ),
        (
            "3 2\nhola 1 2\nhello 3 4\n",
            {},
            r"file.vec must hold the 3 rows that its header promises, got 2",
        ),
        (
            "1 2\nhola 1 2\nhello 3 4\n",
            {},
            r"file.vec must hold the 1 rows that its header promises, got 2",
        ),
        (b"hola 1 2\nhell\xf3 3 4\n", {}, r"file.vec, line 2, must be UTF-8, got 'hell\\\\xf3'"),
        ("mp 3 1 2\nhello 3 4\n", {}, r"line 2, must hold a word and 3 numbers, got 'hello 3 4'"),
        (
            "mp 3 1 2\nhello 3 4\n",
            {"dim": 2},
            r"line 1, must hold a word and 2 numbers, got 'mp 3 1 2'",
        ),
        ("", {}, "path must name a file with at least one line, got the empty .*file.vec"),
        ("hola\n", {}, "line 1, must hold a word and its numbers, got 'hola'"),
        ("hola mundo\n", {}, "line 1, must hold a word and its numbers, got 'hola mundo'"),
        (
            "hola 1 2\n",
            {"header": True},
            "line 1, must be a header of two whole numbers, got 'hola 1 2'",
        ),
        ("4 0\n", {}, "line 1, must promise vectors of length 1 or more, got '4 0'"),
        ("1 2\nhola 1 2\n", {"dim": 3}, "line 1, must promise vectors of length 3, got '1 2'"),
        ("hola 1 2\n", {"dim": 0}, "dim must be a positive integer, got 0"),
        (
            "0 1000000000000\n",
            {},
            "line 2, must hold a word and its numbers, got the end of the file",
        ),
        (
            "1 1000000000000\nhola 1\n",
            {},
            "line 2, must hold a word and 1000000000000 numbers, got 'hola 1'",
        ),
        (
            "9" * 5000 + " 3\nhola 1 2 3\n",
            {"header": True},
            "line 1, must be a header of two whole numbers",
        ),
        (b"\x1f\x8bnonsense", {}, "path must name a whole compressed file, got .*file.vec"),
    ],
)
def test_broken_files_say_where(write, text, options, message):
    """Some when they are opened; every call says it until the file has been read to its end, and `in` too."""
    path = write(text)
    with pytest.raises(ValueError, match=message):
        TextVectors(path, **options).vectors(["hello"])
    if "finite" not in message:
        with pytest.raises(ValueError, match=message):
            assert "hola" in TextVectors(path, **options)


def test_other_errors(write, tmp_path):
    with pytest.raises(TypeError, match="words must be a sequence of words, got the string 'hola'"):
        TextVectors(write("hola 1 2\n")).vectors("hola")
    with pytest.raises(FileNotFoundError, match="path must name a file, got nothing at"):
        TextVectors(tmp_path / "nothing.vec")


def test_a_broken_file_never_goes_unnoticed(write):
    vectors = TextVectors(write("a 1 2\nb 3\n"))
    for _ in range(2):
        with pytest.raises(ValueError, match="line 2"):
            vectors.vectors(["a"])
