"""Reductions over the valid positions of an axis.

Each function selects before it computes, so that NaN or infinities in the padding reach neither
value nor gradient. A row without a valid position gives zeros with zero gradient.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from polyembed._checks import check_float, check_mask


def widened(x: Tensor) -> Tensor:
    """Return a tensor in float32 at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def select_valid(x: Float[Tensor, "*batch n dim"], mask: Bool[Tensor, "*batch n"] | None) -> Tensor:
    """Return `x` with zeros at masked positions; `x` itself without a mask."""
    return x if mask is None else torch.where(mask[..., None], x, 0.0)


def masked_mean(
    x: Float[Tensor, "*batch n dim"], mask: Bool[Tensor, "*batch n"] | None
) -> Float[Tensor, "*batch dim"]:
    """Average the valid vectors in at least float32; a row without a valid vector gives zeros.

    Args:
        x: The vectors, ``(*batch, n, dim)``.
        mask: The mask, ``(*batch, n)``, True = valid; None = all valid.

    Returns:
        The means, ``(*batch, dim)``, in the dtype of `x`.

    Example:
        >>> x = torch.tensor([[1.0], [3.0], [float("nan")]])
        >>> masked_mean(x, torch.tensor([True, True, False]))
        tensor([2.])
    """
    check_float(x=x)
    check_mask(mask, x.shape[:-1])
    wide = torch.promote_types(x.dtype, torch.float32)
    total = select_valid(x, mask).sum(-2, dtype=wide)
    count = max(1, x.shape[-2]) if mask is None else mask.sum(-1, keepdim=True).clamp(min=1)
    return (total / count).to(x.dtype)


def masked_max(
    x: Float[Tensor, "*batch n dim"], mask: Bool[Tensor, "*batch n"] | None
) -> Float[Tensor, "*batch dim"]:
    """Compute the element-wise maximum of valid vectors; a row without a valid one gives zeros.

    Args:
        x: The vectors, ``(*batch, n, dim)``.
        mask: The mask, ``(*batch, n)``, True = valid; None = all valid.

    Returns:
        The maxima, ``(*batch, dim)``.

    Example:
        >>> masked_max(torch.tensor([[1.0], [3.0], [9.0]]), torch.tensor([True, True, False]))
        tensor([3.])
    """
    check_float(x=x)
    check_mask(mask, x.shape[:-1])
    if x.shape[-2] == 0:
        return x.sum(-2)
    if mask is None:
        return x.amax(-2)
    top = torch.where(mask[..., None], x, -torch.inf).amax(-2)
    return torch.where(mask.any(-1, keepdim=True), top, 0.0)


def valid_first(mask: Bool[Tensor, "batch n"]) -> Int[Tensor, "batch n"]:
    """Return each row's positions with the valid ones first, both groups in their old order.

    ``x.gather(1, valid_first(mask))`` closes the holes of a mask, and a gather by `valid_places`
    opens them again.

    Args:
        mask: The mask, ``(batch, n)``, True = valid.

    Returns:
        A permutation of ``0..n-1`` in each row.

    Example:
        >>> valid_first(torch.tensor([[False, True, False, True]]))
        tensor([[1, 3, 0, 2]])
    """
    places = valid_places(mask)
    numbers = torch.arange(mask.shape[1], device=mask.device).expand_as(places)
    return torch.zeros_like(places).scatter(1, places, numbers)


def valid_places(mask: Bool[Tensor, "batch n"]) -> Int[Tensor, "batch n"]:
    """Return the place of each position in the order of `valid_first`: the inverse permutation.

    Args:
        mask: The mask, ``(batch, n)``, True = valid.

    Returns:
        A permutation of ``0..n-1`` in each row.

    Example:
        >>> valid_places(torch.tensor([[False, True, False, True]]))
        tensor([[2, 0, 3, 1]])
    """
    ones = mask.long()  # cumulative sums, not a sort: they export to ONNX
    return torch.where(
        mask, ones.cumsum(1) - 1, ones.sum(1, keepdim=True) + (1 - ones).cumsum(1) - 1
    )
