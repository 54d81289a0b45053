"""Other packages' word vectors under the contract of `WordVectors`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyembed._checks import class_name, must
from polyembed.vectors.protocol import Rows, WordVectors, check_words


def as_source(vectors: Any, *, name: str = "source") -> WordVectors:
    """Return `vectors` as a source of word vectors: itself, or gensim's ``KeyedVectors`` in an adapter.

    Args:
        vectors: What has ``dim`` and ``vectors(words)``, or else ``vector_size``, ``key_to_index`` and
            ``get_vector(word)``.
        name: The argument's name, for the error.

    Returns:
        A source.

    Raises:
        TypeError: Something else.

    Example:
        >>> class Keyed:
        ...     vector_size, key_to_index = 2, {"me": 0}
        ...     def get_vector(self, word): return {"me": np.array([1.0, 2.0])}[word]
        >>> as_source(Keyed()).vectors(["me", "song"]).tolist()
        [[1.0, 2.0], [0.0, 0.0]]
    """
    if hasattr(vectors, "dim") and callable(getattr(vectors, "vectors", None)):
        source: WordVectors = vectors
        return source
    if all(hasattr(vectors, attribute) for attribute in ("vector_size", "key_to_index", "get_vector")):
        return _KeyedVectors(vectors)
    raise TypeError(must(name, "have dim and vectors(words)", class_name(vectors)))


class _KeyedVectors:
    """gensim's ``KeyedVectors``; those of fastText also spell words outside their vocabulary."""

    def __init__(self, keyed: Any) -> None:
        self.keyed = keyed

    @property
    def dim(self) -> int:
        return int(self.keyed.vector_size)

    @property
    def words(self) -> list[str]:
        return list(self.keyed.key_to_index)

    def __contains__(self, word: object) -> bool:
        return word in self.keyed.key_to_index

    def vectors(self, words: Sequence[str]) -> Rows:
        check_words(words)
        out = np.zeros((len(words), self.dim), np.float32)
        for row, word in zip(out, words, strict=True):
            try:
                row[:] = self.keyed.get_vector(word)
            except KeyError:  # unknown: zeros
                continue
        return out
