"""Paths of a chain: the best one, the k best, and random ones."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from polyembed._checks import check_positive
from polyembed.functional.crf import scan
from polyembed.functional.crf.analytic import messages, partition_and_marginals
from polyembed.functional.crf.chain import FORBIDDEN, Chain, last_position, make_chain
from polyembed.functional.crf.semiring import chunk_length, largest, recur

BLOCK = 1 << 18
"""How many numbers a temporary of pairs of tags may have: chains are taken in blocks of words."""

CERTAIN = 1e30
"""A score that a forbidden transition does not outweigh."""


class BestPaths(NamedTuple):
    """The most likely paths of each row, the best first.

    Attributes:
        tags: ``(batch, path, word)``; `ignore_index` at masked positions, and everywhere where a row has fewer paths.
        log_probs: ``(batch, path)`` in nats; -inf where a row has fewer paths.
    """

    tags: Tensor
    log_probs: Tensor


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
        ignore_index: What stands at masked positions, and in rows of which every path is forbidden.

    Returns:
        Tags, ``(batch, word)`` int64.
    """
    if mask.shape[1] == 0:
        return torch.zeros_like(mask, dtype=torch.int64)
    chain = make_chain(emissions, mask, transitions, start, end)
    compiling, length = torch.compiler.is_compiling(), chunk_length(chain.emissions)
    if compiling:
        scores = scan.best_scores(chain.emissions, chain.transitions)
    else:
        tags_first = chain.emissions.permute(1, 2, 0)[None]
        scores = recur(largest, tags_first, chain.transitions[None], normalize=False, chunk_length=length)
        scores = scores[0].transpose(1, 2)
    last = last_position(chain.mask)
    tag = scores.gather(0, last[None, :, None].expand(1, -1, scores.shape[2]))[0].argmax(1, keepdim=True)
    if compiling:
        path = scan.follow(_origins(scores, chain), tag)
    elif length is not None:
        path = _jump(_origins(scores, chain), tag)
    else:
        path = _walk_back(scores, chain, last, tag)
    tags = path.transpose(0, 1)
    tags = torch.where(_is_allowed(chain, tags)[:, None], tags, ignore_index)
    return chain.restore(tags, ignore_index)


@torch.no_grad()
def n_best(
    emissions: Float[Tensor, "batch word tag"],
    mask: Bool[Tensor, "batch word"],
    transitions: Float[Tensor, "tag tag"],
    start: Float[Tensor, " tag"],
    end: Float[Tensor, " tag"],
    k: int,
    *,
    ignore_index: int = -100,
) -> BestPaths:
    """Find the k paths of the highest scores (list Viterbi), each with its log-probability.

    Args:
        emissions: Scores of each tag at each word.
        mask: True = valid.
        transitions: ``A[i, j]``, the score of going from tag i to tag j.
        start: Score of each tag at a chain's first position.
        end: Score of each tag at a chain's last position.
        k: How many paths.
        ignore_index: What stands at masked positions, and where a row has fewer paths.

    Returns:
        Tags and log-probabilities. An empty row has one path, of log-probability 0.
    """
    check_positive(k=k)
    rows, width, num_tags = emissions.shape
    if width == 0:
        log_probs = emissions.new_full((rows, k), float("-inf"))
        log_probs[:, 0] = 0.0
        return BestPaths(mask.new_zeros((rows, k, 0), dtype=torch.int64), log_probs)
    chain = make_chain(emissions, mask, transitions, start, end)
    nothing = float("-inf")
    # scores (batch, tag, path): the k best ways to each tag; their origins count (tag, path)
    scores = emissions.new_full((rows, num_tags, k), nothing)
    scores[:, :, 0] = chain.emissions[:, 0]
    stay = torch.arange(num_tags * k, device=mask.device).reshape(num_tags, k)
    history = []
    for t in range(1, width):
        moved = (scores[:, :, :, None] + chain.transitions[:, None]).flatten(1, 2)
        best, origin = moved.topk(k, dim=1)
        valid = chain.mask[:, t, None, None]
        scores = torch.where(valid, best.mT + chain.emissions[:, t, :, None], scores)
        history.append(torch.where(valid, origin.mT, stay).flatten(1))
    best, place = scores.flatten(1).topk(k, dim=1)
    places = [place]
    for origin in reversed(history):
        place = origin.gather(1, place)
        places.append(place)
    tags = torch.stack(places[::-1], dim=1) // k  # (batch, word, path)
    possible = best > FORBIDDEN / 2
    empty = ~chain.mask[:, 0]
    possible[:, 0] |= empty
    possible[:, 1:] &= ~empty[:, None]
    log_probs = torch.where(possible, best - partition_and_marginals(*chain[:3])[0][:, None], nothing)
    log_probs[:, 0] = torch.where(empty, 0.0, log_probs[:, 0])
    tags = torch.where(possible[:, None], tags, ignore_index)
    return BestPaths(chain.restore(tags, ignore_index).transpose(1, 2), log_probs)


@torch.no_grad()
def sample(
    emissions: Float[Tensor, "batch word tag"],
    mask: Bool[Tensor, "batch word"],
    transitions: Float[Tensor, "tag tag"],
    start: Float[Tensor, " tag"],
    end: Float[Tensor, " tag"],
    num_samples: int = 1,
    *,
    generator: torch.Generator | None = None,
    ignore_index: int = -100,
) -> Int[Tensor, "sample batch word"]:
    """Draw paths with their probability: messages forwards, tags backwards.

    Args:
        emissions: Scores of each tag at each word.
        mask: True = valid.
        transitions: ``A[i, j]``, the score of going from tag i to tag j.
        start: Score of each tag at a chain's first position.
        end: Score of each tag at a chain's last position.
        num_samples: How many paths of each row.
        generator: Draws the numbers, on the device of the emissions; torch's own if None.
        ignore_index: What stands at masked positions, and in rows of which every path is forbidden.

    Returns:
        ``(sample, batch, word)`` int64.
    """
    check_positive(num_samples=num_samples)
    rows, width = mask.shape
    if width == 0:
        return mask.new_zeros((num_samples, rows, 0), dtype=torch.int64)
    chain = make_chain(emissions, mask, transitions, start, end)
    alpha = messages(*chain[:3])[0]
    last = last_position(chain.mask)
    by_next = chain.transitions.mT.contiguous()
    tag = torch.zeros(num_samples, rows, dtype=torch.int64, device=mask.device)
    path = []
    for t in range(width - 1, -1, -1):
        scores = alpha[:, t] + torch.where((last == t)[:, None], 0.0, by_next[tag])
        noise = torch.empty_like(scores).exponential_(generator=generator)
        tag = (scores - noise.log()).argmax(-1)  # Gumbel's trick
        path.append(tag)
    tags = torch.stack(path[::-1], dim=2).flatten(0, 1)
    emissions, mask, order = (
        x.repeat(num_samples, *[1] * (x.dim() - 1)) for x in (chain.emissions, chain.mask, chain.order)
    )
    many = Chain(emissions, mask, chain.transitions, order)
    tags = torch.where(_is_allowed(many, tags)[:, None], tags, ignore_index)
    return many.restore(tags, ignore_index).reshape(num_samples, rows, width)


def _origins(scores: Tensor, chain: Chain) -> Tensor:
    """Say of each position and tag where its best path comes from, ``(word, batch, tag)``; the first has no origin."""
    batch, num_tags = scores.shape[1:]
    length = max(1, BLOCK // max(1, batch * num_tags * num_tags))
    into = chain.transitions.mT.contiguous()
    stay = torch.arange(num_tags, device=scores.device)
    blocks = [(scores[:-1], chain.mask[:, 1:].transpose(0, 1)[..., None])]
    if not torch.compiler.is_compiling():  # the number of blocks would be part of the graph
        blocks = list(zip(*(torch.split(x, length) for x in blocks[0]), strict=True))
    found = [
        torch.where(valid, (before.contiguous()[:, :, None] + into).argmax(-1), stay)  # past a chain's end: from itself
        for before, valid in blocks
    ]
    return torch.cat([stay.expand(1, batch, -1), *found])


def _walk_back(scores: Tensor, chain: Chain, last: Tensor, tag: Tensor) -> Tensor:
    """Find where each tag of the best path comes from, word by word; the fewest operations, and no table of origins."""
    position = torch.arange(scores.shape[0], device=scores.device)[:, None, None]
    chosen = torch.arange(scores.shape[2], device=scores.device) == tag
    # from a chain's last word on, the score of its last tag beats all
    scores = torch.where(position < last[:, None], scores.contiguous(), torch.where(chosen, CERTAIN, 0.0).to(scores))
    into = chain.transitions.mT.contiguous()
    tag = tag.squeeze(1)
    path = [tag]
    for score in reversed(scores[:-1].unbind(0)):
        tag = (score + into.index_select(0, tag)).argmax(1)
        path.append(tag)
    return torch.stack(path[::-1])


def _jump(origins: Tensor, tag: Tensor) -> Tensor:
    """Follow all positions at once: compose each map with the next, the next two, the next four, ..."""
    maps, step = origins[1:], 1
    while step < maps.shape[0]:
        maps = torch.cat([maps[:-step].gather(2, maps[step:]), maps[-step:]])
        step *= 2
    return torch.cat([maps.gather(2, tag.expand(maps.shape[0], -1, -1)).squeeze(2), tag.transpose(0, 1)])


def _is_allowed(chain: Chain, tags: Tensor) -> Tensor:
    """Tell, for each row, whether no score on its path stands for -inf."""
    worst_word = torch.where(chain.mask, chain.emissions.gather(2, tags[..., None]).squeeze(2), 0.0).amin(1)
    steps = torch.where(chain.mask[:, 1:], chain.transitions[tags[:, :-1], tags[:, 1:]], 0.0)
    return torch.minimum(worst_word, torch.nn.functional.pad(steps, (0, 1)).amin(1)) > FORBIDDEN / 2
