"""The processes of a `torchrun` launch: an exchange of values, and an error in all if one fails."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch.distributed as dist

from polyembed._checks import class_name, must

Value = TypeVar("Value")


class Ranks(NamedTuple):
    """The number of this process among the processes that made the same call."""

    rank: int = 0
    size: int = 1

    def gather(self, value: Value) -> list[Value]:
        """Return the values of all ranks; all must call this."""
        values: list[Any] = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value)
        return values

    def together(self, function: Callable[[], Value]) -> Value:
        """Call a function on every rank; if it fails on one, raise on all."""
        value, failure = None, None
        try:
            value = function()
        except Exception as error:
            failure = error
        reports = self.gather(None if failure is None else f"{class_name(failure)}: {failure}")
        if failure is not None:
            raise failure
        for rank, report in enumerate(reports):
            if report is not None:
                raise RuntimeError(must(f"rank {rank}", "make this call as the others do", report))
        return value  # type: ignore[return-value]


@contextmanager
def open_ranks() -> Iterator[Ranks]:
    """Use the caller's process group, or make the one that `torchrun` describes, with gloo."""
    ours = dist.is_available() and not dist.is_initialized() and "TORCHELASTIC_RUN_ID" in os.environ
    if ours:
        dist.init_process_group("gloo")
    if not dist.is_available() or not dist.is_initialized():
        yield Ranks()
        return
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size())
    finally:
        if ours:
            dist.destroy_process_group()
