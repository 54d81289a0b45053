"""Combiners of several vectors into one vector (Winata 2021, section 2.3, equations 1 to 4)."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from polyembed._checks import check_choice, check_last_dim, check_positive, require
from polyembed.saving import PretrainedModule

Vectors = Sequence[Float[Tensor, "*batch _in_dim"]]


class Combiner(PretrainedModule):
    """A module that combines several vectors of one thing into one vector.

    Args:
        in_dims: The size of each source's vectors.
        out_dim: The size of the combined vector.

    Shape:
        A sequence of ``(*batch, in_dims[j])`` to ``(*batch, out_dim)``.
    """

    def __init__(self, in_dims: Sequence[int], out_dim: int) -> None:
        require(len(in_dims) > 0, "in_dims", "name at least one source", "none")
        check_positive(**{f"in_dims[{j}]": dim for j, dim in enumerate(in_dims)}, out_dim=out_dim)
        super().__init__()
        self.in_dims = tuple(in_dims)
        self.out_dim = out_dim

    @abstractmethod
    def forward(self, xs: Vectors) -> Float[Tensor, "*batch out_dim"]:
        """Combine one vector of each source, in the order of `in_dims`."""

    def checked(self, xs: Sequence[Tensor]) -> list[Tensor]:
        """Check the number of vectors and their sizes; return them in the weights' dtype."""
        require(len(xs) == len(self.in_dims), "xs", f"hold {len(self.in_dims)} sources", len(xs))
        for j, (x, dim) in enumerate(zip(xs, self.in_dims, strict=True)):
            check_last_dim(f"xs[{j}]", x, dim)
        weight = next(self.parameters(), None)
        return [x if weight is None else x.to(weight.dtype) for x in xs]


class ConcatCombiner(Combiner):
    """Concatenate the vectors: ``x = [x_1, ..., x_n]`` (Winata 2021, equation 1).

    Args:
        in_dims: The size of each source's vectors.

    Shape:
        ``n`` tensors ``(*batch, in_dims[j])`` to ``(*batch, sum(in_dims))``.

    Raises:
        ValueError: If `in_dims` is empty, or an input has another size.

    Example:
        >>> ConcatCombiner([2, 3])([torch.zeros(5, 2), torch.ones(5, 3)]).shape
        torch.Size([5, 5])
    """

    def __init__(self, in_dims: Sequence[int]) -> None:
        super().__init__(in_dims, sum(in_dims))

    def forward(self, xs: Vectors) -> Float[Tensor, "*batch out_dim"]:
        """Combine one vector of each source, in the order of `in_dims`."""
        return torch.cat(self.checked(xs), dim=-1)


class LinearCombiner(Combiner):
    """Project each vector and add: ``x = sum_j W_j x_j`` (Winata 2021, section 2.3, "Linear").

    The projections are one matrix, ``weight = [W_1 ... W_n]``, so that all sources cost one
    product.

    Args:
        in_dims: The size of each source's vectors.
        out_dim: The size of the combined vector.
        bias: Whether a bias is added; the paper has none.

    Shape:
        ``n`` tensors ``(*batch, in_dims[j])`` to ``(*batch, out_dim)``.

    Raises:
        ValueError: If `in_dims` is empty, or an input has another size.

    Example:
        >>> LinearCombiner([2, 3], 7)([torch.zeros(5, 2), torch.ones(5, 3)]).shape
        torch.Size([5, 7])

    Deviations: every source is projected, where the paper projects only if sizes differ.
    """

    def __init__(self, in_dims: Sequence[int], out_dim: int, *, bias: bool = False) -> None:
        super().__init__(in_dims, out_dim)
        self.bias = bias
        self.projection = nn.Linear(sum(in_dims), out_dim, bias=bias)

    def forward(self, xs: Vectors) -> Float[Tensor, "*batch out_dim"]:
        """Combine one vector of each source, in the order of `in_dims`."""
        combined: Tensor = self.projection(torch.cat(self.checked(xs), dim=-1))
        return combined


class AttentionCombiner(Combiner):
    """Project each vector and average by self-attention (Winata 2021, equations 2 to 4).

    ``x'_j = W_j x_j`` (2), ``alpha_j = exp(phi(x'_j)) / sum_k exp(phi(x'_k))`` (3),
    ``u = sum_j alpha_j x'_j`` (4). With ``attention="dimension"``, the paper's, phi is tanh and
    each dimension of each source has its own weight; with ``"source"`` phi is ``tanh(a . x'_j)``
    with a learned vector ``a``, and each source has one weight (Winata 2019a, Kiela 2018).

    Args:
        in_dims: The size of each source's vectors.
        out_dim: The size of the combined vector.
        attention: The unit that has its own weight, ``"dimension"`` or ``"source"``.
        bias: Whether the projections have a bias; the paper's have none.

    Shape:
        ``n`` tensors ``(*batch, in_dims[j])`` to ``(*batch, out_dim)``.

    Raises:
        ValueError: If `in_dims` is empty, the attention is unknown, or an input has another size.

    Example:
        >>> combiner = AttentionCombiner([2, 3], 7)
        >>> xs = [torch.zeros(5, 2), torch.ones(5, 3)]
        >>> combiner(xs).shape, combiner.attention_weights(xs).shape
        (torch.Size([5, 7]), torch.Size([2, 5, 7]))
    """

    def __init__(
        self,
        in_dims: Sequence[int],
        out_dim: int,
        *,
        attention: Literal["dimension", "source"] = "dimension",
        bias: bool = False,
    ) -> None:
        check_choice("attention", attention, ("dimension", "source"))
        super().__init__(in_dims, out_dim)
        self.attention, self.bias = attention, bias
        self.projections = nn.ModuleList(nn.Linear(dim, out_dim, bias=bias) for dim in in_dims)
        self.scorer = nn.Linear(out_dim, 1, bias=False) if attention == "source" else None

    def forward(self, xs: Vectors) -> Float[Tensor, "*batch out_dim"]:
        """Combine one vector of each source, in the order of `in_dims`."""
        projected, weights = self._attend(xs)
        return (weights * projected).sum(0).to(projected.dtype)

    def attention_weights(self, xs: Vectors) -> Float[Tensor, "source *batch weight"]:
        """Compute the weights of equation 3.

        Args:
            xs: One tensor per source, in the order of `in_dims`.

        Returns:
            ``(source, *batch, out_dim)``, or ``(source, *batch, 1)`` with one weight per source;
            they sum to 1 over the sources.
        """
        projected, weights = self._attend(xs)
        return weights.to(projected.dtype)

    def contributions(self, xs: Vectors) -> Float[Tensor, "source *batch"]:
        """Compute the share of each source in each word's vector.

        ``|alpha_j x'_j| / sum_k |alpha_k x'_k|`` of equation 4, by Euclidean length. The weights
        alone say less: a source that does not know a word has a short vector, which adds little
        however it is weighted.

        Args:
            xs: As in `attention_weights`.

        Returns:
            The shares, ``(source, *batch)``; they sum to 1 over the sources, and are equal where
            every vector is zero.
        """
        projected, weights = self._attend(xs)
        lengths = torch.linalg.vector_norm(weights.to(projected.dtype) * projected, dim=-1)
        total = lengths.sum(0)  # (*batch,)
        shares = lengths / torch.where(total > 0, total, 1.0)
        return torch.where(total > 0, shares, 1 / len(lengths))

    def _attend(self, xs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the projected vectors, ``(source, *batch, out_dim)``, and their weights."""
        pairs = zip(self.projections, self.checked(xs), strict=True)
        projected = torch.stack([project(x) for project, x in pairs])
        scores = projected if self.scorer is None else self.scorer(projected)
        wide = torch.promote_types(scores.dtype, torch.float32)
        return projected, torch.softmax(scores.tanh(), dim=0, dtype=wide)
