"""Rows of a data set: checks, and batches whose content follows from their number alone, so that a run can resume."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeAlias

import torch

from polyembed._checks import class_name, must, require
from polyembed.tagging.text_model import to_device

Batches: TypeAlias = list[tuple[str | None, list[Any]]]
LABELS = ("tags", "labels", "label", "label_ids", "ner_tags")


class Rows(Protocol):
    """A data set: a list, a map-style torch dataset, a `datasets.Dataset`."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class Stream:
    """Reads rows in passes, each in a new random order, in batches that are all full.

    A batch that a pass does not fill continues with the next pass. Several processes share each
    joined batch: the first process takes its first rows.

    Args:
        rows: What to read.
        batch_size: Rows of a batch, in one process.
        seed: Of the orders.
        rank: The number of this process.
        size: How many processes there are.
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
    """The batches of one objective, of each data set by language; the target is the last and its
    language is None.

    Args:
        objective: Of the trainer.
        epochs: How many.
        corpora: The data sets.
        batch_size: Rows of a batch, in one process.
        accumulated: Batches of each data set in a step.
        seed: Of the orders.
        rank: The number of this process.
        size: How many processes there are.
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
    if (
        not hasattr(rows, "__len__")
        or not hasattr(rows, "__getitem__")
        or isinstance(rows, str | Mapping)
    ):
        raise TypeError(
            must(
                name,
                "be rows, with a length and an index (no loader, no iterator)",
                class_name(rows),
            )
        )
    require(len(rows) > 0, name, "hold at least one row", "none")


def check_labels(sources: Iterable[Rows], target: Rows) -> None:
    """Refuse label sets of which neither contains the other, and numbers that mean other names.

    Labels are read from rows in lists, names of labels from a `datasets.Dataset`.
    """
    sources = list(sources)
    theirs: set[Any] = set().union(*map(_labels, sources))
    ours = _labels(target)
    if theirs and ours and theirs - ours and ours - theirs:
        rule = "be the sources', or the other way round"
        found = f"only the target has {sorted(map(repr, ours - theirs))[0]}"
        raise ValueError(
            must(
                "the labels of target", rule, f"{found}, not {sorted(map(repr, theirs - ours))[0]}"
            )
        )
    for rows in sources:
        for key, names in _label_names(target).items():
            for number, (our, their) in enumerate(
                zip(names, _label_names(rows).get(key, names), strict=False)
            ):
                rule = f"count the labels in {key!r} as source does"
                require(
                    our == their, "target", rule, f"{our!r} for {number}, which is {their!r} there"
                )


def _labels(rows: Rows) -> set[Any]:
    """Return the labels of rows in a list."""
    found: set[Any] = set()
    for row in rows if isinstance(rows, list | tuple) else ():
        for name in LABELS:
            found |= _items(row.get(name) if isinstance(row, Mapping) else getattr(row, name, None))
    return found - {-100}


def _items(labels: Any) -> set[Any]:
    """Return the labels in a string, a number, a tensor, an array or a list of such."""
    labels = labels.tolist() if hasattr(labels, "tolist") else labels
    if isinstance(labels, list | tuple):
        return {label for part in labels for label in _items(part)}
    return {labels} if isinstance(labels, str | int) else set()


def _label_names(rows: Any) -> dict[str, list[str]]:
    """Return the names that the numbers in the columns of a `datasets.Dataset` mean."""
    found = {}
    for key, feature in dict(getattr(rows, "features", None) or {}).items():
        names = getattr(
            getattr(feature, "feature", feature), "names", None
        )  # a sequence's items have the names
        if key in LABELS and names:
            found[key] = list(names)
    return found
