"""Random paths of a chain."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from polyembed._checks import check_positive
from polyembed.crf.chain import is_allowed, make_chain
from polyembed.crf.recursion import chunk_length, log_sum, recur


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
    """Draw paths by their probability: messages forwards, tags backwards.

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
        ``(sample, batch, word)`` int64.
    """
    check_positive(num_samples=num_samples)
    chain = make_chain(emissions, mask, transitions, start, end)
    by_tag = chain.emissions.permute(1, 2, 0)[None]
    alpha = recur(log_sum, by_tag, chain.transitions[None], chunk_length(chain.emissions))[0][
        0
    ]  # (word, tag, batch)
    by_next, last = chain.transitions.mT.contiguous(), chain.last
    tag = torch.zeros(num_samples, len(last), dtype=torch.int64, device=mask.device)
    path = []
    for t in range(len(alpha) - 1, -1, -1):
        scores = alpha[t].T + torch.where((last == t)[:, None], 0.0, by_next[tag])
        noise = torch.empty_like(scores).exponential_(generator=generator)
        tag = (scores - noise.log()).argmax(-1)  # the Gumbel-max trick
        path.append(tag)
    tags = torch.stack(path[::-1]).permute(2, 0, 1)  # (batch, word, sample)
    tags = torch.where(is_allowed(chain, tags)[:, None], tags, ignore_index)
    return chain.restore(tags, ignore_index).permute(2, 0, 1).contiguous()
