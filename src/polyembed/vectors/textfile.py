"""Word vectors as text: word2vec's and GloVe's formats, streamed."""

import codecs
import gzip
import lzma
import os
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import IO, ClassVar, NamedTuple, NoReturn

import numpy as np

from polyembed._checks import check_file, check_positive, must
from polyembed.saving import VectorFiles
from polyembed.vectors.protocol import Rows, check_words

GZIP_MAGIC = b"\x1f\x8b"
XZ_MAGIC = b"\xfd7zXZ\x00"
MAX_LINE = 1 << 24  # bytes, so that a small compressed file cannot fill the memory with one line
MAX_DIGITS = 18  # of a number in a header


class TextVectors(VectorFiles):
    r"""Word vectors of a text file: one line a word, the word and its numbers separated by single
    spaces.

    ``vector(w) = the numbers of the first line whose word is w``. Where there is none and no word
    of the file has an upper-case letter (GloVe's small tables, MUSE's), it is the vector of
    ``w.lower()``; else zeros. Everything before the last `dim` numbers of a line is its word, which
    may hold spaces, as some of GloVe's do.

    The file may be compressed by gzip or xz. It is streamed once per call of `vectors`, however
    many words are asked for. Only the rows asked for are kept, and a word asked for again is not
    searched again.

    Args:
        path: The file, UTF-8.
        header: Whether the first line is ``<rows> <dim>``. If None, it is a header where it holds
            two whole numbers. That is wrong only for a file without header whose first word is a
            number and whose vectors are one whole number.
        dim: The length of a vector, needed for a file without header whose first word ends in a
            number of its own; else it is read off the first line.

    Raises:
        FileNotFoundError: No file at `path`.
        ValueError: A line has too few or too many numbers, or something else in their place; a
            line's word is not UTF-8; the header promises other numbers of rows or columns; the
            compressed data are damaged. The constructor checks the first row. The first call checks
            all lines, but the numbers only of the rows asked for.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "two.vec"
        >>> _ = path.write_text("2 3\nhola 1 2 3\nhello 4 5 6\n")
        >>> TextVectors(path).vectors(["hello", "adiós"]).tolist()
        [[4.0, 5.0, 6.0], [0.0, 0.0, 0.0]]
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset({"path"})

    def __init__(
        self, path: str | os.PathLike[str], *, header: bool | None = None, dim: int | None = None
    ) -> None:
        self.path = check_file(path)
        self.header = header
        if dim is not None:
            check_positive(dim=dim)
        self._num_rows, self.dim = self._read_first_line(dim)
        if (
            next(self._lines(), None) is None
        ):  # the first row shows that the file holds vectors of this length
            self._fail(2, "hold a word and its numbers", "the end of the file")
        self._found: dict[str, Rows | None] = {}
        self._has_case: bool | None = None  # not known before all lines were read

    @cached_property
    def _vocabulary(self) -> dict[str, None]:
        words = dict.fromkeys(line.word for line in self._lines())
        self._has_case = any(word != word.lower() for word in words)
        return words

    @property
    def words(self) -> list[str]:
        """The words of the file in its order, repetitions left out."""
        return list(self._vocabulary)

    def __contains__(self, word: object) -> bool:
        if not isinstance(word, str):
            return False
        return word in self._vocabulary or (not self._has_case and word.lower() in self._vocabulary)

    def vectors(self, words: Sequence[str]) -> Rows:
        """Read the words; return float32 rows in their order, ``(len(words), dim)``."""
        check_words(words)
        missing = {word for word in words if word not in self._found}
        if missing:
            self._find(missing)
        out = np.zeros((len(words), self.dim), np.float32)
        for i, word in enumerate(words):
            row = self._found[word]
            if row is not None:
                out[i] = row
        return out

    def _find(self, words: set[str]) -> None:
        found: dict[str, Rows | None] = {}
        wanted, has_case = words | {word.lower() for word in words}, bool(self._has_case)
        for line in self._lines():
            has_case = has_case or line.word != line.word.lower()
            if line.word in wanted and line.word not in found:
                found[line.word] = self._numbers(line)
                # The first call reads to the end, so that a broken file never goes unnoticed.
                if self._has_case is not None and len(found) == len(wanted):
                    break
        else:
            self._has_case = has_case
        self._found |= {
            word: found.get(word, None if has_case else found.get(word.lower())) for word in words
        }

    def _lines(self) -> Iterator["_Line"]:
        """Split every line into word and numbers, and count the rows."""
        num_rows = 0
        for number, text in self._raw_lines():
            if not text or (number == 1 and self._num_rows is not None):
                continue
            # Nearly always the word has no space, and then the numbers need not be cut apart.
            plain = text.count(b" ") == self.dim
            word, *numbers = text.split(b" ", 1) if plain else text.rsplit(b" ", self.dim)
            too_many = b" " in word and _is_number(word.rpartition(b" ")[2])
            if too_many or not (plain or len(numbers) == self.dim):
                self._fail(number, f"hold a word and {self.dim} numbers", _excerpt(text))
            try:
                decoded = word.decode()
            except UnicodeDecodeError as error:
                self._fail(number, "be UTF-8", f"{_excerpt(word)} ({error.reason})")
            num_rows += 1
            yield _Line(number, decoded, b" ".join(numbers))
        if self._num_rows is not None and num_rows != self._num_rows:
            raise ValueError(
                must(
                    f"{self.path}",
                    f"hold the {self._num_rows} rows that its header promises",
                    num_rows,
                )
            )

    def _numbers(self, line: "_Line") -> Rows:
        try:
            row = np.array([float(number) for number in line.numbers.split(b" ")], np.float32)
        except ValueError:
            row = np.array([np.nan], np.float32)
        if not np.isfinite(row).all():
            self._fail(line.number, "hold finite numbers after its word", _excerpt(line.numbers))
        return row

    def _read_first_line(self, given_dim: int | None) -> tuple[int | None, int]:
        """Return the number of rows, where a header gives it, and the length of a vector."""
        for number, text in self._raw_lines():
            counts = read_header(text)
            if self.header and counts is None:
                self._fail(number, "be a header of two whole numbers", _excerpt(text))
            if counts is not None and self.header is not False:
                if counts[1] < 1 or given_dim not in (None, counts[1]):
                    self._fail(
                        number,
                        f"promise vectors of length {given_dim or '1 or more'}",
                        _excerpt(text),
                    )
                return counts
            fields = text.split(b" ")
            words = [i for i, field in enumerate(fields) if not _is_number(field)]
            dim = given_dim or len(fields) - max([0, *words]) - 1
            if dim < 1:
                self._fail(number, "hold a word and its numbers", _excerpt(text))
            return None, dim
        raise ValueError(
            must("path", "name a file with at least one line", f"the empty {self.path}")
        )

    def _raw_lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield line numbers from 1 and lines without their ends."""
        try:
            with open_compressed(self.path) as file:
                for number, text in enumerate(iter(partial(file.readline, MAX_LINE), b""), 1):
                    if len(text) == MAX_LINE:
                        self._fail(number, f"be shorter than {MAX_LINE} bytes", _excerpt(text))
                    if number == 1:
                        text = text.removeprefix(codecs.BOM_UTF8)
                    yield number, text.rstrip(b" \t\r\n")
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            raise ValueError(
                must("path", "name a whole compressed file", f"{self.path} ({error})")
            ) from error

    def _fail(self, number: int, rule: str, value: str) -> NoReturn:
        raise ValueError(must(f"{self.path}, line {number},", rule, value))


class _Line(NamedTuple):
    number: int
    word: str
    numbers: bytes


def read_header(line: bytes) -> tuple[int, int] | None:
    """Return rows and columns, where a line holds two whole numbers."""
    fields = line.split(b" ")
    if len(fields) != 2 or not all(
        field.isdigit() and len(field) <= MAX_DIGITS for field in fields
    ):
        return None
    return int(fields[0]), int(fields[1])


def open_compressed(path: Path) -> IO[bytes] | gzip.GzipFile | lzma.LZMAFile:
    """Open a file that may be compressed by gzip or xz."""
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
