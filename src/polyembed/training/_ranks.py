"""The processes of a `torchrun` launch: exchange of values, and an error in all processes if one of them fails."""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from polyembed._checks import class_name, must

Value = TypeVar("Value")
LAUNCH = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
_CALLS = itertools.count()

PATIENCE = timedelta(days=30)
"""How long a rank waits for one that still trains. A closed connection shows that a rank has died."""


class Ranks(NamedTuple):
    """The number of this process among the processes that made the same call, and their group."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    group: Any = None

    def gather(self, value: Value) -> list[Value]:
        """Return the values of all ranks; all must call this."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def broadcast(self, value: Value | None, source: int) -> Value:
        """Return the value of one rank; all must call this."""
        import torch.distributed as dist

        values = [value]
        dist.broadcast_object_list(values, src=source, group=self.group)
        return values[0]  # type: ignore[return-value]

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
    """Open the caller's process group, or the one that `torchrun` describes, with gloo on the CPU for values."""
    import torch.distributed as dist

    if not dist.is_available():
        yield Ranks()
        return
    from torch.distributed.distributed_c10d import PrefixStore, _set_pg_timeout
    from torch.distributed.rendezvous import rendezvous

    ours = not dist.is_initialized() and os.environ.keys() >= LAUNCH
    if not ours and not dist.is_initialized():
        yield Ranks()
        return
    with ExitStack() as stack:
        if ours:
            store, rank, size = next(rendezvous("env://"))
            fresh = PrefixStore(
                f"polyembed-{next(_CALLS)}", store
            )  # a store keeps what earlier groups wrote
            dist.init_process_group("gloo", store=fresh, rank=rank, world_size=size)
            stack.callback(dist.destroy_process_group)
        group = dist.new_group(backend="gloo")  # whatever the caller's backend
        if not ours:
            stack.callback(dist.destroy_process_group, group)
        _set_pg_timeout(PATIENCE, group)
        local_rank = int(os.environ.get("LOCAL_RANK", dist.get_rank()))
        yield Ranks(dist.get_rank(), dist.get_world_size(), local_rank, group)
        dist.barrier(group)  # a rank that left could not send the last value
