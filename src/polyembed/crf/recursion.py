"""The forward recursion over a chain, in the log or the max semiring, in one chunk or in many.

``x[t] = reduce_i(x[t-1][i] + A[i, j]) + e[t][j]`` with ``reduce`` = logsumexp (all paths) or max
(the best path).

Many chunks need about ``3 sqrt(length)`` steps instead of ``length``, and `num_tags` times the
arithmetic. They are meant for a GPU, where each step costs a kernel launch.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from polyembed.crf.numpy_viterbi import FORBIDDEN

Reduce = Callable[[Tensor, int], Tensor]


def log_sum(x: Tensor, dim: int) -> Tensor:
    """Return the log-sum-exp of finite scores, in four kernels where torch's own needs a dozen."""
    return x.amax(dim) - x.log_softmax(dim).amax(dim)


def chunk_length(emissions: Tensor) -> int:
    """Return the number of steps in a chunk for emissions ``(batch, word, tag)``.

    On a CPU, where arithmetic dominates, one chunk has all steps.
    """
    words = emissions.shape[1]
    return max(1, words if emissions.device.type == "cpu" else math.isqrt(words // 2))


def recur(
    reduce: Reduce, emissions: Tensor, transitions: Tensor, chunk: int
) -> tuple[Tensor, Tensor]:
    """Run the recursion for several sets of chains and transitions side by side.

    Args:
        reduce: `log_sum`, or `torch.amax` in the max semiring.
        emissions: The emissions, ``(set, word, tag, batch)``; on a CPU it is faster to reduce over
            a slow axis.
        transitions: The transitions, ``(set, tag, tag)``.
        chunk: The number of steps in a chunk.

    Returns:
        The states ``(set, word, tag, batch)``, each shifted so that its largest entry is 0, which
        keeps the precision of long chains; and the shifts ``(set, word, batch)``.
    """
    top = emissions[:, 0].amax(1, keepdim=True)
    first, rest = emissions[:, 0] - top, emissions[:, 1:]
    length = rest.shape[1]
    if not length:
        return first[:, None], top
    rest = F.pad(rest, (0, 0, 0, 0, 0, -length % chunk))
    rest = rest.unflatten(1, (-1, chunk))  # type: ignore[no-untyped-call]
    rest = rest.permute(0, 2, 3, 4, 1)  # (set, word in chunk, tag, batch, chunk)
    x = _chunk_starts(reduce, first, rest, transitions) if length > chunk else first[..., None]
    states, tops = [], []
    for emission in rest.unbind(1):
        x = reduce(x.unsqueeze(2) + transitions[..., None, None], 1) + emission
        tops.append(x.amax(1, keepdim=True))
        x = x - tops[-1]
        states.append(x)

    def join(first: Tensor, steps: list[Tensor]) -> Tensor:
        in_order = torch.stack(steps, 1).permute(0, 4, 1, 2, 3).flatten(1, 2)[:, :length]
        return torch.cat([first[:, None], in_order], 1)

    return join(first, states), join(top, tops).squeeze(2)


def _chunk_starts(reduce: Reduce, first: Tensor, rest: Tensor, transitions: Tensor) -> Tensor:
    """Return the state before each chunk, ``(set, tag, batch, chunk)``, from each chunk's transfer
    matrix.
    """
    eye = torch.eye(first.shape[1], dtype=torch.bool, device=first.device)
    x = torch.where(eye, first.new_zeros(()), FORBIDDEN)[
        None, :, :, None, None
    ]  # (set, tag, from, batch, chunk)
    for emission in rest[..., :-1].unbind(1):  # the last chunk has no next one
        x = reduce(x.unsqueeze(2) + transitions[..., None, None, None], 1) + emission[:, :, None]
        x = (x - x.amax((1, 2), keepdim=True)).clamp(min=FORBIDDEN)
    state, starts = first, [first]
    for transfer in x.unbind(-1):
        state = reduce(state[:, None] + transfer, 2)
        state = state - state.amax(1, keepdim=True)
        starts.append(state)
    return torch.stack(starts, -1)
