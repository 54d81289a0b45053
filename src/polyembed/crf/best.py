"""The best path of a chain: NumPy's on a CPU, the chunked recursion on a GPU."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from polyembed._checks import check_dim, check_mask
from polyembed.crf import numpy_viterbi
from polyembed.crf.chain import BLOCK, Chain, is_allowed, make_chain, widen
from polyembed.crf.recursion import chunk_length, largest, recur


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
    """Return the path of the highest score; of equal ones, the one with the lower tag at the last
    difference.

    Args:
        emissions: Scores of each tag at each word.
        mask: True = valid.
        transitions: ``A[i, j]``, the score of going from tag i to tag j.
        start: Score of each tag at a chain's first position.
        end: Score of each tag at a chain's last position.
        ignore_index: The result at masked positions, and in rows that hold NaN or of which every
            path is forbidden.

    Returns:
        Tags, ``(batch, word)`` int64.
    """
    check_dim("emissions", emissions, 3, "batch, word, tag")
    check_mask(mask, emissions.shape[:2])
    emissions, transitions, start, end = (
        x.detach() for x in widen(emissions, transitions, start, end)
    )
    run = _as_operator if torch.compiler.is_compiling() else _run
    tags: Tensor = run(emissions, mask, transitions, start, end, ignore_index)
    return tags


def _run(
    emissions: Tensor,
    mask: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    ignore_index: int,
) -> Tensor:
    if emissions.device.type == "cpu":
        try:
            arrays = [x.numpy() for x in (emissions, mask, transitions, start, end)]
        except RuntimeError:  # tensors without memory of their own, as under torch.vmap
            pass
        else:
            return torch.from_numpy(numpy_viterbi.viterbi(*arrays, ignore_index=ignore_index))
    return in_chunks(emissions, mask, transitions, start, end, ignore_index)


@torch.library.custom_op("polyembed::crf_viterbi", mutates_args=())
def _as_operator(
    emissions: Tensor,
    mask: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    ignore_index: int,
) -> Tensor:
    """Run as one operator for `torch.compile` and `torch.export`: a loop would be compiled anew for each length."""
    return _run(emissions, mask, transitions, start, end, ignore_index)


@_as_operator.register_fake
def _(emissions: Tensor, mask: Tensor, *_: object) -> Tensor:
    return torch.empty_like(mask, dtype=torch.int64)


def in_chunks(
    emissions: Tensor,
    mask: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    ignore_index: int,
) -> Tensor:
    """Return the same paths by PyTorch's operations, without a wait for the device."""
    chain = make_chain(emissions, mask, transitions, start, end)
    by_tag = chain.emissions.permute(1, 2, 0)[None]
    states = recur(largest, by_tag, chain.transitions[None], chunk_length(chain.emissions))[0]
    scores = states[0].transpose(1, 2)  # (word, batch, tag)
    final = scores.gather(0, chain.last[None, :, None].expand(1, -1, scores.shape[2]))[0]
    tags = _follow(_origins(scores, chain), final.argmax(1, keepdim=True)).transpose(0, 1)
    possible = is_allowed(chain, tags) & ~final.isnan().any(1)
    return chain.restore(torch.where(possible[:, None], tags, ignore_index), ignore_index)


def _origins(scores: Tensor, chain: Chain) -> Tensor:
    """Return the tag before each tag on its best path, ``(word, batch, tag)``, for the second word and those after."""
    block = max(1, BLOCK // max(1, scores[0].numel() * scores.shape[2]))
    into, stay = chain.transitions.mT, torch.arange(scores.shape[2], device=scores.device)
    blocks = zip(
        *(torch.split(x, block) for x in (scores[:-1], chain.mask.T[1:, :, None])), strict=True
    )
    # past a chain's end: the tag itself
    return torch.cat(
        [torch.where(on, (before[:, :, None] + into).argmax(-1), stay) for before, on in blocks]
    )


def _follow(maps: Tensor, tag: Tensor) -> Tensor:
    """Follow all positions at once: compose each map with the next, the next two, the next four, ..."""
    step = 1
    while step < maps.shape[0]:
        maps = torch.cat([maps[:-step].gather(2, maps[step:]), maps[-step:]])
        step *= 2
    return torch.cat(
        [maps.gather(2, tag.expand(maps.shape[0], -1, -1)).squeeze(2), tag.transpose(0, 1)]
    )
