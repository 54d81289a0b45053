"""How `fit` trains: one object for a single model, ensembles, protocols and sweeps."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from polyembed._checks import check_choice, check_positive, class_name, must, require
from polyembed.metrics import MetricName
from polyembed.training.optimizers import default_optimizer
from polyembed.training.scoring import METRICS, Metric


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitOptions:
    """How `fit` trains; the same object serves ensembles, protocols and sweeps.

    Args:
        num_train_epochs: The most epochs.
        batch_size: Texts a step.
        optimizer: A function from the model to an optimiser over its parameters; `default_optimizer` if
            None.
        scheduler: A function from the optimiser to a schedule, stepped after each epoch or step. A
            `ReduceLROnPlateau` gets the score (give it ``mode="max"``).
        scheduler_interval: When the schedule steps.
        metric: Entity micro-F1 as conlleval counts (``"f1"``, a tagger's if None), accuracy (a
            classifier's if None), the mean F1 of the labels (``"macro_f1"``), or a function of gold
            and predicted labels, one list a text (a classifier's lists hold one label, a gold label
            that is not known is None); higher is better.
        patience: Stop after so many epochs without a better score; None = never.
        max_decreases: Stop when the score has fallen so many times in a row, each time below the
            epoch before (Prechelt 1998, UP); None = never.
        max_grad_norm: Clip the gradient's norm to this; None = never.
        average: The weights of so many epochs, the best by score, are averaged at the end; 1 = the
            best epoch's.
        amp_dtype: Autocast forward passes to this dtype; float16 with loss scaling.

    Raises:
        ValueError: A number or choice outside its range.
        TypeError: An optimiser or schedule instead of a function that makes one.

    Example:
        >>> FitOptions(num_train_epochs=5, optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1)).patience
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
        counts = {
            name: getattr(self, name) for name in ("num_train_epochs", "batch_size", "average")
        }
        stops = {name: getattr(self, name) for name in ("patience", "max_decreases")}
        check_positive(
            **counts, **{name: value for name, value in stops.items() if value is not None}
        )
        check_choice("scheduler_interval", self.scheduler_interval, ("epoch", "step"))
        if isinstance(self.metric, str):
            check_choice("metric", self.metric, METRICS)
        elif not (self.metric is None or callable(self.metric)):
            raise TypeError(
                must(
                    "metric",
                    "be a name or a function of gold and predicted labels",
                    class_name(self.metric),
                )
            )
        norm = self.max_grad_norm
        number = isinstance(norm, int | float) and not isinstance(norm, bool)
        require(
            norm is None or (number and norm > 0),
            "max_grad_norm",
            "be a positive number or None",
            repr(norm),
        )
        kinds = (None, torch.float16, torch.bfloat16)
        require(
            self.amp_dtype in kinds,
            "amp_dtype",
            "be torch.float16, torch.bfloat16 or None",
            repr(self.amp_dtype),
        )
        for name, subject in (("optimizer", "the model"), ("scheduler", "the optimizer")):
            make = getattr(self, name)
            is_class = isinstance(make, type) and issubclass(
                make, Optimizer
            )  # it takes parameters, not the model
            if not (make is None or callable(make)) or is_class:
                found = f"the class {make.__name__}" if is_class else class_name(make)
                raise TypeError(must(name, f"be a function of {subject} that returns one", found))

    def make_optimizer(self, model: nn.Module) -> Optimizer:
        """Return a new optimiser over the model's parameters."""
        trainable = [value for value in model.parameters() if value.requires_grad]
        require(bool(trainable), "model", "have a parameter that requires a gradient", "none")
        optimizer = (self.optimizer or default_optimizer)(model)
        if not isinstance(optimizer, Optimizer):
            raise TypeError(must("optimizer", "make an Optimizer", class_name(optimizer)))
        held = {id(value) for group in optimizer.param_groups for value in group["params"]}
        require(
            any(id(value) in held for value in trainable),
            "optimizer",
            "hold parameters of the model",
            "none",
        )
        return optimizer

    def make_scheduler(self, optimizer: Optimizer) -> LRScheduler | None:
        """Return a new schedule of the optimiser, if there is one."""
        scheduler = None if self.scheduler is None else self.scheduler(optimizer)
        if not isinstance(scheduler, LRScheduler | None):
            raise TypeError(must("scheduler", "make an LRScheduler", class_name(scheduler)))
        require(
            scheduler is None or scheduler.optimizer is optimizer,
            "scheduler",
            "step its argument",
            "another one",
        )
        if self.scheduler_interval == "step" and isinstance(scheduler, ReduceLROnPlateau):
            raise ValueError(
                must("scheduler_interval", "be 'epoch' for a ReduceLROnPlateau", "'step'")
            )
        return scheduler


DEFAULTS = FitOptions()
