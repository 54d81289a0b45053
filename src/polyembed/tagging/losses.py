"""Losses as modules, for decoders and classifiers, and weights that balance rare labels."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyembed._checks import check_probability, require
from polyembed.functional import losses
from polyembed.saving import PretrainedModule


class Criterion(PretrainedModule):
    """A loss: from ``(logits (*batch, label), labels (*batch))`` to a mean in nats.

    The label -100 is not counted, whatever its scores are; the mean over no label is 0. Members:
    `LabelCrossEntropy`, `FocalLoss`.

    Args:
        weights: A weight per label, in the order of their ids, 0 or more; all 1 if None.

    Raises:
        ValueError: If a weight is negative or not finite, or `weights` is empty.
    """

    weights: Tensor | None

    def __init__(self, weights: Sequence[float] | None = None) -> None:
        super().__init__()
        self._given = weights
        self.register_buffer("weights", None)  # requires_grad_() of a model must not train them
        if weights is not None:
            self._given = [float(weight) for weight in weights]
            good = len(self._given) > 0 and all(0 <= weight < math.inf for weight in self._given)
            require(good, "weights", "be finite numbers of 0 or more, at least one", self._given)
            self.weights = torch.tensor(self._given)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "weights": self._given}


class LabelCrossEntropy(Criterion):
    """The weighted mean cross-entropy with smoothed labels: `polyembed.functional.cross_entropy`.

    ``loss = sum_i [(1 - s) w[y_i] (-log p_i[y_i]) + s / C sum_c w[c] (-log p_i[c])] / sum_i
    w[y_i]``

    Args:
        weights: A weight per label, in the order of their ids, 0 or more (`class_weights`); all 1
            if None.
        label_smoothing: The share ``s`` of the target that all labels share evenly, in [0, 1).

    Shape:
        logits ``(*batch, label)``, labels ``(*batch)``; the loss is a scalar.

    Raises:
        ValueError: If shapes do not fit, a label id is outside the scores, or the weights or the
            smoothing are out of range.
        TypeError: If the labels are not integers.

    Example:
        >>> criterion = LabelCrossEntropy([0.5, 5.0])
        >>> criterion(torch.zeros(2, 2), torch.tensor([0, -100]))
        tensor(0.6931)

    Where no label counts, torch's mean is NaN and this mean is 0.
    """

    def __init__(
        self, weights: Sequence[float] | None = None, *, label_smoothing: float = 0.0
    ) -> None:
        check_probability(label_smoothing=label_smoothing)
        super().__init__(weights)
        self.label_smoothing = label_smoothing

    def forward(
        self, logits: Float[Tensor, "*batch label"], labels: Int[Tensor, "*batch"]
    ) -> Float[Tensor, ""]:
        """Compute the mean loss in nats, in at least float32."""
        return losses.cross_entropy(
            logits, labels, weights=self.weights, label_smoothing=self.label_smoothing
        )


class FocalLoss(Criterion):
    """The weighted mean focal loss (Lin et al. 2017, equation 5).

    ``loss = sum_i w[y_i] (1 - p_i[y_i])^gamma (-log p_i[y_i]) / sum_i w[y_i]``, computed by
    `polyembed.functional.focal_loss`.

    Args:
        gamma: The exponent by which an already likely label counts less, 0 or more. With 0 the loss
            is the cross-entropy.
        weights: A weight per label, in the order of their ids, 0 or more (`class_weights`); all 1
            if None.

    Shape:
        logits ``(*batch, label)``, labels ``(*batch)``; the loss is a scalar.

    Raises:
        ValueError: If shapes do not fit, a label id is outside the scores, or the weights or
            `gamma` are out of range.
        TypeError: If the labels are not integers.

    Example:
        >>> FocalLoss(gamma=2.0)(torch.zeros(1, 2), torch.tensor([1]))
        tensor(0.1733)

    Deviations: the paper has a sigmoid per class and divides by the number of boxes with an object;
    here it is a softmax over the labels and a mean by their weights, the same as for the
    cross-entropy.
    """

    def __init__(self, gamma: float = 2.0, *, weights: Sequence[float] | None = None) -> None:
        losses.check_gamma(gamma)
        super().__init__(weights)
        self.gamma = gamma

    def forward(
        self, logits: Float[Tensor, "*batch label"], labels: Int[Tensor, "*batch"]
    ) -> Float[Tensor, ""]:
        """Compute the mean loss in nats, in at least float32."""
        return losses.focal_loss(logits, labels, gamma=self.gamma, weights=self.weights)


def class_weights(labels: Iterable[str], names: Sequence[str]) -> list[float]:
    """Weigh labels so that each counts as much as any other ("balanced").

    ``w[c] = N / (C n[c])`` for ``N`` labels, of which ``C`` are different and ``n[c]`` are the
    label ``c``: the weights of all ``N`` have the mean 1. A label that never occurs gets 0.

    Args:
        labels: Labels of texts; for words,
            ``(tag for sentence in train for tag in sentence.tags)``.
        names: The label set, in the order of its ids.

    Returns:
        A weight per name.

    Raises:
        ValueError: If a label is outside the names.

    Example:
        >>> class_weights(["O"] * 9 + ["B-PER"], ["O", "B-PER", "I-PER"])
        [0.5555555555555556, 5.0, 0.0]
    """
    counts = Counter(labels)
    for label in counts:
        require(label in names, "labels", f"be among {', '.join(names)}", repr(label))
    share = counts.total() / max(1, len(counts))
    return [share / counts[name] if name in counts else 0.0 for name in names]


def check_criterion(criterion: nn.Module | None, num_labels: int) -> None:
    """Require one weight per label, if the criterion has weights."""
    if isinstance(criterion, Criterion) and criterion.weights is not None:
        found = len(criterion.weights)
        require(found == num_labels, "criterion", f"have weights for {num_labels} labels", found)
