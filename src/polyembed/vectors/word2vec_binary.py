"""word2vec's binary format, read through a memory map; no size in a file is believed beyond the file's length."""

import math
import mmap
import os
from array import array
from collections.abc import Sequence
from typing import ClassVar, NoReturn

import numpy as np
import numpy.typing as npt

from polyembed._checks import check_file, must
from polyembed.saving import VectorFiles
from polyembed.vectors._fasttext_file import Ids, Words
from polyembed.vectors.fasttext import encode_word
from polyembed.vectors.protocol import Rows, check_words
from polyembed.vectors.textfile import GZIP_MAGIC, XZ_MAGIC, read_header

MAX_HEADER = 64  # bytes
MAX_WORD = 1 << 16  # bytes, so that a file without spaces does not fill the memory with one word


class Word2VecBinaryVectors(VectorFiles):
    r"""Word vectors of word2vec's binary format: a line ``<rows> <dim>``, then a row a word.

    ``vector(w) = the numbers of the first row whose word is w``, zeros without one. A row is the
    word, a space, `dim` float32 numbers, lowest byte first, and a line feed, which may be left out.

    The file is memory-mapped. The constructor walks over all rows once, since the format has no
    index; afterwards the object needs memory for the rows asked for, and about 20 bytes for each
    word. It may be pickled and shared with worker processes, which open the file themselves.

    Args:
        path: The file, not compressed.

    Raises:
        FileNotFoundError: No file at `path`.
        ValueError: The first line is not a header, the file is shorter or longer than its header
            promises, or a row has no word. The constructor checks all rows; numbers that are not
            finite are refused when their word is asked for.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> path = Path(tempfile.mkdtemp()) / "two.bin"
        >>> rows = np.array([[1, 2, 3], [4, 5, 6]], "<f4")
        >>> _ = path.write_bytes(b"2 3\nhola " + rows[0].tobytes() + b"\nhello " + rows[1].tobytes() + b"\n")
        >>> Word2VecBinaryVectors(path).vectors(["hello", "adiós"]).tolist()
        [[4.0, 5.0, 6.0], [0.0, 0.0, 0.0]]

    Deviations: gensim warns of a repeated word, and stops at words that are not UTF-8 unless told
    otherwise. Here the first row of a word counts, and bytes that are not UTF-8 become lone
    surrogates, as in `FastTextVectors`.
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset({"path"})

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = check_file(path)
        with self.path.open("rb") as file:
            self._size = os.fstat(file.fileno()).st_size
            header = file.readline(MAX_HEADER)
            if header.startswith((GZIP_MAGIC, XZ_MAGIC)):
                self._fail("compressed; decompress it first")
            counts = read_header(header.strip())
            if counts is None or not header.endswith(b"\n"):
                self._fail(f"no header of two whole numbers, but {header!r}")
            num_rows, self.dim = counts
            # A row takes at least one byte of a word, a space and its numbers.
            if min(counts) < 1 or num_rows * (2 + 4 * self.dim) > self._size - len(header):
                self._fail(f"{self._size} bytes for {num_rows} rows of {self.dim}")
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._starts, self._words = self._read_words(num_rows, len(header))
        self._release()

    @property
    def words(self) -> list[str]:
        """The words of the file in its order, repetitions left out; bytes that are not UTF-8 become lone surrogates."""
        return [word.decode("utf-8", "surrogateescape") for word in self._words]

    def __len__(self) -> int:
        return len(self._words)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and bool(self._words.find([encode_word(word)])[0] >= 0)

    def vectors(self, words: Sequence[str]) -> Rows:
        """Read the words; return float32 rows in their order, ``(len(words), dim)``."""
        check_words(words)
        out = np.zeros((len(words), self.dim), np.float32)
        encoded = [encode_word(word) for word in words]
        for i, found in enumerate(self._words.find(encoded).tolist()):
            if found >= 0:
                out[i] = np.frombuffer(
                    self._data, "<f4", self.dim, self._starts[found] + len(encoded[i] or b"") + 1
                )
                if not np.isfinite(out[i]).all():
                    value = next(number for number in out[i].tolist() if not math.isfinite(number))
                    raise ValueError(
                        must(f"{self.path}, word {words[i]!r},", "have finite numbers", value)
                    )
        self._release()
        return out

    def _read_words(self, num_rows: int, position: int) -> tuple[Ids, Words]:
        """Walk over the rows from `position` on; return where words start, and the words, without repetitions."""
        data, size, row = self._data, self._size, 4 * self.dim
        starts, hashes = array("q"), array("q")
        for number in range(num_rows):
            if number and data[position : position + 1] == b"\n":
                position += 1
            space = data.find(b" ", position, position + MAX_WORD)
            if space <= position:
                found = "no word" if space == position else "no space after a word"
                self._fail(
                    f"{found} in row {number + 1} of {num_rows}, at byte {position} of {size}"
                )
            if row > size - space - 1:
                self._fail(
                    f"{row} bytes expected at byte {space + 1} of {size}, in row {number + 1} of {num_rows}"
                )
            starts.append(position)
            hashes.append(hash(data[position:space]))
            position = space + 1 + row
        if data[position : position + 2] not in (b"", b"\n"):
            self._fail(
                f"{size - position} bytes after the {num_rows} rows that its header promises"
            )
        places, keys = np.array(starts, np.int64), np.array(hashes, np.int64)
        first = self._are_first(places, keys)
        places = places[first]
        return places, Words(data, places, keys[first], end=b" ")

    def _are_first(self, starts: Ids, hashes: Ids) -> npt.NDArray[np.bool_]:
        """Return which words have not stood in an earlier row; only words of equal hashes are compared."""
        _, index, counts = np.unique(hashes, return_inverse=True, return_counts=True)
        first, seen = np.ones(len(starts), bool), set()
        for i in np.flatnonzero(counts[index] > 1).tolist():
            word = self._data[starts[i] : self._data.find(b" ", starts[i])]
            first[i] = word not in seen
            seen.add(word)
        return first

    def _release(self) -> None:
        """Release the pages that were read; they stay in the system's cache."""
        if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            self._data.madvise(mmap.MADV_DONTNEED)

    def _fail(self, what: str) -> NoReturn:
        raise ValueError(must("path", "name a whole word2vec .bin file", f"{self.path} ({what})"))
