"""Several sources of word vectors as one: the first that knows a word gives its vector."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from polyembed._checks import check_words, require
from polyembed.saving import Configurable
from polyembed.vectors.protocol import Rows, Vocabulary, WordVectors
from polyembed.vectors.words import as_source


class JoinedVectors(Vocabulary, Configurable):
    """Sources of one space as one: ``vector(w) = s(w)`` of the first source ``s`` that knows ``w``.

    For spaces that `polyembed.align_spaces` has aligned, and for text in several languages: for
    example the matrix language first, and the embedded language for the words that it lacks. A
    source knows the words of its vocabulary (``word in source``), or, where it has none, the words
    whose vector is not zero. A word outside all sources has the first spelled vector with a number
    other than zero.

    Args:
        sources: Sources of vectors of one length, the most trusted first.

    Raises:
        ValueError: If `sources` is empty, or the vectors have different lengths.
        TypeError: If one of `sources` is not a source.

    Example:
        >>> class Length:
        ...     dim = 1
        ...     def __init__(self, *words): self.words = words
        ...     def vectors(self, words):
        ...         return np.float32([[len(w) if w in self.words else 0] for w in words])
        >>> joined = JoinedVectors([Length("me", "no"), Length("me", "song")])
        >>> joined.vectors(["me", "song", "?"]).tolist()
        [[2.0], [4.0], [0.0]]
    """

    def __init__(self, sources: Iterable[WordVectors]) -> None:
        self.sources = tuple(as_source(source, name="sources") for source in sources)
        require(len(self.sources) > 0, "sources", "hold at least one source", "none")
        dims = [source.dim for source in self.sources]
        require(len(set(dims)) == 1, "sources", "have vectors of one length", dims)
        self.dim = dims[0]

    @property
    def words(self) -> list[str]:
        """The words of all vocabularies, in the order of the sources."""
        words = (word for source in self.sources for word in getattr(source, "words", ()))
        return list(dict.fromkeys(words))

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and any(known_words(s, [word])[0] for s in self.sources)

    def vectors(self, words: Sequence[str]) -> Rows:
        """Return the vectors of the words as float32, ``(len(words), dim)``."""
        check_words(words)
        out = np.zeros((len(words), self.dim), np.float32)
        known = np.stack([known_words(source, words) for source in self.sources])
        first = np.where(known.any(0), known.argmax(0), -1)
        for i, source in enumerate(self.sources):
            places = np.flatnonzero((first == i) | ((first == -1) & ~out.any(1)))
            if len(places):
                out[places] = source.vectors([words[place] for place in places.tolist()])
        return out


def known_words(source: WordVectors, words: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which words a source knows: by its vocabulary, else by their vectors."""
    if hasattr(source, "__contains__"):
        return np.array([word in source for word in words], bool)
    rows = np.asarray(source.vectors(words)).reshape(-1, source.dim)
    known: npt.NDArray[np.bool_] = (rows != 0).any(1)
    return known
