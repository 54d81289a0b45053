"""The gradients of MetaXL, and one step of the model and of the network that transforms (Xia 2021,
algorithm 1).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from polyembed._checks import check_choice, class_name, require
from polyembed.functional.hypergradient import Rate, look_ahead, rates_of
from polyembed.transfer.rtn import listed
from polyembed.transfer.source_pass import Options, Setup, SourcePass
from polyembed.transfer.steps import (
    LOSS,
    accumulate,
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
)

METHODS = ("forward_over_reverse", "reverse_over_reverse")


class MetaXLStep(NamedTuple):
    """The figures of one step.

    Attributes:
        source_loss: The inner loss before the step.
        target_loss: The target loss after the look-ahead.
        source_norm: The norm of the inner loss's gradient, before clipping.
        meta_norm: The norm of the meta-gradient, before clipping.
        cosine: The cosine between the gradients of the inner loss and of the target loss.
    """

    source_loss: float
    target_loss: float
    source_norm: float
    meta_norm: float
    cosine: float


def metaxl_gradients(
    model: nn.Module,
    rtn: nn.Module | Sequence[nn.Module],
    layer: int | nn.Module | Sequence[int | nn.Module],
    source: Sequence[Any],
    target: Sequence[Any],
    *,
    inner_lr: float | Mapping[str, Rate],
    target_support: Sequence[Any] | None = None,
    loss: Callable[[nn.Module, Any], Tensor] = model_loss,
    languages: str | Sequence[str] | None = None,
    target_weight: float = 1.0,
    weight: float | Sequence[float] | None = None,
    method: str = "forward_over_reverse",
    amp_dtype: torch.dtype | None = None,
) -> MetaXLStep:
    r"""Add both gradients of a MetaXL step to ``.grad``, as ``loss.backward()`` would (Xia 2021,
    equations 3 and 4).

    The inner loss ``L`` is the mean loss ``L_s(theta, phi)`` of the source batches, and
    `target_weight` times the mean loss of the batches `target_support`. The model's parameters
    ``theta`` get ``dL/dtheta``. Those of the network get ``dL_t(theta')/dphi`` with
    ``theta' = theta - inner_lr * dL/dtheta`` and the mean loss ``L_t`` of the batches `target`.
    Clipping, schedules, accumulation and optimisers are the caller's.

    Every computation below the transformed layer is free of ``phi``. So the source batch is cut at
    the output ``h`` of that layer: the part above is differentiated twice, and the part below needs
    one directional derivative of ``h`` along ``v = inner_lr * dL_t/dtheta'``. The higher the layer,
    the cheaper the step. Methods:

    - ``"forward_over_reverse"``: exact, with the least memory; forward-mode differentiation gives
      the directional derivative. Where a function below the layer has no forward mode, the
      derivative is ``(h(theta + e v) - h(theta - e v)) / 2e`` without autocast. Its relative error
      is then about 1e-8 in float64 and up to 6e-3 in float32; lower precision is refused.
    - ``"reverse_over_reverse"``: exact, and the fastest on a CPU; without a cut, everything is
      differentiated twice, which takes the most memory.

    Attention in source passes runs by PyTorch's math kernel, which has all derivatives. Passes that
    run again use the same random numbers and the same buffers. Buffers, such as batch statistics,
    change as in two training steps. The batches of a list are accumulated: the loss of a list is
    the mean of its batches' losses. Gradient checkpointing (``use_reentrant=False``) changes no
    gradient.

    Where ``torch.distributed`` runs, each process gets different batches of the same sizes. Source
    gradients, target gradients and meta-gradients are averaged, so the result is that of one
    process with the joined batches. Start from equal parameters; if a process fails, the launcher
    must stop the others, as torchrun does. `DistributedDataParallel` does not see these gradients
    and is refused.

    Args:
        model: Any model; it runs in its present mode, training or evaluation.
        rtn: The network to train, or an ``nn.ModuleDict`` with one network per source language; or
            a list with one of either per layer. See `transformed_output`.
        layer: The layer whose output is transformed, or several layers. A layer is a module of the
            model, or its number in `hidden_states` (see `encoder_layer`).
        source: The source batches.
        target: The target batches of the outer loss.
        inner_lr: The learning rate of the look-ahead: one number, or a rate per parameter name.
        target_support: The target batches of the inner loss, with other rows than `target`. The
            authors' code takes the first half of each target batch for the inner loss and the
            second half for the outer one.
        loss: The function from the model and a batch to the mean loss; by default
            ``model(**batch)``, or its ``loss``.
        languages: The language of each source batch, or one language for all of them, for an
            ``nn.ModuleDict``.
        target_weight: The weight of `target_support` in the inner loss; the authors' code has 1.
            With 0, `target_support` must be None, and the step is algorithm 1 as printed: the model
            trains on source batches alone.
        weight: The share of the transform; see `transformed_output`.
        method: The method, one of the above.
        amp_dtype: The dtype of autocast for the losses: ``torch.bfloat16``, or None for no
            autocast.

    Returns:
        The losses, the norms, and the cosine between the source's and the target's gradient.

    Raises:
        ValueError: If a list of batches is empty, or `target_support` does not fit `target_weight`;
            if a loss or a gradient is not finite (weights are then unchanged); if the model is
            compiled, `rtn` has no effect on the source loss, or an option is out of range; or if a
            function has no second derivatives.
        TypeError: If the model is wrapped, or a single batch is given in place of a list of
            batches.
        RuntimeError: If the layer did not run.

    Example:
        >>> model, rtn = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), nn.Linear(7, 7)
        >>> step = metaxl_gradients(
        ...     model, rtn, model[1], [torch.randn(4, 5)], [torch.randn(2, 5)],
        ...     target_support=[torch.randn(2, 5)],
        ...     inner_lr=0.1, loss=lambda model, batch: model(batch).square().mean(),
        ... )
        >>> model[0].weight.grad.shape, rtn.weight.grad.shape
        (torch.Size([7, 5]), torch.Size([7, 7]))

    Deviations: algorithm 1 has source batches alone in the inner loss. By section 4.4 and in the
    authors' code the target's is there too, and so it is by default. The authors' code moves the
    model in a second pass, with the network that has just been updated.
    """
    check_options(target_weight, amp_dtype)
    options = Options(target_support, loss, languages, target_weight, weight, method, amp_dtype)
    step, known, grads, metas = _gradients(model, rtn, layer, source, target, inner_lr, options)
    accumulate(known, {**grads, **metas})
    return step


def metaxl_step(
    model: nn.Module,
    rtn: nn.Module | Sequence[nn.Module],
    layer: int | nn.Module | Sequence[int | nn.Module],
    source: Sequence[Any],
    target: Sequence[Any],
    *,
    optimizer: Optimizer,
    meta_optimizer: Optimizer,
    target_support: Sequence[Any] | None = None,
    loss: Callable[[nn.Module, Any], Tensor] = model_loss,
    languages: str | Sequence[str] | None = None,
    inner_lr: float | Mapping[str, Rate] | None = None,
    target_weight: float = 1.0,
    weight: float | Sequence[float] | None = None,
    method: str = "forward_over_reverse",
    max_grad_norm: float | None = None,
    meta_max_grad_norm: float | None = None,
    amp_dtype: torch.dtype | None = None,
) -> MetaXLStep:
    """Do a step of MetaXL (Xia 2021, lines 3 to 5 of algorithm 1): compute `metaxl_gradients`, clip
    them, and step both optimisers.

    ``theta <- theta - alpha * dL(theta, phi)/dtheta``, and with the ``theta`` from before
    ``phi <- phi - beta * dL_t(theta - alpha * dL(theta, phi)/dtheta)/dphi``, where ``L`` is the
    inner loss of source batches and `target_support`. The look-ahead is plain gradient descent; any
    optimiser may do the steps. Gradients are cleared before and after. Other arguments and errors:
    see `metaxl_gradients`.

    Args:
        model: See `metaxl_gradients`.
        rtn: See `metaxl_gradients`.
        layer: See `metaxl_gradients`.
        source: The source batches.
        target: The target batches of the outer loss.
        optimizer: The optimiser of the model. A parameter that it does not hold is a constant.
        meta_optimizer: The optimiser of the network. A parameter that it does not hold is a
            constant.
        target_support: The target batches of the inner loss; see `metaxl_gradients`.
        loss: See `metaxl_gradients`.
        languages: See `metaxl_gradients`.
        inner_lr: ``alpha`` of the look-ahead; by default each parameter's learning rate in
            `optimizer`.
        target_weight: See `metaxl_gradients`.
        weight: See `metaxl_gradients`.
        method: See `metaxl_gradients`.
        max_grad_norm: The norm to which the model's gradient is clipped.
        meta_max_grad_norm: The norm to which the meta-gradient is clipped.
        amp_dtype: See `metaxl_gradients`.

    Returns:
        The losses, the norms, and the cosine between the source's and the target's gradient.

    Example:
        >>> model, rtn = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), nn.Linear(7, 7)
        >>> step = metaxl_step(
        ...     model, rtn, model[1], [torch.randn(4, 5)], [torch.randn(2, 5)],
        ...     target_support=[torch.randn(2, 5)],
        ...     loss=lambda model, batch: model(batch).square().mean(),
        ...     optimizer=torch.optim.SGD(model.parameters(), 0.1),
        ...     meta_optimizer=torch.optim.Adam(rtn.parameters(), 1e-3),
        ... )
        >>> step.source_loss > 0
        True
    """
    check_options(
        target_weight, amp_dtype, max_grad_norm=max_grad_norm, meta_max_grad_norm=meta_max_grad_norm
    )
    if inner_lr is None:
        lrs = {p: group["lr"] for group in optimizer.param_groups for p in group["params"]}
        inner_lr = {name: lrs.get(p, 0.0) for name, p in model.named_parameters()}
    options = Options(target_support, loss, languages, target_weight, weight, method, amp_dtype)
    step, known, grads, metas = _gradients(
        model, rtn, layer, source, target, inner_lr, options, optimizer, meta_optimizer
    )
    update(optimizer, known, grads, step.source_norm, max_grad_norm)
    update(meta_optimizer, known, metas, step.meta_norm, meta_max_grad_norm)
    return step


def _gradients(
    model: nn.Module,
    rtn: Any,
    layer: Any,
    source: Sequence[Any],
    target: Sequence[Any],
    inner_lr: float | Mapping[str, Rate],
    options: Options,
    optimizer: Optimizer | None = None,
    meta_optimizer: Optimizer | None = None,
) -> tuple[MetaXLStep, dict[str, nn.Parameter], dict[str, Tensor], dict[str, Tensor]]:
    """Return the figures, the parameters, the source gradients and the meta-gradients by name."""
    check_choice("method", options.method, METHODS)
    check_modules(model, rtn)
    check_batches(source=source, target=target)
    support, weighs = options.target_support, options.target_weight > 0
    rule = f"be {'batches' if weighs else 'None'} for a target_weight of {options.target_weight}"
    require(weighs == (support is not None), "target_support", rule, class_name(support))
    if support is not None:
        check_batches(target_support=support)
    languages = languages_of(options.languages, len(source))
    networks = nn.ModuleList(listed(rtn))
    phi = trained("rtn", networks, meta_optimizer, "meta_optimizer")
    theta = trained("model", model, optimizer, "optimizer", besides=networks)
    plain = rates_of(inner_lr, {name.removeprefix("model."): p for name, p in theta.items()})
    rates = {f"model.{name}": rate for name, rate in plain.items()}
    setup = Setup(model, networks, layers_of(model, layer), theta, phi, options)
    known = {**theta, **phi}
    total: dict[str, Tensor] = {}
    with torch.enable_grad():
        # each source batch once, then both target passes, then the rest of the source batches
        passes = [
            SourcePass(setup, batch, language, 1.0 / len(source), total)
            for batch, language in zip(source, languages, strict=True)
        ]
        reached = {name for one in passes for name in one.reached}
        require(bool(reached), "rtn", "have an effect on source_loss", "none")
        if support is not None:
            setup.target_pass(support, theta, options.target_weight, total)
        grads = averaged(total, known)
        inner = grads.pop(LOSS)
        slopes: dict[str, Tensor] = {}
        setup.target_pass(target, look_ahead(theta, grads, rates), 1.0, slopes)
        slopes = averaged(slopes, known)
        outer = slopes.pop(LOSS)
        products = ((grads[name] * slopes[name]).sum() for name in grads if name in slopes)
        dot, slope_norm = sum(products, torch.zeros_like(inner)), norm_of(slopes.values())
        direction = {
            name: -rates[name] * slopes.pop(name) for name in list(slopes) if name in grads
        }
        metas = {name: torch.zeros_like(p) for name, p in phi.items() if name in reached}
        while passes:
            add(metas, passes.pop(0).meta_gradient(direction))
        metas = averaged(metas, known)
        inner_loss, outer_loss, size, meta_norm, slope_size, product = finite_figures(
            {
                "source_loss": inner,
                "target_loss": outer,
                "the gradient of source_loss": norm_of(grads.values()),
                "the meta-gradient": norm_of(metas.values()),
                "the gradient of target_loss": slope_norm,
                "the product of both gradients": dot,
            }
        )
    sizes = size * slope_size
    cosine = product / sizes if sizes else 0.0
    return MetaXLStep(inner_loss, outer_loss, size, meta_norm, cosine), known, grads, metas
