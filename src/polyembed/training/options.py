"""How `fit` trains: one object for a single model, ensembles, protocols and sweeps."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from polyembed._checks import check_choice, check_positive, class_name, must, require
from polyembed.metrics import GoldLabels, Labels, MetricName, accuracy, entity_f1, macro_f1
from polyembed.training.optimizers import default_optimizer

Metric = Callable[[GoldLabels, Labels], float]


def _micro_f1(gold: GoldLabels, predicted: Labels) -> float:
    return entity_f1(gold, predicted, mode="conll").f1


METRICS: dict[str, Metric] = {"f1": _micro_f1, "accuracy": accuracy, "macro_f1": macro_f1}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitOptions:
    """How `fit` trains; the same object serves ensembles, protocols and sweeps.

    Args:
        num_train_epochs: The largest number of epochs.
        batch_size: The number of texts per step.
        optimizer: A function from the model to an optimiser over its parameters;
            `default_optimizer` if None.
        scheduler: A function from the optimiser to a schedule, stepped after each epoch or step. A
            `ReduceLROnPlateau` gets the score (give it ``mode="max"``).
        scheduler_interval: When the schedule steps.
        metric: Entity micro-F1 as conlleval counts (``"f1"``, a tagger's if None), accuracy (a
            classifier's if None), the mean F1 of the labels (``"macro_f1"``), or a function of gold
            and predicted labels, a list per text (a classifier's lists hold one label, a gold label
            that is not known is None); higher is better.
        patience: Stop after so many epochs without a better score; None = never.
        max_decreases: Stop when the score has fallen so many times in a row, each time below the
            epoch before (Prechelt 1998, UP); None = never.
        max_grad_norm: Clip the gradient's norm to this; None = never.
        average: The weights of so many epochs, the best by score, are averaged at the end; 1 = the
            best epoch's.
        amp_dtype: Autocast forward passes to this dtype; float16 with loss scaling.

    Raises:
        ValueError: If a number or choice is outside its range.
        TypeError: If the optimiser is a class instead of a function of the model.

    Example:
        >>> def sgd(model):
        ...     return torch.optim.SGD(model.parameters(), lr=0.1)
        >>> FitOptions(num_train_epochs=5, optimizer=sgd).batch_size
        32
    """

    num_train_epochs: int = 20
    batch_size: int = 32
    optimizer: Callable[[Any], Optimizer] | None = None
    scheduler: Callable[[Any], LRScheduler] | None = None
    scheduler_interval: Literal["epoch", "step"] = "epoch"
    metric: MetricName | Metric | None = None
    patience: int | None = None
    max_decreases: int | None = None
    max_grad_norm: float | None = 1.0
    average: int = 1
    amp_dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        names = ("num_train_epochs", "batch_size", "average", "patience", "max_decreases")
        given = {name: getattr(self, name) for name in names}
        check_positive(**{name: value for name, value in given.items() if value is not None})
        check_choice("scheduler_interval", self.scheduler_interval, ("epoch", "step"))
        if isinstance(self.metric, str):
            check_choice("metric", self.metric, METRICS)
        norm = self.max_grad_norm
        require(norm is None or norm > 0, "max_grad_norm", "be positive or None", norm)
        kinds = (None, torch.float16, torch.bfloat16)
        rule = "be torch.float16, torch.bfloat16 or None"
        require(self.amp_dtype in kinds, "amp_dtype", rule, self.amp_dtype)
        if isinstance(self.optimizer, type):
            rule = "be a function of the model that returns one"
            raise TypeError(must("optimizer", rule, f"the class {self.optimizer.__name__}"))

    def make_optimizer(self, model: nn.Module) -> Optimizer:
        """Return a new optimiser over the model's parameters."""
        trainable = {value for value in model.parameters() if value.requires_grad}
        require(bool(trainable), "model", "have a parameter that requires a gradient", "none")
        optimizer = (self.optimizer or default_optimizer)(model)
        held = {value for group in optimizer.param_groups for value in group["params"]}
        require(bool(trainable & held), "optimizer", "hold parameters of the model", "none")
        return optimizer

    def make_scheduler(self, optimizer: Optimizer) -> LRScheduler | None:
        """Return a new schedule of the optimiser, if there is one."""
        scheduler = None if self.scheduler is None else self.scheduler(optimizer)
        if self.scheduler_interval == "step" and isinstance(scheduler, ReduceLROnPlateau):
            rule = "be 'epoch' for a ReduceLROnPlateau"
            raise ValueError(must("scheduler_interval", rule, "'step'"))
        return scheduler


def measure(
    metric: str | Metric, gold: GoldLabels, predicted: Sequence[Sequence[str] | str]
) -> float:
    """Return the score of predictions, a list of labels per text or one label, by a metric."""
    labels = [[found] if isinstance(found, str) else found for found in predicted]
    # a checkpoint cannot hold another library's number
    return float(metric(gold, labels)) if callable(metric) else METRICS[metric](gold, labels)


def metric_name(metric: str | Metric) -> str:
    """Return the name of a metric, of a function its own."""
    return metric if isinstance(metric, str) else getattr(metric, "__name__", class_name(metric))


DEFAULTS = FitOptions()
