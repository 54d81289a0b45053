"""One step of joint training, MetaXL's baseline; a network that transforms can learn by the same
loss (Xia 2021).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from polyembed.functional.hypergradient import check_loss, present
from polyembed.transfer.rtn import listed, transformed_output
from polyembed.transfer.steps import (
    LOSS,
    add,
    averaged,
    check_batches,
    check_modules,
    check_options,
    finite_figures,
    languages_of,
    layers_of,
    model_loss,
    norm_of,
    trained,
    update,
    with_autocast,
)


class JointStep(NamedTuple):
    """The figures of one step of joint training.

    Attributes:
        loss: The loss ``L_s + target_weight * L_t`` before the step.
        norm: The norm of the loss's gradient by the model's parameters, before clipping.
        meta_norm: The norm of the loss's gradient by the network's parameters, before clipping;
            None if no network trains.
    """

    loss: float
    norm: float
    meta_norm: float | None = None


def joint_step(
    model: nn.Module,
    rtn: nn.Module | Sequence[nn.Module] | None,
    layer: int | nn.Module | Sequence[int | nn.Module] | None,
    source: Sequence[Any],
    target: Sequence[Any],
    *,
    optimizer: Optimizer,
    meta_optimizer: Optimizer | None = None,
    loss: Callable[[nn.Module, Any], Tensor] = model_loss,
    languages: str | Sequence[str] | None = None,
    target_weight: float = 1.0,
    weight: float | Sequence[float] | None = None,
    max_grad_norm: float | None = None,
    meta_max_grad_norm: float | None = None,
    amp_dtype: torch.dtype | None = None,
) -> JointStep:
    """Descend ``L_s + target_weight * L_t``, the mean losses of the source and of the target
    batches (Xia 2021, section 2.1).

    With `rtn`, source batches are transformed; with `meta_optimizer` the network descends the same
    loss (section 4.4).

    Args:
        model: The model. Arguments that `metaxl_step` has too are as described there.
        rtn: The network that transforms source batches; None for joint training alone.
        layer: The layer whose output is transformed; without `rtn` it is not used.
        source: The source batches; if empty, this is a step of ordinary training.
        target: The target batches.
        optimizer: The optimiser of the model.
        meta_optimizer: The optimiser of the network; if None, the network does not train.
        loss: The function from the model and a batch to the mean loss.
        languages: The languages of the source batches, for several networks.
        target_weight: The weight of the target's loss; the paper has 1.
        weight: The share of the transform; see `transformed_output`.
        max_grad_norm: The norm to which the model's gradient is clipped.
        meta_max_grad_norm: The norm to which the network's gradient is clipped.
        amp_dtype: The dtype in which the losses are computed.

    Returns:
        The loss and the norms.

    Raises:
        ValueError: If `target` is empty; if a loss or a gradient is not finite (weights are then
            unchanged); if the model is compiled; or if an option is out of range.
        TypeError: If the model is wrapped, or a single batch is given in place of a list of
            batches.
        RuntimeError: If the layer did not run.

    Example:
        >>> model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
        >>> step = joint_step(
        ...     model, None, None, [torch.randn(4, 5)], [torch.randn(2, 5)],
        ...     loss=lambda model, batch: model(batch).square().mean(),
        ...     optimizer=torch.optim.SGD(model.parameters(), 0.1),
        ... )
        >>> step.loss > 0
        True
    """
    networks = nn.ModuleList([] if rtn is None else listed(rtn))
    check_modules(model, networks)
    check_batches(target=target)
    if len(source) > 0:
        check_batches(source=source)
    check_options(
        target_weight, amp_dtype, max_grad_norm=max_grad_norm, meta_max_grad_norm=meta_max_grad_norm
    )
    learns = len(networks) > 0 and meta_optimizer is not None
    phi = trained("rtn", networks, meta_optimizer, "meta_optimizer") if learns else {}
    theta = trained("model", model, optimizer, "optimizer", besides=networks)
    known = {**theta, **phi}
    layers = layers_of(model, layer) if len(networks) else []
    weight = weight if layers else None  # a list has one for each layer
    evaluate = with_autocast(loss, model, amp_dtype)
    total: dict[str, Tensor] = {}

    def add_pass(batch: Any, share: float) -> None:
        found = check_loss("loss", evaluate(batch)) * share
        slopes = torch.autograd.grad(found, list(known.values()), allow_unused=True)
        add(total, {LOSS: found.detach(), **present(known, slopes)})

    with torch.enable_grad():
        for batch, name in zip(source, languages_of(languages, len(source)), strict=True):
            # around the gradient too: gradient checkpointing runs the layer again
            with transformed_output(layers, networks, weight=weight, language=name):
                add_pass(batch, 1.0 / len(source))
        for batch in target:
            add_pass(batch, target_weight / len(target))
        total = averaged(total, known)
        grads, metas = ({n: total[n] for n in part if n in total} for part in (theta, phi))
        value, norm, meta_norm = finite_figures(
            {
                "loss": total[LOSS],
                "the gradient of model": norm_of(grads.values()),
                "the gradient of rtn": norm_of(metas.values()),
            }
        )
    update(optimizer, theta, grads, norm, max_grad_norm)
    if meta_optimizer is None or not phi:
        return JointStep(value, norm)
    update(meta_optimizer, phi, metas, meta_norm, meta_max_grad_norm)
    return JointStep(value, norm, meta_norm)
