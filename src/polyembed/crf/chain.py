"""A batch of chains in the form that all algorithms take, without holes."""

import functools
import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from polyembed._checks import check_dim, check_mask, check_shape, check_tensor
from polyembed.crf.numpy_viterbi import FORBIDDEN, LARGEST
from polyembed.functional.masking import valid_first

BLOCK = 1 << 18
"""The largest size of a temporary tensor over pairs of tags; longer chains are processed in blocks
of words.
"""


class Chain(NamedTuple):
    """Chains that begin at position 0 and have no holes.

    Attributes:
        emissions: The scores ``(batch, word, tag)``, without infinities and with the start and end
            scores added; zeros past a chain's end.
        mask: The mask ``(batch, word)``, True up to a chain's end.
        transitions: The scores ``(tag, tag)``, without infinities.
        order: The position of each word in the caller's tensors, ``(batch, word)``.
        width: The number of words in the caller's tensors; if it is 0, the tensors here have one
            masked word.
    """

    emissions: Tensor
    mask: Tensor
    transitions: Tensor
    order: Tensor
    width: int

    def restore(self, x: Tensor, filler: float) -> Tensor:
        """Return ``x (batch, word, ...)`` in the caller's order; `filler` at masked positions."""
        shape = self.mask.shape + (1,) * (x.dim() - 2)
        x = torch.where(self.mask.reshape(shape), x, filler)
        order = self.order.reshape(shape).expand_as(x)
        return torch.empty_like(x).scatter(1, order, x)[:, : self.width]

    def reorder(self, tags: Tensor) -> Tensor:
        """Return the caller's tags ``(batch, word)`` in the order of the chain, 0 past its end."""
        return torch.where(self.mask, _at_least_one(tags).gather(1, self.order), 0)


def make_chain(
    emissions: Tensor, mask: Tensor, transitions: Tensor, start: Tensor, end: Tensor
) -> Chain:
    """Close the holes, bound the scores and add the start and end scores to the emissions."""
    check_chain(emissions, mask, transitions, start, end)
    width = mask.shape[1]
    emissions, transitions, start, end = map(bounded, widen(emissions, transitions, start, end))
    emissions, mask = _at_least_one(emissions), _at_least_one(mask)
    order = valid_first(mask)
    mask = mask.gather(1, order)
    emissions = emissions.gather(1, order[..., None].expand_as(emissions))
    position = torch.arange(mask.shape[1], device=mask.device)
    first, last = position == 0, mask & (position == mask.sum(1, keepdim=True) - 1)
    emissions = torch.where(last[..., None], emissions + end, emissions)
    emissions = torch.where(first[:, None], emissions + start, emissions)
    return Chain(torch.where(mask[..., None], emissions, 0.0), mask, transitions, order, width)


def check_chain(
    emissions: Tensor, mask: Tensor, transitions: Tensor, start: Tensor, end: Tensor
) -> None:
    """Require the shapes of all parts of a chain to fit."""
    check_dim("emissions", emissions, 3, "batch, word, tag")
    check_tensor("mask", mask)
    check_mask(mask, emissions.shape[:2])
    tags = emissions.shape[2]
    check_shape("transitions", transitions, (tags, tags))
    for name, x in (("start", start), ("end", end)):
        check_shape(name, x, (tags,))


def last_words(mask: Tensor) -> Tensor:
    """Return the last position of each chain without holes, ``(batch,)``; 0 for an empty one."""
    return (mask.sum(1) - 1).clamp(min=0)


def _at_least_one(x: Tensor) -> Tensor:
    """Pad ``(batch, 0, ...)`` to one masked word, so that no algorithm has a case for no words."""
    return x if x.shape[1] else F.pad(x, (0, 0) * (x.dim() - 2) + (0, 1))


def widen(*tensors: Tensor) -> Iterable[Tensor]:
    """Convert tensors to one dtype of at least float32, which sums over paths need."""
    dtype = functools.reduce(torch.promote_types, (x.dtype for x in tensors), torch.float32)
    return (x.to(dtype) for x in tensors)


def bounded(scores: Tensor) -> Tensor:
    """Replace -inf by `FORBIDDEN` and +inf by NaN, and bound the finite scores."""
    finite = scores.clamp(-LARGEST, LARGEST).masked_fill(scores == math.inf, math.nan)
    return finite.masked_fill(scores == -math.inf, FORBIDDEN)


def is_possible(log_z: Tensor) -> Tensor:
    """Return which chains have a path without a forbidden score; NaN stays NaN."""
    return ~(log_z <= FORBIDDEN / 2)


def path_scores(chain: Chain, tags: Tensor) -> Tensor:
    """Return the scores ``(batch, *path)`` of paths ``(batch, word, *path)``, -inf if forbidden."""
    flat = tags[..., None].flatten(2)  # (batch, word, path)
    before = torch.roll(flat, 1, dims=1)
    unary = torch.where(chain.mask[..., None], chain.emissions.gather(2, flat), 0.0)
    # one index into the flat table: its gradient is faster than that of a pair of indices
    index = before * chain.transitions.shape[1] + flat
    steps = chain.transitions.flatten().index_select(0, index.flatten()).reshape(flat.shape)
    # no slice, because exports would then require a minimum number of words
    moved = chain.mask & (torch.arange(flat.shape[1], device=flat.device) > 0)
    steps = torch.where(moved[..., None], steps, 0.0)
    forbidden = (unary <= FORBIDDEN / 2).any(1) | (steps <= FORBIDDEN / 2).any(1)
    scores = torch.where(forbidden, -math.inf, unary.sum(1) + steps.sum(1))
    return scores.reshape(tags.shape[:1] + tags.shape[2:])
