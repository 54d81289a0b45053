"""The rotation from one space of vectors to another, and the normalisations before it."""

import torch
from jaxtyping import Float
from torch import Tensor

from polyembed._checks import check_dim, check_float, require
from polyembed.functional.masking import widened


def length_normalize(x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
    """Scale vectors to length 1: ``x / |x|``; a zero vector stays zero, and its gradient is zero.

    Args:
        x: Vectors, ``(*batch, dim)``.

    Returns:
        The unit vectors, ``(*batch, dim)``, in the dtype of `x`.

    Example:
        >>> length_normalize(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    check_float(x=x)
    if not x.shape[-1]:
        return x
    wide = widened(x)
    # Scaled by the largest number first, so that no square overflows or vanishes.
    largest = wide.abs().amax(-1, keepdim=True)
    scaled = wide / torch.where(largest > 0, largest, 1.0)
    length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return (scaled / torch.where(length == 0, torch.inf, length)).to(x.dtype)


def procrustes(x: Float[Tensor, "n dim"], y: Float[Tensor, "n dim"]) -> Float[Tensor, "dim dim"]:
    """Compute the orthogonal matrix that maps `x` closest to `y`:
    ``W = argmin |x W - y|^2 = U V'``.

    ``U S V'`` is the singular value decomposition of ``x' y`` (Schönemann 1966; Lample 2018,
    equation 2, which has columns for our rows), computed in float64.

    Args:
        x: Vectors, ``(n, dim)``.
        y: The images of these vectors, row by row, ``(n, dim)``.

    Returns:
        ``W``, ``(dim, dim)``, in the dtype of `x`; one of several solutions where there are fewer
        pairs than dimensions.

    Raises:
        ValueError: If `x` is not a matrix, `y` has another shape than `x`, or a number is NaN or
            infinite.
        TypeError: If vectors are not floating point.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        >>> x @ procrustes(x, torch.tensor([[0.0, 1.0], [-2.0, 0.0]]))
        tensor([[ 0.,  1.],
                [-2.,  0.]])
    """
    check_dim("x", x, 2, "n, dim")
    require(y.shape == x.shape, "y", f"have the shape of x, {tuple(x.shape)}", tuple(y.shape))
    check_float(x=x, y=y)
    product = x.double().mT @ y.double()
    require(bool(product.isfinite().all()), "x and y", "be finite", "NaN or an infinity")
    u, _, vh = torch.linalg.svd(product)
    weight: Tensor = (u @ vh).to(x.dtype)
    return weight


def unit(x: Tensor) -> Tensor:
    """Scale vectors to length 1 in at least float32."""
    return length_normalize(widened(x))
