"""One file that a training writes after each epoch and goes on from."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from polyembed._checks import class_name, must, require


def save_checkpoint(path: str | os.PathLike[str], state: Mapping[str, Any], **about: Any) -> None:
    """Write a state; a process that is killed meanwhile leaves the file of before.

    Args:
        path: The file.
        state: Tensors and plain values, in dicts, lists and tuples.
        **about: What a training that goes on from the file must have in common with this one: plain
            values.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     save_checkpoint(f"{folder}/run.pt", {"step": 3}, seed=0)
        ...     load_checkpoint(f"{folder}/run.pt", seed=0)
        {'step': 3}
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.unlink(missing_ok=True)  # it may be a link
    torch.save({"about": about, "state": dict(state)}, draft)
    os.replace(draft, path)


def load_checkpoint(path: str | os.PathLike[str], **about: Any) -> dict[str, Any] | None:
    """Read the state that `save_checkpoint` wrote, its tensors on the CPU.

    Args:
        path: The file.
        **about: The values of this training, as for `save_checkpoint`.

    Returns:
        The state; None if there is no file.

    Raises:
        ValueError: If the file is damaged, or of a training whose values differ.
    """
    path = Path(path)
    if not path.exists():
        return None
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        theirs, state = content["about"], content["state"]
    except Exception as error:  # torch raises many kinds
        found = f"{class_name(error)}: {error}. Remove the file to start anew"
        raise ValueError(must(str(path), "be a checkpoint", found)) from error
    differs = differences(theirs, about)
    found = f"{differs}. Remove the file to start anew"
    require(not differs, str(path), "be a checkpoint of this training", found)
    return state  # type: ignore[no-any-return]


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the values of a saved training that differ from those of this one, as text."""
    return ", ".join(
        f"{name} {before.get(name)!r} in place of {now.get(name)!r}"
        for name in {**now, **before}
        if before.get(name) != now.get(name)
    )
