"""A batch of chains in the form that all algorithms take: holes closed, start and end scores in the emissions."""

from typing import NamedTuple

import torch
from torch import Tensor

from polyembed.functional.masking import valid_first

FORBIDDEN = -1e18
"""What stands for -inf: exp of it is 0 all the same, and its gradient is 0 where that of -inf is NaN."""


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
    order = valid_first(mask)
    mask = mask.gather(1, order)
    emissions = emissions.gather(1, order[..., None].expand_as(emissions))
    following = torch.nn.functional.pad(mask, (0, 1))[:, 1:]
    last = mask & ~following
    first = torch.arange(mask.shape[1], device=mask.device) == 0
    emissions = torch.where(last[..., None], emissions + end, emissions)
    emissions = torch.where(first[:, None], emissions + start, emissions)
    emissions = torch.where(mask[..., None], emissions, 0.0).clamp(min=FORBIDDEN)
    return Chain(emissions, mask, transitions.clamp(min=FORBIDDEN), order)


def last_position(mask: Tensor) -> Tensor:
    """Find each chain's last position, ``(batch,)``; 0 for an empty chain."""
    return (mask.sum(-1) - 1).clamp(min=0)
