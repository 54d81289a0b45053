"""Distances between two sets of representations, by cosine (Xia 2021, section 4.5)."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from polyembed._checks import check_float, check_last_dim, check_mask, check_positive, require
from polyembed.functional.alignment import unit


def hausdorff_distance(
    source: Float[Tensor, "*batch m dim"],
    target: Float[Tensor, "*other n dim"],
    source_mask: Bool[Tensor, "*batch m"] | None = None,
    target_mask: Bool[Tensor, "*other n"] | None = None,
    *,
    modified: bool = False,
    chunk: int = 1024,
) -> Float[Tensor, ""]:
    """Compute the largest distance from a point to the nearest point of the other set (Xia 2021,
    equations 5 and 6).

    ``max(max_s min_t d(s, t), max_t min_s d(s, t))`` with ``d(s, t) = 1 - cos(s, t)``. The modified
    distance (Dubuisson and Jain 1994), ``max(mean_s min_t d(s, t), mean_t min_s d(s, t))``, is less
    sensitive to outliers, and not in Xia 2021.

    All leading axes are flattened: each set is the valid points of its tensor. The distance matrix
    is computed in blocks of `chunk` rows and columns, so memory does not grow with its size. A
    vector of zeros has distance 1 to every vector.

    Args:
        source: The points ``s``, ``(*batch, m, dim)``.
        target: The points ``t``, ``(*other, n, dim)``.
        source_mask: The mask of `source`, True = valid; None = all valid.
        target_mask: The mask of `target`, True = valid; None = all valid.
        modified: Whether to take the means over the points instead of the outer maxima.
        chunk: The number of rows, and of columns, of a block.

    Returns:
        The distance, between 0 and 2, in at least float32; 0 if either set is empty.

    Raises:
        ValueError: If points have different sizes, a tensor has fewer than 2 axes, or a mask has
            another shape than its points.
        TypeError: If points are not floating point, or masks are not bool.

    Example:
        >>> source, target = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0]])
        >>> hausdorff_distance(source, target), hausdorff_distance(source, target, modified=True)
        (tensor(1.), tensor(0.5000))

    Deviations: the paper describes this as "average proximity", which fits the modified distance
        better.
    """
    check_positive(chunk=chunk)
    for name, x in (("source", source), ("target", target)):
        check_float(**{name: x})
        require(x.dim() >= 2, name, "have at least 2 axes", f"shape {tuple(x.shape)}")
    check_last_dim("target", target, source.shape[-1])
    check_mask(source_mask, source.shape[:-1], name="source_mask")
    check_mask(target_mask, target.shape[:-1], name="target_mask")
    wide = torch.promote_types(source.dtype, target.dtype)
    ones, others = _directions(source, source_mask, wide), _directions(target, target_mask, wide)
    if not len(ones) or not len(others):
        return ones.new_zeros(())
    rows, columns = [], torch.full_like(others[:, 0], -1.0)
    with torch.autocast(source.device.type, enabled=False):
        for here in torch.split(ones, chunk):
            blocks = (here @ there.mT for there in torch.split(others, chunk))
            right, down = zip(*((block.amax(1), block.amax(0)) for block in blocks), strict=True)
            rows.append(torch.stack(right).amax(0))
            columns = torch.maximum(columns, torch.cat(down))
    distances = (1.0 - cosines.clamp(-1.0, 1.0) for cosines in (torch.cat(rows), columns))
    one, other = (x.mean() if modified else x.amax() for x in distances)
    return torch.maximum(one, other)


def _directions(x: Tensor, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return the valid points in at least float32, scaled to length 1; zeros stay zeros."""
    return unit((x.flatten(0, -2) if mask is None else x[mask]).to(dtype))
