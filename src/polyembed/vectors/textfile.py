"""Word vectors as text: word2vec's and GloVe's formats, streamed."""

import codecs
import gzip
import lzma
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple, NoReturn

import numpy as np

from polyembed._checks import check_file, check_positive, must
from polyembed.vectors.protocol import FileSource, Rows

GZIP_MAGIC = b"\x1f\x8b"
XZ_MAGIC = b"\xfd7zXZ\x00"


class TextVectors(FileSource):
    r"""Word vectors of a text file: one line a word, the word and its numbers separated by single spaces.

    ``vector(w) = the numbers of the first line whose word is w``, zeros where there is none. Everything
    before the last `dim` numbers of a line is its word, which may hold spaces, as some of GloVe's do.

    The file may be compressed by gzip or xz. It is streamed once per call of `vectors`, however many words
    are asked for, and only the rows asked for are kept; a word asked for again costs nothing.

    Args:
        path: The file, UTF-8.
        header: Whether the first line is ``<rows> <dim>``. If None, it is one where it holds two whole
            numbers: wrong only for a file without header whose first word is a number, with a vector that is
            one whole number.
        dim: The length of a vector, for a file without header whose first word ends in a number of its own;
            else it is read off the first line.

    Raises:
        FileNotFoundError: There is no file at `path`.
        ValueError: A line has too few or too many numbers, or something else in their place; a line's word is
            not UTF-8; the header promises other numbers of rows or columns; the compressed data are damaged.
            The numbers themselves are read where a row is asked for, all else in the first call.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "two.vec"
        >>> _ = path.write_text("2 3\nhola 1 2 3\nhello 4 5 6\n")
        >>> TextVectors(path).vectors(["hello", "adiós"]).tolist()
        [[4.0, 5.0, 6.0], [0.0, 0.0, 0.0]]

    Deviations: none.
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset({"path"})

    def __init__(self, path: str | os.PathLike[str], *, header: bool | None = None, dim: int | None = None) -> None:
        self._path = check_file(path)
        self._header, self._given_dim = header, dim
        if dim is not None:
            check_positive(dim=dim)
        self._num_rows, self._dim = self._read_first_line()
        self._found: dict[str, Rows | None] = {}
        self._checked = False
        self._words: frozenset[str] | None = None  # all of them, from the first question on whether one is there

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return self._dim

    @property
    def words(self) -> list[str]:
        """The words of the file in its order, repetitions left out; each use reads the file."""
        return list(dict.fromkeys(line.word for line in self._lines()))

    def __contains__(self, word: object) -> bool:
        if not isinstance(word, str):
            return False
        if self._words is None:
            self._words = frozenset(line.word for line in self._lines())
        return word in self._words

    def files(self) -> dict[str, Path]:
        """Name the file on disk.

        Returns:
            ``{"path": the file}``.
        """
        return {"path": self._path}

    def get_config(self) -> dict[str, Any]:
        """Give the constructor arguments other than the file.

        Returns:
            ``header`` and ``dim``, as given.
        """
        return {"header": self._header, "dim": self._given_dim}

    def vectors(self, words: Sequence[str]) -> Rows:
        """Look up the vectors of `words`.

        Args:
            words: The words, repetitions allowed.

        Returns:
            Float32 rows in the order of `words`, ``(len(words), dim)``.
        """
        missing = {word for word in words if word not in self._found}
        if missing:
            self._find(missing)
        out = np.zeros((len(words), self._dim), np.float32)
        for i, word in enumerate(words):
            row = self._found[word]
            if row is not None:
                out[i] = row
        return out

    def _find(self, words: set[str]) -> None:
        found: dict[str, Rows | None] = {}
        for line in self._lines():
            if line.word in words and line.word not in found:
                found[line.word] = self._numbers(line)
                # The first call reads to the end, so that a broken file never goes unnoticed.
                if self._checked and len(found) == len(words):
                    break
        self._checked = True
        self._found |= dict.fromkeys(words) | found

    def _lines(self) -> Iterator["_Line"]:
        """Split every line into word and numbers, and count the rows."""
        num_rows = 0
        for number, text in self._raw_lines():
            if not text or (number == 1 and self._num_rows is not None):
                continue
            # Without a space in the word, which is nearly always, the numbers need not be cut apart.
            plain = text.count(b" ") == self._dim
            word, *numbers = text.split(b" ", 1) if plain else text.rsplit(b" ", self._dim)
            too_many = b" " in word and _is_number(word.rpartition(b" ")[2])
            if too_many or not (plain or len(numbers) == self._dim):
                self._fail(number, f"hold a word and {self._dim} numbers", _excerpt(text))
            try:
                decoded = word.decode()
            except UnicodeDecodeError as error:
                self._fail(number, "be UTF-8", f"{_excerpt(word)} ({error.reason})")
            num_rows += 1
            yield _Line(number, decoded, b" ".join(numbers))
        if self._num_rows is not None and num_rows != self._num_rows:
            rule = f"hold the {self._num_rows} rows that its header promises"
            raise ValueError(must(f"{self._path}", rule, num_rows))

    def _numbers(self, line: "_Line") -> Rows:
        try:
            row = np.array([float(number) for number in line.numbers.split(b" ")], np.float32)
        except ValueError:
            row = np.array([np.nan], np.float32)
        if not np.isfinite(row).all():
            self._fail(line.number, "hold finite numbers after its word", _excerpt(line.numbers))
        return row

    def _read_first_line(self) -> tuple[int | None, int]:
        """Return the number of rows, where a header gives it, and the length of a vector."""
        for number, text in self._raw_lines():
            fields = text.split(b" ")
            looks_so = len(fields) == 2 and all(field.isdigit() for field in fields)
            if self._header and not looks_so:
                self._fail(number, "be a header of two whole numbers", _excerpt(text))
            if looks_so and self._header is not False:
                num_rows, dim = int(fields[0]), int(fields[1])
                if dim < 1 or self._given_dim not in (None, dim):
                    self._fail(number, f"promise vectors of length {self._given_dim or '1 or more'}", _excerpt(text))
                return num_rows, dim
            words = [i for i, field in enumerate(fields) if not _is_number(field)]
            dim = self._given_dim or len(fields) - max([0, *words]) - 1
            if dim < 1:
                self._fail(number, "hold a word and its numbers", _excerpt(text))
            return None, dim
        raise ValueError(must("path", "name a file with at least one line", f"the empty {self._path}"))

    def _raw_lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield line numbers from 1 and lines without their ends."""
        try:
            with _open(self._path) as file:
                for number, text in enumerate(file, 1):
                    if number == 1:
                        text = text.removeprefix(codecs.BOM_UTF8)
                    yield number, text.rstrip(b" \t\r\n")
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            raise ValueError(must("path", "name a whole compressed file", f"{self._path} ({error})")) from error

    def _fail(self, number: int, rule: str, value: str) -> NoReturn:
        raise ValueError(must(f"{self._path}, line {number},", rule, value))


class _Line(NamedTuple):
    number: int
    word: str
    numbers: bytes


def _open(path: Path) -> IO[bytes] | gzip.GzipFile | lzma.LZMAFile:
    with path.open("rb") as file:
        magic = file.read(6)
    if magic.startswith(GZIP_MAGIC):
        return gzip.open(path)
    return lzma.open(path) if magic == XZ_MAGIC else path.open("rb")


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _excerpt(text: bytes) -> str:
    shown = text if len(text) <= 60 else text[:60] + b"..."
    return repr(shown.decode("utf-8", "backslashreplace"))
