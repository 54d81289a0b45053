"""The options of `fit`: one object for a single model, for ensembles and for protocols."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from polyembed._checks import check_choice, check_positive, class_name, must, require
from polyembed.crf import CRF
from polyembed.embeddings.surface import FeatureSum
from polyembed.encoders import PretrainedWordEncoder, WideAndDeepEncoder
from polyembed.metrics import (
    GoldLabels,
    Labels,
    MetricName,
    Scheme,
    accuracy,
    entity_f1,
    macro_f1,
    scheme_of,
)

Metric = Callable[[GoldLabels, Labels], float]


METRICS: dict[str, Metric] = {"accuracy": accuracy, "macro_f1": macro_f1}
"""The metrics by name, except ``"f1"``, which depends on the scheme."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitOptions:
    """The options of `fit`; the same object serves ensembles and protocols.

    Args:
        num_train_epochs: The largest number of epochs. If None, it follows from the number of
            training texts: 40 epochs for up to 1000 texts, then fewer, down to 8. With a pretrained
            encoder that is trained, it is 20 for up to 300 texts, 10 for 600, down to 6.
        batch_size: The number of texts per step; if None, a 25th of the training texts, from 2 to
            16.
        optimizer: A function from the model to an optimiser over its parameters;
            `default_optimizer` if None.
        scheduler: A function from the optimiser to a schedule, stepped after each epoch or step. A
            `ReduceLROnPlateau` gets the score (give it ``mode="max"``). If both this and
            `optimizer` are None, the schedule is that of `default_optimizer`; with an optimiser
            alone, rates are constant.
        scheduler_interval: Whether a given `scheduler` steps after each ``"epoch"`` or ``"step"``;
            for a `ReduceLROnPlateau` it must be ``"epoch"``.
        metric: The metric; higher is better. It is entity micro-F1 as conlleval counts (``"f1"``),
            accuracy (``"accuracy"``), the mean F1 of the labels (``"macro_f1"``), or a function of
            gold and predicted labels that returns a number, or `Scores`, of which the F1 counts. A
            function gets a list of labels per text; a classifier's lists hold one label, and a gold
            label that is not known is None. If None, the metric is the F1 for a tagger whose tags
            mark entities (``B-PER``), and the accuracy for all other models.
        scheme: The scheme of a tagger's entity tags, for ``"f1"``: ``"bio"``, ``"iob1"``,
            ``"bioes"`` or ``"bilou"``; if None, the one that the tags' letters show.
        patience: The number of epochs without a better score after which training stops; None =
            never.
        max_decreases: The number of epochs in a row, each with a score below that of the epoch
            before, after which training stops (Prechelt 1998, UP); None = never.
        max_grad_norm: The norm to which the gradient of the optimiser's parameters is clipped;
            None = never.
        amp_dtype: The dtype to which forward passes are autocast; None = no autocast. With float16,
            losses are scaled.

    Raises:
        ValueError: If a number or choice is outside its range.
        TypeError: If the optimiser is a class instead of a function of the model.

    Example:
        >>> def sgd(model):
        ...     return torch.optim.SGD(model.parameters(), lr=0.1)
        >>> FitOptions(optimizer=sgd).for_training(nn.Linear(2, 2), 1000).num_train_epochs
        40
    """

    num_train_epochs: int | None = None
    batch_size: int | None = None
    optimizer: Callable[[Any], Optimizer] | None = None
    scheduler: Callable[[Any], LRScheduler] | None = None
    scheduler_interval: Literal["epoch", "step"] = "epoch"
    metric: MetricName | Metric | None = None
    scheme: Scheme | None = None
    patience: int | None = 6
    max_decreases: int | None = None
    max_grad_norm: float | None = 1.0
    amp_dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        names = ("num_train_epochs", "batch_size", "patience", "max_decreases")
        check_positive(**{x: n for x in names if (n := getattr(self, x)) is not None})
        check_choice("scheduler_interval", self.scheduler_interval, ("epoch", "step"))
        if isinstance(self.metric, str):
            check_choice("metric", self.metric, ("f1", *METRICS))
        norm = self.max_grad_norm
        require(norm is None or norm > 0, "max_grad_norm", "be positive or None", norm)
        if isinstance(self.optimizer, type):
            rule = "be a function of the model that returns one"
            raise TypeError(must("optimizer", rule, f"the class {self.optimizer.__name__}"))

    def for_training(self, model: nn.Module, num_texts: int) -> "FitOptions":
        """Return a copy in which epochs, batch size, metric and scheme are chosen where None."""
        found: dict[str, Any] = {}
        if self.num_train_epochs is None:
            most, rows, least = (20, 6_000, 6) if pretrained_parameters(model) else (40, 40_000, 8)
            found["num_train_epochs"] = min(most, max(least, rows // max(1, num_texts)))
        if self.batch_size is None:
            found["batch_size"] = min(16, max(2, num_texts // 25))
        scheme = scheme_of(getattr(model, "tags", ()))
        if self.metric is None:
            found["metric"] = "accuracy" if scheme is None else "f1"
        if self.scheme is None:
            found["scheme"] = scheme or "bio"
        if self.optimizer is None and self.scheduler is None:
            found["scheduler_interval"] = "step"
        return dataclasses.replace(self, **found)

    @property
    def metric_name(self) -> str:
        """The name of the metric; for a function, the name of the function."""
        metric = self.metric or "accuracy"
        return (
            metric if isinstance(metric, str) else getattr(metric, "__name__", class_name(metric))
        )

    def make_optimizer(self, model: nn.Module) -> Optimizer:
        """Return a new optimiser over the model's parameters."""
        optimizer = (self.optimizer or default_optimizer)(model)
        some = not parameters_of(optimizer).isdisjoint(model.parameters())
        require(some, "optimizer", "hold parameters of the model", "none")
        return optimizer

    def make_scheduler(self, optimizer: Optimizer, num_steps: int) -> LRScheduler | None:
        """Return a new schedule over `num_steps` steps; None if rates are constant."""
        if self.scheduler is not None:
            scheduler = self.scheduler(optimizer)
            plateau = isinstance(scheduler, ReduceLROnPlateau)
            fits = self.scheduler_interval == "epoch" or not plateau
            require(fits, "scheduler_interval", "be 'epoch' for a ReduceLROnPlateau", "'step'")
            return scheduler
        return _default_schedule(optimizer, num_steps) if self.optimizer is None else None


def measure(
    options: FitOptions, gold: GoldLabels, predicted: Sequence[Sequence[str] | str]
) -> float:
    """Return the metric of predictions: per text, a list of labels or one label."""
    labels = [[found] if isinstance(found, str) else found for found in predicted]
    metric = options.metric or "accuracy"
    if metric == "f1":
        return entity_f1(gold, labels, scheme=options.scheme or "bio").f1
    # a float, because a checkpoint cannot hold the number type of another library
    found: Any = (metric if callable(metric) else METRICS[metric])(gold, labels)
    return float(getattr(found, "f1", found))


DEFAULTS = FitOptions()


PRETRAINED_RATE = 0.1
CRF_RATE = 30
LINEAR_RATE = 1000


def parameters_of(optimizer: Optimizer) -> set[Tensor]:
    """Return the parameters that an optimiser holds."""
    return {value for group in optimizer.param_groups for value in group["params"]}


def pretrained_parameters(model: nn.Module) -> set[nn.Parameter]:
    """Return the trainable parameters of the models inside `PretrainedWordEncoder` modules."""
    encoders = (part for part in model.modules() if isinstance(part, PretrainedWordEncoder))
    return {value for part in encoders for value in part.model.parameters() if value.requires_grad}


def default_optimizer(model: nn.Module, lr: float = 1e-3) -> AdamW:
    """Build AdamW over a model's parameters, with a learning rate for each kind of parameter.

    - The model inside a `PretrainedWordEncoder` has ``0.1 * lr`` and a weight decay of 0.01; no
      other parameter has a weight decay.
    - A CRF's transitions, and a linear path's scores for the edges of a sentence, have
      ``30 * lr``: they are few, all words share them, and in the few hundred steps of a small
      corpus they would hardly move at the network's rate.
    - A linear path's weights (`FeatureSum`) have ``1000 * lr`` and ``eps=1``: in place of Adam's
      steps of equal size these are steps in proportion to the gradient, with momentum. Equal steps
      would make every rare feature as heavy as a frequent one.
    - All others have `lr`.

    Where `FitOptions` names neither an optimiser nor a schedule, `fit` takes this optimiser, and
    its rates fall linearly to a tenth. A pretrained encoder's rate instead rises for a tenth of the
    steps and then falls to zero. Given as ``FitOptions(optimizer=...)``, also with another `lr`,
    the optimiser has the `scheduler` of the same options, or constant rates.

    Args:
        model: Any model; without any of these parts, the optimiser has a single group.
        lr: The learning rate of the network.

    Returns:
        The optimiser, over the parameters that require a gradient.

    Example:
        >>> from polyembed import CRFDecoder
        >>> [group["lr"] for group in default_optimizer(CRFDecoder(4, 3)).param_groups]
        [0.001, 0.03]
    """
    kinds: dict[Tensor, int] = dict.fromkeys(pretrained_parameters(model), 1)
    for part in model.modules():
        if isinstance(part, CRF):
            kinds |= dict.fromkeys(part.parameters(), 2)
        elif isinstance(part, WideAndDeepEncoder):
            kinds[part.edges] = 2
        elif isinstance(part, FeatureSum):
            kinds[part.embedding.weight] = 3
    groups: list[dict[str, Any]] = [
        {"params": []},
        {"params": [], "lr": PRETRAINED_RATE * lr, "weight_decay": 0.01, "pretrained": True},
        {"params": [], "lr": CRF_RATE * lr},
        {"params": [], "lr": LINEAR_RATE * lr, "eps": 1.0},
    ]
    trainable = [value for value in model.parameters() if value.requires_grad]
    for value in trainable:
        groups[kinds.get(value, 0)]["params"].append(value)
    # the fused kernel is faster on both
    fused = all(value.device.type in ("cpu", "cuda") for value in trainable)
    full = [group for group in groups if group["params"]]
    return AdamW(full, lr=lr, weight_decay=0.0, fused=fused)


def _default_schedule(optimizer: Optimizer, num_steps: int) -> LambdaLR:
    """Return the schedule of `default_optimizer`; it steps after each batch.

    Rates fall linearly to a tenth. A pretrained encoder's rate instead rises for a tenth of the
    steps and then falls to zero, so that its weights are not disturbed while the rest is random.
    """
    warm = -(-num_steps // 10)

    def encoder(step: int) -> float:
        return min((step + 1) / warm, max(0, num_steps - step) / max(1, num_steps - warm))

    def others(step: int) -> float:
        return 1.0 - 0.9 * min(1.0, step / num_steps)

    kinds = (group.get("pretrained") for group in optimizer.param_groups)
    return LambdaLR(optimizer, [encoder if kind else others for kind in kinds])


def noam_schedule(optimizer: Optimizer, hidden_size: int, *, warmup_steps: int = 500) -> LambdaLR:
    """Build the schedule of Vaswani et al. (2017, section 5.3).

    The rate warms up linearly and then falls with the inverse root of the step. At step
    ``s = 1, 2, ...`` it is
    ``lr * hidden_size ** -0.5 * min(s * warmup_steps ** -1.5, s ** -0.5)``; its peak is
    ``lr * (hidden_size * warmup_steps) ** -0.5``. The paper has ``lr=1``. The schedule steps after
    each batch: ``FitOptions(scheduler=lambda optimizer: noam_schedule(optimizer, 200),
    scheduler_interval="step")``.

    Args:
        optimizer: The optimiser, each group with its ``lr``.
        hidden_size: The size of the model's hidden states.
        warmup_steps: The step of the peak.

    Returns:
        The schedule.

    Example:
        >>> optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=1.0, betas=(0.9, 0.98))
        >>> noam_schedule(optimizer, 200).get_last_lr()
        [6.324...e-06]
    """
    scale = hidden_size**-0.5
    return LambdaLR(optimizer, lambda t: scale * min((t + 1) * warmup_steps**-1.5, (t + 1) ** -0.5))
