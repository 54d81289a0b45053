"""Scores and probabilities of paths: what a `CRF` is trained by."""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from polyembed._checks import check_choice, check_dim, check_mask, require
from polyembed.functional.crf import loop, scan
from polyembed.functional.crf.analytic import partition_and_marginals
from polyembed.functional.crf.chain import FORBIDDEN, is_possible, last_position, make_chain, widen
from polyembed.functional.masking import valid_first

Method = Literal["auto", "analytic", "scan", "loop"]
Emissions = Float[Tensor, "batch word tag"]
Mask = Bool[Tensor, "batch word"]
Transitions = Float[Tensor, "tag tag"]
TagScores = Float[Tensor, " tag"]


def path_score(
    emissions: Emissions,
    tags: Int[Tensor, "batch word"],
    mask: Mask,
    transitions: Transitions,
    start: TagScores,
    end: TagScores,
) -> Float[Tensor, " batch"]:
    """Score the given tags.

    Args:
        emissions: Scores of each tag at each word.
        tags: The path; what stands at masked positions is ignored, -100 included.
        mask: True = valid.
        transitions: ``A[i, j]``, the score of going from tag i to tag j.
        start: Score of each tag at a chain's first position.
        end: Score of each tag at a chain's last position.

    Returns:
        One score for each row: 0 for an empty one, -inf for a path that a score of -inf forbids.
    """
    if mask.shape[1] == 0:
        return emissions.sum((1, 2))  # zeros that a loss can go back through
    check_dim("emissions", emissions, 3, "batch, word, tag")
    check_mask(mask, emissions.shape[:2])
    emissions, transitions, start, end = widen(emissions, transitions, start, end)
    tags = torch.where(mask, tags, 0)
    unary = torch.where(mask, emissions.gather(2, tags[..., None]).squeeze(2), 0.0).sum(1)
    order = valid_first(mask)
    mask, tags = mask.gather(1, order), tags.gather(1, order)
    # over the full width: a graph for all lengths has no slice that is empty for one
    before = torch.roll(tags, 1, dims=1)
    moved = mask & (torch.arange(mask.shape[1], device=mask.device) > 0)
    # one index over the flattened table: inductor (2.13) doubles the gradient of transitions[from, to] beside a scan
    steps = transitions.flatten().index_select(0, (before * transitions.shape[1] + tags).flatten())
    steps = torch.where(moved, steps.reshape(tags.shape), 0.0).sum(1)
    last = tags.gather(1, last_position(mask)[:, None]).squeeze(1)
    ends = torch.where(mask[:, 0], start[tags[:, 0]] + end[last], 0.0)
    return unary + steps + ends


def log_partition(
    emissions: Emissions,
    mask: Mask,
    transitions: Transitions,
    start: TagScores,
    end: TagScores,
    *,
    method: Method = "auto",
) -> Float[Tensor, " batch"]:
    """Compute the log of the sum over all paths of ``exp(score)``, by the forward algorithm.

    Args:
        emissions: Scores of each tag at each word.
        mask: True = valid.
        transitions: ``A[i, j]``, the score of going from tag i to tag j.
        start: Score of each tag at a chain's first position.
        end: Score of each tag at a chain's last position.
        method: ``"analytic"``: the marginals as the gradient, with exact second derivatives and forward-mode;
            ``"scan"``: one graph for all lengths under ``torch.compile`` and ``torch.export``, and nowhere else,
            first derivatives only; ``"loop"``: the readable reference; ``"auto"``: scan where something compiles,
            else analytic.

    Returns:
        One value for each row in nats, 0 for an empty one; about -1e18 where every path is forbidden.
    """
    check_choice("method", method, ("auto", "analytic", "scan", "loop"))
    if mask.shape[1] == 0:
        return emissions.sum((1, 2))  # zeros that a loss can go back through
    chain = make_chain(emissions, mask, transitions, start, end)
    if method == "auto":
        method = "scan" if torch.compiler.is_compiling() else "analytic"
    compiling = method != "scan" or torch.compiler.is_compiling()
    require(compiling, "method", "be another than 'scan' where nothing compiles", "'scan'")
    if method == "analytic":
        return partition_and_marginals(*chain[:3])[0]
    run = scan.log_partition if method == "scan" else loop.log_partition
    return run(*chain[:3])


def marginals(
    emissions: Emissions, mask: Mask, transitions: Transitions, start: TagScores, end: TagScores
) -> Float[Tensor, "batch word tag"]:
    """Compute ``p(y_t = j)``, the probability of each tag at each word over all paths.

    Args:
        emissions: Scores of each tag at each word.
        mask: True = valid.
        transitions: ``A[i, j]``, the score of going from tag i to tag j.
        start: Score of each tag at a chain's first position.
        end: Score of each tag at a chain's last position.

    Returns:
        ``(batch, word, tag)``; zeros at masked positions, and in rows of which every path is forbidden.
    """
    if mask.shape[1] == 0:
        return emissions * 0.0
    chain = make_chain(emissions, mask, transitions, start, end)
    log_z, unary, _ = partition_and_marginals(*chain[:3])
    return chain.restore(torch.where(is_possible(log_z)[:, None, None], unary, 0.0), 0.0)


def pair_marginals(
    emissions: Emissions, mask: Mask, transitions: Transitions, start: TagScores, end: TagScores
) -> Float[Tensor, "batch tag tag"]:
    """Compute ``sum_t p(y_t = i, y_{t+1} = j)``, how often each transition is expected in each row.

    Args:
        emissions: Scores of each tag at each word.
        mask: True = valid.
        transitions: ``A[i, j]``, the score of going from tag i to tag j.
        start: Score of each tag at a chain's first position.
        end: Score of each tag at a chain's last position.

    Returns:
        ``(batch, tag, tag)``: a row of n words sums to n - 1, or to 0 where every path is forbidden.
    """
    if mask.shape[1] == 0:
        return emissions.sum(1)[..., None] * torch.zeros_like(transitions)
    chain = make_chain(emissions, mask, transitions, start, end)
    log_z, _, pairs = partition_and_marginals(*chain[:3])
    return torch.where(is_possible(log_z)[:, None, None], pairs, 0.0)


def entropy(
    emissions: Emissions, mask: Mask, transitions: Transitions, start: TagScores, end: TagScores
) -> Float[Tensor, " batch"]:
    """Compute ``-sum_y p(y) log p(y) = log_partition - E[score]`` over all paths.

    Args:
        emissions: Scores of each tag at each word.
        mask: True = valid.
        transitions: ``A[i, j]``, the score of going from tag i to tag j.
        start: Score of each tag at a chain's first position.
        end: Score of each tag at a chain's last position.

    Returns:
        One value for each row in nats, 0 for an empty one and where every path is forbidden.
    """
    if mask.shape[1] == 0:
        return emissions.sum((1, 2))
    chain = make_chain(emissions, mask, transitions, start, end)
    # scores that are small where it matters: the difference of two large numbers would lose the entropy
    emissions, transitions = (
        x - torch.where(top > FORBIDDEN / 2, top, 0.0)
        for x, top in (
            (chain.emissions, chain.emissions.amax(-1, keepdim=True)),
            (chain.transitions, chain.transitions.amax()),
        )
    )
    log_z, unary, pairs = partition_and_marginals(emissions, chain.mask, transitions)
    # what is forbidden has no share, and must not weigh on the gradient of the shares
    emissions, transitions = (torch.where(x > FORBIDDEN / 2, x, 0.0) for x in (emissions, transitions))
    value = log_z - (unary * emissions).sum((1, 2)) - (pairs * transitions).sum((1, 2))
    return torch.where(is_possible(log_z), value, 0.0)
