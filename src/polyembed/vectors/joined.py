"""Several sources of word vectors as one: the first that knows a word gives its vector."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from polyembed._checks import class_name, must, require
from polyembed._pretrained import VectorFiles, repr_call
from polyembed.vectors.protocol import Rows, WordVectors, check_words


class JoinedVectors(VectorFiles):
    """Sources of one space as one: ``vector(w) = s(w)`` of the first source ``s`` that knows ``w``.

    For spaces that `polyembed.align` has laid over one another, and for text in several languages: the matrix
    language first, say, and the embedded language for what it lacks. A source knows the words of its vocabulary
    (``word in source``), or, where it has none, the words whose vector is not zero. A word that none knows has the
    first spelled vector that is not zero.

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

    Deviations: none. Winata 2021 does not say which vector a word has that both of two aligned spaces know.
    """

    def __init__(self, sources: Sequence[WordVectors]) -> None:
        if not isinstance(sources, Iterable):
            raise TypeError(must("sources", "be a sequence of sources", class_name(sources)))
        self.sources = tuple(sources)
        require(len(self.sources) > 0, "sources", "hold at least one source", "none")
        for i, source in enumerate(self.sources):
            if not (hasattr(source, "vectors") and hasattr(source, "dim")):
                raise TypeError(must(f"sources[{i}]", "have dim and vectors(words)", class_name(source)))
        dims = [source.dim for source in self.sources]
        require(len(set(dims)) == 1, "sources", "have vectors of one length", dims)

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return self.sources[0].dim

    @property
    def words(self) -> list[str]:
        """The words of all vocabularies, the first source's first."""
        return list(dict.fromkeys(word for source in self.sources for word in getattr(source, "words", ())))

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and any(_known(source, [word])[0] for source in self.sources)

    def vectors(self, words: Sequence[str]) -> Rows:
        """Look up, or spell, the vectors of `words`.

        Args:
            words: The words, repetitions allowed.

        Returns:
            Float32 rows in the order of `words`, ``(len(words), dim)``.

        Raises:
            TypeError: One string instead of words.
        """
        check_words(words)
        out = np.zeros((len(words), self.dim), np.float32)
        if not len(words):
            return out
        known = np.array([_known(source, words) for source in self.sources], bool).reshape(len(self.sources), -1)
        first = np.where(known.any(0), known.argmax(0), -1)
        for i, source in enumerate(self.sources):
            places = np.flatnonzero((first == i) | ((first == -1) & ~out.any(1)))
            if len(places):
                out[places] = source.vectors([words[place] for place in places.tolist()])
        return out

    def files(self) -> Mapping[str, Path]:
        """Name the files on disk.

        Returns:
            Those of every source, its number before each name.
        """
        return {
            f"{i}.{name}": path
            for i, source in enumerate(self.sources)
            if isinstance(source, VectorFiles)
            for name, path in source.files().items()
        }

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write nothing: each source writes its own."""
        return {}

    def get_config(self) -> dict[str, Any]:
        """Give the sources."""
        return {"sources": list(self.sources)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Join the sources again."""
        return cls(config["sources"])

    def __repr__(self) -> str:
        return repr_call(self, sources=list(self.sources))


def _known(source: WordVectors, words: Sequence[str]) -> Any:
    """Tell which words a source knows."""
    if hasattr(source, "__contains__"):
        return [word in source for word in words]
    return np.asarray(source.vectors(words)).any(1)
