"""word2vec's binary format, read through a memory map."""

import os
import re
from collections.abc import Iterator
from typing import ClassVar, NoReturn

import numpy as np

from polyembed._checks import check_file, must
from polyembed.saving import VectorFiles
from polyembed.vectors.protocol import Rows
from polyembed.vectors.textfile import read_header
from polyembed.vectors.words import Ids, Words, WordTable, map_file, release

LONGEST = 1024  # bytes of a word
SPACE = re.compile(b" ")


class Word2VecBinaryVectors(WordTable, VectorFiles):
    r"""Word vectors of word2vec's binary format: a line ``<rows> <dim>``, then one row per word.

    ``vector(w) = the numbers of the first row whose word is w``, else zeros. A row is the word, a
    space, `dim` float32 numbers, lowest byte first, and a line feed, which may be left out. Where
    no word has an upper-case letter, a word that the file lacks has the vector of its lower form.

    The file is memory-mapped. The constructor walks over all rows once, since the format has no
    index. Afterwards the object needs memory for the rows asked for, and about 20 bytes per word.

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

    file_arguments: ClassVar[frozenset[str]] = frozenset({"path"})

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
        rows = np.zeros((len(ids), self.dim), np.float32)
        for row, stop in zip(rows, self._index.stops[ids].tolist(), strict=True):
            row[:] = np.frombuffer(self._data, "<f4", self.dim, stop + 1)
        return rows

    def _read(self, num_rows: int, position: int) -> Words:
        """Index the rows: of words without a space, or if these are no text, with spaces."""
        found: list[Words] = []
        faults: list[ValueError] = []
        for spaced in (False, True):
            try:
                found.append(Words(self._data, self._entries(num_rows, position, spaced), b" "))
                if all(word.isprintable() for word in found[0]):
                    break
            except ValueError as error:
                faults.append(error)
        if not found:
            raise faults[0]
        return found[-1]

    def _entries(self, num_rows: int, position: int, spaced: bool) -> Iterator[tuple[int, bytes]]:
        """Yield where each word starts, from `position` on, and the word, up to the first space.

        Where words may hold spaces, a word ends at the first space at which it is text, and so is
        the next word.
        """
        data, size = self._data, len(self._data)
        for number in range(1, num_rows + 1):
            for match in SPACE.finditer(data, position, position + LONGEST):
                word, stop = data[position : match.start()], match.end() + 4 * self.dim
                after = stop + (data[stop : stop + 1] == b"\n")
                last = number == num_rows
                follower = data[after : data.find(b" ", after, after + LONGEST)]
                sound = after == size if last else _is_text(follower)
                if not spaced or (sound and _is_text(word)):
                    break
            else:
                word, stop, after = b"", size, size
            if not word or stop > size:
                self._fail(f"no whole row {number} of {num_rows} at byte {position} of {size}")
            yield position, word
            position = after
        if position != size:
            self._fail(f"{size - position} bytes after the {num_rows} rows of its header")

    def _fail(self, what: str) -> NoReturn:
        raise ValueError(must("path", "name a whole word2vec .bin file", f"{self.path} ({what})"))


def _is_text(word: bytes) -> bool:
    """Return whether a word is text, which the bytes of numbers hardly ever are."""
    try:
        return bool(word) and word.decode("utf-8").isprintable()
    except UnicodeDecodeError:
        return False
