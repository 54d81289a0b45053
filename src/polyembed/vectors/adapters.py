"""Other packages' word vectors under the contract of `WordVectors`."""

from typing import Any

import numpy as np

from polyembed._checks import class_name, must
from polyembed.vectors.protocol import Rows, WordVectors
from polyembed.vectors.words import Ids, WordTable, encode_word, index_words


def as_source(vectors: Any, *, name: str = "source") -> WordVectors:
    """Return `vectors` as a source of word vectors: itself, or gensim's ``KeyedVectors`` adapted.

    Args:
        vectors: An object with ``dim`` and ``vectors(words)``, or else with ``vector_size``,
            ``key_to_index`` and ``get_vector(word)``.
        name: The argument's name, for the error.

    Returns:
        A source.

    Raises:
        TypeError: If `vectors` has neither.

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
    """gensim's ``KeyedVectors``."""

    def __init__(self, keyed: Any) -> None:
        self.keyed, self.dim = keyed, int(keyed.vector_size)
        self._index = index_words(encode_word(str(word)) for word in keyed.key_to_index)

    def _rows(self, ids: Ids) -> Rows:
        names = list(self.keyed.key_to_index)
        rows = [self.keyed.get_vector(names[i]) for i in ids.tolist()]
        return np.array(rows, np.float32).reshape(-1, self.dim)
