"""The options of `MetaXLTrainer`, and the figures of one of its steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from polyembed._checks import check_choice, check_positive, is_count, require
from polyembed.transfer.metaxl import METHODS
from polyembed.transfer.steps import check_options

OBJECTIVES = ("metaxl", "joint", "joint_rtn", "target_only")


@dataclass(frozen=True, kw_only=True)
class MetaXLOptions:
    """How `MetaXLTrainer` trains.

    Attributes:
        objective: ``"metaxl"``, ``"joint"``, ``"joint_rtn"`` or ``"target_only"``; see
            `MetaXLTrainer`.
        method: How meta-gradients are computed; see `polyembed.metaxl_gradients`.
        target_weight: The weight of the target's own loss in the inner loss of ``"metaxl"``; the
            authors' code has 1. Each target batch is then split in two: every second row is for the
            inner loss, the others for the outer loss. With 0 the whole batch is for the outer loss,
            and the model learns from source batches alone. That is algorithm 1 as printed, and
            measured far below joint training (5.6 against 33.0 F1).
        weight: The share of the transform; see `polyembed.transformed_output`.
        num_train_epochs: How many epochs.
        backoff_epochs: How many epochs of joint training follow.
        batch_size: Rows of each batch, in each process; an even number where target batches are
            split.
        gradient_accumulation_steps: Batches of each data set in a step.
        max_grad_norm: The norm to which the model's gradient is clipped; None = never.
        meta_max_grad_norm: The same for the gradient of the network that transforms.
        amp_dtype: The dtype in which losses are computed, ``torch.bfloat16``.
        seed: Of order and dropout.

    Raises:
        ValueError: An option out of range.
    """

    objective: str = "metaxl"
    method: str = "forward_over_reverse"
    target_weight: float = 1.0
    weight: float | Sequence[float] | None = None
    num_train_epochs: int = 20
    backoff_epochs: int = 0
    batch_size: int = 16
    gradient_accumulation_steps: int = 1
    max_grad_norm: float | None = 1.0
    meta_max_grad_norm: float | None = None
    amp_dtype: torch.dtype | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("objective", self.objective, OBJECTIVES)
        check_choice("method", self.method, METHODS)
        for name in ("num_train_epochs", "batch_size", "gradient_accumulation_steps"):
            check_positive(**{name: getattr(self, name)})
        whole = is_count(self.backoff_epochs) and self.backoff_epochs >= 0
        require(whole, "backoff_epochs", "be an integer, 0 or more", self.backoff_epochs)
        names = ("target_weight", "max_grad_norm", "meta_max_grad_norm", "amp_dtype")
        check_options(**{name: getattr(self, name) for name in names})
        rule = f"be even, because a target_weight of {self.target_weight} splits target batches"
        require(
            self.batch_size % 2 == 0 or not self.splits_target, "batch_size", rule, self.batch_size
        )

    @property
    def splits_target(self) -> bool:
        """Return whether each target batch is split between the inner and the outer loss."""
        return self.objective == "metaxl" and self.target_weight > 0


class MetaXLTrainerStep(NamedTuple):
    """The figures of one step; None where its objective has no such figure.

    Attributes:
        number: Counted from 1, over all epochs.
        epoch: Counted from 1.
        loss: The loss that the model descends, before the step; of ``"metaxl"`` the inner loss.
        norm: The norm of its gradient, before clipping.
        target_loss: The target loss after the look-ahead.
        meta_norm: The norm of the gradient of the network that transforms, before clipping.
        cosine: Between the inner loss's gradient and the target's.
    """

    number: int
    epoch: int
    loss: float
    norm: float
    target_loss: float | None = None
    meta_norm: float | None = None
    cosine: float | None = None
