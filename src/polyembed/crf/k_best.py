"""The k best paths of a chain, by Viterbi's algorithm with a list for each tag."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from polyembed._checks import check_positive
from polyembed.crf.chain import is_allowed, make_chain, path_scores
from polyembed.crf.partition import partition


class BestPaths(NamedTuple):
    """The most likely paths of each row, the best first.

    Attributes:
        tags: ``(batch, path, word)``; `ignore_index` at masked positions, and for paths that a row
            does not have.
        log_probs: ``(batch, path)`` in nats; -inf for paths that a row does not have.
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
    """Return the k paths of the highest scores (list Viterbi), each with its log-probability.

    Args:
        emissions: Scores of each tag at each word.
        mask: True = valid.
        transitions: ``A[i, j]``, the score of going from tag i to tag j.
        start: Score of each tag at a chain's first position.
        end: Score of each tag at a chain's last position.
        k: The number of paths; memory is taken for all of them.
        ignore_index: The tag at masked positions, and of paths that a row does not have.

    Returns:
        Tags and log-probabilities, the best first. The order of equal ones is not defined. An empty
        row has one path, of log-probability 0.
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
        scores = scores - scores.amax(
            (1, 2), keepdim=True
        )  # so that float32 resolves the paths of long chains
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
    log_z = partition(*chain[:3])
    log_probs = torch.where(possible, path_scores(chain, tags) - log_z[:, None], nothing)
    log_probs[:, 0] = torch.where(empty, 0.0, log_probs[:, 0])
    tags = torch.where(possible[:, None], tags, ignore_index)
    return BestPaths(chain.restore(tags, ignore_index).transpose(1, 2), log_probs)
