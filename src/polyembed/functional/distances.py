"""Distances between two sets of representations, by cosine (Xia 2021, section 4.5)."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from polyembed._checks import (
    check_float,
    check_last_dim,
    check_mask,
    check_positive,
    require,
)


def hausdorff_distance(
    source: Float[Tensor, "*batch m dim"],
    target: Float[Tensor, "*other n dim"],
    source_mask: Bool[Tensor, "*batch m"] | None = None,
    target_mask: Bool[Tensor, "*other n"] | None = None,
    *,
    chunk: int = 1024,
) -> Float[Tensor, ""]:
    """Compute the largest distance from a point to the nearest point of the other set (Xia 2021,
    equations 5 and 6).

    ``max(max_s min_t d(s, t), max_t min_s d(s, t))`` with ``d(s, t) = 1 - cos(s, t)``. All leading
    axes are flattened: each set is the valid points of its tensor. The distance matrix is computed
    in blocks of `chunk` rows and columns, so memory does not grow with its size. A vector of zeros
    has distance 1 to every vector.

    Args:
        source: Points ``s``, one or more axes before the last.
        target: Points ``t``.
        source_mask: True = valid.
        target_mask: True = valid.
        chunk: The rows and columns of a block.

    Returns:
        Between 0 and 2, in at least float32; 0 where either set is empty.

    Raises:
        ValueError: If points have different sizes, or masks have other shapes.
        TypeError: If points are not floating point, or masks are not bool.

    Example:
        >>> source, target = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0]])
        >>> hausdorff_distance(source, target)
        tensor(1.)

    Deviations: the paper describes this as "average proximity", which fits
        `modified_hausdorff_distance` better.
    """
    rows, columns = _nearest(source, target, source_mask, target_mask, chunk)
    return torch.maximum(_worst(rows), _worst(columns))


def modified_hausdorff_distance(
    source: Float[Tensor, "*batch m dim"],
    target: Float[Tensor, "*other n dim"],
    source_mask: Bool[Tensor, "*batch m"] | None = None,
    target_mask: Bool[Tensor, "*other n"] | None = None,
    *,
    chunk: int = 1024,
) -> Float[Tensor, ""]:
    """Compute the mean distance from points to the nearest point of the other set (Dubuisson and
    Jain 1994).

    ``max(mean_s min_t d(s, t), mean_t min_s d(s, t))`` with ``d(s, t) = 1 - cos(s, t)``. It is less
    sensitive to outliers, and not in Xia 2021. See `hausdorff_distance`.

    Args:
        source: Points ``s``, one or more axes before the last.
        target: Points ``t``.
        source_mask: True = valid.
        target_mask: True = valid.
        chunk: The rows and columns of a block.

    Returns:
        Between 0 and 2, in at least float32; 0 where either set is empty.

    Raises:
        ValueError: If points have different sizes, or masks have other shapes.
        TypeError: If points are not floating point, or masks are not bool.

    Example:
        >>> source, target = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0]])
        >>> modified_hausdorff_distance(source, target)
        tensor(0.5000)
    """
    rows, columns = _nearest(source, target, source_mask, target_mask, chunk)
    return torch.maximum(_average(rows), _average(columns))


def mean_cosine(
    source: Float[Tensor, "*batch dim"],
    target: Float[Tensor, "*batch dim"],
    mask: Bool[Tensor, "*batch"] | None = None,
) -> Float[Tensor, ""]:
    """Compute the mean cosine of pairs of points, such as parallel sentences:
    ``mean_i cos(s_i, t_i)``.

    Args:
        source: Points ``s_i``.
        target: Their partners ``t_i``.
        mask: True = valid.

    Returns:
        Between -1 and 1, in at least float32; 0 where no pair is valid, and for a vector of zeros.

    Raises:
        ValueError: If points do not pair, or a mask has another shape.
        TypeError: If points are not floating point, or a mask is not bool.

    Example:
        >>> mean_cosine(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0], [3.0,
        ...     0.0]]))
        tensor(0.5000)
    """
    for name, x in (("source", source), ("target", target)):
        _check_points(name, x, 1)
    shape = tuple(source.shape)
    require(
        shape == tuple(target.shape),
        "target",
        f"have the shape {shape} of source",
        tuple(target.shape),
    )
    check_mask(mask, source.shape[:-1])
    wide = torch.promote_types(source.dtype, target.dtype)
    one, other = _directions(source.to(wide), mask), _directions(target.to(wide), mask)
    cosines = (one * other).sum(-1)
    return cosines.sum() / max(1, len(cosines))


def _nearest(
    source: Tensor,
    target: Tensor,
    source_mask: Tensor | None,
    target_mask: Tensor | None,
    chunk: int,
) -> tuple[Tensor, Tensor]:
    """Return each point's distance to the nearest point of the other set; empty tensors if a set is
    empty.
    """
    check_positive(chunk=chunk)
    for name, x in (("source", source), ("target", target)):
        _check_points(name, x, 2)
    check_last_dim("target", target, source.shape[-1])
    check_mask(source_mask, source.shape[:-1], name="source_mask")
    check_mask(target_mask, target.shape[:-1], name="target_mask")
    wide = torch.promote_types(source.dtype, target.dtype)
    ones, others = (
        _directions(source.to(wide), source_mask),
        _directions(target.to(wide), target_mask),
    )
    if not len(ones) or not len(others):
        return ones.new_zeros(0), ones.new_zeros(0)
    rows: list[Tensor] = []
    columns: list[Tensor | None] = [None] * math.ceil(len(others) / chunk)
    for here in torch.split(ones, chunk):
        best: Tensor | None = None
        for j, there in enumerate(torch.split(others, chunk)):
            cosines = here @ there.T
            best, columns[j] = _larger(cosines.amax(1), best), _larger(cosines.amax(0), columns[j])
        rows += [] if best is None else [best]
    found = torch.cat(rows), torch.cat([column for column in columns if column is not None])
    return 1.0 - found[0].clamp(-1.0, 1.0), 1.0 - found[1].clamp(-1.0, 1.0)


def _larger(one: Tensor, other: Tensor | None) -> Tensor:
    return one if other is None else torch.maximum(one, other)


def _check_points(name: str, x: Tensor, dims: int) -> None:
    check_float(**{name: x})
    require(x.dim() >= dims, name, f"have at least {dims} axes", f"shape {tuple(x.shape)}")


def _directions(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return the valid points, scaled to length 1 without overflow; zeros stay zeros."""
    points = x.reshape(math.prod(x.shape[:-1]), x.shape[-1]) if mask is None else x[mask]
    points = points.to(torch.promote_types(x.dtype, torch.float32))
    tiny = torch.finfo(points.dtype).tiny
    sizes = points.detach().abs().amax(-1, keepdim=True) if points.shape[-1] else points.detach()
    return F.normalize(points / sizes.clamp(min=tiny), dim=-1, eps=tiny)


def _worst(distances: Tensor) -> Tensor:
    return distances.amax() if len(distances) else distances.sum()


def _average(distances: Tensor) -> Tensor:
    return distances.sum() / max(1, len(distances))
