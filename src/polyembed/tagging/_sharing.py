"""Frozen parts that several taggers have in common become one object."""

import filecmp
from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from torch import nn

from polyembed.saving import Configurable, VectorFiles

Shared = TypeVar("Shared")


def share_frozen_parts(members: Iterable[nn.Module]) -> None:
    """Replace parts of later members by equal parts of earlier ones, in memory and so in a saved
    folder too.

    Shared are lexicons, sources of vectors, spellings (files are compared by content) and frozen
    parameters.

    Args:
        members: Modules; they are changed.
    """
    parts: list[Any] = []
    tensors: dict[tuple[object, ...], list[nn.Parameter]] = {}
    for member in members:
        for module in member.modules():
            for name in ("lexicon", "source", "spelling"):
                if vars(module).get(name) is not None:
                    setattr(module, name, _first_equal(parts, vars(module)[name], _are_equal))
            for name, parameter in list(module.named_parameters(recurse=False)):
                if not (parameter.requires_grad or parameter.is_meta):
                    known = tensors.setdefault(
                        (parameter.shape, parameter.dtype, parameter.device), []
                    )
                    setattr(module, name, _first_equal(known, parameter, torch.equal))


def _first_equal(known: list[Shared], part: Shared, equal: Any) -> Shared:
    found = next((other for other in known if other is part or equal(other, part)), None)
    if found is None:
        known.append(part)
        return part
    return found


def _are_equal(one: Any, other: Any) -> bool:
    """Return whether two parts do the same, by their configuration and the content of their files."""
    if type(one) is not type(other):
        return False
    if isinstance(one, VectorFiles):
        files, others = one.files(), other.files()
        if files.keys() != others.keys() or not all(
            _same_content(files[name], others[name]) for name in files
        ):
            return False
    elif isinstance(one, Configurable) and type(one).write_files is not Configurable.write_files:
        return bool(one == other)  # a lexicon; of others, the files are not known
    if isinstance(one, Configurable):
        config, other_config = one.get_config(), other.get_config()
        return config.keys() == other_config.keys() and all(
            _are_equal(config[k], other_config[k]) for k in config
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    return isinstance(one, bool | int | float | str | None) and one == other


def _same_content(path: Any, other: Any) -> bool:
    try:
        return path == other or filecmp.cmp(path, other, shallow=False)
    except OSError:  # a file that was removed can still be in use
        return False
