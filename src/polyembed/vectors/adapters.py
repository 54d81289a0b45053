"""Other packages' word vectors under the contract of `WordVectors`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyembed._checks import class_name, must
from polyembed.vectors.protocol import Rows, WordVectors, check_words


def as_source(vectors: Any, *, name: str = "source") -> WordVectors:
    """Return `vectors` as a source of word vectors: itself, or gensim's ``KeyedVectors`` in an
    adapter.

    Where no word of ``KeyedVectors`` has an upper-case letter, a word that is missing has the
    vector of ``w.lower()``, as in `TextVectors`.

    Args:
        vectors: What has ``dim`` and ``vectors(words)``, or else ``vector_size``, ``key_to_index``
            and ``get_vector(word)``.
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
    if all(
        hasattr(vectors, attribute) for attribute in ("vector_size", "key_to_index", "get_vector")
    ):
        return _KeyedVectors(vectors)
    raise TypeError(must(name, "have dim and vectors(words)", class_name(vectors)))


class _KeyedVectors:
    """gensim's ``KeyedVectors``; fastText's also spell words outside their vocabulary."""

    def __init__(self, keyed: Any) -> None:
        self.keyed = keyed
        self._has_case = any(str(word) != str(word).lower() for word in self.words)

    @property
    def dim(self) -> int:
        return int(self.keyed.vector_size)

    @property
    def words(self) -> list[str]:
        return list(self.keyed.key_to_index)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and any(
            form in self.keyed.key_to_index for form in self._forms(word)
        )

    def vectors(self, words: Sequence[str]) -> Rows:
        check_words(words)
        out = np.zeros((len(words), self.dim), np.float32)
        for row, word in zip(out, words, strict=True):
            for form in self._forms(word):
                try:
                    row[:] = self.keyed.get_vector(form)
                    break
                except KeyError:  # unknown: zeros
                    continue
        return out

    def _forms(self, word: str) -> tuple[str, ...]:
        """Return what a word is looked up as, one after the other."""
        return (word,) if self._has_case else (word, word.lower())
