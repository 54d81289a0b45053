"""fastText's binary format, read through a memory map; no size in a file is believed beyond the file's length."""

import mmap
import os
import re
import struct
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from polyembed._checks import must
from polyembed.vectors.protocol import Rows

MAGIC = 793712314  # the first four bytes of a file since version 11; older files start with `dim`
NEWEST_VERSION = 12
SUPERVISED = 3
NUM_CENTROIDS = 256

# An entry is a word, a zero byte, its count and its type. Anything else matches the rest of the
# file, so that a broken dictionary ends the scan instead of restarting it at every byte.
ENTRY = re.compile(rb"([^\0]*+)\0.{8}[\0\1]|.+", re.DOTALL)

Ids = npt.NDArray[np.int64]


class FastTextFile(NamedTuple):
    """The parts of a model that word vectors need.

    Attributes:
        version: 0 for a file without a version number.
        dim: The length of a vector.
        bucket: The number of hashed n-grams.
        min_n: Code points in the shortest n-gram.
        max_n: Code points in the longest n-gram; 0 where words have none.
        words: The vocabulary, without the labels.
        kept: The (n-gram, row) pairs of a pruned model, sorted; None for others.
        matrix: The rows of the words, then the rows of the n-grams.
    """

    version: int
    dim: int
    bucket: int
    min_n: int
    max_n: int
    words: "Words"
    kept: npt.NDArray[np.int32] | None
    matrix: "Matrix"


def read_fasttext(path: Path) -> FastTextFile:
    """Map a model and check that its parts fit together."""
    cursor = _Cursor(path)
    (dim,), version = cursor.unpack("<i"), 0
    if dim == MAGIC:
        version, dim = cursor.unpack("<2i")
        if not 0 < version <= NEWEST_VERSION:
            cursor.fail(f"version {version}; this library reads up to {NEWEST_VERSION}")
    *_, loss, model, bucket, min_n, max_n, _, _ = cursor.unpack("<11id")
    if dim <= 0 or bucket < 0 or not 1 <= loss <= 4 or not 1 <= model <= 3:
        with path.open("rb") as file:
            if re.match(rb"\d+ \d+\n", file.read(64)):
                cursor.fail("word2vec's binary format, which Word2VecBinaryVectors reads")
        cursor.fail(f"no fastText header: dim {dim}, loss {loss}, model {model}, bucket {bucket}")
    # Supervised models before version 12 store n-gram lengths that they did not train with.
    max_n = 0 if bucket == 0 or (model == SUPERVISED and version < 12) else max_n
    words, kept = _read_dictionary(cursor, version)
    quantized = bool(cursor.unpack("<?")[0]) if version else False
    matrix = _read_matrix(cursor, quantized)
    num_ngrams = len(kept) if kept is not None else bucket if max_n else 0
    # A matrix without rows would promise a `dim` that the file does not hold.
    if matrix.dim != dim or matrix.num_rows < max(1, len(words) + num_ngrams):
        cursor.fail("matrix and dictionary do not fit together")
    _read_matrix(cursor, bool(cursor.unpack("<?")[0]) and quantized if version else False)
    return FastTextFile(version, dim, bucket, min_n, max_n, words, kept, matrix)


class _Cursor:
    """A position in a mapped file, with errors that name the file."""

    def __init__(self, path: Path) -> None:
        self.path, self.position = path, 0
        with path.open("rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            if not self.size:
                self.fail("empty")
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def fail(self, what: str) -> NoReturn:
        raise ValueError(
            must("path", "name a whole fastText .bin or .ftz file", f"{self.path} ({what})")
        )

    def need(self, size: int) -> int:
        """Step over `size` bytes and return where they start."""
        start = self.position
        if size < 0 or size > self.size - start:
            self.fail(f"{size} bytes expected at byte {start} of {self.size}")
        self.position += size
        return start

    def unpack(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack_from(layout, self.data, self.need(struct.calcsize(layout)))

    def array(self, dtype: str, *shape: int) -> npt.NDArray[Any]:
        """Map an array without reading it."""
        if min(shape) < 0:
            self.fail(f"a size of {min(shape)} before byte {self.position}")
        count = int(np.prod(shape, dtype=object))
        start = self.need(count * np.dtype(dtype).itemsize)
        return np.frombuffer(self.data, dtype, count, start).reshape(shape)


class Words:
    """The words of a mapped file, each followed by `end`, found by hash: about 20 bytes a word; a dict takes 130."""

    def __init__(self, data: mmap.mmap, starts: Ids, hashes: Ids, *, end: bytes = b"\0") -> None:
        order = np.argsort(hashes, kind="stable")
        self._data, self._starts, self._end = data, starts, end
        self._ids, self._hashes = order.astype(np.int32), hashes[order]

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[bytes]:
        for start in self._starts.tolist():
            yield self._data[start : self._data.find(self._end, start)]

    def find(self, words: Sequence[bytes | None]) -> Ids:
        """Return each word's id, or -1."""
        hashes = np.fromiter(map(hash, words), np.int64, len(words))
        begins, ends = (np.searchsorted(self._hashes, hashes, side) for side in ("left", "right"))
        found = np.full(len(words), -1)
        for i in np.flatnonzero(begins < ends).tolist():
            for place in self._ids[begins[i] : ends[i]].tolist():
                start, entry = self._starts[place], (words[i] or b"") + self._end
                if words[i] is not None and self._data[start : start + len(entry)] == entry:
                    found[i] = place
        return found


def _read_dictionary(cursor: _Cursor, version: int) -> tuple[Words, npt.NDArray[np.int32] | None]:
    """Read the words, without the labels, and the (n-gram, row) pairs of a pruned model."""
    size, num_words, num_labels, _ = cursor.unpack("<3iq")
    num_pruned = cursor.unpack("<q")[0] if version else -1
    if min(size, num_words, num_labels) < 0 or size != num_words + num_labels:
        cursor.fail(
            f"a dictionary of {size} entries, {num_words} of them words and {num_labels} labels"
        )
    starts, hashes = array("q"), array("q")
    match = None
    for match in islice(ENTRY.finditer(cursor.data, cursor.position), size):
        starts.append(match.start())
        hashes.append(hash(match[1]))
    if len(starts) < size or (match is not None and match[1] is None):
        cursor.fail(f"a dictionary of {len(starts)} of {size} entries")
    if match is not None:
        cursor.position = match.end()
    words = Words(
        cursor.data, *(np.array(numbers[:num_words], np.int64) for numbers in (starts, hashes))
    )
    if num_pruned < 0:
        return words, None
    pruned = cursor.array("<i4", num_pruned, 2)
    if num_pruned and not 0 <= pruned[:, 1].min() <= pruned[:, 1].max() < num_pruned:
        cursor.fail("an n-gram without a row")
    return words, pruned[np.argsort(pruned[:, 0])]


def _read_matrix(cursor: _Cursor, quantized: bool) -> "Matrix":
    return _QuantizedMatrix(cursor) if quantized else Matrix(cursor)


class Matrix:
    """Float rows in the file."""

    def __init__(self, cursor: _Cursor) -> None:
        self.num_rows, self.dim = cursor.unpack("<2q")
        # As bytes: floats in a file are not aligned, and NumPy would copy all of them to take a
        # row.
        self._bytes = cursor.array("u1", self.num_rows, self.dim * 4)
        self._file = cursor.data

    def rows(self, ids: Ids) -> Rows:
        return np.take(self._bytes, ids, axis=0).view("<f4")

    def release(self) -> None:
        """Release the pages that were read; they stay in the system's cache."""
        if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            self._file.madvise(mmap.MADV_DONTNEED)


class _QuantizedMatrix(Matrix):
    """Rows as codes of a product quantiser: each slice of a row is one of 256 centroids."""

    def __init__(self, cursor: _Cursor) -> None:
        self._file = cursor.data
        has_norms, self.num_rows, self.dim, num_codes = cursor.unpack("<?qqi")
        codes = cursor.array("u1", num_codes)
        self._slices = _read_centroids(cursor, self.dim)
        if num_codes != self.num_rows * len(self._slices):
            cursor.fail(f"{num_codes} codes for {self.num_rows} rows of {len(self._slices)}")
        self._codes = codes.reshape(self.num_rows, len(self._slices))
        self._norms = (
            (cursor.array("u1", self.num_rows), _read_centroids(cursor, 1)[0])
            if has_norms
            else None
        )

    def rows(self, ids: Ids) -> Rows:
        codes = self._codes[ids]
        rows = np.concatenate(
            [centroids[codes[:, i]] for i, centroids in enumerate(self._slices)], axis=1
        )
        if self._norms is not None:
            codes, norms = self._norms
            rows *= norms[codes[ids]]
        return rows


def _read_centroids(cursor: _Cursor, dim: int) -> list[Rows]:
    """Read a product quantiser of vectors of length `dim`: the 256 centroids of each slice."""
    stored_dim, num_slices, width, last_width = cursor.unpack("<4i")
    most = (cursor.size - cursor.position) // (
        NUM_CENTROIDS * 4
    )  # numbers of each centroid that the file can hold
    fits = stored_dim == dim <= most and 0 < num_slices <= dim and min(width, last_width) > 0
    if not fits or width * (num_slices - 1) + last_width != dim:
        cursor.fail(f"a quantiser of {stored_dim} dimensions in {num_slices} slices of {width}")
    # A copy, since floats in a file are not aligned; it is small.
    widths = [width] * (num_slices - 1) + [last_width]
    return [cursor.array("<f4", NUM_CENTROIDS, width).astype(np.float32) for width in widths]
