"""The k best paths of a chain, by Viterbi's algorithm with a list for each tag."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from polyembed._checks import check_positive
from polyembed.functional.crf.analytic import partition_and_marginals
from polyembed.functional.crf.chain import is_allowed, make_chain, path_scores


class BestPaths(NamedTuple):
    """The most likely paths of each row, the best first.

    Attributes:
        tags: ``(batch, path, word)``; `ignore_index` at masked positions, and everywhere where a row has fewer paths.
        log_probs: ``(batch, path)`` in nats; -inf where a row has fewer paths.
    """

    tags: Tensor
    log_probs: Tensor


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
        Tags and log-probabilities, the best first, equal ones in no certain order. An empty row has one path, of
        log-probability 0.
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
        scores = scores - scores.amax((1, 2), keepdim=True)  # so that float32 tells the paths of long chains apart
        history.append(torch.where(valid, origin.mT, stay).flatten(1))
    best, place = scores.flatten(1).topk(k, dim=1)
    places = [place]
    for origin in reversed(history):
        place = origin.gather(1, place)
        places.append(place)
    tags = torch.stack(places[::-1], dim=1) // k  # (batch, word, path)
    possible = is_allowed(chain, tags) & best.isfinite()
    empty = ~chain.mask[:, 0]
    possible[:, 0] |= empty
    possible[:, 1:] &= ~empty[:, None]
    log_z = partition_and_marginals(*chain[:3])[0]
    log_probs = torch.where(possible, path_scores(chain, tags) - log_z[:, None], nothing)
    log_probs[:, 0] = torch.where(empty, 0.0, log_probs[:, 0])
    tags = torch.where(possible[:, None], tags, ignore_index)
    return BestPaths(chain.restore(tags, ignore_index).transpose(1, 2), log_probs)
