"""Rows of a data set, in batches whose content follows from their number alone."""

import math
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import torch

from polyembed._checks import class_name, must, require
from polyembed.tagging.text_model import to_device

Batches: TypeAlias = list[tuple[str | None, list[Any]]]


class Rows(Protocol):
    """A data set: a list, a map-style torch dataset, a `datasets.Dataset`."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class Stream:
    """Reads rows in passes, each in a new random order, in batches that are all full.

    A batch that a pass does not fill continues with the next pass. Several processes share each
    joined batch: the first process takes its first rows.

    Args:
        rows: The data set.
        batch_size: The number of rows of a batch, in one process.
        seed: The seed of the orders.
        rank: The number of this process.
        size: The number of processes.
    """

    def __init__(self, rows: Rows, *, batch_size: int, seed: int, rank: int, size: int) -> None:
        self.rows = rows
        self.batch_size = batch_size
        self.seed = seed
        self.rank, self.size = rank, size
        self.drawn = -1
        self.order: list[int] = []

    def batch(self, number: int) -> list[Any]:
        """Read this process's share of a batch, counted from 0 over all passes."""
        start = (number * self.size + self.rank) * self.batch_size
        return [self._row(place) for place in range(start, start + self.batch_size)]

    def _row(self, place: int) -> Any:
        number, offset = divmod(place, len(self.rows))
        if number != self.drawn:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
            self.drawn, self.order = (
                number,
                torch.randperm(len(self.rows), generator=generator).tolist(),
            )
        return self.rows[self.order[offset]]


class Plan:
    """The batches of one objective, of each data set by language; the target's language is None.

    Args:
        objective: The objective of the trainer.
        epochs: The number of epochs.
        corpora: The data sets by language, the target last.
        batch_size: The number of rows of a batch, in one process.
        accumulated: The number of batches of each data set in a step.
        seed: The seed of the orders.
        rank: The number of this process.
        size: The number of processes.
    """

    def __init__(
        self,
        objective: str,
        epochs: int,
        corpora: Mapping[str | None, Rows],
        *,
        batch_size: int,
        accumulated: int,
        seed: int,
        rank: int,
        size: int,
    ) -> None:
        self.objective, self.epochs, self.accumulated = objective, epochs, accumulated
        read = {None: corpora[None]} if objective == "target_only" else corpora
        self.streams = {
            language: Stream(
                rows, batch_size=batch_size, seed=seed * 1_009 + number, rank=rank, size=size
            )
            for number, (language, rows) in enumerate(read.items())
        }
        self.steps = math.ceil(max(map(len, read.values())) / (batch_size * size * accumulated))

    def read(self, step: int) -> Batches:
        """Read a step's batches, each with its language."""
        numbers = range(step * self.accumulated, (step + 1) * self.accumulated)
        return [
            (language, stream.batch(number))
            for language, stream in self.streams.items()
            for number in numbers
        ]


def moved(value: Any, device: torch.device) -> Any:
    """Move the tensors of a batch, which may be a mapping."""
    if isinstance(value, Mapping) and not hasattr(value, "to"):
        return {name: moved(part, device) for name, part in value.items()}
    return value.to(device) if hasattr(value, "to") else to_device(value, device)


def check_rows(name: str, rows: Any) -> None:
    """Require a data set that can be read at any index."""
    if not hasattr(rows, "__getitem__") or isinstance(rows, str | Mapping):
        rule = "be rows, with a length and an index (no loader, no iterator)"
        raise TypeError(must(name, rule, class_name(rows)))
    require(len(rows) > 0, name, "hold at least one row", "none")
