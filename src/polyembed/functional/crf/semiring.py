"""The forward recursion over a chain, in the log or the max semiring, step by step or chunk by chunk.

``x[t] = reduce_i(x[t-1][i] + A[i, j]) + e[t][j]`` with ``reduce`` = logsumexp (all paths) or max (the best). The
state's tags stand before the batch, so that a step reduces over a slow axis, which a CPU does faster.

In chunks, the steps are about ``3 sqrt(length)`` in place of ``length``, for ``num_tags`` times the arithmetic: meant
for a GPU, where a step costs a launch whatever it computes.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from polyembed.functional.crf.chain import FORBIDDEN

Reduce = Callable[[Tensor, int], Tensor]


def log_sum(x: Tensor, dim: int) -> Tensor:
    """Sum in the log semiring."""
    return torch.logsumexp(x, dim)


def largest(x: Tensor, dim: int) -> Tensor:
    """Sum in the max semiring."""
    return x.amax(dim)


def chunk_length(emissions: Tensor) -> int | None:
    """Choose by device, for ``(batch, word, tag)``: no chunks on a CPU, where arithmetic is what a step costs."""
    return None if emissions.device.type == "cpu" else max(1, math.isqrt(emissions.shape[1] // 2))


def recur(
    reduce: Reduce, emissions: Tensor, transitions: Tensor, *, normalize: bool, chunk: int | None = None
) -> Tensor:
    """Run the recursion.

    Args:
        reduce: `log_sum` or `largest`.
        emissions: ``(group, word, tag, batch)``.
        transitions: ``(group, tag, tag)``.
        normalize: Whether the largest entry of each ``x[t]`` is made 0: long chains then lose no precision.
        chunk: How many steps a chunk has; None = all in one.

    Returns:
        ``(group, word, tag, batch)``.
    """
    first, rest = emissions[:, 0], emissions[:, 1:]
    if normalize:
        first = first - first.amax(1, keepdim=True)
    if chunk is None or chunk >= rest.shape[1]:
        steps = _walk(reduce, first, rest, transitions[..., None], normalize)
        return torch.stack([first, *steps], 1)
    length = rest.shape[1]
    padding = -length % chunk
    rest = torch.nn.functional.pad(rest, (0, 0, 0, 0, 0, padding))
    # (group, word in chunk, tag, batch, chunk)
    rest = rest.reshape(rest.shape[0], -1, chunk, *rest.shape[2:]).permute(0, 2, 3, 4, 1)
    starts = _boundaries(reduce, first, rest, transitions)
    steps = _walk(reduce, starts, rest, transitions[..., None, None], normalize)
    tags_batch = torch.stack(steps, 1).permute(0, 4, 1, 2, 3).flatten(1, 2)[:, :length]
    return torch.cat([first[:, None], tags_batch], 1)


def _walk(reduce: Reduce, x: Tensor, emissions: Tensor, transitions: Tensor, normalize: bool) -> list[Tensor]:
    steps = []
    for emission in emissions.unbind(1):
        x = reduce(x.unsqueeze(2) + transitions, 1) + emission
        if normalize:
            x = x - x.amax(1, keepdim=True)
        steps.append(x)
    return steps


def _boundaries(reduce: Reduce, first: Tensor, rest: Tensor, transitions: Tensor) -> Tensor:
    """Find the state before each chunk, ``(group, tag, batch, chunk)``: what chunks do to any state, one by one."""
    num_tags = first.shape[1]
    eye = torch.eye(num_tags, dtype=torch.bool, device=first.device)
    x = torch.where(eye, first.new_zeros(()), FORBIDDEN)[None, :, :, None, None]  # (group, tag, from, batch, chunk)
    for emission in rest[..., :-1].unbind(1):  # nothing follows the last chunk
        x = reduce(x.unsqueeze(2) + transitions[..., None, None, None], 1) + emission[:, :, None]
    x = x - x.amax((1, 2), keepdim=True)
    state, starts = first, [first]
    for transfer in x.unbind(-1):
        state = reduce(state[:, None] + transfer, 2)
        state = state - state.amax(1, keepdim=True)
        starts.append(state)
    return torch.stack(starts, -1)
