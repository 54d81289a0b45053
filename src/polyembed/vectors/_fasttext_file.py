"""fastText's binary format, read through a memory map; sizes are checked against the file's."""

import re
import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from polyembed._checks import must
from polyembed.vectors.protocol import Rows
from polyembed.vectors.words import Ids, Words, map_file

MAGIC = 793712314  # the first four bytes of a file since version 11; older files start with `dim`
NEWEST_VERSION = 12
SUPERVISED = 3

# An entry is a word, a zero byte, its count and its type. Anything else matches the rest of the
# file, so that a broken dictionary ends the scan instead of restarting it at every byte.
ENTRY = re.compile(rb"([^\0]*+)\0.{8}[\0\1]|.+", re.DOTALL)


class FastTextFile:
    """The parts of a model that word vectors need.

    Args:
        path: The file.

    Attributes:
        version: The version of the format; 0 for a file without a version number.
        dim: The length of a vector.
        bucket: The number of hashed n-grams.
        min_n: The number of code points in the shortest n-gram.
        max_n: The number of code points in the longest n-gram; 0 if words have no n-grams.
        words: The vocabulary, without the labels.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.data, self.position = path, map_file(path), 0
        (self.dim,), self.version = self.unpack("<i"), 0
        if self.dim == MAGIC:
            self.version, self.dim = self.unpack("<2i")
            if not 0 < self.version <= NEWEST_VERSION:
                self.fail(f"version {self.version}; this library reads up to {NEWEST_VERSION}")
        *_, loss, model, self.bucket, self.min_n, max_n, _, _ = self.unpack("<11id")
        if self.dim <= 0 or self.bucket < 0 or not 1 <= loss <= 4 or not 1 <= model <= 3:
            if re.match(rb"\d+ \d+\n", self.data):
                self.fail(
                    "a word2vec file: TextVectors reads text, Word2VecBinaryVectors .bin files"
                )
            self.fail(f"no header: dim {self.dim}, loss {loss}, model {model}")
        # Supervised models before version 12 store n-gram lengths that they did not train with.
        spells = self.bucket > 0 and not (model == SUPERVISED and self.version < 12)
        self.max_n = max_n if spells else 0
        size, num_words, num_labels, _ = self.unpack("<3iq")
        pruned = self.version > 0 and self.unpack("<q")[0] >= 0
        if min(num_words, num_labels) < 0 or size != num_words + num_labels:
            self.fail(f"a dictionary of {num_words} words and {num_labels} labels, {size} in all")
        self.words = Words(self.data, self._entries(size, num_words), b"\0")
        self._matrix: npt.NDArray[np.uint8] | None = None
        if pruned or (self.version and self.unpack("<?")[0]):
            return  # a quantised model, which is opened for its labels only
        self._matrix = self._read_matrix(max(1, num_words + (self.bucket if self.max_n else 0)))
        if self.version:
            self.unpack("<?")
        self._read_matrix(0)  # the outputs, read to check that the file is whole

    def rows(self, ids: Ids) -> Rows:
        """Return the rows of the words, which come first, and of the n-grams."""
        if self._matrix is None:
            self.fail("a quantised model, which has labels only")
        return np.take(self._matrix, ids, axis=0).view("<f4")

    def _entries(self, size: int, num_words: int) -> Iterator[tuple[int, bytes]]:
        """Yield the start of each word and the word, and step over the labels after them."""
        count = 0
        for match in islice(ENTRY.finditer(self.data, self.position), size):
            if match[1] is None:
                break
            if count < num_words:
                yield match.start(), match[1]
            count, self.position = count + 1, match.end()
        if count < size:
            self.fail(f"a dictionary of {count} of {size} entries")

    def _read_matrix(self, least: int) -> npt.NDArray[np.uint8]:
        """Map float rows as bytes: floats in a file are not aligned, and NumPy would copy all."""
        num_rows, dim = self.unpack("<2q")
        if dim != self.dim or num_rows < least:
            self.fail("matrix and dictionary do not fit together")
        size = num_rows * dim * 4
        start = self.need(size)
        return np.frombuffer(self.data, np.uint8, size, start).reshape(num_rows, dim * 4)

    def fail(self, what: str) -> NoReturn:
        """Raise an error that names the file."""
        raise ValueError(must("path", "name a whole fastText .bin file", f"{self.path} ({what})"))

    def need(self, size: int) -> int:
        """Step over `size` bytes and return where they start."""
        start = self.position
        if not 0 <= size <= len(self.data) - start:
            self.fail(f"{size} bytes expected at byte {start} of {len(self.data)}")
        self.position += size
        return start

    def unpack(self, layout: str) -> tuple[Any, ...]:
        """Read the numbers that `layout` describes."""
        return struct.unpack_from(layout, self.data, self.need(struct.calcsize(layout)))
