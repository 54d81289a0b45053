"""The best paths of a chain, and random paths.

`viterbi` uses NumPy on a CPU and the chunked recursion on a GPU.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from polyembed._checks import check_positive
from polyembed.crf import numpy_viterbi
from polyembed.crf.chain import (
    BLOCK,
    Chain,
    check_chain,
    last_words,
    make_chain,
    path_scores,
    widen,
)
from polyembed.crf.partition import partition
from polyembed.crf.recursion import Reduce, chunk_length, log_sum, recur
from polyembed.crf.scores import Emissions, Mask, Tags, TagScores, Transitions


def forward_messages(reduce: Reduce, chain: Chain) -> Tensor:
    """Return the messages that run forwards, ``(word, tag, batch)``."""
    by_tag = chain.emissions.permute(1, 2, 0)[None]
    return recur(reduce, by_tag, chain.transitions[None], chunk_length(chain.emissions))[0][0]


@torch.no_grad()
def viterbi(
    emissions: Emissions,
    mask: Mask,
    transitions: Transitions,
    start: TagScores,
    end: TagScores,
    *,
    ignore_index: int = -100,
) -> Tags:
    """Return the path of the highest score; of paths with equal scores, the path with the lower tag
    at the last position where they differ.

    Args:
        emissions: Scores of each tag at each word.
        mask: True = valid.
        transitions: ``A[i, j]``, the score of going from tag i to tag j.
        start: Score of each tag at a chain's first position.
        end: Score of each tag at a chain's last position.
        ignore_index: The result at masked positions, and in rows with NaN or without a permitted
            path.

    Returns:
        The tag ids, ``(batch, word)`` int64.
    """
    check_chain(emissions, mask, transitions, start, end)
    scores = (x.detach() for x in widen(emissions, transitions, start, end))
    tags: Tensor = _viterbi(*scores, mask, ignore_index)
    return tags


@torch.library.custom_op("polyembed::crf_viterbi", mutates_args=())
def _viterbi(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    mask: Tensor,
    ignore_index: int,
) -> Tensor:
    """Run Viterbi's algorithm as one operator for `torch.compile` and `torch.export`, which would
    compile a loop anew for each length.
    """
    chains = emissions, mask, transitions, start, end
    if emissions.device.type != "cpu":
        return in_chunks(*chains, ignore_index)
    arrays = (x.numpy() for x in chains)
    return torch.from_numpy(numpy_viterbi.viterbi(*arrays, ignore_index=ignore_index))


@_viterbi.register_fake
def _(emissions: Tensor, *others: Any) -> Tensor:
    return emissions.new_empty(emissions.shape[:2], dtype=torch.int64)


def in_chunks(
    emissions: Tensor,
    mask: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    ignore_index: int,
) -> Tensor:
    """Return the paths of `viterbi` by PyTorch's operations, without a wait for the device."""
    chain = make_chain(emissions, mask, transitions, start, end)
    scores = forward_messages(torch.amax, chain).transpose(1, 2)  # (word, batch, tag)
    final = scores[last_words(chain.mask), torch.arange(scores.shape[1], device=scores.device)]
    tags = _follow(_origins(scores, chain), final.argmax(1, keepdim=True)).transpose(0, 1)
    possible = (path_scores(chain, tags) > -math.inf) & ~final.isnan().any(1)
    return chain.restore(torch.where(possible[:, None], tags, ignore_index), ignore_index)


def _origins(scores: Tensor, chain: Chain) -> Tensor:
    """Return the tag before each tag on its best path, ``(word, batch, tag)``, from the second word
    on.
    """
    block = max(1, BLOCK // max(1, scores[0].numel() * scores.shape[2]))
    into = chain.transitions.mT
    origins = [(before[:, :, None] + into).argmax(-1) for before in torch.split(scores[:-1], block)]
    stay = torch.arange(scores.shape[2], device=scores.device)  # past a chain's end: the tag itself
    return torch.where(chain.mask.T[1:, :, None], torch.cat(origins), stay)


def _follow(maps: Tensor, tag: Tensor) -> Tensor:
    """Return the paths that end in `tag`, ``(word, batch)``, for all positions at once.

    Successive steps compose each map with the next one, the next two, the next four, and so on.
    """
    step = 1
    while step < maps.shape[0]:
        maps = torch.cat([maps[:-step].gather(2, maps[step:]), maps[-step:]])
        step *= 2
    before = maps.gather(2, tag.expand(maps.shape[0], -1, -1)).squeeze(2)
    return torch.cat([before, tag.transpose(0, 1)])


class BestPaths(NamedTuple):
    """The most likely paths of each row, the best first.

    Attributes:
        tags: The tag ids, ``(batch, path, word)``; `ignore_index` at masked positions, and for
            paths that a row does not have.
        log_probs: The log-probabilities in nats, ``(batch, path)``; -inf for paths that a row does
            not have.
    """

    tags: Tensor
    log_probs: Tensor


@torch.no_grad()
def n_best(
    emissions: Emissions,
    mask: Mask,
    transitions: Transitions,
    start: TagScores,
    end: TagScores,
    k: int,
    *,
    ignore_index: int = -100,
) -> BestPaths:
    """Return the k paths of the highest scores (list Viterbi), each with its log-probability.

    Args:
        emissions: Scores of each tag at each word.
        mask: True = valid.
        transitions: ``A[i, j]``, the score of going from tag i to tag j.
        start: Score of each tag at a chain's first position.
        end: Score of each tag at a chain's last position.
        k: The number of paths; memory is allocated for all of them.
        ignore_index: The tag at masked positions, and of paths that a row does not have.

    Returns:
        ``tags (batch, path, word)`` and ``log_probs (batch, path)`` in nats, the best path first.
        The order of paths with equal scores is not defined. An empty row has one path, of
        log-probability 0.
    """
    check_positive(k=k)
    chain = make_chain(emissions, mask, transitions, start, end)
    rows, width, num_tags = chain.emissions.shape
    nothing = float("-inf")
    # scores (batch, tag, path): the k best ways to each tag; an origin is an index into (tag, path)
    scores = chain.emissions.new_full((rows, num_tags, k), nothing)
    scores[:, :, 0] = chain.emissions[:, 0]
    stay = torch.arange(num_tags * k, device=mask.device).reshape(num_tags, k)
    history = []
    for t in range(1, width):
        moved = (scores[:, :, :, None] + chain.transitions[:, None]).flatten(1, 2)
        best, origin = moved.topk(k, dim=1)
        valid = chain.mask[:, t, None, None]
        scores = torch.where(valid, best.mT + chain.emissions[:, t, :, None], scores)
        # so that float32 resolves the paths of long chains
        scores = scores - scores.amax((1, 2), keepdim=True)
        history.append(torch.where(valid, origin.mT, stay).flatten(1))
    best, place = scores.flatten(1).topk(k, dim=1)
    places = [place]
    for origin in reversed(history):
        place = origin.gather(1, place)
        places.append(place)
    tags = torch.stack(places[::-1], dim=1) // k  # (batch, word, path)
    log_probs = path_scores(chain, tags) - partition(*chain[:3])[:, None]
    possible = (log_probs > nothing) & best.isfinite()
    first = torch.arange(k, device=mask.device) == 0  # the one path of an empty row
    possible = torch.where(chain.mask[:, :1], possible, first)
    tags = torch.where(possible[:, None], tags, ignore_index)
    restored = chain.restore(tags, ignore_index).transpose(1, 2)
    return BestPaths(restored, torch.where(possible, log_probs, nothing))


@torch.no_grad()
def sample(
    emissions: Emissions,
    mask: Mask,
    transitions: Transitions,
    start: TagScores,
    end: TagScores,
    num_samples: int = 1,
    *,
    generator: torch.Generator | None = None,
    ignore_index: int = -100,
) -> Int[Tensor, "sample batch word"]:
    """Draw paths in proportion to their probabilities, from the last tag to the first.

    Args:
        emissions: Scores of each tag at each word.
        mask: True = valid.
        transitions: ``A[i, j]``, the score of going from tag i to tag j.
        start: Score of each tag at a chain's first position.
        end: Score of each tag at a chain's last position.
        num_samples: The number of paths of each row.
        generator: A generator on the device of the emissions; torch's default one if None.
        ignore_index: The result at masked positions, and in rows of which every path is forbidden.

    Returns:
        The tag ids, ``(sample, batch, word)`` int64.
    """
    check_positive(num_samples=num_samples)
    chain = make_chain(emissions, mask, transitions, start, end)
    alpha = forward_messages(log_sum, chain)
    by_next, last = chain.transitions.mT.contiguous(), last_words(chain.mask)
    tag = torch.zeros(num_samples, len(last), dtype=torch.int64, device=mask.device)
    path = []
    for t in range(len(alpha) - 1, -1, -1):
        scores = alpha[t].T + torch.where((last == t)[:, None], 0.0, by_next[tag])
        noise = torch.empty_like(scores).exponential_(generator=generator)
        tag = (scores - noise.log()).argmax(-1)  # the Gumbel-max trick
        path.append(tag)
    tags = torch.stack(path[::-1]).permute(2, 0, 1)  # (batch, word, sample)
    possible = path_scores(chain, tags) > -math.inf
    tags = torch.where(possible[:, None], tags, ignore_index)
    return chain.restore(tags, ignore_index).permute(2, 0, 1).contiguous()
