"""What every source of pretrained word vectors offers."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from polyembed._checks import must
from polyembed._pretrained import VectorFiles

Rows = npt.NDArray[np.float32]


@runtime_checkable
class WordVectors(Protocol):
    """A source of one vector per word: ``vectors(words)[i]`` is the vector of ``words[i]``.

    A word that the source does not know and cannot spell has a row of zeros, so that rows never shift.
    """

    @property
    def dim(self) -> int:
        """The length of a vector."""
        ...

    def vectors(self, words: Sequence[str]) -> Rows:
        """Look up, or spell, the vectors of `words`.

        Args:
            words: The words, repetitions allowed.

        Returns:
            Float32 rows in the order of `words`, ``(len(words), dim)``.
        """
        ...


def check_words(words: object) -> None:
    """Refuse one string, whose letters would be taken for words."""
    if isinstance(words, str):
        raise TypeError(must("words", "be words", f"the string {words!r}"))


class FileSource(VectorFiles):
    """A source that ``cls(**{**files(), **get_config()})`` rebuilds.

    Saving, pickling, copying and printing go by this call: no vector is held twice, and every worker process
    opens the files itself.
    """

    def get_config(self) -> dict[str, Any]:
        """Give the constructor arguments that are not files, as JSON can hold them.

        Returns:
            Argument name to value.
        """
        return {}

    def __repr__(self) -> str:
        arguments = {**{name: str(path) for name, path in self.files().items()}, **self.get_config()}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Absolute, since the process that unpickles may run elsewhere.
        files = {name: path.absolute() for name, path in self.files().items()}
        return _rebuild, (type(self), {**files, **self.get_config()})


def _rebuild(cls: type[FileSource], arguments: dict[str, Any]) -> FileSource:
    return cls(**arguments)
