"""Overlapping windows over rows of pieces that are longer than a model reads at once."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor


class Windows(NamedTuple):
    """The windows of all rows, in the order of the rows.

    Attributes:
        take: The place of each window's pieces in the flattened rows, ``(window, size)``.
        mask: True = a piece, ``(window, size)``.
        give: The place of each piece's result in the flattened windows, ``(batch, piece)``.
    """

    take: Int[Tensor, "window size"]
    mask: Bool[Tensor, "window size"]
    give: Int[Tensor, "batch piece"]


def plan_windows(
    mask: Bool[Tensor, "batch piece"], size: int, *, before: int, after: int
) -> Windows:
    """Cut each row by itself into windows of at most `size` pieces, with the row's special pieces
    around each.

    A row that fits is one window. In a longer row, neighbouring windows share half of their pieces,
    and the result for a piece in several windows is taken from the window in which it is farthest
    from an edge. So every piece has at least a quarter of a window as context on both sides, as far
    as the row has any. The plan of a row depends on the row's length alone. Lengths are read, which
    makes a GPU's host wait.

    Args:
        mask: True = a real piece, ``(batch, piece)``; real pieces are at the start of a row.
        size: The most pieces of a window.
        before: The number of special pieces at the start of a row.
        after: The number at its end.

    Returns:
        The plan.
    """
    room = size - before - after
    step = max(1, room - room // 2)
    place = torch.arange(size)
    takes, reals, give = [], [], torch.zeros(mask.shape, dtype=torch.int64)
    count = 0
    for row, length in enumerate(mask.sum(1).tolist()):
        beyond = max(0, length - size)
        start = torch.tensor([*range(0, beyond, step), beyond])
        shift = torch.where(
            place < before, 0, torch.where(place < size - after, start[:, None], beyond)
        )
        real = (place < length).expand_as(shift)
        takes.append(torch.where(real, place + shift + row * mask.shape[1], 0))
        reals.append(real)
        borders = (
            before + (start[:-1] + start[1:] + room - 1) // 2
        )  # the last piece that the earlier window gives
        piece = torch.arange(length)
        window = torch.searchsorted(borders, piece)
        give[row, :length] = (count + window) * size + piece - start[window]
        count += len(start)
    take, real = (
        torch.cat(parts) if parts else place.new_zeros(0, size) for parts in (takes, reals)
    )
    return Windows(take.to(mask.device), real.bool().to(mask.device), give.to(mask.device))
