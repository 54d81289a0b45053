"""The constructor call as data: configurations to save, and `repr`."""

import importlib
import inspect
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from polyembed._checks import class_name, must, require

ROOMS = ("crf", "embeddings", "encoders", "tagging", "text", "transfer", "vectors")
"""The subpackages with classes that a saved folder can name; the library imports them only when they are needed."""


class Configurable:
    """An object whose constructor call is data, so that a saved folder can hold it.

    Each constructor argument is kept as an attribute or property of the same name. A class that
    cannot do so defines `get_config` and `from_config`.
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset()
    """The arguments of `from_config` that are files. A saved folder passes them as its own files, and no others."""

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments: JSON values, configurables, or lists and dicts of these."""
        config = {}
        for parameter in list(inspect.signature(type(self).__init__).parameters.values())[1:]:
            named = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            if not (named and hasattr(self, parameter.name)):
                rule = f"keep its argument {parameter.name} as an attribute, or define get_config"
                raise TypeError(must(class_name(self), rule, "neither"))
            config[parameter.name] = getattr(self, parameter.name)
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build an object from the result of `get_config`; files are added as paths under their argument's name."""
        return cls(**config)

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write what JSON cannot hold into `folder`, and return argument -> file name for `from_config`."""
        return {}

    def __repr__(self) -> str:
        return repr_call(self, **self.get_config())


class Detachable(NamedTuple):
    """A value of a configuration that may be left out of a saved folder; it is then loaded as None."""

    value: object


class VectorFiles(Configurable):
    """A source of vectors that reads files; a saved folder must hold all its `file_arguments`.

    Saving, pickling, copying and printing use the constructor call: no vector is stored twice, and
    every worker process opens the files itself.
    """

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, files included."""
        return Configurable.get_config(self)

    def files(self) -> Mapping[str, Path]:
        """Return constructor argument -> file on disk."""
        arguments = self.arguments()
        files = {name: arguments[name] for name in sorted(self.file_arguments)}
        for name, path in files.items():
            if not isinstance(path, Path):
                raise TypeError(
                    must(
                        class_name(self),
                        f"keep its file argument {name} as a Path",
                        class_name(path),
                    )
                )
        return files

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments that are not files."""
        return {
            name: value
            for name, value in self.arguments().items()
            if name not in self.file_arguments
        }

    def write_files(self, folder: Path) -> dict[str, str]:
        """Copy the vector files into `folder` under names that do not clash."""
        names = {}
        for argument in sorted(self.file_arguments):
            path = self.files()[argument]
            number = sum(1 for _ in folder.glob("vectors-*"))
            names[argument] = (
                # saved again: same name
                f"vectors-{number}-{re.sub(r'^vectors-[0-9]+-', '', path.name)}"
            )
            shutil.copyfile(path, folder / names[argument])
        return names

    def __repr__(self) -> str:
        return repr_call(
            self, **{k: str(v) if isinstance(v, Path) else v for k, v in self.arguments().items()}
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _call, (type(self), self.arguments())


def _call(cls: type[VectorFiles], arguments: dict[str, Any]) -> VectorFiles:
    return cls(**arguments)


def repr_call(obj: Any, **arguments: Any) -> str:
    """Return the constructor call as text."""
    return (
        f"{class_name(obj)}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
    )


def is_plain(value: object) -> bool:
    """Return whether a value is a bool, a number, text, or a list of these."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return isinstance(value, bool | int | float | str)


def find_class(name: str) -> type[Configurable]:
    """Return the configurable class of this name: of the library, or another that the program has imported."""
    for room in ROOMS:
        importlib.import_module(f"polyembed.{room}")

    def descendants(cls: type[Configurable]) -> Iterator[type[Configurable]]:
        for child in cls.__subclasses__():
            yield child
            yield from descendants(child)

    found = {cls for cls in descendants(Configurable) if cls.__name__ == name}
    require(len(found) > 0, "class", "be one that this program has imported", repr(name))
    require(
        len(found) == 1, "class", "name one class of this program", f"{len(found)} called {name!r}"
    )
    return found.pop()
