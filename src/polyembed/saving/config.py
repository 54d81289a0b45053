"""The constructor call as data: what a saved folder describes, and what `repr` prints."""

import importlib
import inspect
import shutil
import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from polyembed._checks import class_name, must, require


class Configurable:
    """An object whose constructor call is data, so that a saved folder can hold it.

    Each constructor argument is kept as an attribute or property of the same name. A class that
    cannot do so defines `get_config` and `from_config`.
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset()
    """The arguments of `from_config` that are paths of the saved folder's own files."""

    optional_arguments: ClassVar[frozenset[str]] = frozenset()
    """The arguments that are saved as None with ``copy_vectors=False``, or if a part of them cannot
    be saved."""

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments that are not files, as values that can be saved.

        Such values are JSON values, configurables, or lists and dicts of these.
        """
        return _arguments(self, type(self).file_arguments)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build an object from the result of `get_config` and the paths of its files."""
        return cls(**config)

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write the values that JSON cannot hold into an empty folder.

        Args:
            folder: An empty folder for this object alone.

        Returns:
            The name of a file or subfolder of `folder` for each of the `file_arguments`.
        """
        return {}

    def __repr__(self) -> str:
        return repr_call(self, **self.get_config())


class VectorFiles(Configurable):
    """A source of vectors that reads files, each kept as a `Path` under its argument's name.

    Pickling, copying and printing use the constructor call: no vector is stored twice, and every
    worker process opens the files itself.
    """

    def write_files(self, folder: Path) -> dict[str, str]:
        """Copy the vector files into `folder`; a second file of the same name gets a number."""
        names: dict[str, str] = {}
        for number, argument in enumerate(sorted(self.file_arguments)):
            path = getattr(self, argument)
            name = path.name if path.name not in names.values() else f"{number}-{path.name}"
            shutil.copyfile(path, folder / name)
            names[argument] = name
        return names

    def __repr__(self) -> str:
        arguments = _arguments(self).items()
        return repr_call(self, **{k: str(v) if isinstance(v, Path) else v for k, v in arguments})

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **_arguments(self)), ()


def _arguments(obj: Configurable, without: Collection[str] = ()) -> dict[str, Any]:
    """Return the constructor's arguments, which an object keeps as attributes of the same name."""
    found = {}
    for name in inspect.signature(type(obj)).parameters:
        if name in without:
            continue
        if not hasattr(obj, name):
            raise TypeError(
                f"{class_name(obj)} keeps no attribute for its argument {name}: "
                "keep one of the same name, or define get_config and from_config"
            )
        found[name] = getattr(obj, name)
    return found


def is_plain(value: Any, *, deep: bool = False) -> bool:
    """Return whether a value is a number, a text, or a sequence or dict of these.

    Args:
        value: The value.
        deep: Whether a configurable counts too, if the values of its configuration do.

    Returns:
        Whether it is.
    """
    if deep and isinstance(value, Configurable):
        value = value.get_config()
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return all(is_plain(item, deep=deep) for item in value)
    return isinstance(value, int | float | str | np.generic | np.ndarray | None)


def repr_call(obj: Any, **arguments: Any) -> str:
    """Return the constructor call as text."""
    listed = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return f"{class_name(obj)}({listed})"


def name_of(cls: type) -> str:
    """Return the name of a class in a saved folder: ``module:Class``."""
    return f"{cls.__module__}:{cls.__qualname__}"


def find_class(name: object) -> type[Configurable]:
    """Return the configurable class of a name in a saved folder.

    Modules of polyembed are imported; a class from elsewhere must be imported already. If a class
    was defined twice, as in a notebook, the newest is returned.

    Args:
        name: ``module:Class``, as `name_of` returns it.

    Returns:
        The class.

    Raises:
        ValueError: If this program has no configurable class of that name.
    """
    module, _, path = str(name).partition(":")
    if module.partition(".")[0] == "polyembed":
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ValueError(must("class", "be one of polyembed's", repr(name))) from error
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    known = isinstance(found, type) and issubclass(found, Configurable)
    require(known, "class", "be a configurable class that this program has imported", repr(name))
    return found  # type: ignore[no-any-return]
