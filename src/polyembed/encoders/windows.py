"""Reading a sequence that is longer than a model allows: overlapping windows, and what comes out put together."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor


class Windows(NamedTuple):
    """Where the pieces of each window come from, and where each piece's result is.

    Attributes:
        take: The place in its row of each window's pieces, ``(batch, window, size)``.
        mask: Which of them are real, ``(batch, window, size)``.
        give: For each place of a row, window * size + place in the window, ``(batch, piece)``.
    """

    take: Int[Tensor, "batch window size"]
    mask: Bool[Tensor, "batch window size"]
    give: Int[Tensor, "batch piece"]


def plan_windows(mask: Bool[Tensor, "batch piece"], size: int, *, before: int, after: int) -> Windows:
    """Cut rows of pieces into windows of at most `size`, each with the row's special pieces around it.

    Neighbouring windows share half of their pieces; of a piece that several windows hold, the one counts in which it
    is farthest from an edge, so every piece has at least a quarter of a window on both sides, as far as there are any.

    Args:
        mask: True = a real piece, ``(batch, piece)``; real pieces stand together at the start of a row.
        size: The most pieces of a window.
        before: How many special pieces open a row.
        after: How many close it.

    Returns:
        The plan; it depends on how wide the rows are, not on what they hold.
    """
    num_pieces, device = mask.shape[1], mask.device
    room = size - before - after
    content = max(0, num_pieces - before - after)
    step = max(1, room - room // 2)
    starts = [0]
    while starts[-1] + room < content:
        starts.append(min(starts[-1] + step, content - room))
    start = torch.tensor(starts, device=device)[:, None]
    place = torch.arange(size, device=device)
    length = (mask.sum(1) - before - after).clamp(min=0)[:, None, None]  # of each row without its special pieces
    inside = (length - start).clamp(0, room)  # of each window
    offset = place - before
    closing = offset - inside
    take = torch.where(offset < inside, start + place, before + length + closing)
    take = torch.where(place < before, place.expand_as(take), take)
    real = (place < before) | (closing < after)
    real = real & ((inside > 0) | (start == 0)) & mask.any(1)[:, None, None]
    piece = torch.arange(num_pieces, device=device)[None] - before
    edge = torch.minimum(piece - start, start + room - 1 - piece)  # how far from the nearer edge
    first, last = start == 0, start == starts[-1]
    edge = torch.where(first & (piece < room), torch.maximum(edge, start + room - 1 - piece), edge)
    edge = torch.where(last & (piece >= start), torch.maximum(edge, piece - start), edge)
    best = edge.argmax(0)
    give = best * size + before + piece - start[best, 0]
    give = give.expand(len(mask), -1)
    final = length[:, 0, 0] - 1  # the last piece of each row, whose window closes it
    window = best[(final + before).clamp(0, max(0, num_pieces - 1))] if num_pieces else best
    closing_place = piece - length[:, 0]
    at = window[:, None] * size + before + inside.squeeze(-1).gather(1, window[:, None]) + closing_place
    give = torch.where((closing_place >= 0) & (closing_place < after), at, give)
    give = torch.where(piece < 0, piece + before, give)
    give = torch.where(mask, give, 0)
    return Windows(torch.where(real, take, 0).clamp(max=max(0, num_pieces - 1)), real, give)
