"""Argument checks and the usual form of an error: ``<name> must <rule>, got <value>``.

Checks use metadata (shapes, dtypes, types). They never read a tensor's values, since reading would
synchronise with a GPU.
"""

import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor


def must(name: str, rule: str, value: object) -> str:
    """Return an error message: ``<name> must <rule>, got <value>``."""
    return f"{name} must {rule}, got {value}"


def require(condition: bool, name: str, rule: str, value: object) -> None:
    """Raise a `ValueError` with the message of `must` unless `condition` is true."""
    if not condition:
        raise ValueError(must(name, rule, value))


def require_type(condition: bool, name: str, rule: str, value: object) -> None:
    """Raise a `TypeError` that names the class of `value` unless `condition` is true."""
    if not condition:
        raise TypeError(must(name, rule, class_name(value)))


def check_positive(**sizes: int) -> None:
    """Require every size to be a positive integer."""
    for name, size in sizes.items():
        whole = isinstance(size, Integral) and not isinstance(size, bool)
        require(whole and size > 0, name, "be a positive integer", repr(size))


def check_probability(**values: float) -> None:
    """Require every value to be in [0, 1)."""
    for name, value in values.items():
        require(isinstance(value, Real) and 0.0 <= value < 1.0, name, "be in [0, 1)", value)


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Require `value` to be one of `choices`."""
    choices = tuple(choices)
    require(value in choices, name, f"be one of {', '.join(map(repr, choices))}", repr(value))


def check_tensor(name: str, x: object) -> None:
    """Require a tensor: neither None, a list nor an array."""
    require_type(isinstance(x, Tensor), name, "be a tensor", x)


def check_last_dim(name: str, x: Tensor, dim: int, weight: Tensor | None = None) -> None:
    """Require vectors of size `dim`, in the dtype of `weight` unless autocast changes the dtype."""
    check_float(**{name: x})
    if (
        isinstance(weight, Tensor)  # of a quantised layer it is a method
        and x.dtype != weight.dtype
        and not torch.is_autocast_enabled(x.device.type)
    ):
        raise TypeError(must(name, f"be {weight.dtype}, as the weights", x.dtype))
    shape = tuple(x.shape)
    require(shape[-1:] == (dim,), name, f"have a last axis of size {dim}", f"shape {shape}")


def check_dim(name: str, x: Tensor, dims: int, axes: str) -> None:
    """Require `x` to have `dims` axes, named `axes` in the message."""
    check_tensor(name, x)
    require(x.dim() == dims, name, f"have the axes ({axes})", f"shape {tuple(x.shape)}")


def check_shape(name: str, x: Tensor, shape: Sequence[int]) -> None:
    """Require a tensor of the shape `shape`."""
    check_tensor(name, x)
    found, expected = tuple(x.shape), tuple(shape)
    require(found == expected, name, f"have shape {expected}", found)


def check_float(**tensors: Tensor) -> None:
    """Require every tensor to be floating point."""
    for name, x in tensors.items():
        check_tensor(name, x)
        if not x.is_floating_point():
            raise TypeError(must(name, "be floating point", x.dtype))


def check_ids(name: str, ids: Tensor) -> None:
    """Require a tensor of integer ids."""
    check_tensor(name, ids)
    if ids.dtype not in (torch.int64, torch.int32):
        raise TypeError(must(name, "be int64 or int32", ids.dtype))


def check_mask(mask: Tensor | None, shape: Sequence[int], *, name: str = "mask") -> None:
    """Require a bool mask of the given shape, or None."""
    if mask is None:
        return
    check_tensor(name, mask)
    if mask.dtype != torch.bool:
        raise TypeError(must(name, "be bool (True = valid)", mask.dtype))
    check_shape(name, mask, shape)


def check_words(words: Iterable[str], *, name: str = "words") -> list[str]:
    """Return words as a list, from any iterable of strings; refuse a single string."""
    if isinstance(words, str) or not isinstance(words, Iterable):
        got = f"the string {words!r}" if isinstance(words, str) else class_name(words)
        raise TypeError(must(name, "be a list of words", got))
    found = list(words)
    for number, word in enumerate(found):
        if not isinstance(word, str):
            raise TypeError(must(f"{name}[{number}]", "be a string", class_name(word)))
    return found


def check_sentences(
    sentences: Iterable[Iterable[str]], *, name: str = "sentences", start: int = 0
) -> list[list[str]]:
    """Return sentences as lists of words; errors count them from `start`."""
    if isinstance(sentences, str) or not isinstance(sentences, Iterable):
        check_words(sentences, name=name)
    found = []
    for i, row in enumerate(sentences, start):
        require_type(not isinstance(row, Mapping), f"{name}[{i}]", "be a list of words", row)
        found.append(check_words(row, name=f"{name}[{i}]"))
    return found


def check_file(path: str | os.PathLike[str], *, name: str = "path", where: str = "") -> Path:
    """Return the absolute path of an existing file; `where` is advice for the error message."""
    path = Path(path).absolute()  # valid after a change of the working directory
    if not path.is_file():
        found = "a folder" if path.is_dir() else "nothing"
        message = must(name, "name a file", f"{found} at {path}")
        raise FileNotFoundError(f"{message}. {where}" if where else message)
    return path


def import_optional(module: str, *, feature: str, pip: str | None = None) -> ModuleType:
    """Import a heavy or optional package, or raise an `ImportError` that names the package to
    install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        found = f"{error}. pip install {pip or module}"
        rule = f"find the package {module!r}"
        raise ImportError(must(feature, rule, found)) from error


def class_name(value: Any) -> str:
    """Return the name of the class of `value`."""
    return type(value).__name__
