"""What a run of the trainer needs to go on after a kill."""

import dataclasses
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from polyembed.training._checkpoint import check_tensors, read, write
from polyembed.training.state import Epoch


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
        state = {
            "history": [tuple(epoch) for epoch in self.history],
            "parts": trained(self.parts),
            "best": self.best_state,
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "schedulers": [scheduler.state_dict() for scheduler in self.schedulers],
        }
        write(path, fingerprint, state)

    def load(self, path: Path, fingerprint: dict[str, Any], device: torch.device) -> None:
        """Go on from a checkpoint of the same run."""

        def parse(data: dict[str, Any]) -> tuple[list[Epoch], list[Any]]:
            states = [data[name] for name in ("parts", "best", "optimizers", "schedulers")]
            return [Epoch(*epoch) for epoch in data["history"]], states

        history, (parts, best, optimizers, schedulers) = read(path, fingerprint, device, parse)
        check_tensors(path, trained(self.parts), parts, best)
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


def checksum(rows: Any) -> int | None:
    """Tell a list of rows from others; None for a data set that reads its rows only when asked."""
    return _sum(rows, 0) if isinstance(rows, list | tuple) else None


def _sum(value: Any, found: int) -> int:
    """Go on with a checksum; of an object whose content is not plain, its words and tags and its type count."""
    if isinstance(value, Tensor) and value.layout == torch.strided and not value.is_quantized:
        found = _sum((str(value.dtype), tuple(value.shape)), found)
        return zlib.crc32(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(), found)
    if isinstance(value, np.ndarray):
        content = value.tolist() if value.dtype.hasobject else value.tobytes()
        return _sum((str(value.dtype), value.shape, content), found)
    if value is None or isinstance(value, str | bytes | bool | int | float | complex | np.generic):
        return zlib.crc32(f"{value!r}\0".encode("utf-8", "surrogatepass"), found)
    parts: list[Any] = [getattr(value, name, None) for name in ("words", "tags")]
    if isinstance(value, Mapping):
        parts = [part for item in value.items() for part in item]
    elif isinstance(value, list | tuple):
        parts = list(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, field.name) for field in dataclasses.fields(value)]
    found = _sum(f"{type(value).__name__} {len(parts)}", found)
    for part in parts:
        found = _sum(part, found)
    return found
