"""Checksums of data, models, optimisers and schedules: whatever changes the numbers of a training."""

import dataclasses
import errno
import functools
import hashlib
import os
import types
from collections.abc import Mapping, Sequence, Set
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from polyembed.saving import Configurable

PLAIN = (
    str,
    bytes,
    bool,
    int,
    float,
    complex,
    np.generic,
    torch.dtype,
    torch.device,
    PathLike,
    type(None),
)
MARK = "sha256:"
"""What a checksum begins with."""

ITEM_ATTRIBUTES = ("words", "tags", "label", "first", "second")


def checksum(value: Any) -> str:
    """Return a checksum of the content of a value: the same in every process, another one for other
    content.

    Plain values, tensors, arrays, containers and dataclasses count in full. A module counts by its
    classes, settings and tensors, an optimiser and a schedule by their settings and state, a
    function by its name, constants and bound values. Of any other object only its class and the
    attributes of a labelled text count (``words``, ``tags``, ``label``, ``first``, ``second``).
    """
    digest = hashlib.sha256()
    _update(digest, value)
    return MARK + digest.hexdigest()[:32]


def describe_model(model: nn.Module) -> dict[str, str]:
    """Return checksums of a module's structure and settings, of what training changes, and of its other tensors."""
    frozen = {name: value for name, value in model.named_parameters() if not value.requires_grad}
    return {
        "modules": checksum(_structure(model)),
        "initial weights": checksum(trained_state(model)),
        "frozen tensors": checksum(frozen),
    }


def trained_state(module: nn.Module) -> dict[str, Tensor]:
    """Return what training changes, by name: parameters that require a gradient, a tied one once, and buffers."""
    names = {name for name, value in module.named_parameters() if value.requires_grad}
    names |= {name for name, _ in module.named_buffers()}
    return {name: value for name, value in module.state_dict().items() if name in names}


def rows_checksum(rows: Any) -> str | None:
    """Return a checksum of the rows of a list; None for a data set that reads its rows only when asked."""
    return checksum(rows) if isinstance(rows, list | tuple) else None


def _structure(module: nn.Module) -> list[Any]:
    """List every submodule with its class, its lexicon and its public attributes: dropout, sizes, constraints."""
    found = []
    for name, part in module.named_modules():
        settings = {key: value for key, value in vars(part).items() if _is_setting(key, value)}
        found.append([name, type(part).__qualname__, getattr(part, "lexicon", None), settings])
    return found


def _is_setting(name: str, value: object) -> bool:
    # None may be the place of a tensor that prediction sets and removes
    return not (
        name.startswith("_") or name == "training" or value is None or isinstance(value, nn.Module)
    )


def _update(digest: Any, value: Any) -> None:
    """Add a value to a digest, with its type or length, so that different values never give the same bytes."""
    if isinstance(value, PLAIN):
        plain = value.item() if isinstance(value, np.generic) else value
        digest.update(f"{plain!r}\0".encode("utf-8", "surrogatepass"))
    elif isinstance(value, Tensor):
        _update(digest, (str(value.dtype), tuple(value.shape)))
        dense = value.detach().to_dense() if value.layout != torch.strided else value.detach()
        if not dense.is_meta:
            digest.update(dense.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    elif isinstance(value, np.ndarray):
        content = value.tolist() if value.dtype.hasobject else value.tobytes()
        _update(digest, (str(value.dtype), value.shape, content))
    elif isinstance(value, list | tuple):
        digest.update(f"{len(value)}[".encode())
        for part in value:
            _update(digest, part)
    elif isinstance(value, Set):
        _update(digest, sorted(map(checksum, value)))
    elif isinstance(value, Mapping):
        _update(digest, [part for item in value.items() for part in item])
    else:
        _update(digest, [type(value).__qualname__, _content(value)])


def _content(value: Any) -> Any:
    """Return the content of an object that is not a plain value or a container."""
    if isinstance(value, nn.Module):
        return describe_model(value)
    if isinstance(value, Optimizer):
        return value.state_dict()
    if isinstance(value, LRScheduler):
        functions = [
            part for part in vars(value).values() if isinstance(part, list | types.FunctionType)
        ]
        return [value.state_dict(), functions]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.FunctionType):
        return _function(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, types.SimpleNamespace):
        return vars(value)
    if isinstance(
        found := getattr(value, "checksum", None), int
    ):  # a lexicon's, which knows its words
        return found
    if isinstance(value, Configurable):
        return _config(value)
    if callable(value):
        return getattr(value, "__qualname__", None)
    return [getattr(value, name, None) for name in ITEM_ATTRIBUTES]


def _function(function: types.FunctionType) -> Sequence[Any]:
    """Describe a function by its name, the names and numbers in its code, and the plain values bound to it."""
    code = function.__code__
    numbers = [constant for constant in code.co_consts if isinstance(constant, int | float)]
    bound = []
    for cell in function.__closure__ or ():
        try:
            bound.append(cell.cell_contents)
        except ValueError:  # a cell that is still empty
            continue
    values = [
        value for value in [*bound, *(function.__defaults__ or ())] if isinstance(value, PLAIN)
    ]
    return [function.__qualname__, code.co_names, numbers, values]


def _config(value: Configurable) -> Any:
    """Return the constructor call of a configurable object, if it has one."""
    try:
        return value.get_config()
    except TypeError:
        return None


def sync(path: Path) -> None:
    """Write a file, or the names in a folder, through to the disk, where the system can."""
    if path.is_symlink() or not (
        path.is_file() or (path.is_dir() and os.name != "nt")
    ):  # Windows opens no folder
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if path.is_file() or error.errno not in (
            errno.EINVAL,
            errno.ENOTSUP,
        ):  # folders of some file systems
            raise
    finally:
        os.close(handle)


def try_lock(file: BinaryIO) -> bool:
    """Return whether this process now holds the lock of a file; True on systems without such locks."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
