"""Measurements of one call: its time, its activation memory, and whether it fits in memory."""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

MB = 2**20
ENDED = object()
"""The result of a call that did not fit in memory."""
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "_ALLOC_FAILED")
"""The messages of the CPU's allocators on Linux and Windows, and of drivers and libraries of GPUs."""


def attempt(call: Callable[[], Any], device: torch.device) -> Any:
    """Return the result of a call, or `ENDED` if it did not fit in memory."""
    try:
        return call()
    except (MemoryError, RuntimeError) as error:
        known = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not known and not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        error.__traceback__ = None  # it refers to all tensors of the call
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return ENDED


def seconds(
    module: nn.Module, call: Callable[[Any], object], batch: Any, device: torch.device
) -> float:
    """Return the seconds that a call takes in evaluation mode, without gradients."""
    with in_mode(module, training=False), torch.no_grad():
        _synchronize(device)
        start = time.perf_counter()
        call(batch)
        _synchronize(device)
        return time.perf_counter() - start


def activation_mb(
    module: nn.Module,
    call: Callable[[Any], Tensor],
    batch: Any,
    device: torch.device,
    *,
    training: bool,
) -> float:
    """Return the activation memory of a forward pass or of a training step in MB."""
    with in_mode(module, training=training):
        if device.type != "cuda":
            return _saved_mb(call, [*module.parameters(), *module.buffers()], batch)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        output = call(batch)
        if not training:
            return (torch.cuda.memory_allocated(device) - before) / MB
        torch.autograd.grad(
            output, [x for x in module.parameters() if x.requires_grad], allow_unused=True
        )
        return (torch.cuda.max_memory_allocated(device) - before) / MB


def _saved_mb(call: Callable[[Any], object], own: Sequence[Tensor], batch: object) -> float:
    """Add up the tensors that autograd saves in a call."""
    known = {storage(value) for value in (*own, *_tensors(batch))}
    saved: dict[int, int] = {}
    alive: list[Tensor] = []  # so that no address is used twice

    def pack(value: Tensor) -> None:  # saves None: a saved output would keep itself alive
        if (place := storage(value)) not in known:
            saved[place] = value.untyped_storage().nbytes()
            alive.append(value.detach())

    with (
        torch.random.fork_rng(devices=[]),
        torch.enable_grad(),
        saved_tensors_hooks(pack, lambda value: value),
    ):
        call(batch)
    return sum(saved.values()) / MB


def storage(value: Tensor) -> int:
    """Return the address of a tensor's storage."""
    return value.untyped_storage().data_ptr()


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def in_mode(module: nn.Module, *, training: bool) -> Iterator[None]:
    """Set the mode of a module, and restore the mode of each of its parts afterwards."""
    modes = {part: part.training for part in module.modules()}
    module.train(training)
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode
