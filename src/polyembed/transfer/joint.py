"""One step of joint training, MetaXL's baseline; networks that transform learn by the same loss
(Xia 2021).
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from polyembed.functional.hypergradient import check_loss, present
from polyembed.transfer.rtn import check_called, hooks, listed
from polyembed.transfer.steps import (
    LOSS,
    accumulate,
    add,
    averaged,
    check_batches,
    check_modules,
    check_options,
    descend,
    finite_figures,
    languages_of,
    layers_of,
    model_loss,
    norm_of,
    trained,
    with_autocast,
)


class JointStep(NamedTuple):
    """The figures of one step of joint training.

    Attributes:
        loss: ``L_s + L_t`` before the step.
        norm: The norm of its gradient by the model's parameters, before clipping.
        meta_norm: The same for the network that transforms; None without one.
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
        model: As in `metaxl_step`, like the other arguments.
        rtn: The network that transforms source batches; None for joint training alone.
        layer: Not used without `rtn`.
        source: Source batches; if empty, this is a step of ordinary training.
        target: Target batches.
        optimizer: Over the model.
        meta_optimizer: Over the network; it does not train if None.
        loss: The loss of a model and a batch.
        languages: The languages of the source batches, for several networks.
        target_weight: The weight of the target's loss; the paper has 1.
        weight: The share of the transform.
        max_grad_norm: Clip the model's gradient to this norm.
        meta_max_grad_norm: Clip the network's gradient to this norm.
        amp_dtype: Autocast to this dtype.

    Returns:
        The loss and the norms.

    Raises:
        ValueError: If there is no target batch, a loss or a gradient is not finite (weights are
            then unchanged), the model is compiled, or an option is out of range.
        TypeError: If the model is wrapped, or one batch stands where a list of batches is expected.
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
    check_modules(model, [] if rtn is None else rtn)
    check_batches(target=target, **({"source": source} if len(source) else {}))
    check_options(
        target_weight=target_weight,
        max_grad_norm=max_grad_norm,
        meta_max_grad_norm=meta_max_grad_norm,
        amp_dtype=amp_dtype,
    )
    networks = nn.ModuleList([] if rtn is None else listed(rtn))
    phi: dict[str, nn.Parameter] = {}
    if rtn is not None and meta_optimizer is not None:
        phi = trained("rtn", networks, meta_optimizer, "meta_optimizer")
    theta = trained("model", model, optimizer, "optimizer", besides=networks)
    known = {**theta, **phi}
    layers = [] if rtn is None else layers_of(model, layer)
    evaluate = with_autocast(loss, model, amp_dtype)
    names = languages_of(languages, len(source))
    parts: list[tuple[Any, str | None, float]] = [
        (batch, name, 1.0 / len(source)) for batch, name in zip(source, names, strict=True)
    ]
    parts += [(batch, None, target_weight / len(target)) for batch in target]
    total: dict[str, Tensor] = {}
    with torch.enable_grad():
        for number, (batch, name, share) in enumerate(parts):
            with ExitStack() as stack:
                calls = []
                if rtn is not None and number < len(source):
                    hooked = hooks(layers, rtn, weight=weight, language=name)
                    calls = stack.enter_context(hooked)
                found = check_loss("loss", evaluate(batch)) * share
                check_called(calls)
                # inside the hooks: gradient checkpointing runs the layer again
                slopes = torch.autograd.grad(found, list(known.values()), allow_unused=True)
            add(total, {LOSS: found.detach(), **present(known, slopes)})
        total = averaged(total, known)
        figures = {"loss": total.pop(LOSS)}
        for part in ("model", "rtn"):
            grads = [grad for name, grad in total.items() if name.startswith(f"{part}.")]
            figures[f"the gradient of {part}"] = norm_of(grads)
        value, *norms = finite_figures(figures)
    optimizer.zero_grad(set_to_none=True)
    if meta_optimizer is not None:
        meta_optimizer.zero_grad(set_to_none=True)
    accumulate(known, total)
    descend(optimizer, theta, norms[0], max_grad_norm)
    if not phi or meta_optimizer is None:
        return JointStep(value, norms[0])
    descend(meta_optimizer, phi, norms[1], meta_max_grad_norm)
    return JointStep(value, *norms)
