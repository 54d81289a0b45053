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
    check_mask,
    check_positive,
    class_name,
    is_count,
    must,
    require,
)
from polyembed.encoders.aif import AIF
from polyembed.functional.masking import select_valid
from polyembed.saving import PretrainedModule

Hidden = Float[Tensor, "batch seq hidden"]
T = TypeVar("T")


class LayerFusion(PretrainedModule):
    """All layers into one: ``hidden_states`` in transformers' order (element 0 = embeddings),
    ``mask (batch, seq)``.

    The content of padding does not matter, and masked positions of the result are zeros.
    """

    def forward(
        self, hidden_states: Sequence[Hidden], mask: Bool[Tensor, "batch seq"] | None = None
    ) -> Hidden:
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
        require(hidden_states is not None and len(hidden_states) > 0, "hidden_states", rule, "none")
        first = hidden_states[0]
        check_dim("hidden_states[0]", first, 3, "batch, seq, hidden")
        check_float(**{"hidden_states[0]": first})
        for layer, states in enumerate(hidden_states):
            same = states.shape == first.shape
            require(
                same,
                f"hidden_states[{layer}]",
                f"have shape {tuple(first.shape)}",
                tuple(states.shape),
            )
        check_mask(mask, first.shape[:2])
        layers = [select_valid(states, mask) for states in self.chosen(hidden_states)]
        return select_valid(self.fuse(layers, mask), mask)

    @abstractmethod
    def chosen(self, hidden_states: Sequence[T]) -> Sequence[T]:
        """Return the layers that are fused, by position only: `CachedEmbedder` passes their numbers."""

    @abstractmethod
    def fuse(self, layers: Sequence[Hidden], mask: Bool[Tensor, "batch seq"] | None) -> Hidden:
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

    def fuse(self, layers: Sequence[Hidden], mask: Bool[Tensor, "batch seq"] | None) -> Hidden:
        """Return the only layer."""
        return layers[0]


class LayerAverage(LayerFusion):
    """The mean of some layers: ``L = sum_j H_j / m``.

    Args:
        layers: Their numbers, counted as `hidden_states` is (0 = embeddings, -1 = the last); all if
            None.

    Raises:
        ValueError: No layer, or one that the encoder does not have.
        TypeError: Layers that are not a list of whole numbers.

    Example:
        >>> LayerAverage([0, -1])([torch.zeros(1, 1, 2), torch.full((1, 1, 2), 9.0), torch.ones(1, 1, 2)])
        tensor([[[0.5000, 0.5000]]])
    """

    def __init__(self, layers: Sequence[int] | None = None) -> None:
        super().__init__()
        if not (layers is None or isinstance(layers, Sequence)):
            raise TypeError(must("layers", "be a list of numbers", class_name(layers)))
        require(layers is None or len(layers) > 0, "layers", "name at least one layer", layers)
        self.layers = None if layers is None else [_number(layer, "layers") for layer in layers]

    def chosen(self, hidden_states: Sequence[T]) -> Sequence[T]:
        """Return the layers named."""
        if self.layers is None:
            return hidden_states
        return [_layer(hidden_states, layer, "layers") for layer in self.layers]

    def fuse(self, layers: Sequence[Hidden], mask: Bool[Tensor, "batch seq"] | None) -> Hidden:
        """Average them."""
        return _total(layers) / len(layers)


class ScalarMix(LayerFusion):
    """A weighted mean of all layers: ``L = gamma * sum_j softmax(s)_j H_j`` (Peters et al. 2018,
    equation 1).

    Args:
        num_layers: The number of hidden states, the embeddings included: 13 for BERT-base.

    Raises:
        ValueError: Another number of hidden states.

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
        count = self.num_layers
        require(
            len(hidden_states) == count, "hidden_states", f"hold {count} layers", len(hidden_states)
        )
        return hidden_states

    def fuse(self, layers: Sequence[Hidden], mask: Bool[Tensor, "batch seq"] | None) -> Hidden:
        """Weight and add them."""
        weights = self.weights.to(layers[0].dtype).unbind()
        return self.gamma.to(layers[0].dtype) * _total(
            [w * states for w, states in zip(weights, layers, strict=True)]
        )


class DLFA(LayerFusion):
    """Double-layer feature aggregation: a lower layer and the last, mixed number by number (Chen &
    Guo 2022).

    ``L = L_1 * w + L_2 * (1 - w)`` (equation 4), with ``L_1`` the lower layer, ``L_2`` the last,
    and ``w`` from `AIF` of ``(L_1 + L_2) / 2``. Equation 4 has ``w = AIF(...)``, which by equation
    3 is the mean times its sigmoid; the text says that the mix keeps the layers' scale, which holds
    for the sigmoid alone. Both readings exist here.

    Args:
        hidden_size: The size of a vector.
        lower_layer: The number of ``L_1`` as `hidden_states` counts: 8 is the paper's ``D_8``; the
            last is allowed (the control ``D_12``).
        weighting: ``"sigmoid"``: ``w`` is `AIF.weight`, and the mix is convex; ``"literal"``: ``w``
            is the output of `AIF`.
        reduction_ratio: Of `AIF`.
        branches: Of `AIF`.

    Shape:
        Hidden states ``(batch, seq, hidden_size)`` to the same.

    Raises:
        ValueError: A layer that the encoder does not have, other shapes.
        TypeError: A layer that is not a whole number, a mask that is not bool.

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
        self.lower_layer, self.weighting = _number(lower_layer, "lower_layer"), weighting
        self.hidden_size, self.reduction_ratio, self.branches = (
            hidden_size,
            reduction_ratio,
            branches,
        )
        self.aif = AIF(hidden_size, reduction_ratio=reduction_ratio, branches=branches)

    def chosen(self, hidden_states: Sequence[T]) -> Sequence[T]:
        """Return the lower layer and the last."""
        return [_layer(hidden_states, self.lower_layer, "lower_layer"), hidden_states[-1]]

    def fuse(self, layers: Sequence[Hidden], mask: Bool[Tensor, "batch seq"] | None) -> Hidden:
        """Mix them."""
        lower, last = layers
        mean = (lower + last) / 2
        w = self.aif.weight(mean, mask) if self.weighting == "sigmoid" else self.aif(mean, mask)
        return last + w * (lower - last)


def check_fusion(fusion: LayerFusion | None) -> LayerFusion:
    """Require a fusion; the last layer if None."""
    if not (fusion is None or isinstance(fusion, LayerFusion)):
        raise TypeError(must("fusion", "be a LayerFusion, such as ScalarMix", class_name(fusion)))
    return LastLayer() if fusion is None else fusion


def _number(layer: int, name: str) -> int:
    """Require a layer's number."""
    if not is_count(layer):
        raise TypeError(must(name, "count layers by whole numbers", repr(layer)))
    return int(layer)


def _layer(hidden_states: Sequence[T], layer: int, name: str) -> T:
    count = len(hidden_states)
    require(
        -count <= layer < count,
        name,
        f"be one of the {count} hidden states (0 to {count - 1})",
        layer,
    )
    return hidden_states[layer]


def _total(layers: Sequence[Tensor]) -> Tensor:
    total = layers[0]
    for states in layers[1:]:
        total = total + states
    return total
