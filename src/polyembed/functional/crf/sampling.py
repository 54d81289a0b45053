"""Random paths of a chain."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from polyembed._checks import check_positive
from polyembed.functional.crf.analytic import messages
from polyembed.functional.crf.chain import Chain, is_allowed, last_position, make_chain


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
    tags = torch.where(is_allowed(many, tags)[:, None], tags, ignore_index)
    return many.restore(tags, ignore_index).reshape(num_samples, rows, width)
