"""Several sources of word vectors as one: the first that knows a word gives its vector."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from polyembed._checks import class_name, must, require
from polyembed.saving import VectorFiles
from polyembed.vectors.adapters import as_source
from polyembed.vectors.protocol import Rows, WordVectors, check_words


class JoinedVectors(VectorFiles):
    """Sources of one space as one: ``vector(w) = s(w)`` of the first source ``s`` that knows ``w``.

    For spaces that `polyembed.align_spaces` has aligned, and for text in several languages: for
    example the matrix language first, and the embedded language for the words that it lacks. A
    source knows the words of its vocabulary (``word in source``), or, where it has none, the words
    whose vector is not zero. A word that no source knows has the first spelled vector that is not
    zero.

    Args:
        sources: Sources of vectors of one length, the most trusted first.

    Raises:
        ValueError: No source, or vectors of different lengths.
        TypeError: Something else than sources.

    Example:
        >>> class Length:
        ...     dim = 1
        ...     def __init__(self, *words): self.words = words
        ...     def vectors(self, words): return np.float32([[len(w) if w in self.words else 0] for w in words])
        >>> JoinedVectors([Length("me", "no"), Length("me", "song")]).vectors(["me", "song", "?"]).tolist()
        [[2.0], [4.0], [0.0]]
    """

    def __init__(self, sources: Sequence[WordVectors]) -> None:
        if not isinstance(sources, Iterable):
            raise TypeError(must("sources", "be a sequence of sources", class_name(sources)))
        self.sources = tuple(
            as_source(source, name=f"sources[{i}]") for i, source in enumerate(sources)
        )
        require(len(self.sources) > 0, "sources", "hold at least one source", "none")
        dims = [source.dim for source in self.sources]
        require(len(set(dims)) == 1, "sources", "have vectors of one length", dims)

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return self.sources[0].dim

    @property
    def words(self) -> list[str]:
        """The words of all vocabularies, in the order of the sources."""
        return list(
            dict.fromkeys(word for source in self.sources for word in getattr(source, "words", ()))
        )

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and any(_knows(source, [word])[0] for source in self.sources)

    def vectors(self, words: Sequence[str]) -> Rows:
        """Read or spell the words; return float32 rows in their order, ``(len(words), dim)``."""
        check_words(words)
        out = np.zeros((len(words), self.dim), np.float32)
        if not len(words):
            return out
        known = np.stack([_knows(source, words) for source in self.sources])
        first = np.where(known.any(0), known.argmax(0), -1)
        for i, source in enumerate(self.sources):
            places = np.flatnonzero((first == i) | ((first == -1) & ~out.any(1)))
            if len(places):
                out[places] = source.vectors([words[place] for place in places.tolist()])
        return out

    def files(self) -> dict[str, Path]:
        """Return the files of every source, with its number before each name."""
        return {
            f"{i}.{name}": path
            for i, source in enumerate(self.sources)
            if isinstance(source, VectorFiles)
            for name, path in source.files().items()
        }


def _knows(source: WordVectors, words: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which words a source knows."""
    if hasattr(source, "__contains__"):
        return np.array([word in source for word in words], bool)
    known: npt.NDArray[np.bool_] = (np.asarray(source.vectors(words)) != 0).any(1)
    return known
