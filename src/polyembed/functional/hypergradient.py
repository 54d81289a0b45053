"""The gradient of one loss through a gradient step on another (Xia 2021, section 2.3)."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from polyembed._checks import check_choice, must, require, require_type

Rate: TypeAlias = float | Tensor
METHODS = ("reverse_over_reverse", "finite_difference")


class Hypergradient(NamedTuple):
    """The gradients for a meta step and for the model's own step, with the losses.

    Attributes:
        meta_grads: ``d L_t(theta - inner_lr * dL_s/dtheta) / dphi`` by name.
        source_grads: ``dL_s/dtheta`` by name; a parameter that the source loss does not use has no
            entry.
        source_loss: The value of ``L_s(theta, phi)``, detached.
        target_loss: The value of ``L_t(theta')``, detached.
    """

    meta_grads: dict[str, Tensor]
    source_grads: dict[str, Tensor]
    source_loss: Tensor
    target_loss: Tensor


def hypergradient(
    source_loss: Callable[[dict[str, Tensor], dict[str, Tensor]], Tensor],
    target_loss: Callable[[dict[str, Tensor]], Tensor],
    params: Mapping[str, Tensor],
    meta_params: Mapping[str, Tensor],
    *,
    inner_lr: float | Mapping[str, Rate],
    method: str = "reverse_over_reverse",
) -> Hypergradient:
    r"""Differentiate the target loss after one gradient step on the source loss (Xia 2021,
    equations 3 and 4).

    ``theta' = theta - inner_lr * dL_s(theta, phi)/dtheta`` (equation 3). The result is
    ``dL_t(theta')/dphi``, which is ``-inner_lr * d/dphi <dL_s/dtheta, v>`` with
    ``v = dL_t(theta')/dtheta'``. Attention runs by PyTorch's math kernel, because fused kernels
    have no second derivative. Methods:

    - ``"reverse_over_reverse"``: exact; the source loss is differentiated twice.
    - ``"finite_difference"``: ``(dL_s(theta + e v)/dphi - dL_s(theta - e v)/dphi) / 2e``, which
      needs first derivatives only. ``e`` is ``0.1 * eps ** (1 / 3) * |theta| / |v|``, with the
      machine precision ``eps``. The relative error is about 1e-7 in float64, about 1e-3 in float32,
      and can be above 1 for losses with kinks (ReLU) in float32.

    Each loss is a function of the parameters, for example by ``torch.func.functional_call``. Finite
    differences call the source loss three times, with the same random numbers. No input is changed.

    With gradient checkpointing, a loss that calls ``functional_call`` itself gives a wrong gradient
    without an error: the recomputation finds the old weights. `polyembed.transfer.metaxl_gradients`
    is right: it keeps the new weights in place until the gradient is computed.

    Args:
        source_loss: The function that returns ``L_s(theta, phi)``, a scalar.
        target_loss: The function that returns ``L_t(theta')``, a scalar.
        params: The parameters ``theta`` by name. A tensor that does not require a gradient is a
            constant; one tensor under two names is one parameter.
        meta_params: The meta-parameters ``phi`` by name, in the same way.
        inner_lr: The learning rate of the look-ahead: a number, or by name a number or a tensor
            that broadcasts against the parameter.
        method: The method, one of the above.

    Returns:
        ``meta_grads`` and ``source_grads`` by name, and the detached ``source_loss`` and
        ``target_loss``. A parameter that the source loss does not use has no source gradient.

    Raises:
        ValueError: If no parameter or no meta-parameter requires a gradient; if a loss is not a
            scalar, is not finite or does not depend on the parameters; if the source loss does not
            use a meta-parameter, or the target loss uses one; if `inner_lr` is a number that is
            not positive, or lacks a parameter; or if a function has no second derivatives.
        TypeError: If a loss is not a tensor.

    Example:
        >>> theta, phi = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 0.5],
        ...     requires_grad=True)
        >>> step = hypergradient(
        ...     lambda theta, phi: (phi["b"] * theta["a"] ** 2).sum(),  # dL_s/da = 2 b a
        ...     lambda theta: theta["a"].sum(),
        ...     {"a": theta}, {"b": phi}, inner_lr=0.1,
        ... )
        >>> step.source_grads["a"], step.meta_grads["b"]  # -0.1 * 2 a
        (tensor([6., 2.]), tensor([-0.2000, -0.4000]))
    """
    check_choice("method", method, METHODS)
    exact = method == "reverse_over_reverse"
    theta, phi = _learning("params", params), _learning("meta_params", meta_params)
    rates = rates_of(inner_lr, theta)
    randomness = Randomness(tensor.device for tensor in (*theta.values(), *phi.values()))

    def source(values: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """Return the source loss, and its gradients by the parameters and by `phi`."""
        filled = {**params, **_by_every_name(params, theta, values)}
        loss = check_loss("source_loss", source_loss(filled, dict(meta_params)))
        return loss, *slopes_of("source_loss", loss, values, phi, create_graph=exact)

    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        inner, slopes, used = source(theta)
        idle = ", ".join(repr(name) for name in phi if name not in used)
        require(not idle, "meta_params", "all reach source_loss", f"no effect of {idle}")
        if exact:
            check_twice(slopes.values())
        grads = {name: slope.detach() for name, slope in slopes.items()}
        ahead = look_ahead(theta, grads, rates)
        filled = {**params, **_by_every_name(params, theta, ahead)}
        outer = check_loss("target_loss", target_loss(filled))
        ways = target_slopes(outer, ahead, phi)
        direction = {name: rates[name] * way for name, way in ways.items() if name in slopes}
        metas: dict[str, Tensor] = {}
        if exact:
            with explained():
                metas = twice([(slopes[name], way) for name, way in direction.items()], phi)
        elif direction:
            step = difference_step(theta, direction)
            for e in (step, -step):
                moved = look_ahead(theta, direction, dict.fromkeys(theta, -e))
                with randomness.again():
                    found = source(moved)[2]
                metas = {
                    name: slope / (2 * e) + metas.get(name, 0.0) for name, slope in found.items()
                }
    inner, outer = inner.detach(), outer.detach()
    values = torch.stack([inner, outer]).tolist()
    for name, value in zip(("source_loss", "target_loss"), values, strict=True):
        require(math.isfinite(value), name, "be finite", value)
    all_metas = {n: -metas[n] if n in metas else torch.zeros_like(p) for n, p in phi.items()}
    meta_grads = _by_every_name(meta_params, phi, all_metas)
    return Hypergradient(meta_grads, _by_every_name(params, theta, grads), inner, outer)


def _learning(name: str, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors that require a gradient, each under its first name."""
    found: dict[int, tuple[str, Tensor]] = {}
    for key, tensor in params.items():
        if tensor.requires_grad:
            found.setdefault(id(tensor), (key, tensor))
    rule = "hold a tensor that requires a gradient"
    require(bool(found), name, rule, f"none among {len(params)}")
    return dict(found.values())


def _by_every_name(
    params: Mapping[str, Tensor], known: Mapping[str, Tensor], values: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the values, named after the `known` tensors, under all names of these in `params`."""
    found = {id(tensor): values[name] for name, tensor in known.items() if name in values}
    return {key: found[id(tensor)] for key, tensor in params.items() if id(tensor) in found}


def check_loss(name: str, loss: Tensor) -> Tensor:
    """Require a scalar; whether it is finite is checked later, where the host waits anyway."""
    require_type(isinstance(loss, Tensor), name, "return a tensor", loss)
    require(loss.dim() == 0, name, "return a scalar", f"shape {tuple(loss.shape)}")
    return loss


def present(names: Iterable[str], found: Iterable[Tensor | None]) -> dict[str, Tensor]:
    """Return the gradients that exist, by name; a sparse one becomes dense, because the look-ahead
    needs all values.
    """
    return {name: g.to_dense() for name, g in zip(names, found, strict=False) if g is not None}


def look_ahead(
    theta: Mapping[str, Tensor], grads: Mapping[str, Tensor], rates: Mapping[str, Rate]
) -> dict[str, Tensor]:
    """Return ``theta' = theta - rate * grad`` as new leaves."""
    moved = {name: theta[name].detach() - rates[name] * grad for name, grad in grads.items()}
    return {name: moved.get(name, p.detach()).requires_grad_() for name, p in theta.items()}


def slopes_of(
    name: str,
    loss: Tensor,
    theta: Mapping[str, Tensor],
    phi: Mapping[str, Tensor],
    *,
    create_graph: bool = False,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return a loss's gradients by `theta` and by `phi`; the loss must depend on `theta`."""
    found: Sequence[Tensor | None] = ()
    if loss.requires_grad:
        leaves = [*theta.values(), *phi.values()]
        found = torch.autograd.grad(loss, leaves, create_graph=create_graph, allow_unused=True)
    slopes = present(theta, found[: len(theta)])
    require(bool(slopes), name, "depend on params", "a loss that uses none of those it is given")
    return slopes, present(phi, found[len(theta) :])


def target_slopes(
    loss: Tensor, ahead: Mapping[str, Tensor], phi: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the target loss's gradient; the loss must not depend on `phi`."""
    slopes, leaked = slopes_of("target_loss", loss, ahead, phi)
    uses = f"one that uses {', '.join(map(repr, leaked))}"
    require(not leaked, "target_loss", "be free of meta_params", uses)
    return slopes


def twice(pairs: Iterable[tuple[Tensor, Tensor]], phi: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the gradient of ``sum <slope, direction>`` by `phi`, with the directions constant."""
    pairs = [(slope, way) for slope, way in pairs if slope.requires_grad]
    if not pairs:
        return {}
    slopes, ways = zip(*pairs, strict=True)
    return present(phi, torch.autograd.grad(slopes, list(phi.values()), ways, allow_unused=True))


def difference_step(values: Mapping[str, Tensor], direction: Mapping[str, Tensor]) -> float:
    """Choose a central difference's step: the cube root of the precision, relative to the entries
    that move.
    """
    size = length = eps = 0.0
    for name, way in direction.items():
        dtype = values[name].dtype
        eps = max(eps, torch.finfo(dtype).eps)
        require(eps < 1e-6, "params", "hold float32 or float64 for finite differences", dtype)
        rows = torch.atleast_2d(values[name].detach(), way)  # type: ignore[no-untyped-call]
        norm, speed = (torch.linalg.vector_norm(x.flatten(1), dim=1).double() for x in rows)
        # only the rows of a table that move
        size += float(torch.where(speed > 0, norm, 0.0).square().sum())
        length += float(speed.square().sum())
    ratio = math.sqrt(size / length) if size and length else 1.0
    return 0.1 * float(eps ** (1 / 3)) * ratio  # smaller, as deep networks bend more


def rates_of(inner_lr: float | Mapping[str, Rate], theta: Mapping[str, Tensor]) -> dict[str, Rate]:
    """Return the learning rate of each parameter."""
    if not isinstance(inner_lr, Mapping):
        require(0 < inner_lr < math.inf, "inner_lr", "be a positive number", inner_lr)
        return dict.fromkeys(theta, inner_lr)
    missing = ", ".join(repr(name) for name in theta if name not in inner_lr)
    require(not missing, "inner_lr", "have a rate for each parameter", f"none for {missing}")
    return {name: inner_lr[name] for name in theta}


def check_twice(slopes: Iterable[Tensor]) -> None:
    """Refuse a gradient through a function marked ``once_differentiable``: autograd would skip its
    part silently.
    """
    stack = [slope.grad_fn for slope in slopes if slope.grad_fn is not None]
    seen = set(stack)
    while stack:
        node = stack.pop()
        if node.name().endswith("Error"):
            raise ValueError(
                must("source_loss", _SECOND, "a function that is marked once_differentiable")
            )
        fresh = {child for child, _ in node.next_functions if child is not None} - seen
        seen |= fresh
        stack += fresh


_SECOND = "have second derivatives where the gradient is differentiated"


@contextmanager
def explained() -> Iterator[None]:
    """Raise a `ValueError` that names a function without a second derivative."""
    try:
        yield
    except RuntimeError as error:
        if re.search(
            r"derivative for .* is not implemented|double backward|differentiate twice", str(error)
        ):
            raise ValueError(must("source_loss", _SECOND, str(error).partition("\n")[0])) from error
        raise


class Randomness:
    """The states of torch's generators, on the CPU and some devices, when this object was made.

    Args:
        devices: The devices beside the CPU.
    """

    def __init__(self, devices: Iterable[torch.device]) -> None:
        self.devices = [device for device in set(devices) if device.type not in ("cpu", "meta")]
        self.states = self._now()

    @contextmanager
    def again(self) -> Iterator[None]:
        """Draw the same numbers again inside the context, and restore the generators after it."""
        now = self._now()
        self._set(self.states)
        try:
            yield
        finally:
            self._set(now)

    def _now(self) -> list[Tensor]:
        others = [
            torch.get_device_module(device.type).get_rng_state(device) for device in self.devices
        ]
        return [torch.get_rng_state(), *others]

    def _set(self, states: list[Tensor]) -> None:
        torch.set_rng_state(states[0])
        for device, state in zip(self.devices, states[1:], strict=True):
            torch.get_device_module(device.type).set_rng_state(state, device)
