"""The same recursions for `torch.compile` and `torch.export`: one graph for chains of every length.

A Python loop over time would be compiled anew for each length, and the `autograd.Function` of `analytic.py`, which has
a ``jvp``, is not compiled at all. The step runs over all positions, the first included: the length is then a symbol of
its own in the graph, which inductor needs.
"""

import torch
from torch import Tensor


def log_partition(emissions: Tensor, mask: Tensor, transitions: Tensor) -> Tensor:
    """Sum over all paths; the arguments are a `Chain`'s, ``(batch,)``."""
    from torch._higher_order_ops.scan import scan

    def step(
        state: tuple[Tensor, Tensor], inputs: tuple[Tensor, Tensor, Tensor]
    ) -> tuple[tuple[Tensor, Tensor], Tensor]:
        alpha, scale = state
        emission, valid, first = inputs
        moved = torch.logsumexp(alpha[:, :, None] + transitions, dim=1)
        moved = torch.where(first, alpha, moved) + emission
        top = moved.amax(1, keepdim=True)  # apart, so that float32 keeps the messages' small differences
        state = torch.where(valid[:, None], moved - top, alpha), torch.where(valid[:, None], scale + top, scale)
        return state, alpha.new_zeros(())

    start = torch.zeros_like(emissions[:, 0]), torch.zeros_like(emissions[:, 0, :1])
    (alpha, scale), _ = scan(step, start, _inputs(emissions, mask))
    return torch.where(mask[:, 0], scale.squeeze(1) + torch.logsumexp(alpha, dim=1), 0.0)


def best_scores(emissions: Tensor, transitions: Tensor) -> Tensor:
    """Score the best path up to each position and tag, ``(word, batch, tag)``."""
    from torch._higher_order_ops.scan import scan

    def step(score: Tensor, inputs: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        emission, _, first = inputs
        moved = torch.where(first, score, (score[:, :, None] + transitions).amax(1)) + emission
        moved = moved - moved.amax(1, keepdim=True)
        return moved, moved.clone()

    mask = torch.ones_like(emissions[:, :, 0], dtype=torch.bool)
    scores: Tensor = scan(step, torch.zeros_like(emissions[:, 0]), _inputs(emissions, mask))[1]
    return scores


def follow(origins: Tensor, tag: Tensor) -> Tensor:
    """Follow ``origins (word, batch, tag)`` backwards from ``tag (batch, 1)``; gives the path ``(word, batch)``."""
    from torch._higher_order_ops.scan import scan

    def step(tag: Tensor, origin: Tensor) -> tuple[Tensor, Tensor]:
        return origin.gather(1, tag), tag.squeeze(1).clone()  # no output may be a view of an input

    path: Tensor = scan(step, tag, origins, reverse=True)[1]
    return path


def _inputs(emissions: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    first = torch.arange(emissions.shape[1], device=emissions.device) == 0
    return emissions.transpose(0, 1), mask.transpose(0, 1), first
