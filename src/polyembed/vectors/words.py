"""Tables with one row per word: an index by hash, and the rule for tables in lower case."""

import mmap
from abc import abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from polyembed._checks import check_words, class_name, must, require
from polyembed.vectors.protocol import Rows, Vocabulary, WordVectors

Ids = npt.NDArray[np.int64]
Buffer = bytes | bytearray | mmap.mmap


def map_file(path: Path) -> bytes | mmap.mmap:
    """Map a file into memory without reading it; an empty file gives empty bytes."""
    with path.open("rb") as file:
        empty = path.stat().st_size == 0
        return b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def release(data: Buffer) -> None:
    """Free the pages of a mapped file that were read; they stay in the system's cache."""
    if isinstance(data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
        data.madvise(mmap.MADV_DONTNEED)


def encode_word(word: str) -> bytes:
    """Encode a word; a surrogate that represents an invalid byte becomes this byte."""
    try:
        return word.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return word.encode("utf-8", "surrogatepass")


class Words:
    """The words of a buffer, found by hash: about 28 bytes per word, where a dict takes 130.

    Args:
        data: The buffer, in which `end` follows each word.
        entries: The start of each word in the buffer, and the word.
        end: The byte after each word.
    """

    def __init__(self, data: Buffer, entries: Iterable[tuple[int, bytes]], end: bytes) -> None:
        starts, lengths, hashes = array("q"), array("i"), array("q")
        for start, word in entries:
            starts.append(start)
            lengths.append(len(word))
            hashes.append(hash(word))
        self._data, self._end = data, end
        self.starts = np.array(starts, np.int64)
        self.stops = self.starts + np.array(lengths, np.int64)
        keys = np.array(hashes, np.int64)
        order = np.argsort(keys, kind="stable")  # the first of repeated words comes first
        self._order, self._keys = order.astype(np.int32), keys[order]

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[str]:
        for start, stop in zip(self.starts.tolist(), self.stops.tolist(), strict=True):
            yield self._data[start:stop].decode("utf-8", "surrogateescape")

    def find(self, words: Sequence[bytes]) -> Ids:
        """Return the number of each word's first entry, or -1 if the word is unknown."""
        keys = np.fromiter(map(hash, words), np.int64, len(words))
        begins, ends = (np.searchsorted(self._keys, keys, side) for side in ("left", "right"))
        found = np.full(len(words), -1)
        for i in np.flatnonzero(begins < ends).tolist():
            entry = words[i] + self._end
            for place in self._order[begins[i] : ends[i]].tolist():
                start = self.starts[place]
                if self._data[start : start + len(entry)] == entry:
                    found[i] = place
                    break
        return found


def index_words(words: Iterable[bytes]) -> Words:
    """Copy words without line feeds into a buffer and index them."""
    data = bytearray()

    def entries() -> Iterator[tuple[int, bytes]]:
        for word in words:
            yield len(data), word
            data.extend(word + b"\n")

    return Words(data, entries(), b"\n")


class WordTable(Vocabulary):
    """A table with one row per word; all other words get zeros.

    If each word of the table is lower-case or, as ``<UNK>``, in capitals alone, a word that the
    table lacks gets the row of its lower-case form. Bytes that are not UTF-8 become lone
    surrogates.
    """

    dim: int
    _index: Words
    """The words in the order of their rows."""

    @abstractmethod
    def _rows(self, ids: Ids) -> Rows:
        """Return the rows with these numbers."""

    @property
    def words(self) -> list[str]:
        """The words in the order of their rows, repetitions left out."""
        return list(dict.fromkeys(self._index))

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and bool(self._find([word])[0] >= 0)

    def vectors(self, words: Sequence[str]) -> Rows:
        """Return the rows of the words as float32, ``(len(words), dim)``."""
        words = check_words(words)
        out = np.zeros((len(words), self.dim), np.float32)
        ids = self._find(words)
        known = ids >= 0
        out[known] = self._rows(ids[known])
        odd = np.flatnonzero(~np.isfinite(out).all(1))
        found = f"NaN or an infinity for {words[odd[0]]!r}" if len(odd) else None
        require(found is None, f"the numbers of {self!r}", "be finite", found)
        return out

    def table(self) -> tuple[list[str], Rows]:
        """Return the words of all rows, repetitions included, and the rows."""
        return list(self._index), self._rows(np.arange(len(self._index)))

    @cached_property
    def _is_lower(self) -> bool:
        return all(word == word.lower() or word.isupper() for word in self._index)

    def _find(self, words: Sequence[str]) -> Ids:
        ids = self._index.find([encode_word(word) for word in words])
        missing = np.flatnonzero(ids < 0)
        if len(missing) and self._is_lower:
            lower = [encode_word(words[i].lower()) for i in missing.tolist()]
            ids[missing] = self._index.find(lower)
        return ids


def as_source(vectors: Any, *, name: str = "source") -> WordVectors:
    """Return `vectors` as a source of word vectors: itself, or gensim's ``KeyedVectors`` adapted.

    Args:
        vectors: An object with ``dim`` and ``vectors(words)``, or else with ``vector_size``,
            ``key_to_index`` and ``get_vector(word)``. If it also has ``vectors_ngrams``, as the
            ``wv`` of gensim's fastText, ``get_vector`` spells the words that it lacks; in
            other ``KeyedVectors``, a lacking word has the row of its lower-case form where all
            words are lower-case (as in `TextVectors`), else zeros.
        name: The argument's name, for the error.

    Returns:
        The source: `vectors` itself, or an adapter around it.

    Raises:
        TypeError: If `vectors` is neither kind of object.

    Example:
        >>> class Keyed:
        ...     vector_size, key_to_index = 2, {"me": 0}
        ...     def get_vector(self, word): return {"me": np.array([1.0, 2.0])}[word]
        >>> as_source(Keyed()).vectors(["me", "song"]).tolist()
        [[1.0, 2.0], [0.0, 0.0]]
    """
    if hasattr(vectors, "dim") and callable(getattr(vectors, "vectors", None)):
        return vectors  # type: ignore[no-any-return]
    if hasattr(vectors, "key_to_index"):
        return _KeyedVectors(vectors)
    raise TypeError(must(name, "have dim and vectors(words)", class_name(vectors)))


class _KeyedVectors(WordTable):
    """An adapter of gensim's ``KeyedVectors``; a pickle has these alone, not the index by hash."""

    def __init__(self, keyed: Any) -> None:
        self.keyed, self.dim = keyed, int(keyed.vector_size)
        self._index = index_words(encode_word(str(word)) for word in keyed.key_to_index)
        if hasattr(keyed, "vectors_ngrams"):  # it spells the words that it lacks
            self._is_lower = False

    def _rows(self, ids: Ids) -> Rows:
        names = list(self.keyed.key_to_index)
        rows = [self.keyed.get_vector(names[i]) for i in ids.tolist()]
        return np.array(rows, np.float32).reshape(-1, self.dim)

    def vectors(self, words: Sequence[str]) -> Rows:
        """Return the rows of the words, and what gensim's fastText spells for unknown words."""
        words = check_words(words)
        rows = super().vectors(words)
        if hasattr(self.keyed, "vectors_ngrams"):
            for i in np.flatnonzero(self._find(words) < 0).tolist():
                # a word without n-grams, or with a lone surrogate, keeps its zeros
                with suppress(KeyError, UnicodeEncodeError):
                    rows[i] = self.keyed.get_vector(words[i]) if words[i] else 0
        return rows

    def __repr__(self) -> str:
        return str(self.keyed)  # gensim's name for it, without an address

    def __reduce__(self) -> tuple[Any, ...]:
        return _KeyedVectors, (self.keyed,)
