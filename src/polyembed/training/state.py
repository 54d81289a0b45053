"""The state of a training: weights, optimisers, schedules, and the epochs so far.

One file, written after each epoch, holds the state, so that a training can continue.
"""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from polyembed._checks import class_name, must, require


def save_checkpoint(path: str | os.PathLike[str], state: Mapping[str, Any], **about: Any) -> None:
    """Write a state to a file; if the process is killed meanwhile, the previous file remains.

    Args:
        path: The file.
        state: Tensors and plain values, in dicts, lists and tuples; NumPy's numbers are read as
            Python's.
        **about: Plain values; a training that continues from the file must have equal values.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     save_checkpoint(f"{folder}/run.pt", {"step": 3}, seed=0)
        ...     load_checkpoint(f"{folder}/run.pt", seed=0)
        {'step': 3}
    """
    content = {"about": about, "state": dict(state)}
    with replaced(Path(path)) as draft:  # torch.load refuses numbers of NumPy
        torch.save(tree_map_only(np.generic, np.generic.item, content), draft)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Return the path of a draft that replaces a file when the context ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    yield draft
    os.replace(draft, path)


def load_checkpoint(path: str | os.PathLike[str], **about: Any) -> dict[str, Any] | None:
    """Read the state that `save_checkpoint` wrote, its tensors on the CPU.

    Args:
        path: The file.
        **about: The values of this training, as for `save_checkpoint`.

    Returns:
        The state; None if the file does not exist.

    Raises:
        ValueError: If the file is damaged, or of a training whose values differ.
    """
    path = Path(path)
    if not path.exists():
        return None
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        theirs, state = content["about"], content["state"]
    except Exception as error:  # torch raises many kinds of exceptions
        found = f"{class_name(error)}: {error}. Remove the file to start anew"
        raise ValueError(must(str(path), "be a checkpoint", found)) from error
    differs = differences(theirs, about)
    found = f"{differs}. Remove the file to start anew"
    require(not differs, str(path), "be a checkpoint of this training", found)
    return state  # type: ignore[no-any-return]


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return which values of a saved training differ from this one's, as text."""
    return ", ".join(
        f"{name} {before.get(name)!r} in place of {now.get(name)!r}"
        for name in {**now, **before}
        if before.get(name) != now.get(name)
    )


class Epoch(NamedTuple):
    """The figures of one epoch.

    Attributes:
        number: The number of the epoch, counted from 1.
        loss: The mean training loss, in nats.
        score: The metric on the development set; NaN without one.
        seconds: The time of training and evaluation together.
    """

    number: int
    loss: float
    score: float
    seconds: float


class FitResult(NamedTuple):
    """The result of a training; the model has the weights of the best epoch.

    Attributes:
        best: The best epoch.
        history: All epochs.
    """

    best: Epoch
    history: tuple[Epoch, ...]


def best_epoch(history: Sequence[Epoch]) -> Epoch:
    """Return the first epoch of the highest score, or the last epoch if scores are NaN."""
    scored = [one for one in history if not math.isnan(one.score)]
    return max(scored, key=lambda one: one.score) if scored else history[-1]


def trained_state(module: nn.Module, earlier: Iterable[str] = ()) -> dict[str, Tensor]:
    """Return by name the parameters that require a gradient, tied ones once, and the buffers.

    Tables of integers, which never change, are left out. Tensors named in `earlier` are included.
    """
    names = {name for name, value in module.named_parameters() if value.requires_grad}
    names |= {x for x, v in module.named_buffers() if v.is_floating_point() or v.dim() < 2}
    names |= {*earlier}
    return {name: value for name, value in module.state_dict().items() if name in names}


def sizes_of(model: nn.Module) -> str:
    """Return a line with a model's classes and its number of trained values, for checkpoints."""
    trained = sum(value.numel() for value in model.parameters() if value.requires_grad)
    parts = ", ".join(f"{name} {type(part).__name__}" for name, part in model.named_children())
    return f"{type(model).__name__} of {trained} trained numbers: {parts}"


class TrainingState:
    """Everything that a training needs to continue; tensors that are always frozen are left out.

    Args:
        model: All modules that learn.
        others: The optimisers over their parameters, their schedules, and the scaler of float16
            losses; None is left out.
        checkpoint: The folder of the checkpoint; if it holds one, the state is read from there.
        about: The values that the training of a checkpoint must share with this training.
    """

    def __init__(
        self,
        model: nn.Module,
        others: Iterable[Any],
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        about: Mapping[str, Any],
    ) -> None:
        self.model, self.others = model, [part for part in others if part is not None]
        self.about = {**about, "parts": list(map(class_name, self.others))}
        self.history: list[Epoch] = []
        self.best_weights: dict[str, Tensor] = {}
        self.path = None if checkpoint is None else Path(checkpoint, "checkpoint.pt")
        saved = None if self.path is None else load_checkpoint(self.path, **self.about)
        if saved is not None:
            self.history = [Epoch(*epoch) for epoch in saved["history"]]
            self.best_weights = saved["best"]
            model.load_state_dict(saved["model"], strict=False)
            for name, value in model.named_parameters():  # on_epoch may have frozen some, or others
                value.requires_grad_(name in saved.get("trains", saved["model"]))
            for part, state in zip(self.others, saved["others"], strict=True):
                part.load_state_dict(state)

    @property
    def result(self) -> FitResult:
        """The best epoch and the history."""
        return FitResult(best_epoch(self.history), tuple(self.history))

    def begin(self) -> None:
        """Keep what trains from now on and was frozen at the best epoch."""
        for name, value in trained_state(self.model).items():
            if self.history and name not in self.best_weights:
                self.best_weights[name] = value.clone()

    def add(self, epoch: Epoch) -> None:
        """Append an epoch; keep a copy of its weights if it is the best."""
        self.history.append(epoch)
        if best_epoch(self.history) is epoch:
            state = trained_state(self.model, self.best_weights)
            self.best_weights = {name: value.clone() for name, value in state.items()}

    def save(self) -> None:
        """Write the checkpoint, if there is a folder for it."""
        if self.path is not None:
            state = {
                "history": [tuple(epoch) for epoch in self.history],
                "model": trained_state(self.model, self.best_weights),
                "best": self.best_weights,
                "others": [part.state_dict() for part in self.others],
                "trains": [x for x, v in self.model.named_parameters() if v.requires_grad],
            }
            save_checkpoint(self.path, state, **self.about)

    def restore_best(self) -> None:
        """Copy the weights of the best epoch into the model, in evaluation mode."""
        self.model.load_state_dict(self.best_weights, strict=False)
        self.model.eval()
