"""Scores and probabilities of paths, by which a `CRF` is trained."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from polyembed._checks import check_mask, check_shape
from polyembed.crf.chain import is_possible, make_chain, path_scores
from polyembed.crf.numpy_viterbi import FORBIDDEN
from polyembed.crf.partition import partition, partition_and_marginals

ANY_TAG = -100
"""The tag id of `partial_log_prob` that allows each tag."""

Emissions = Float[Tensor, "batch word tag"]
Tags = Int[Tensor, "batch word"]
Allowed = Bool[Tensor, "batch word tag"]
Mask = Bool[Tensor, "batch word"]
Transitions = Float[Tensor, "tag tag"]
TagScores = Float[Tensor, " tag"]
Values = Float[Tensor, " batch"]


def log_partition(
    emissions: Emissions, mask: Mask, transitions: Transitions, start: TagScores, end: TagScores
) -> Values:
    """Compute the log of the sum over all paths of ``exp(score)``, by the forward algorithm.

    The gradient is the marginals; higher derivatives go through the textbook's loop. Under
    ``torch.compile`` and ``torch.export`` the function is one operator for all lengths.

    Args:
        emissions: Scores of each tag at each word.
        mask: True = valid.
        transitions: ``A[i, j]``, the score of going from tag i to tag j.
        start: Score of each tag at a chain's first position.
        end: Score of each tag at a chain's last position.

    Returns:
        One value for each row in nats: 0 for an empty row, at most -1e35 where every path is
        forbidden.
    """
    return partition(*make_chain(emissions, mask, transitions, start, end)[:3])


def log_prob(
    emissions: Emissions,
    tags: Tags,
    mask: Mask,
    transitions: Transitions,
    start: TagScores,
    end: TagScores,
) -> Values:
    """Compute ``score - log_partition``, the log-probability of each row's tags, in nats.

    It is -inf for forbidden tags. Tags at masked positions may be anything.
    """
    check_shape("tags", tags, emissions.shape[:2])
    chain = make_chain(emissions, mask, transitions, start, end)
    return path_scores(chain, chain.reorder(tags)) - partition(*chain[:3])


def partial_log_prob(
    emissions: Emissions,
    tags: Tags | Allowed,
    mask: Mask,
    transitions: Transitions,
    start: TagScores,
    end: TagScores,
) -> Values:
    """Compute the log-probability of a partial annotation (Tsuboi et al. 2008).

    It is ``log sum exp(score) - log_partition``, where the sum is over the paths that agree with
    the annotation. One call of the forward algorithm, over twice as many rows, computes both sums.

    Args:
        emissions: The scores of each tag at each word.
        tags: The tag ids, with -100 where every tag agrees; or the set of tags that agree at each
            word, ``(batch, word, tag)`` bool. Masked positions may have any value.
        mask: True = valid.
        transitions: ``A[i, j]``, the score of going from tag i to tag j.
        start: The score of each tag at a chain's first position.
        end: The score of each tag at a chain's last position.

    Returns:
        One value for each row in nats, -inf where every path that agrees is forbidden.
    """
    agrees, shape = tags, emissions.shape[:2]
    check_mask(mask, shape)
    check_shape("tags", tags, emissions.shape if tags.dtype == torch.bool else shape)
    if tags.dtype != torch.bool:
        known = tags[..., None] == torch.arange(emissions.shape[2], device=tags.device)
        agrees = known | (tags == ANY_TAG)[..., None]
    both = torch.cat([emissions.masked_fill(~agrees, float("-inf")), emissions])
    chain = make_chain(both, torch.cat([mask, mask]), transitions, start, end)
    agreeing, log_z = partition(*chain[:3]).chunk(2)
    return torch.where(is_possible(agreeing), agreeing - log_z, float("-inf"))


def marginals(
    emissions: Emissions, mask: Mask, transitions: Transitions, start: TagScores, end: TagScores
) -> Emissions:
    """Compute ``p(y_t = j)``; zeros at masked positions and in rows of which every path is
    forbidden.
    """
    chain = make_chain(emissions, mask, transitions, start, end)
    log_z, unary, _ = partition_and_marginals(*chain[:3])
    return chain.restore(torch.where(is_possible(log_z)[:, None, None], unary, 0.0), 0.0)


def entropy(
    emissions: Emissions, mask: Mask, transitions: Transitions, start: TagScores, end: TagScores
) -> Values:
    """Compute ``-sum_y p(y) log p(y)`` in nats; 0 for a row that is empty or has no path."""
    chain = make_chain(emissions, mask, transitions, start, end)
    # log_partition - E[score], of scores near 0: the difference of two large numbers would lose the
    # entropy
    emissions = chain.emissions - _permitted(chain.emissions.amax(-1, keepdim=True))
    transitions = chain.transitions - _permitted(chain.transitions.amax())
    log_z, unary, pairs = partition_and_marginals(emissions, chain.mask, transitions)
    value = log_z - (unary * _permitted(emissions)).sum((1, 2))
    value = value - (pairs * _permitted(transitions)).sum((1, 2))
    return torch.where(is_possible(log_z), value, 0.0)


def _permitted(scores: Tensor) -> Tensor:
    """Replace forbidden scores by 0: an expectation and its gradient do not depend on them."""
    return torch.where(scores > FORBIDDEN / 2, scores, 0.0)
