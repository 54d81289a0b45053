"""Parts of the steps of joint training and of MetaXL: parameters, checks, gradients, averages."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from itertools import compress
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from polyembed._checks import class_name, must, require, require_type
from polyembed.transfer.rtn import encoder_layer, listed

LOSS = "loss"
WRAPPERS = {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "FSDPModule"}


def model_loss(model: nn.Module, batch: Mapping[str, Any]) -> Tensor:
    """Return the loss that a model computes itself: ``model(**batch)`` if this is a tensor, else
    the output's ``loss``.
    """
    found = model(**batch)
    loss = found if isinstance(found, Tensor) else getattr(found, "loss", None)
    if not isinstance(loss, Tensor):
        got = f"none from {class_name(model)} (give loss=, or labels in each batch)"
        raise TypeError(must("model", "return a loss", got))
    return loss


def with_autocast(
    loss: Callable[[nn.Module, Any], Tensor], model: nn.Module, dtype: torch.dtype | None
) -> Callable[[Any], Tensor]:
    """Return the function from a batch to the loss, computed in `dtype` where it is not None."""
    device = next(model.parameters()).device.type

    def evaluate(batch: Any) -> Tensor:
        with nullcontext() if dtype is None else torch.autocast(device, dtype):
            return loss(model, batch)

    return evaluate


def layers_of(model: nn.Module, layer: Any) -> list[nn.Module]:
    """Return the modules of layers that are given as numbers or modules."""
    return [
        one if isinstance(one, nn.Module) else encoder_layer(model, one) for one in listed(layer)
    ]


def check_modules(model: nn.Module, rtn: Any) -> None:
    """Refuse modules whose wrappers hide gradients or hooks."""
    for name, module in (("model", model), *(("rtn", one) for one in listed(rtn))):
        for part in module.modules():
            kinds = {kind.__name__ for kind in type(part).__mro__}
            rule = "not be wrapped (gradients are averaged here: pass the module inside)"
            require_type(not (kinds & WRAPPERS), name, rule, part)
            compiled = getattr(part, "_compiled_call_impl", None) or "OptimizedModule" in kinds
            rule = "not be compiled (it would skip the hooks)"
            require(not compiled, name, rule, class_name(part))


def check_batches(**batches: Any) -> None:
    """Require lists of one batch or more."""
    for name, value in batches.items():
        require_type(isinstance(value, list | tuple), name, "be a list of batches", value)
        require(len(value) > 0, name, "hold at least one batch", "none")


def check_options(
    target_weight: float, amp_dtype: torch.dtype | None, **positive: float | None
) -> None:
    """Check the range of options; those named in `positive` may be None."""
    require(0.0 <= target_weight < math.inf, "target_weight", "be 0 or more", target_weight)
    lossless = amp_dtype in (None, torch.bfloat16)
    require(lossless, "amp_dtype", "be torch.bfloat16 (float16 needs its losses scaled)", amp_dtype)
    for name, value in positive.items():
        require(value is None or value > 0, name, "be positive, or None", value)


def languages_of(languages: str | Sequence[str] | None, count: int) -> list[str | None]:
    """Return the language of each source batch."""
    if languages is None or isinstance(languages, str):
        return [languages] * count
    require(len(languages) == count, "languages", f"name {count} source batches", list(languages))
    return list(languages)


def trained(
    name: str,
    module: nn.Module,
    optimizer: Optimizer | None,
    optimizer_name: str,
    besides: nn.Module | None = None,
) -> dict[str, nn.Parameter]:
    """Return the parameters of `module` to train, as ``name.parameter``, without the parameters of
    `besides`.

    They require a gradient, and the optimiser, if given, holds them.
    """
    others = set() if besides is None else {*besides.parameters()}
    found = {
        f"{name}.{key}": p
        for key, p in module.named_parameters()
        if p.requires_grad and p not in others
    }
    require(bool(found), name, "have a parameter that requires a gradient", "none")
    if optimizer is not None:
        held = {p for group in optimizer.param_groups for p in group["params"]}
        found = {key: p for key, p in found.items() if p in held}
        require(bool(found), optimizer_name, f"hold parameters of {name}", "none")
    return found


def add(total: dict[str, Tensor], more: Mapping[str, Tensor]) -> None:
    """Add gradients to `total` by name."""
    for name, tensor in more.items():
        total[name] = total[name] + tensor if name in total else tensor


def norm_of(tensors: Iterable[Tensor]) -> Tensor:
    """Return the norm of all tensors, in at least float32; zero without a tensor."""
    norms = [
        torch.linalg.vector_norm(x, dtype=torch.promote_types(x.dtype, torch.float32))
        for x in tensors
    ]
    return torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.zeros(())


def finite_figures(values: Mapping[str, Tensor]) -> list[float]:
    """Return the numbers of a step, in one wait for the device; each must be finite."""
    device = next(iter(values.values())).device
    found: list[float] = torch.stack([x.detach().to(device) for x in values.values()]).tolist()
    for name, value in zip(values, found, strict=True):
        require(math.isfinite(value), name, "be finite", value)
    return found


def accumulate(parameters: Mapping[str, Tensor], grads: Mapping[str, Tensor]) -> None:
    """Add gradients to ``.grad`` as ``loss.backward()`` does, with the parameters' hooks."""
    if grads:
        torch.autograd.backward([parameters[name] for name in grads], list(grads.values()))


def update(
    optimizer: Optimizer,
    parameters: Mapping[str, Any],
    grads: Mapping[str, Tensor],
    norm: float,
    max_norm: float | None,
) -> None:
    """Step an optimiser with these gradients, clipped by their norm, and clear them."""
    optimizer.zero_grad()
    accumulate(parameters, grads)
    if max_norm is not None and norm > max_norm:
        for name in grads:
            parameters[name].grad.mul_(max_norm / norm)
    optimizer.step()
    optimizer.zero_grad()


def averaged(tensors: dict[str, Tensor], known: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the mean over the processes of ``torch.distributed``, of losses and gradients.

    A tensor that a process lacks is zero there. Every process must make the same call.

    Args:
        tensors: The gradients of this process by name, and its loss, if any, under `LOSS`.
        known: All parameters by name.

    Returns:
        The means.
    """
    dist = torch.distributed
    if not (dist.is_available() and dist.is_initialized()):
        return tensors

    def mean(value: Tensor) -> Tensor:
        value = value.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(value)
        return value / dist.get_world_size()

    names = [LOSS, *known]
    here = next(iter(tensors.values())).new_tensor([float(name in tensors) for name in names])
    return {
        name: mean(tensors[name] if name in tensors else torch.zeros_like(known[name]))
        for name in compress(names, mean(here).tolist())
    }
