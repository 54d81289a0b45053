"""The best path of a chain."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from polyembed.functional.crf import scan
from polyembed.functional.crf.chain import BLOCK, Chain, is_allowed, last_position, make_chain
from polyembed.functional.crf.host import best_path
from polyembed.functional.crf.semiring import chunk_length, largest, recur


@torch.no_grad()
def viterbi(
    emissions: Float[Tensor, "batch word tag"],
    mask: Bool[Tensor, "batch word"],
    transitions: Float[Tensor, "tag tag"],
    start: Float[Tensor, " tag"],
    end: Float[Tensor, " tag"],
    *,
    ignore_index: int = -100,
) -> Int[Tensor, "batch word"]:
    """Find the path of the highest score; of equal ones, the one with the lower tag at the last difference.

    Args:
        emissions: Scores of each tag at each word.
        mask: True = valid.
        transitions: ``A[i, j]``, the score of going from tag i to tag j.
        start: Score of each tag at a chain's first position.
        end: Score of each tag at a chain's last position.
        ignore_index: What stands at masked positions, and in rows of which every path is forbidden, or that hold NaN.

    Returns:
        Tags, ``(batch, word)`` int64.
    """
    if mask.shape[1] == 0:
        return torch.zeros_like(mask, dtype=torch.int64)
    chain = make_chain(emissions, mask, transitions, start, end)
    last = last_position(chain.mask)
    if torch.compiler.is_compiling():
        scores = scan.best_scores(chain.emissions, chain.transitions)
        final = _at(scores, last)
        path = scan.follow(_origins(scores, chain), final.argmax(1, keepdim=True))
    else:
        # the best at each word is 0, so that a long chain's scores stay small: float32 tells them apart
        by_tag = chain.emissions.permute(1, 2, 0).contiguous()
        gaps = by_tag - by_tag.amax(1, keepdim=True)
        length = chunk_length(chain.emissions)
        arrays = _arrays(gaps, chain.transitions, last) if length is None else None
        if arrays is None:
            found = recur(largest, gaps[None], chain.transitions[None], normalize=False, chunk=length)
            scores = found[0].transpose(1, 2)
            final = _at(scores, last)
            path = _jump(_origins(scores, chain), final.argmax(1, keepdim=True))
        else:
            path, final = map(torch.from_numpy, best_path(*arrays))
    tags = path.transpose(0, 1)
    possible = is_allowed(chain, tags) & ~final.isnan().any(1)
    tags = torch.where(possible[:, None], tags, ignore_index)
    return chain.restore(tags, ignore_index)


def _arrays(*tensors: Tensor) -> list[Any] | None:
    """See tensors as arrays; None for those without memory of their own, as under ``torch.vmap``."""
    try:
        return [x.numpy() for x in tensors]
    except RuntimeError:
        return None


def _at(scores: Tensor, last: Tensor) -> Tensor:
    """Give the scores ``(batch, tag)`` at each chain's last word."""
    return scores.gather(0, last[None, :, None].expand(1, -1, scores.shape[2]))[0]


def _origins(scores: Tensor, chain: Chain) -> Tensor:
    """Say of each position and tag where its best path comes from, ``(word, batch, tag)``: the first, from itself."""
    num_words, batch, num_tags = scores.shape
    length = max(1, BLOCK // max(1, batch * num_tags * num_tags))
    into = chain.transitions.mT.contiguous()
    stay = torch.arange(num_tags, device=scores.device)
    # over the full width: a graph for all lengths has no slice that is empty for one
    before = torch.roll(scores, 1, dims=0)
    moved = chain.mask & (torch.arange(num_words, device=scores.device) > 0)
    blocks = [(before, moved.transpose(0, 1)[..., None])]
    if not torch.compiler.is_compiling():  # the number of blocks would be part of the graph
        blocks = list(zip(*(torch.split(x, length) for x in blocks[0]), strict=True))
    found = [
        torch.where(on, (score.contiguous()[:, :, None] + into).argmax(-1), stay)  # past a chain's end: from itself
        for score, on in blocks
    ]
    return torch.cat(found)


def _jump(origins: Tensor, tag: Tensor) -> Tensor:
    """Follow all positions at once: compose each map with the next, the next two, the next four, ..."""
    maps, step = origins[1:], 1
    while step < maps.shape[0]:
        maps = torch.cat([maps[:-step].gather(2, maps[step:]), maps[-step:]])
        step *= 2
    return torch.cat([maps.gather(2, tag.expand(maps.shape[0], -1, -1)).squeeze(2), tag.transpose(0, 1)])
