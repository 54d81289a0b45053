"""One step of joint training; networks that transform, if there are any, learn by the same loss."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from polyembed._checks import require
from polyembed.functional.bilevel import LOSS, check_loss
from polyembed.transfer.metaxl import Averager, at_step, descend, held, norm_of, unchanged
from polyembed.transfer.rtn import check_called, hooks, listed


class Part(NamedTuple):
    """A batch, and its language: that of a source, or None of the target."""

    batch: Any
    language: str | None


class JointStep(NamedTuple):
    """The loss before the step, and the gradients' norms before clipping."""

    loss: float
    norm: float
    meta_norm: float | None


def joint_step(
    model: nn.Module,
    parts: Sequence[Part],
    optimizer: Optimizer,
    *,
    transform: Any = None,
    layer: Any = None,
    meta_optimizer: Optimizer | None = None,
    weight: Any = None,
    loss: Callable[[nn.Module, Any], Tensor],
    max_norm: float | None,
    meta_max_norm: float | None,
    autocast: torch.dtype | None,
    step: int,
) -> JointStep:
    """Descend ``L_s + L_t``, the means over source and over target batches; a transform is for the sources'.

    Nothing has changed if a loss is not finite.
    """
    phi = {}
    if transform is not None and meta_optimizer is not None:
        networks = nn.ModuleList(listed(transform))
        phi = learning({f"transform.{name}": p for name, p in networks.named_parameters()}, meta_optimizer)
    metas = {id(p) for p in phi.values()}
    theta = {name: p for name, p in learning(dict(model.named_parameters()), optimizer).items() if id(p) not in metas}
    known = {**theta, **phi}
    averager = Averager(known, exchanges=2)
    device = next(iter(theta.values())).device.type
    total: dict[str, Tensor] = {}
    value = torch.zeros(())
    counts = Counter(part.language is None for part in parts)
    others = listed(transform) if phi else []
    with averager.together(), at_step(f" (step {step})"), unchanged(model, *others), torch.enable_grad():
        for part in parts:
            with ExitStack() as stack:
                calls = []
                if phi and part.language is not None:
                    calls = stack.enter_context(hooks(layer, transform, weight=weight, language=part.language))
                with nullcontext() if autocast is None else torch.autocast(device, autocast):
                    found = check_loss("loss", loss(model, part.batch)) / counts[part.language is None]
                check_called(calls)
                # inside the hooks: gradient checkpointing runs the layer again
                grads = torch.autograd.grad(found, list(known.values()), allow_unused=True)
            value = found.detach() + value.to(found)
            for name, grad in zip(known, grads, strict=True):
                if grad is not None:
                    total[name] = total[name] + grad if name in total else grad
        value = averager.average({LOSS: value})[LOSS]
        total = averager.average(total)
        mine = {name: grad for name, grad in total.items() if name in theta}
        theirs = {name: grad for name, grad in total.items() if name in phi}
        norms = norm_of(mine.values()), norm_of(theirs.values())
        for norm in norms:
            require(math.isfinite(norm), "the gradient of loss", "be finite", norm)
    descend(optimizer, theta, mine, norms[0], max_norm)
    if not phi or meta_optimizer is None:
        return JointStep(float(value), norms[0], None)
    descend(meta_optimizer, phi, theirs, norms[1], meta_max_norm)
    return JointStep(float(value), *norms)


def learning(parameters: dict[str, nn.Parameter], optimizer: Optimizer) -> dict[str, nn.Parameter]:
    """Take the parameters that an optimiser holds and that learn."""
    return {name: p for name, p in held(parameters, optimizer).items() if p.requires_grad}
