"""Layer fusion: the hidden states of all layers of an encoder to one vector for each position."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from polyembed._checks import (
    check_choice,
    check_dim,
    check_float,
    check_last_dim,
    check_mask,
    check_positive,
    check_shape,
    require,
    require_type,
)
from polyembed.functional.masking import masked_mean, select_valid, widened
from polyembed.saving import PretrainedModule

Hidden = Float[Tensor, "batch seq hidden"]
Mask = Bool[Tensor, "batch seq"] | None
T = TypeVar("T")


class LayerFusion(PretrainedModule):
    """A fusion of all layers into one vector per position.

    ``hidden_states`` are in transformers' order (element 0 = embeddings), ``mask`` is
    ``(batch, seq)``. The content of padding does not matter, and masked positions of the result are
    zeros.
    """

    def forward(self, hidden_states: Sequence[Hidden], mask: Mask = None) -> Hidden:
        """Fuse the layers.

        Args:
            hidden_states: The embeddings, then the output of each layer, ``(batch, seq, hidden)``
                each.
            mask: True = valid; None = all valid.

        Returns:
            ``(batch, seq, hidden)``, zeros at masked positions.
        """
        rule = (
            "be the hidden states of all layers (call the encoder with output_hidden_states=True)"
        )
        require(bool(hidden_states), "hidden_states", rule, "none")
        first = hidden_states[0]
        check_dim("hidden_states[0]", first, 3, "batch, seq, hidden")
        check_float(**{"hidden_states[0]": first})
        for layer, states in enumerate(hidden_states):
            check_shape(f"hidden_states[{layer}]", states, first.shape)
        check_mask(mask, first.shape[:2])
        layers = [select_valid(states, mask) for states in self.chosen(hidden_states)]
        return select_valid(self.fuse(layers, mask), mask)

    @abstractmethod
    def chosen(self, hidden_states: Sequence[T]) -> Sequence[T]:
        """Return the layers that are fused, chosen by position only: `CachedEmbedder` passes their
        numbers in place of the layers.
        """

    @abstractmethod
    def fuse(self, layers: Sequence[Hidden], mask: Mask) -> Hidden:
        """Fuse the chosen layers, whose masked positions are zeros."""


class LastLayer(LayerFusion):
    """The last layer unchanged: ``L = H_n``.

    Example:
        >>> LastLayer()([torch.zeros(1, 2, 3), torch.ones(1, 2, 3)]).sum()
        tensor(6.)
    """

    def __init__(self) -> None:
        super().__init__()

    def chosen(self, hidden_states: Sequence[T]) -> Sequence[T]:
        """Return the last layer."""
        return hidden_states[-1:]

    def fuse(self, layers: Sequence[Hidden], mask: Mask) -> Hidden:
        """Return the only layer."""
        return layers[0]


class SingleLayer(LayerFusion):
    """One layer: ``L = H_j``, or ``L = AIF(H_j)`` through a gate.

    With a gate of DLFA's size it is the control of `DLFA`: one layer with as many trained numbers.
    Only a comparison with this control shows a gain of fused layers.

    Args:
        layer: The layer's number in `hidden_states` (0 = embeddings, -1 = the last).
        gate: The `AIF` that scales the layer; None = the layer is not scaled.

    Raises:
        ValueError: If the encoder does not have the layer.

    Example:
        >>> SingleLayer(1)([torch.zeros(1, 1, 2), torch.ones(1, 1, 2), torch.zeros(1, 1, 2)])
        tensor([[[1., 1.]]])
    """

    def __init__(self, layer: int, *, gate: "AIF | None" = None) -> None:
        super().__init__()
        self.layer, self.gate = layer, gate

    def chosen(self, hidden_states: Sequence[T]) -> Sequence[T]:
        """Return the layer."""
        return [_layer(hidden_states, self.layer, "layer")]

    def fuse(self, layers: Sequence[Hidden], mask: Mask) -> Hidden:
        """Return the only layer, scaled by the gate."""
        gated: Tensor = layers[0] if self.gate is None else self.gate(layers[0], mask)
        return gated


class LayerAverage(LayerFusion):
    """The mean of some layers: ``L = sum_j H_j / m``, summed in at least float32.

    Args:
        layers: The layers' numbers in `hidden_states` (0 = embeddings, -1 = the last); all layers
            if None.

    Raises:
        ValueError: If `layers` is empty, or the encoder lacks one of them.

    Example:
        >>> states = [torch.zeros(1, 1, 2), torch.full((1, 1, 2), 9.0), torch.ones(1, 1, 2)]
        >>> LayerAverage([0, -1])(states)
        tensor([[[0.5000, 0.5000]]])
    """

    def __init__(self, layers: Sequence[int] | None = None) -> None:
        super().__init__()
        self.layers = None if layers is None else list(layers)
        require(self.layers != [], "layers", "name at least one layer", layers)

    def chosen(self, hidden_states: Sequence[T]) -> Sequence[T]:
        """Return the named layers."""
        if self.layers is None:
            return hidden_states
        return [_layer(hidden_states, layer, "layers") for layer in self.layers]

    def fuse(self, layers: Sequence[Hidden], mask: Mask) -> Hidden:
        """Average the layers."""
        mean = sum(layers[1:], widened(layers[0])) / len(layers)
        return mean.to(layers[0].dtype)


class ScalarMix(LayerFusion):
    """A weighted mean of all layers: ``L = gamma * sum_j softmax(s)_j H_j`` (Peters et al. 2018,
    equation 1).

    Args:
        num_layers: The number of hidden states, the embeddings included: 13 for BERT-base.

    Raises:
        ValueError: If there is another number of hidden states.

    Example:
        >>> ScalarMix(2)([torch.zeros(1, 1, 2), torch.ones(1, 1, 2)])
        tensor([[[0.5000, 0.5000]]], grad_fn=<MulBackward0>)

    Deviations: without the layer normalisation that the paper names as an option.
    """

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        check_positive(num_layers=num_layers)
        self.num_layers = num_layers
        self.scores = nn.Parameter(torch.zeros(num_layers))
        self.gamma = nn.Parameter(torch.ones(()))

    @property
    def weights(self) -> Float[Tensor, " layer"]:
        """The weight of each layer, summing to 1."""
        return F.softmax(
            self.scores, 0, dtype=torch.promote_types(self.scores.dtype, torch.float32)
        )

    def chosen(self, hidden_states: Sequence[T]) -> Sequence[T]:
        """Return all layers."""
        count, found = self.num_layers, len(hidden_states)
        require(found == count, "hidden_states", f"hold {count} layers", found)
        return hidden_states

    def fuse(self, layers: Sequence[Hidden], mask: Mask) -> Hidden:
        """Weight and add the layers."""
        weights = self.weights.to(layers[0].dtype).unbind()
        first, *others = (w * states for w, states in zip(weights, layers, strict=True))
        return self.gamma.to(first.dtype) * sum(others, first)


class DLFA(LayerFusion):
    """Double-layer feature aggregation: a lower layer and the last, mixed number by number (Chen &
    Guo 2022).

    ``L = L_1 * w + L_2 * (1 - w)`` (equation 4), with ``L_1`` the lower layer, ``L_2`` the last,
    and ``w`` from `AIF` of ``(L_1 + L_2) / 2``. Equation 4 has ``w = AIF(...)``, which by equation
    3 is the mean times its sigmoid; the text says that the mix keeps the layers' scale, which holds
    for the sigmoid alone. `weighting` chooses between the two readings.

    Args:
        hidden_size: The size of a vector.
        lower_layer: The number of ``L_1`` in `hidden_states`: 8 is the paper's ``D_8``; the last
            layer is allowed (the control ``D_12``).
        weighting: ``"sigmoid"``: ``w`` is `AIF.weight`, and the mix is convex; ``"literal"``: ``w``
            is the output of `AIF`.
        reduction_ratio: The reduction ratio of `AIF`.
        branches: The branches of `AIF`.

    Shape:
        Hidden states ``(batch, seq, hidden_size)`` to one tensor of the same shape.

    Raises:
        ValueError: If the encoder does not have the layer, or shapes do not fit.
        TypeError: If the mask is not bool.

    Example:
        >>> states = [torch.randn(2, 3, 8) for _ in range(13)]
        >>> DLFA(8, lower_layer=8)(states).shape
        torch.Size([2, 3, 8])

    Deviations: the two readings of equation 4; the paper's code is not public, so it is not known
    which one its tables have. Kaiming initialisation of the convolutions is the paper's (section
    III.C); that it is the normal one, with zero biases, is our choice. Padding is left out of means
    and statistics.
    """

    def __init__(
        self,
        hidden_size: int,
        lower_layer: int,
        *,
        weighting: Literal["sigmoid", "literal"] = "sigmoid",
        reduction_ratio: int = 4,
        branches: Literal["both", "global", "local"] = "both",
    ) -> None:
        super().__init__()
        check_choice("weighting", weighting, ("sigmoid", "literal"))
        self.hidden_size, self.lower_layer, self.weighting = hidden_size, lower_layer, weighting
        self.reduction_ratio, self.branches = reduction_ratio, branches
        self.aif = AIF(hidden_size, reduction_ratio=reduction_ratio, branches=branches)

    def chosen(self, hidden_states: Sequence[T]) -> Sequence[T]:
        """Return the lower layer and the last."""
        return [_layer(hidden_states, self.lower_layer, "lower_layer"), hidden_states[-1]]

    def fuse(self, layers: Sequence[Hidden], mask: Mask) -> Hidden:
        """Mix the two layers."""
        lower, last = layers
        w = self._weight(lower, last, mask)
        return last + w * (lower - last)

    def weight(self, hidden_states: Sequence[Hidden], mask: Mask = None) -> Hidden:
        """Return ``w``, the weight of the lower layer for each number; the last has ``1 - w``."""
        lower, last = self.chosen(hidden_states)
        return self._weight(lower, last, mask)

    def _weight(self, lower: Hidden, last: Hidden, mask: Mask) -> Hidden:
        mean = (lower + last) / 2
        found: Tensor = (self.aif.weight if self.weighting == "sigmoid" else self.aif)(mean, mask)
        return found


def check_fusion(fusion: LayerFusion | None) -> LayerFusion:
    """Return the fusion, which must be a `LayerFusion`; a `LastLayer` if None."""
    fusion = LastLayer() if fusion is None else fusion
    fuses = isinstance(fusion, LayerFusion)
    require_type(fuses, "fusion", "be a LayerFusion, such as ScalarMix", fusion)
    return fusion


def _layer(hidden_states: Sequence[T], layer: int, name: str) -> T:
    count = len(hidden_states)
    rule = f"be one of the {count} hidden states (0 to {count - 1})"
    require(-count <= layer < count, name, rule, layer)
    return hidden_states[layer]


class AIF(PretrainedModule):
    """Attentional information fusion: a weight in (0, 1) for each number of a vector (Chen & Guo
    2022, eq. 1-3).

    ``W_G = B(C(ReLU(B(C(Pool(W))))))`` reads the mean over the sentence (equation 1). ``W_L``, the
    same without the mean, reads each position (equation 2). ``weight(W) = sigmoid(W_G + W_L)``, and
    calling the module computes ``W * weight(W)`` (equation 3). ``C`` are 1x1 convolutions, down by
    `reduction_ratio` and up again. ``B`` are batch normalisations; their statistics cover only
    valid positions (local) and sentences with a valid position (global).

    In training, a batch with a single such position or sentence has no variance: then the running
    statistics normalise, as in evaluation, and do not change. In evaluation a row does not depend
    on others.

    Args:
        hidden_size: ``E``, the size of a vector.
        reduction_ratio: ``r``.
        branches: ``"both"``; ``"global"`` or ``"local"`` for the ablations, where a second copy of
            the branch, with its own parameters, replaces the other (section V.A).

    Shape:
        ``(batch, seq, hidden_size)``, mask ``(batch, seq)`` to the same.

    Raises:
        ValueError: If the ratio does not divide the size, or shapes do not fit.
        TypeError: If the mask is not bool.

    Example:
        >>> aif = AIF(8).eval()
        >>> x = torch.randn(2, 3, 8)
        >>> torch.equal(aif(x), x * aif.weight(x))
        True

    Deviations: padding takes no part; the paper does not mention it. Under DDP each process uses
    the statistics of its batch: convert_sync_batchnorm does not change these norms.
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        reduction_ratio: int = 4,
        branches: Literal["both", "global", "local"] = "both",
    ) -> None:
        super().__init__()
        check_positive(hidden_size=hidden_size, reduction_ratio=reduction_ratio)
        check_choice("branches", branches, ("both", "global", "local"))
        rule = f"be a multiple of reduction_ratio {reduction_ratio}"
        require(hidden_size % reduction_ratio == 0, "hidden_size", rule, hidden_size)
        self.hidden_size, self.reduction_ratio = hidden_size, reduction_ratio
        self.branches = branches
        self.first = _Branch(hidden_size, hidden_size // reduction_ratio)
        self.second = _Branch(hidden_size, hidden_size // reduction_ratio)

    def forward(self, x: Hidden, mask: Mask = None) -> Hidden:
        """Scale each number by its weight.

        Args:
            x: Vectors.
            mask: True = valid; None = all valid.

        Returns:
            ``x * weight(x)``, zeros at masked positions.
        """
        return self.weight(x, mask) * select_valid(x, mask)

    def weight(self, x: Hidden, mask: Mask = None) -> Hidden:
        """Compute the weight of each number.

        Args:
            x: Vectors.
            mask: True = valid; None = all valid.

        Returns:
            Numbers between 0 and 1; undefined at masked positions.
        """
        check_dim("x", x, 3, "batch, seq, hidden_size")
        check_last_dim("x", x, self.hidden_size, self.first.down.weight)
        check_mask(mask, x.shape[:2])
        x = select_valid(x, mask)
        valid = x.new_ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
        local = x, valid
        mean = masked_mean(x, valid)[:, None], valid.any(1, keepdim=True)
        total = self.first(*(local if self.branches == "local" else mean))
        total = total + self.second(*(mean if self.branches == "global" else local))
        return torch.sigmoid(total).expand_as(x)


class MaskedBatchNorm(nn.Module):
    """Batch normalisation over valid positions: ``(x - mean) / sqrt(var + eps) * weight + bias``.

    Equal to `nn.BatchNorm1d` over the vectors at valid positions (parameters, running statistics,
    momentum 0.1, eps 1e-5, unbiased running variance), in at least float32. If fewer than two
    positions are valid, the running statistics normalise and do not change.

    Args:
        num_features: The size of a vector.
    """

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.eps, self.momentum = 1e-5, 0.1
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.running_mean: Tensor
        self.running_var: Tensor
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))

    def forward(self, x: Hidden, valid: Bool[Tensor, "batch seq"]) -> Hidden:
        """Normalise the vectors; `x` must be finite at positions that are not valid."""
        wide = widened(x)
        mean, var = self.running_mean.to(wide), self.running_var.to(wide)
        if self.training:
            count = valid.sum().to(wide.dtype)
            some, enough = valid[..., None], count > 1
            new_mean = torch.where(some, wide, 0.0).sum((0, 1)) / count.clamp(min=1)
            squares = torch.where(some, (wide - new_mean).square(), 0.0).sum((0, 1))
            new_var = squares / count.clamp(min=1)
            mean, var = torch.where(enough, new_mean, mean), torch.where(enough, new_var, var)
            with torch.no_grad():
                unbiased = squares / (count - 1).clamp(min=1)
                for running, new in ((self.running_mean, mean), (self.running_var, unbiased)):
                    moved = running.lerp(new.to(running), self.momentum)
                    running.copy_(torch.where(enough, moved, running))
        scale = torch.rsqrt(var + self.eps) * self.weight.to(wide)
        return ((wide - mean) * scale + self.bias.to(wide)).to(x.dtype)


class _Branch(nn.Module):
    """``B(C(ReLU(B(C(x)))))``: 1x1 convolutions down and up, each normalised."""

    def __init__(self, hidden_size: int, bottleneck: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(hidden_size, bottleneck), nn.Linear(bottleneck, hidden_size)
        self.down_norm, self.up_norm = MaskedBatchNorm(bottleneck), MaskedBatchNorm(hidden_size)
        for convolution in (self.down, self.up):
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            nn.init.zeros_(convolution.bias)

    def forward(self, x: Hidden, valid: Bool[Tensor, "batch seq"]) -> Hidden:
        """Apply the branch to each vector."""
        narrow = F.relu(self.down_norm(self.down(x), valid))
        wide: Tensor = self.up_norm(self.up(narrow), valid)
        return wide
