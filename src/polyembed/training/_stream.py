"""An endless reading of data sets, whose place is a number: a run that goes on finds it again."""

import math
from collections.abc import Mapping
from typing import Any, Protocol

import torch


class Rows(Protocol):
    """A data set: a list, a map-style torch dataset, a `datasets.Dataset`."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class Stream:
    """Reads rows pass after pass, each in a random order of its own, in batches that are all full.

    A batch that a pass does not fill goes on with the next pass. Several processes share each joined batch: the first
    takes its first rows.

    Args:
        rows: What to read.
        batch_size: Rows a batch, of one process.
        seed: Of the orders.
        rank: Which of the processes this is.
        size: How many there are.
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
            self.drawn, self.order = number, torch.randperm(len(self.rows), generator=generator).tolist()
        return self.rows[self.order[offset]]


class Plan:
    """What one method reads at each step, of data sets by language, the target's last and by None.

    Args:
        method: A method of the trainer.
        epochs: How many epochs it trains.
        corpora: The data sets.
        batch_size: Rows a batch, of one process.
        accumulated: Batches of each data set a step.
        seed: Of the orders.
        rank: Which of the processes this is.
        size: How many there are.
    """

    def __init__(
        self,
        method: str,
        epochs: int,
        corpora: Mapping[str | None, Rows],
        *,
        batch_size: int,
        accumulated: int,
        seed: int,
        rank: int,
        size: int,
    ) -> None:
        self.method = method
        self.epochs = epochs
        self.accumulated = accumulated
        read = {None: corpora[None]} if method == "target_only" else corpora
        self.streams = {
            language: Stream(rows, batch_size=batch_size, seed=seed * 1_009 + number, rank=rank, size=size)
            for number, (language, rows) in enumerate(read.items())
        }
        self.steps = math.ceil(max(map(len, read.values())) / (batch_size * size * accumulated))

    def read(self, step: int) -> list[tuple[str | None, list[Any]]]:
        """Read a step's batches, each with its language."""
        numbers = range(step * self.accumulated, (step + 1) * self.accumulated)
        return [(language, stream.batch(number)) for language, stream in self.streams.items() for number in numbers]
