"""What a run of the trainer needs to go on after a kill."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from polyembed._checks import must, require
from polyembed.training.fit import Epoch


class Run:
    """What changes while a trainer trains; frozen tensors stay out of it.

    Args:
        parts: All modules that learn.
        optimizers: Theirs.
        schedulers: Theirs.
    """

    def __init__(self, parts: nn.Module, optimizers: Sequence[Optimizer], schedulers: Sequence[LRScheduler]) -> None:
        self.parts = parts
        self.optimizers = optimizers
        self.schedulers = schedulers
        self.history: list[Epoch] = []
        self.best_state: dict[str, Tensor] = {}

    @property
    def best(self) -> Epoch:
        """The first epoch of the highest score; the last one where there are no scores."""
        best = self.history[0]
        for epoch in self.history:
            best = best if epoch.score <= best.score else epoch
        return best

    def step_schedulers(self) -> None:
        """Step each."""
        for scheduler in self.schedulers:
            scheduler.step()

    def finish(self, epoch: Epoch) -> None:
        """Write an epoch down; keep its weights if it is the best."""
        self.history.append(epoch)
        if self.best is epoch:
            self.best_state = {name: value.clone() for name, value in trained(self.parts).items()}

    def restore_best(self) -> None:
        """Give the modules the best epoch's weights."""
        self.parts.load_state_dict(self.best_state, strict=False)

    def save(self, path: Path, fingerprint: dict[str, Any]) -> None:
        """Write a checkpoint, whole or not at all."""
        data = {
            "fingerprint": fingerprint,
            "history": [tuple(epoch) for epoch in self.history],
            "parts": trained(self.parts),
            "best": self.best_state,
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "schedulers": [scheduler.state_dict() for scheduler in self.schedulers],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        torch.save(data, draft)
        draft.replace(path)

    def load(self, path: Path, fingerprint: dict[str, Any], device: torch.device) -> None:
        """Go on from a checkpoint of the same run."""
        try:
            data = torch.load(path, map_location=device, weights_only=True)
            theirs = dict(data["fingerprint"])
            parts, best, optimizers, schedulers = (data[name] for name in ("parts", "best", "optimizers", "schedulers"))
            history = [Epoch(*epoch) for epoch in data["history"]]
        except Exception as error:  # torch raises many kinds for a damaged file
            raise ValueError(must(str(path), "be a whole checkpoint", f"{type(error).__name__}: {error}")) from error
        differs = [key for key, value in fingerprint.items() if theirs.get(key) != value]
        require(not differs, str(path), "come from this run (remove it to start anew)", f"other {', '.join(differs)}")
        self.history, self.best_state = history, best
        self.parts.load_state_dict(parts, strict=False)
        for optimizer, state in zip(self.optimizers, optimizers, strict=True):
            optimizer.load_state_dict(state)
        for scheduler, state in zip(self.schedulers, schedulers, strict=True):
            scheduler.load_state_dict(state)


def trained(parts: nn.Module) -> dict[str, Tensor]:
    """Return what training changes, by name: parameters that learn, and buffers."""
    names = {name for name, value in parts.named_parameters() if value.requires_grad}
    names |= {name for name, _ in parts.named_buffers()}
    return {name: value for name, value in parts.state_dict().items() if name in names}
