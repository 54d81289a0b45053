"""A batch of chains in the form that all algorithms take: holes closed, start and end scores in the emissions."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from polyembed._checks import check_dim, check_mask
from polyembed.functional.masking import valid_first

FORBIDDEN = -1e18
"""What stands for -inf: exp of it is 0 all the same, and its gradient is 0 where that of -inf is NaN."""

BLOCK = 1 << 18
"""How many numbers a temporary of pairs of tags may have: long chains are taken in blocks of words."""


class Chain(NamedTuple):
    """Chains that begin at position 0 and have no holes.

    Attributes:
        emissions: ``(batch, word, tag)``, finite, zeros past a chain's end; start and end scores are added.
        mask: ``(batch, word)``, True up to a chain's end.
        transitions: ``(tag, tag)``, finite.
        order: ``(batch, word)``, where each position came from.
    """

    emissions: Tensor
    mask: Tensor
    transitions: Tensor
    order: Tensor

    def restore(self, x: Tensor, filler: float) -> Tensor:
        """Put ``(batch, word, ...)`` back into the order that the caller knows, with `filler` at masked positions."""
        shape = self.mask.shape + (1,) * (x.dim() - 2)
        x = torch.where(self.mask.reshape(shape), x, filler)
        return torch.empty_like(x).scatter(1, self.order.reshape(shape).expand_as(x), x)


def make_chain(emissions: Tensor, mask: Tensor, transitions: Tensor, start: Tensor, end: Tensor) -> Chain:
    """Close the holes, forbid instead of -inf, and add the start and end scores to the first and last emissions."""
    check_dim("emissions", emissions, 3, "batch, word, tag")
    check_mask(mask, emissions.shape[:2])
    emissions, transitions, start, end = widen(emissions, transitions, start, end)
    order = valid_first(mask)
    mask = mask.gather(1, order)
    emissions = emissions.gather(1, order[..., None].expand_as(emissions))
    position = torch.arange(mask.shape[1], device=mask.device)
    first, last = position == 0, mask & (position == mask.sum(1, keepdim=True) - 1)
    emissions = torch.where(last[..., None], emissions + end, emissions)
    emissions = torch.where(first[:, None], emissions + start, emissions)
    emissions = torch.where(mask[..., None], emissions, 0.0).clamp(min=FORBIDDEN)
    return Chain(emissions, mask, transitions.clamp(min=FORBIDDEN), order)


def widen(*tensors: Tensor) -> Iterable[Tensor]:
    """Give all one dtype, float32 at least: sums over paths need it."""
    dtype = torch.float32
    for x in tensors:
        dtype = torch.promote_types(dtype, x.dtype)
    return (x.to(dtype) for x in tensors)


def is_possible(log_z: Tensor) -> Tensor:
    """Tell which chains have a path that no score forbids."""
    return log_z > FORBIDDEN / 2


def last_position(mask: Tensor) -> Tensor:
    """Find each chain's last position, ``(batch,)``; 0 for an empty chain."""
    return (mask.sum(-1) - 1).clamp(min=0)


def path_scores(chain: Chain, tags: Tensor) -> Tensor:
    """Score paths ``(batch, word, *path)`` of each chain, ``(batch, *path)``."""
    unary, steps = _parts(chain, tags)
    return unary.sum(1) + steps.sum(1)


def is_allowed(chain: Chain, tags: Tensor) -> Tensor:
    """Tell of paths ``(batch, word, *path)`` whether none of their scores stands for -inf, ``(batch, *path)``."""
    unary, steps = _parts(chain, tags)
    return torch.minimum(unary.amin(1), steps.amin(1)) > FORBIDDEN / 2


def _parts(chain: Chain, tags: Tensor) -> tuple[Tensor, Tensor]:
    """List a path's emissions and the transitions before them, zeros past a chain's end."""
    flat = tags.flatten(2) if tags.dim() > 2 else tags[..., None]
    before = torch.roll(flat, 1, dims=1)
    moved = chain.mask & (torch.arange(flat.shape[1], device=flat.device) > 0)
    unary = torch.where(chain.mask[..., None], chain.emissions.gather(2, flat), 0.0)
    steps = torch.where(moved[..., None], chain.transitions[before, flat], 0.0)
    return unary.reshape(tags.shape), steps.reshape(tags.shape)
