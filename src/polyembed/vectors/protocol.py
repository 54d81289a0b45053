"""The contract of every source of pretrained word vectors."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from polyembed._checks import must

Rows = npt.NDArray[np.float32]


@runtime_checkable
class WordVectors(Protocol):
    """A source of one vector per word: ``vectors(words)[i]`` is the vector of ``words[i]``.

    A word that the source does not know and cannot spell has a row of zeros, so that rows never
    shift.
    """

    @property
    def dim(self) -> int:
        """The length of a vector."""
        ...

    def vectors(self, words: Sequence[str]) -> Rows:
        """Read or spell the vectors of `words`.

        Args:
            words: The words, repetitions allowed.

        Returns:
            Float32 rows in the order of `words`, ``(len(words), dim)``.
        """
        ...


def check_words(words: object) -> None:
    """Refuse one string, whose letters would be taken for words."""
    if isinstance(words, str):
        raise TypeError(must("words", "be a sequence of words", f"the string {words!r}"))
