"""What changes while a model trains: weights, optimisers, schedules, and the epochs so far."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from polyembed._fingerprint import trained_state


class Epoch(NamedTuple):
    """The figures of one epoch.

    Attributes:
        number: Counted from 1.
        loss: The mean training loss, in nats.
        score: The metric on the development set; NaN without one.
        seconds: Training and evaluation together.
    """

    number: int
    loss: float
    score: float
    seconds: float


class FitResult(NamedTuple):
    """The result of a training; the model holds the best epoch's weights, or the mean of several
    (``average``).

    Attributes:
        best: The best epoch.
        history: All epochs.
    """

    best: Epoch
    history: tuple[Epoch, ...]


def best_epochs(history: Sequence[Epoch], count: int) -> list[Epoch]:
    """Return the epochs of the highest scores, of equal ones the first; the last epochs without scores."""
    return sorted(
        history, key=lambda epoch: -epoch.number if math.isnan(epoch.score) else -epoch.score
    )[:count]


def read_result(history: Sequence[Sequence[Any]]) -> FitResult:
    """Return the result whose epochs a checkpoint holds as tuples."""
    epochs = tuple(Epoch(*epoch) for epoch in history)
    return FitResult(best_epochs(epochs, 1)[0], epochs)


class TrainingState:
    """Everything that a killed training needs to go on; frozen tensors never change and are left
    out.

    Args:
        model: All modules that learn.
        optimizers: Over their parameters.
        schedulers: Of these optimisers; None for an optimiser without one.
        scaler: Of float16 losses.
        average: How many of the best epochs' weights are averaged at the end.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        schedulers: Sequence[LRScheduler | None] = (),
        scaler: torch.amp.GradScaler | None = None,
        *,
        average: int = 1,
    ) -> None:
        self.model = model
        self.optimizers = list(optimizers)
        self.schedulers = [scheduler for scheduler in schedulers if scheduler is not None]
        self.scaler = scaler
        self.history: list[Epoch] = []
        self.average = average
        self.best_weights: list[
            tuple[int, dict[str, Tensor]]
        ] = []  # of the best epochs, by number, the best first

    @property
    def best(self) -> Epoch:
        """The first epoch of the highest score; the last epoch without scores."""
        return best_epochs(self.history, 1)[0]

    @property
    def result(self) -> FitResult:
        """The best epoch and the history."""
        return FitResult(self.best, tuple(self.history))

    def add(self, epoch: Epoch) -> None:
        """Append an epoch; keep a copy of its weights if it is among the best."""
        self.history.append(epoch)
        numbers = [best.number for best in best_epochs(self.history, self.average)]
        weights = dict(self.best_weights)
        if epoch.number in numbers:
            weights[epoch.number] = {
                name: value.clone() for name, value in trained_state(self.model).items()
            }
        self.best_weights = [(number, weights[number]) for number in numbers]

    def restore_best(self) -> None:
        """Copy the best epoch's weights, or the mean of the best epochs', into the model, if there is one."""
        kept = [weights for _, weights in self.best_weights]
        if len(kept) == 1:
            self.model.load_state_dict(kept[0], strict=False)
        elif kept:
            means = {
                name: torch.stack([weights[name] for weights in kept]).to(torch.float64).mean(0)
                for name in kept[0]
            }
            self.model.load_state_dict(means, strict=False)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as tensors and plain values."""
        return {
            "history": [tuple(epoch) for epoch in self.history],
            "model": trained_state(self.model),
            "best": self.best_weights,
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "schedulers": [scheduler.state_dict() for scheduler in self.schedulers],
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of an equal training."""
        self.history = [Epoch(*epoch) for epoch in state["history"]]
        self.best_weights = list(state["best"])
        self.model.load_state_dict(state["model"], strict=False)
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        for scheduler, saved in zip(self.schedulers, state["schedulers"], strict=True):
            scheduler.load_state_dict(saved)
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])
