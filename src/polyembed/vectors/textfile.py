"""Files of word2vec and GloVe: text, and word2vec's binary format."""

import codecs
import gzip
import lzma
import os
import re
import zlib
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import takewhile
from typing import IO, Any, NoReturn

import numpy as np

from polyembed._checks import check_file, must
from polyembed.saving import VectorFiles
from polyembed.vectors.protocol import Rows
from polyembed.vectors.words import Ids, Words, WordTable, index_words, map_file, release


class TextVectors(WordTable, VectorFiles):
    r"""Word vectors of a text file: per line a word and its numbers, separated by single spaces.

    ``vector(w) = the numbers of the first line whose word is w``, else zeros. If the words
    of the file are lower-case, as in GloVe's small tables and MUSE's, a word that the file lacks
    gets the vector of its lower-case form. Words in capitals alone, such as ``<UNK>``, do not count
    for this. The word of a line is everything before its last `dim` numbers. It may hold spaces, as
    some words of GloVe do.

    A file may be compressed by gzip (``.gz``) or xz (``.xz``). The first look-up reads the file
    once from end to end. Later look-ups read only the rows of their words (in a compressed file,
    everything up to the last of them), and the object needs about 40 bytes of memory per word.

    Args:
        path: The file, UTF-8; its first line may be a header, two whole numbers ``<rows> <dim>``.
        dim: The length of a vector; by default it is read from the first line. It is needed for a
            file without header whose first word ends in a number, and must fit a header.

    Raises:
        FileNotFoundError: If `path` is not a file.
        ValueError: If a line has too few or too many numbers, or something else in their place; if
            the first word ends in two numbers; if the header promises other numbers of rows or
            columns; or if the compressed data are damaged. The constructor checks the first row,
            the first look-up checks all lines, and each look-up checks the numbers of its rows.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> path = Path(tempfile.mkdtemp()) / "two.vec"
        >>> _ = path.write_text("2 3\nhola 1 2 3\nhello 4 5 6\n")
        >>> TextVectors(path).vectors(["hello", "adiós"]).tolist()
        [[4.0, 5.0, 6.0], [0.0, 0.0, 0.0]]
    """

    file_arguments = frozenset({"path"})

    def __init__(self, path: str | os.PathLike[str], *, dim: int | None = None) -> None:
        self.path = check_file(path)
        self._num_rows, self.dim = self._read_first_line(dim)
        if next(self._lines(), None) is None:
            self._fail(2, "hold a word and its numbers", "the end of the file")

    @cached_property
    def _index(self) -> Words:  # type: ignore[override]
        starts = array("q")

        def words() -> Iterator[bytes]:
            for start, word in self._lines():
                starts.append(start)
                yield word

        index = index_words(words())
        self._starts = starts  # only when complete: several threads may look up words
        return index

    def _rows(self, ids: Ids) -> Rows:
        rows = np.zeros((len(ids), self.dim), np.float32)
        with self._opened() as file:
            for place in np.argsort(ids).tolist():  # in file order, for compressed files
                file.seek(self._starts[ids[place]])
                word, *numbers = self._spaced(file.readline().rstrip()).rsplit(b" ", self.dim)
                try:
                    rows[place] = [float(number) for number in numbers]
                except ValueError as error:
                    where = f"{self.path}, word {_shown(word)},"
                    raise ValueError(must(where, "have numbers", error)) from error
        return rows

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the start and the word of each row; check the rows' lengths and number."""
        num_rows = stop = 0
        with self._opened() as file:
            for number, line in enumerate(file, 1):
                start, stop = stop, stop + len(line)
                text = self._spaced(line.rstrip(b" \t\r\n"))
                if b"\r" in text:
                    self._fail(number, r"end in \n or \r\n", _shown(text))
                if not text or (number == 1 and self._num_rows is not None):
                    continue
                spaces = text.count(b" ")
                # Nearly always the word has no space, and then the numbers need not be cut apart.
                cut = text.split(b" ", 1) if spaces == self.dim else text.rsplit(b" ", self.dim)
                word = cut[0]
                long = not self._dim_is_given and b" " in word
                if (
                    spaces < self.dim
                    or word.endswith(b" ")
                    or (long and _is_number(word.rpartition(b" ")[2]))
                ):
                    self._fail(number, f"hold a word and {self.dim} numbers", _shown(text))
                num_rows += 1
                yield start, word.removeprefix(codecs.BOM_UTF8) if number == 1 else word
        if self._num_rows not in (None, num_rows):
            rule = f"hold the {self._num_rows} rows that its header promises"
            raise ValueError(must(str(self.path), rule, num_rows))

    def _read_first_line(self, given_dim: int | None) -> tuple[int | None, int]:
        """Return the number of rows, where a header gives it, and the length of a vector."""
        with self._opened() as file:
            text = file.readline().removeprefix(codecs.BOM_UTF8).rstrip(b" \t\r\n")
            row = file.readline().rstrip(b" \t\r\n") if read_header(text) else text
        rest = row.partition(b"\t")[2]
        self._tabs = bool(rest) and all(map(_is_number, rest.split()))
        counts = read_header(self._spaced(text))
        numbers = list(takewhile(_is_number, reversed(self._spaced(row).split(b" ")[1:])))
        self._dim_is_given = bool(counts or given_dim)
        num_rows, dim = counts or (None, given_dim or len(numbers))
        if dim < 1:
            self._fail(1, "hold a word and its numbers", _shown(text))
        # a word may end in one number, as "10 000" does
        if len(numbers) > dim + 1 or given_dim not in (None, dim):
            self._fail(
                1,
                f"lead to vectors of {dim if given_dim is None else given_dim} numbers",
                _shown(text),
            )
        return num_rows, dim

    def _spaced(self, text: bytes) -> bytes:
        """Return a line with spaces for tabs, if the first row separates its numbers by tabs."""
        return text.replace(b"\t", b" ") if self._tabs else text

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes] | Any]:
        """Open the file, compressed or not; an error names the file if it is damaged."""
        opener = {".gz": gzip.open, ".xz": lzma.open}.get(self.path.suffix, open)
        try:
            with opener(self.path, "rb") as file:  # type: ignore[operator]
                yield file
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            got = f"{self.path} ({error})"
            raise ValueError(must("path", "name a whole compressed file", got)) from error

    def _fail(self, number: int, rule: str, value: str) -> NoReturn:
        raise ValueError(must(f"{self.path}, line {number},", rule, value))


def read_header(line: bytes) -> tuple[int, int] | None:
    """Return the numbers of rows and columns, or None if the line is not two whole numbers."""
    found = re.fullmatch(rb"(\d{1,18}) (\d{1,18})", line)
    return None if found is None else (int(found[1]), int(found[2]))


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _shown(text: bytes) -> str:
    return repr(text[:60].decode(errors="backslashreplace"))


LONGEST = 1024  # the most bytes of a word
SPACE = re.compile(b" ")
NO_TEXT = re.compile("[\0-\x1f\x7f-\x9f\ud800-\udfff]")  # controls and lone surrogates
NUMBERS = re.compile("\0|[^\n -~\xa0-\ud7ff\ue000-\U0010ffff].*\n", re.DOTALL)
"""The end of a row's numbers, before a line feed: rows that were cut wrongly have it in words."""


class Word2VecBinaryVectors(WordTable, VectorFiles):
    r"""Word vectors of word2vec's binary format: a line ``<rows> <dim>``, then one row per word.

    ``vector(w) = the numbers of the first row whose word is w``, else zeros. A row is the word, a
    space, `dim` float32 numbers, lowest byte first, and a line feed, which may be left out. If
    words are lower-case, a word that the file lacks gets the vector of its lower-case form, as in
    `TextVectors`. Words may hold spaces where line feeds separate the rows. Without line feeds, a
    file with such words is mostly refused, and a small one may be misread.

    The file is memory-mapped. The constructor walks over all rows once, since the format has no
    index. Afterwards the object needs memory for the rows of a look-up, and about 28 bytes per
    word.

    Args:
        path: The file, not compressed.

    Raises:
        FileNotFoundError: If `path` is not a file.
        ValueError: If the first line is not a header, the file is shorter or longer than its header
            promises, or a row has no word.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> path = Path(tempfile.mkdtemp()) / "two.bin"
        >>> rows = np.array([[1, 2, 3], [4, 5, 6]], "<f4").tobytes()
        >>> _ = path.write_bytes(b"2 3\nhola " + rows[:12] + b"\nhello " + rows[12:] + b"\n")
        >>> Word2VecBinaryVectors(path).vectors(["hello", "adiós"]).tolist()
        [[4.0, 5.0, 6.0], [0.0, 0.0, 0.0]]

    Deviations: gensim warns of a repeated word, and stops at words that are not UTF-8 unless told
    otherwise. Here the first row of a word counts, and bytes that are not UTF-8 become lone
    surrogates, as in `FastTextVectors`.
    """

    file_arguments = frozenset({"path"})

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = check_file(path)
        self._data = map_file(self.path)
        header, feed, _ = self._data[:64].partition(b"\n")
        counts = read_header(header.strip()) if feed else None
        if counts is None:
            self._fail(f"not a header of two whole numbers, or compressed: {header!r}")
        num_rows, self.dim = counts
        size = len(self._data) - len(header) - 1
        # A row takes at least one byte of a word, a space and its numbers.
        if min(counts) < 1 or num_rows * (2 + 4 * self.dim) > size:
            self._fail(f"{len(self._data)} bytes for {num_rows} rows of {self.dim}")
        self._index = self._read(num_rows, len(header) + 1)
        release(self._data)

    def _rows(self, ids: Ids) -> Rows:
        stops = self._index.stops[ids].tolist()
        rows = [np.frombuffer(self._data, "<f4", self.dim, stop + 1) for stop in stops]
        return np.array(rows, np.float32).reshape(-1, self.dim)

    def _read(self, num_rows: int, position: int) -> Words:
        """Index the rows: words have no spaces, unless the words found in this way are not text."""
        found = []
        faults = []
        # without spaces in words, then with them, where line feeds separate rows and where not
        for fed in (None, True) if self._data[-1:] == b"\n" else (None, True, False):
            try:
                found.append(Words(self._data, self._entries(num_rows, position, fed), b" "))
                if not any(map(NO_TEXT.search, found[-1])):
                    break
            except ValueError as error:
                faults.append(error)
        broken = not found or any(map(NUMBERS.search, found[-1]))
        if broken and faults:
            raise faults[0]
        return found[-1]

    def _entries(
        self, num_rows: int, position: int, fed: bool | None
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the start of each word, from `position` on, and the word.

        It ends at the first space, or at the one that `_end` finds if `fed` is not None.
        """
        data, size = self._data, len(self._data)
        for number in range(1, num_rows + 1):
            end = data.find(b" ", position)
            if fed is not None:
                end = self._end(position, number == num_rows, fed)
            stop = end + 1 + 4 * self.dim
            if end <= position or stop > size:
                self._fail(f"no whole row {number} of {num_rows} at byte {position} of {size}")
            yield position, data[position:end]
            position = stop + (data[stop : stop + 1] == b"\n")
        if position != size:
            self._fail(f"{size - position} bytes after the {num_rows} rows of its header")

    def _end(self, position: int, last: bool, fed: bool) -> int:
        """Return the space after a word that may hold spaces itself; -1 if none is found.

        The word and the one after its numbers are text. If `fed`, there is a line feed before the
        next word, too. If not, a second such space makes the row ambiguous, because bytes of
        numbers may be text by chance.
        """
        data, ends = self._data, []
        for match in SPACE.finditer(data, position, position + LONGEST):
            stop = match.end() + 4 * self.dim
            feed = fed and data[stop : stop + 1] == b"\n"
            follower = data[stop + feed : stop + LONGEST].partition(b" ")[0]
            sound = stop + feed == len(data) if last else feed == fed and _is_text(follower)
            if sound and _is_text(data[position : match.start()]):
                ends.append(match.start())
        return ends[0] if len(ends) == 1 or (fed and ends) else -1

    def _fail(self, what: str) -> NoReturn:
        raise ValueError(must("path", "name a whole word2vec .bin file", f"{self.path} ({what})"))


def _is_text(word: bytes) -> bool:
    """Return whether a word is text, which the bytes of numbers hardly ever are."""
    try:
        return bool(word) and not NO_TEXT.search(word.decode("utf-8"))
    except UnicodeDecodeError:
        return False
