"""Losses of labels against scores: a mean in nats over the labels that count.

The label -100 is ignored: its scores may be NaN, and get a gradient of zero. Where no label counts,
the mean is 0.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from polyembed._checks import (
    check_float,
    check_ids,
    check_probability,
    check_shape,
    must,
    require,
)
from polyembed.functional.masking import widened

IGNORE_INDEX = -100


def cross_entropy(
    logits: Float[Tensor, "*batch label"],
    labels: Int[Tensor, "*batch"],
    *,
    weights: Float[Tensor, " label"] | None = None,
    label_smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    r"""Compute the weighted mean cross-entropy, with smoothed labels (Szegedy et al. 2016, section
    7).

    With the classes ``c = 1 .. C``, their weights ``w``, and ``p = softmax(logits)``,

        loss = sum_i [(1 - s) w[y_i] (-log p_i[y_i]) + s / C sum_c w[c] (-log p_i[c])] / sum_i
        w[y_i]

    over the labels ``y_i`` that count; without weights ``w = 1``. As in torch's cross-entropy, the
    mean is over the weights of the labels, so that a common factor of all weights has no effect.

    Args:
        logits: The scores, ``(*batch, label)``; the loss is computed in at least float32.
        labels: The label ids, ``(*batch)``; -100 is ignored.
        weights: One weight per label, ``(label)``; all 1 if None.
        label_smoothing: The share ``s`` of a label that is spread over all labels, in [0, 1).

    Returns:
        The loss, a scalar in nats; 0 if no label counts, or only labels whose weight is 0.

    Raises:
        ValueError: If shapes do not fit, a label id is outside of the scores, or the smoothing is
            outside of [0, 1).
        TypeError: If labels are not integers, or scores are not floats.

    Example:
        >>> cross_entropy(torch.zeros(3, 2), torch.tensor([0, 1, -100]))
        tensor(0.6931)
    """
    check_probability(label_smoothing=label_smoothing)
    wide, labels, weights, own = _prepare(logits, labels, weights)
    total = F.cross_entropy(
        wide,
        labels,
        weights,
        ignore_index=IGNORE_INDEX,
        reduction="sum",
        label_smoothing=label_smoothing,
    )
    return _mean(total, own)


def focal_loss(
    logits: Float[Tensor, "*batch label"],
    labels: Int[Tensor, "*batch"],
    *,
    gamma: float = 2.0,
    weights: Float[Tensor, " label"] | None = None,
) -> Float[Tensor, ""]:
    r"""Compute the weighted mean focal loss, in which confident correct predictions count little
    (Lin et al. 2017).

    Equation 5, ``FL(p_t) = -alpha_t (1 - p_t)^gamma log p_t``, with ``p_t = softmax(logits)[y]``
    and the weight of the label for ``alpha_t``:

        loss = sum_i w[y_i] (1 - p_i[y_i])^gamma (-log p_i[y_i]) / sum_i w[y_i]

    over the labels ``y_i`` that count, so that ``gamma = 0`` is the weighted cross-entropy. The
    loss is computed from the log odds ``u = log((1 - p_t) / p_t)``, as
    ``exp(-gamma softplus(-u)) softplus(u)``. This form and its derivatives are exact also where
    ``p_t`` is close to 1.

    Args:
        logits: The scores, ``(*batch, label)``; the loss is computed in at least float32.
        labels: The label ids, ``(*batch)``; -100 is ignored.
        gamma: The exponent, 0 or more; the paper's best is 2.
        weights: One weight per label, ``(label)``; all 1 if None.

    Returns:
        The loss, a scalar in nats; 0 if no label counts, or only labels whose weight is 0.

    Raises:
        ValueError: If shapes do not fit, a label id is outside of the scores, or `gamma` is
            negative.
        TypeError: If labels are not integers, or scores are not floats.

    Example:
        # a quarter of the cross-entropy
        >>> focal_loss(torch.zeros(3, 2), torch.tensor([0, 1, -100]))
        tensor(0.1733)
    """
    check_gamma(gamma)
    wide, labels, _, own = _prepare(logits, labels, weights)
    score = _of_label(wide, labels)
    nothing = torch.finfo(wide.dtype).min / 2  # finite, so that a single label has derivatives
    odds = wide.scatter(1, labels[:, None].clamp(min=0), nothing).logsumexp(-1) - score
    losses = torch.exp(gamma * F.logsigmoid(odds)) * -F.logsigmoid(-odds)
    return _mean((losses * own).sum(), own)


def check_gamma(gamma: float) -> None:
    """Check for a finite exponent of 0 or more."""
    require(0.0 <= gamma < float("inf"), "gamma", "be a finite number of 0 or more", gamma)


def _prepare(
    logits: Tensor, labels: Tensor, weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Check shapes and ids, flatten the batch and widen the dtype.

    The result has the scores, 0 where ignored; the labels; the weights, 1 if None; and each label's
    own weight, 0 where it is ignored.
    """
    check_float(logits=logits)
    check_ids("labels", labels)
    check_shape("labels", labels, logits.shape[:-1])
    size = logits.shape[-1]
    wide = widened(logits).reshape(-1, size)
    labels = labels.reshape(-1).long()
    weights = wide.new_ones(size) if weights is None else weights.to(wide.dtype)
    check_shape("weights", weights, (size,))
    try:
        own = _of_label(weights.expand_as(wide), labels)
    except IndexError as error:
        rule = f"be in [0, {size}) or be {IGNORE_INDEX}"
        raise ValueError(must("labels", rule, error)) from error
    return torch.where((labels != IGNORE_INDEX)[:, None], wide, 0.0), labels, weights, own


def _of_label(x: Tensor, labels: Tensor) -> Tensor:
    """Return the entry of each label, ``(n, label)`` to ``(n)``; 0 where the label is ignored."""
    return -F.nll_loss(x, labels, reduction="none", ignore_index=IGNORE_INDEX)


def _mean(total: Tensor, own: Tensor) -> Tensor:
    """Divide by the sum of the labels' own weights; 0 where the sum is 0."""
    weight = own.sum()
    return torch.where(weight > 0, total / torch.where(weight > 0, weight, 1.0), 0.0)
