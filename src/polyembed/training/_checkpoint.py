"""One file with the state of a run: written whole or not at all, read only by the run that it is of."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from polyembed._checks import class_name, must, require

State = TypeVar("State")
WHOLE = "be a whole checkpoint"


def write(path: Path, fingerprint: dict[str, Any], state: dict[str, Any]) -> None:
    """Write a checkpoint in the place of the last one.

    Args:
        path: The file; its folder is made.
        fingerprint: What tells this run from others.
        state: All that ``torch.load(weights_only=True)`` reads.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    torch.save({"fingerprint": fingerprint, **state}, draft)
    draft.replace(path)


def read(
    path: Path, fingerprint: Mapping[str, Any], device: torch.device, parse: Callable[[dict[str, Any]], State]
) -> State:
    """Read what `write` has written.

    Args:
        path: The file.
        fingerprint: Of the run that is to go on.
        device: Where its tensors go.
        parse: Takes what is needed from the state; whatever it raises is damage.

    Returns:
        What `parse` gives.

    Raises:
        ValueError: A file that is damaged, or of another run.
    """
    try:
        data = torch.load(path, map_location=device, weights_only=True)
        theirs, found = dict(data["fingerprint"]), parse(data)
    except Exception as error:  # torch raises many kinds for a damaged file
        raise ValueError(must(str(path), WHOLE, f"{class_name(error)}: {error}")) from error
    differs = [key for key in {**fingerprint, **theirs} if theirs.get(key) != fingerprint.get(key)]
    require(not differs, str(path), "come from this run (remove it to start anew)", f"other {differs}")
    return found


def check_tensors(path: Path, names: Iterable[str], *states: Mapping[str, Any]) -> None:
    """Require states to have the tensors of these names, no more and no fewer."""
    expected = set(names)
    for state in states:
        require(set(state) == expected, str(path), WHOLE, f"the tensors {sorted(state)}")
