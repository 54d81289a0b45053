"""The default optimiser, Adam with a rate for each kind of parameter; and Noam's schedule."""

from typing import Any

from torch import nn
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from polyembed._checks import check_positive, require
from polyembed.crf import CRF
from polyembed.embeddings import FeatureSum
from polyembed.encoders import WideAndDeepEncoder

CRF_RATE = 30
LINEAR_RATE = 1000


def default_optimizer(model: nn.Module, lr: float = 1e-3) -> Adam:
    """Build Adam over a model's parameters, with a learning rate for each kind of them.

    - A CRF's transitions, and what a linear path gives for the edges of a sentence, have
      ``30 * lr``: they are few, all words share them, and in the few hundred steps of a small
      corpus they would hardly move at the network's rate.
    - A linear path's weights (`FeatureSum`) have ``1000 * lr`` and ``eps=1``: in place of Adam's
      steps of equal size these are steps in proportion to the gradient, with momentum. Equal steps
      would make every rare feature as heavy as a frequent one.
    - All others have `lr`.

    Args:
        model: Any model; one without a CRF or a linear path has a single group.
        lr: The learning rate of the network.

    Returns:
        The optimiser, over the parameters that require a gradient.

    Raises:
        ValueError: If no parameter requires a gradient, or the learning rate is not positive.

    Example:
        >>> from polyembed import CRFDecoder
        >>> [group["lr"] for group in default_optimizer(CRFDecoder(4, 3)).param_groups]
        [0.001, 0.03]
    """
    require(lr > 0, "lr", "be positive", lr)
    linear = {part.embedding.weight for part in model.modules() if isinstance(part, FeatureSum)}
    shared = {
        value for part in model.modules() if isinstance(part, CRF) for value in part.parameters()
    }
    shared |= {part.edges for part in model.modules() if isinstance(part, WideAndDeepEncoder)}
    trainable = [value for value in model.parameters() if value.requires_grad]
    require(bool(trainable), "model", "have a parameter that requires a gradient", "none")
    groups: list[dict[str, Any]] = [
        {"params": [value for value in trainable if value not in linear | shared]},
        {"params": [value for value in trainable if value in shared], "lr": CRF_RATE * lr},
        {
            "params": [value for value in trainable if value in linear],
            "lr": LINEAR_RATE * lr,
            "eps": 1.0,
        },
    ]
    # one kernel is faster on both
    fused = all(value.device.type in ("cpu", "cuda") for value in trainable)
    return Adam([group for group in groups if group["params"]], lr=lr, fused=fused)


def noam_schedule(optimizer: Optimizer, hidden_size: int, *, warmup_steps: int = 500) -> LambdaLR:
    """Build the schedule of Vaswani et al. (2017, section 5.3).

    The rate warms up linearly and then falls with the root of the steps. At step
    ``s = 1, 2, ...`` it is
    ``lr * hidden_size ** -0.5 * min(s * warmup_steps ** -1.5, s ** -0.5)``; its peak is
    ``lr * (hidden_size * warmup_steps) ** -0.5``. The paper has ``lr=1``. It steps after each
    batch: ``FitOptions(scheduler=lambda optimizer: noam_schedule(optimizer, 200),
    scheduler_interval="step")``.

    Args:
        optimizer: The optimiser, each group with its ``lr``.
        hidden_size: The size of the model's hidden states.
        warmup_steps: The step of the peak.

    Returns:
        The schedule.

    Raises:
        ValueError: If a size or number of steps is not positive.

    Example:
        >>> optimizer = Adam([nn.Parameter(torch.zeros(1))], lr=1.0, betas=(0.9, 0.98))
        >>> noam_schedule(optimizer, 200).get_last_lr()
        [6.324...e-06]
    """
    check_positive(hidden_size=hidden_size, warmup_steps=warmup_steps)
    scale = hidden_size**-0.5
    return LambdaLR(optimizer, lambda t: scale * min((t + 1) * warmup_steps**-1.5, (t + 1) ** -0.5))
