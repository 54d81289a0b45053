"""The gradient of one loss through a gradient step on another (Xia 2021, section 2.3)."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from polyembed._checks import check_choice, class_name, must, require
from polyembed.functional._cut import DEAD_END, FUSED_ATTENTION, Place, Replay, Tape, cut, leaves, nodes_named

Params: TypeAlias = Mapping[str, Tensor]
Rate: TypeAlias = float | Tensor
METHODS = ("forward_over_reverse", "reverse_over_reverse", "finite_difference")
LOSS = "loss"
MATH = "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"


class Hypergradient(NamedTuple):
    """What a meta step needs, and what the step of the model needs.

    Attributes:
        meta_grads: ``d L_t(theta - inner_lr * dL_s/dtheta) / dphi`` by name.
        source_grads: ``dL_s/dtheta`` by name; a parameter that the source loss does not use has no entry.
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
    inner_lr: float | Mapping[str, float | Tensor],
    method: str = "forward_over_reverse",
) -> Hypergradient:
    r"""Differentiate the target loss after one gradient step on the source loss (Xia 2021, equations 3 and 4).

    ``theta' = theta - inner_lr * dL_s(theta, phi)/dtheta`` (equation 3); the result is ``dL_t(theta')/dphi``, which is
    ``-inner_lr * d/dphi <dL_s/dtheta, v>`` with ``v = dL_t(theta')/dtheta'``. Methods:

    - ``"forward_over_reverse"``: exact. The source loss is cut where it first meets ``phi``. Of the part below, only
      the values that cross the cut matter: their derivative in the direction ``v`` comes from a second forward pass
      with dual numbers, without a graph, that ends at the cut. Above, the gradient is differentiated again. With
      ``phi`` near the loss, this costs about half a training step more, and no memory.
    - ``"finite_difference"``: the same, but the derivative of the crossing values is a central difference,
      ``(h(theta + e v) - h(theta - e v)) / 2e``: for what has no forward derivative, fused attention kernels first of
      all. Above the cut it is exact, so the kinks of a network of ``phi`` do no harm. The step is
      ``e = 0.1 * eps ** (1 / 3) * |theta| / |v|``, of the machine precision and the norms of what moves below the cut.
      On a small Transformer no meta-gradient's relative error was above 1e-10 in float64 and 1e-4 in float32; on tiny
      random models of transformers in float64 that of all together was 2e-8, of XLM 2e-6. Lower precision is refused.
    - ``"reverse_over_reverse"``: autograd through the look-ahead; exact, the most memory, and the plainest.

    The losses are functions of parameters, by ``torch.func.functional_call`` for example. They are called more than
    once and must do the same each time: random numbers of torch's own generators repeat (on the CPU and the
    parameters' devices), others must be the caller's care, and so must what the losses themselves change (running
    statistics). Nothing is mutated, but the generators move on as they would in two training steps. What a loss takes
    for a constant, by ``detach`` or ``no_grad``, is one for every method.

    *Attention.* What lies above the cut is differentiated twice, which fused attention kernels do not allow: call this
    inside ``torch.nn.attention.sdpa_kernel(SDPBackend.MATH)``, unless ``phi`` is used after the last attention. Below
    it, any kernel will do: the dual pass itself attends by `MATH`. (A fused kernel that drops attention is refused
    there, since `MATH` would drop others; finite differences keep the kernel.)

    *Gradient checkpointing.* A loss that calls ``functional_call`` itself has put the old weights back when its
    backward pass recomputes activations, and the gradient is silently wrong: `polyembed.transfer.metaxl_step` keeps
    them in place.

    Args:
        source_loss: ``L_s(theta, phi)``, a scalar.
        target_loss: ``L_t(theta')``, a scalar.
        params: ``theta`` by name. What does not require a gradient is a constant; one tensor under two names is one
            parameter.
        meta_params: ``phi`` by name, in the same way.
        inner_lr: The learning rate of the look-ahead: a number, or one for each parameter (a number or a tensor that
            broadcasts against it).
        method: How.

    Returns:
        Both gradients and both losses.

    Raises:
        ValueError: No parameter that requires a gradient; a loss that is no scalar, is not finite or does not depend
            on the parameters; meta-parameters that the source loss does not use, or that the target loss uses; an
            attention kernel without the derivatives that the method needs.
        TypeError: A loss that is no tensor.
        RuntimeError: A source loss that does something else when it is called again.

    Example:
        >>> theta, phi = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 0.5], requires_grad=True)
        >>> step = hypergradient(
        ...     lambda theta, phi: (phi["b"] * theta["a"] ** 2).sum(),  # dL_s/da = 2 b a
        ...     lambda theta: theta["a"].sum(),
        ...     {"a": theta}, {"b": phi}, inner_lr=0.1,
        ... )
        >>> step.source_grads["a"], step.meta_grads["b"]  # -0.1 * 2 a
        (tensor([6., 2.]), tensor([-0.2000, -0.4000]))

    Deviations: none of the paper's equations; its code runs each pass twice and adds the target batch to the inner
    loss.
    """
    check_choice("method", method, METHODS)
    theta, phi = Leaves("params", params), Leaves("meta_params", meta_params)
    rates = rates_of(inner_lr, theta)
    with torch.enable_grad():
        if method == "reverse_over_reverse":
            return _through_the_look_ahead(source_loss, target_loss, theta, phi, rates)
        return solve(Problem([Source(source_loss)], [target_loss]), theta, phi, rates, method)


class Leaves:
    """Named parameters as fresh leaves of a graph; what does not require a gradient stays as it is.

    Args:
        name: What messages call them.
        params: Parameters by name.

    Attributes:
        leaves: By name, what requires a gradient; a tensor with several names under its first.
    """

    def __init__(self, name: str, params: Params) -> None:
        self.given = dict(params)
        self.first: dict[str, str] = {}  # name -> the tensor's first name
        names: dict[int, str] = {}
        for key, tensor in self.given.items():
            if not isinstance(tensor, Tensor):
                raise TypeError(must(f"{name}[{key!r}]", "be a tensor", class_name(tensor)))
            if tensor.requires_grad:
                self.first[key] = names.setdefault(id(tensor), key)
        self.originals = set(names)
        self.leaves = {key: self.given[key].detach().requires_grad_() for key in names.values()}
        require(bool(self.leaves), name, "hold a tensor that requires a gradient", f"none among {len(self.given)}")

    @property
    def values(self) -> list[Tensor]:
        """List the leaves."""
        return list(self.leaves.values())

    def all(self, values: Params | None = None) -> dict[str, Tensor]:
        """Give every name its value: `values` by first names, else the leaves; constants are themselves."""
        values = self.leaves if values is None else values
        return {key: values[self.first[key]] if key in self.first else tensor for key, tensor in self.given.items()}

    def frozen(self) -> dict[str, Tensor]:
        """Give every name its value, without gradients."""
        return self.all({key: leaf.detach() for key, leaf in self.leaves.items()})

    def spread(self, found: Params) -> dict[str, Tensor]:
        """Give every name of a tensor what was found for its first."""
        return {key: found[first] for key, first in self.first.items() if first in found}


def _through_the_look_ahead(
    source_loss: Callable[..., Tensor],
    target_loss: Callable[..., Tensor],
    theta: Leaves,
    phi: Leaves,
    rates: dict[str, Rate],
) -> Hypergradient:
    """Say it in autograd's words: the reference for the rest."""
    inner = check_loss("source_loss", source_loss(theta.all(), phi.all()))
    used = leaves(inner)
    _check_params_used("source_loss", theta.values, used)
    _check_meta_used(phi, used)
    _check_kernel("reverse_over_reverse", next((node.name() for node in nodes_named(FUSED_ATTENTION, inner)), None))
    slopes = torch.autograd.grad(inner, theta.values, create_graph=True, allow_unused=True)
    grads = {name: _dense(slope) for name, slope in zip(theta.leaves, slopes, strict=True) if slope is not None}
    ahead = {name: leaf - rates[name] * grads[name] if name in grads else leaf for name, leaf in theta.leaves.items()}
    outer = check_loss("target_loss", target_loss(theta.all(ahead)))
    _check_target(outer, phi, theta.values)
    metas = torch.autograd.grad(outer, phi.values, allow_unused=True, materialize_grads=True)
    return Hypergradient(
        phi.spread(dict(zip(phi.leaves, metas, strict=True))),
        theta.spread({name: grad.detach() for name, grad in grads.items()}),
        inner.detach(),
        outer.detach(),
    )


def no_scope(*values: Params) -> AbstractContextManager[object]:
    """Do nothing: the losses see to their parameters themselves."""
    return nullcontext()


@dataclass(frozen=True)
class Source:
    """A term of the inner loss.

    Attributes:
        loss: Its function of ``theta`` and ``phi``.
        weight: Its weight.
        name: What messages call it.
        scope: Surrounds each of its passes and their gradients: from ``theta`` and ``phi``.
    """

    loss: Callable[[dict[str, Tensor], dict[str, Tensor]], Tensor]
    weight: float = 1.0
    name: str = "source_loss"
    scope: Callable[[Params, Params], AbstractContextManager[object]] = no_scope


@dataclass(frozen=True)
class Problem:
    """Several terms of both losses, and what surrounds their passes.

    Attributes:
        sources: Terms of the inner loss, which is their weighted sum.
        targets: Terms of the outer loss, which is their mean.
        scope: Surrounds the target passes and their gradients: from ``theta'``.
        reduce: Averages tensors over processes.
        idle: Meta-parameters that need not reach the inner loss; they have no gradient then.
        observe: Looks at ``dL_s/dtheta`` and ``dL_t/dtheta'``.
    """

    sources: Sequence[Source]
    targets: Sequence[Callable[[dict[str, Tensor]], Tensor]]
    scope: Callable[[Params], AbstractContextManager[object]] = no_scope
    reduce: Callable[[dict[str, Tensor]], dict[str, Tensor]] = lambda tensors: tensors
    idle: frozenset[str] = frozenset()
    observe: Callable[[Params, Params], None] = lambda grads, slopes: None


class Generators:
    """The states of torch's generators at one moment: of the CPU and of some devices."""

    def __init__(self, devices: Iterable[torch.device]) -> None:
        self.devices = [device for device in devices if device.type not in ("cpu", "meta")]
        self.cpu = torch.get_rng_state()
        self.others = [torch.get_device_module(device.type).get_rng_state(device) for device in self.devices]

    def put_back(self) -> None:
        """Set the generators to these states."""
        torch.set_rng_state(self.cpu)
        for device, state in zip(self.devices, self.others, strict=True):
            torch.get_device_module(device.type).set_rng_state(state, device)


@dataclass
class _Half:
    """A source pass of which the part above the cut waits to be differentiated again."""

    source: Source
    tape: Tape
    generators: Generators
    above: dict[str, Tensor]  # dL_s/dtheta as far as it is taken directly, differentiable
    crossing: list[tuple[Place, Tensor, set[str]]]  # dL_s/dh of each crossing value, differentiable; what it depends on
    below: list[str]  # the parameters that the crossing values depend on, and that are not in `above`


def solve(problem: Problem, theta: Leaves, phi: Leaves, rates: dict[str, Rate], method: str) -> Hypergradient:
    """Find both gradients: each source term once, each target term once, then what the source terms still owe."""
    devices = {tensor.device for tensor in (*theta.given.values(), *phi.given.values())}
    grads: dict[str, Tensor] = {}
    used: set[int] = set()
    halves: list[_Half] = []
    inner = torch.zeros(())
    for source in problem.sources:
        loss, half = _first_half(source, theta, phi, method, devices, grads, used)
        inner = loss + inner.to(loss)
        halves += [half] if half is not None else []
    _check_meta_used(phi, used, problem.idle)
    inner, grads = problem.reduce({LOSS: inner})[LOSS], problem.reduce(grads)
    outer, directions = _look_ahead(problem, theta, phi, rates, grads)
    metas = {name: torch.zeros_like(leaf) for name, leaf in phi.leaves.items() if id(leaf) in used}
    while halves:
        _second_half(halves.pop(0), theta, phi, directions, method, metas)
    alike = _common(rates)
    metas = {name: meta * (-1.0 if alike is None else -alike) for name, meta in metas.items()}
    return Hypergradient(phi.spread(problem.reduce(metas)), theta.spread(grads), inner, outer)


def _first_half(
    source: Source,
    theta: Leaves,
    phi: Leaves,
    method: str,
    devices: set[torch.device],
    grads: dict[str, Tensor],
    used: set[int],
) -> tuple[Tensor, _Half | None]:
    """Run a source term and its gradient; below the cut nothing is kept."""
    tape = Tape(hold=method == "finite_difference", keep=method == "forward_over_reverse")
    generators = Generators(devices)
    with source.scope(theta.leaves, phi.leaves):
        with nullcontext() if method == "reverse_over_reverse" else tape:
            loss = check_loss(source.name, source.loss(theta.all(), phi.all()))
        loss = source.weight * loss
        parts = cut(loss, phi.values, tape.places)
        tape.forget(max((number for number, _ in parts.places), default=-1))
        used |= parts.leaves
        _check_params_used(source.name, theta.values, parts.leaves)
        if not parts.leaves & {id(leaf) for leaf in phi.values}:  # then all is below
            _add(grads, theta.leaves, torch.autograd.grad(loss, theta.values, allow_unused=True))
            return loss.detach(), None
        _check_kernel(method, parts.fused)
        _check_dropout(method, loss)
        above = {name: leaf for name, leaf in theta.leaves.items() if id(leaf) in parts.above}
        lower = set().union(*parts.below) - parts.above
        below = {name: leaf for name, leaf in theta.leaves.items() if id(leaf) in lower}
        inputs: list[Any] = [*parts.crossing, *above.values()]
        found = torch.autograd.grad(loss, inputs, create_graph=True, allow_unused=True)
        _check_twice(method, [slope for slope in found if slope is not None])
        value = loss.detach()
        del loss
        direct = found[len(parts.crossing) :]
        reached = [
            (edge, place, slope, {name for name, leaf in below.items() if id(leaf) in depends})
            for edge, place, slope, depends in zip(parts.crossing, parts.places, found, parts.below, strict=False)
            if slope is not None
        ]
        half = _Half(
            source,
            tape,
            generators,
            {name: slope for name, slope in zip(above, direct, strict=True) if slope is not None},
            [(place, slope, names) for _, place, slope, names in reached],
            list(below),
        )
        _add(grads, half.above, [slope.detach() for slope in half.above.values()])
        if reached and below:
            edges = [edge for edge, *_ in reached]
            slopes = [slope.detach() for _, _, slope, _ in reached]
            lower_grads = torch.autograd.grad(edges, list(below.values()), slopes, allow_unused=True)
            _add(grads, below, lower_grads)
    return value, half


def _look_ahead(
    problem: Problem, theta: Leaves, phi: Leaves, rates: dict[str, Rate], grads: dict[str, Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Run the target terms at ``theta'``; give their mean and ``inner_lr * dL_t/dtheta'``, without a rate of all."""
    with torch.no_grad():
        ahead = {name: _descended(leaf.detach(), rates[name], grads.get(name)) for name, leaf in theta.leaves.items()}
    slopes: dict[str, Tensor] = {}
    outer = torch.zeros(())
    with problem.scope(ahead):
        for target in problem.targets:
            loss = check_loss("target_loss", target(theta.all(ahead))) / len(problem.targets)
            _check_target(loss, phi, ahead.values())
            _add(slopes, ahead, torch.autograd.grad(loss, list(ahead.values()), allow_unused=True))
            outer = loss.detach() + outer.to(loss)
            del loss
    del ahead
    outer, slopes = problem.reduce({LOSS: outer})[LOSS], problem.reduce(slopes)
    problem.observe(grads, slopes)
    alike = _common(rates)
    return outer, {
        name: slope if alike is not None else rates[name] * slope for name, slope in slopes.items() if name in grads
    }


def _descended(value: Tensor, rate: Rate, grad: Tensor | None) -> Tensor:
    """Take a step down, to a new leaf."""
    if grad is None:
        return value.detach().requires_grad_()
    found = value - rate * grad if isinstance(rate, Tensor) else torch.sub(value, grad, alpha=rate)
    return found.requires_grad_()


def _common(rates: dict[str, Rate]) -> float | None:
    """Give the number that is the rate of all parameters, if there is one."""
    found = {rate for rate in rates.values() if not isinstance(rate, Tensor)}
    return found.pop() if len(found) == 1 and not any(isinstance(rate, Tensor) for rate in rates.values()) else None


def _second_half(
    half: _Half,
    theta: Leaves,
    phi: Leaves,
    directions: dict[str, Tensor],
    method: str,
    metas: dict[str, Tensor],
) -> None:
    """Differentiate ``<dL_s/dtheta, direction>`` by ``phi``, what crosses the cut held fast with its tangent."""
    moving = {name: directions[name] for name in half.below if name in directions}
    pairs = [(slope, directions[name]) for name, slope in half.above.items() if name in directions]
    if moving and half.crossing:
        tangents = _tangents(half, theta, phi, moving, method)
        for place, slope, names in half.crossing:
            if tangents[place] is not None:
                pairs.append((slope, tangents[place]))
            elif moving.keys() & names:
                rule = "carry dual numbers (method='finite_difference' needs none)"
                raise ValueError(must("source_loss", rule, f"no tangent from {half.tape.calls[place[0]]}"))
    pairs = [(slope, tangent) for slope, tangent in pairs if slope.requires_grad]
    half.above, half.crossing = {}, []
    if not pairs:
        return
    with half.source.scope(theta.leaves, phi.leaves), _explained(method):
        found = torch.autograd.grad(
            [slope for slope, _ in pairs], phi.values, [tangent for _, tangent in pairs], allow_unused=True
        )
    for name, meta in zip(phi.leaves, found, strict=True):
        if meta is not None:
            metas[name] += meta


def _tangents(half: _Half, theta: Leaves, phi: Leaves, moving: dict[str, Tensor], method: str) -> dict[Place, Any]:
    """Move the parameters below the cut and see how what crosses it moves."""
    places = [place for place, *_ in half.crossing]
    base = {name: leaf.detach() for name, leaf in theta.leaves.items()}
    fixed = {name: leaf.detach() for name, leaf in phi.leaves.items()}

    def run(values: dict[str, Tensor], read: Callable[[Tensor], Any], dual: bool = False) -> dict[Place, Any]:
        with _replaying(half.generators), torch.no_grad(), half.source.scope(values, fixed), _explained(method):
            replay = Replay(half.tape, places, read, dual)
            return replay.run(lambda: half.source.loss(theta.all(values), phi.all(fixed)))

    if method == "finite_difference":
        step = _difference_step(base, moving)
        room = {name: torch.empty_like(base[name]) for name in moving}
        ends = []
        for sign in (1.0, -1.0):
            for name, direction in moving.items():
                torch.add(base[name], direction, alpha=sign * step, out=room[name])
            ends.append(run({**base, **room}, torch.clone))
        return {place: (ends[0][place] - ends[1][place]).div_(2.0 * step) for place in places}
    with forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):
        dual = {
            name: forward_ad.make_dual(base[name], direction)  # type: ignore[no-untyped-call]
            for name, direction in moving.items()
        }
        return run({**base, **dual}, _tangent, dual=True)


def _tangent(value: Tensor) -> Tensor | None:
    """Read a dual number's tangent; a copy, since what follows may go on in place."""
    tangent = forward_ad.unpack_dual(value).tangent  # type: ignore[no-untyped-call]
    return None if tangent is None else tangent.clone()


def _difference_step(values: Params, moving: Params) -> float:
    """Choose a central difference's step: the cube root of the precision, relative to the entries that move."""
    for value in values.values():
        if torch.finfo(value.dtype).eps > 1e-6:
            rule = "hold float32 or float64 for finite differences"
            raise ValueError(must("params", rule, value.dtype))
    size = length = 0.0
    for name, direction in moving.items():
        rows = [x.flatten(1) if x.dim() > 1 else x[None] for x in (values[name], direction)]
        norm, speed = (torch.linalg.vector_norm(x, dim=1).double() for x in rows)
        size += float(torch.where(speed > 0, norm, 0.0).square().sum())  # of a table, the rows that move
        length += float(speed.square().sum())
    eps = max(torch.finfo(values[name].dtype).eps for name in moving)
    ratio = math.sqrt(size / length) if size and length else 1.0
    return 0.1 * float(eps ** (1 / 3)) * ratio  # several layers bend more than one: a step of 1.0 errs 50 times more


def check_loss(name: str, loss: Any) -> Tensor:
    """Require a finite scalar."""
    if not isinstance(loss, Tensor):
        raise TypeError(must(name, "return a tensor", class_name(loss)))
    require(loss.dim() == 0, name, "return a scalar", f"shape {tuple(loss.shape)}")
    value = loss.item()
    require(math.isfinite(value), name, "be finite", value)
    return loss


def _check_params_used(name: str, theta: Iterable[Tensor], used: set[int]) -> None:
    reached = any(id(leaf) in used for leaf in theta)
    require(reached, name, "depend on params", "a loss that uses none of those it is given")


def _check_meta_used(phi: Leaves, used: set[int], exempt: frozenset[str] = frozenset()) -> None:
    idle = [name for name, leaf in phi.leaves.items() if id(leaf) not in used and name not in exempt]
    require(not idle, "meta_params", "all reach source_loss", f"no effect of {', '.join(map(repr, idle))}")


def _check_target(loss: Tensor, phi: Leaves, theta: Iterable[Tensor]) -> None:
    used = leaves(loss)
    _check_params_used("target_loss", theta, used)
    given = {id(tensor): name for name, tensor in phi.given.items()}
    leaked = sorted(given[tensor] for tensor in used & phi.originals)
    require(not leaked, "target_loss", "be free of meta_params", f"one that uses {', '.join(map(repr, leaked))}")


def _check_kernel(method: str, kernel: str | None) -> None:
    if kernel:
        rule = f"have second derivatives where {method} differentiates twice (call this inside {MATH}"
        other = "" if method == "reverse_over_reverse" else ", or use meta_params after the last attention"
        raise ValueError(must("the attention of source_loss", f"{rule}{other})", kernel))


def _check_twice(method: str, slopes: Iterable[Tensor]) -> None:
    """Refuse a gradient that ends in an error: where something else leads on, autograd leaves it out in silence."""
    if nodes_named(DEAD_END, *slopes):
        rule = f"have second derivatives where {method} differentiates twice"
        raise ValueError(must("source_loss", rule, "a function that is marked once_differentiable"))


def _check_dropout(method: str, loss: Tensor) -> None:
    """Refuse a fused kernel that drops attention: `MATH`, which has dual numbers, would drop others."""
    if method != "forward_over_reverse":
        return
    for node in nodes_named(FUSED_ATTENTION, loss):
        if getattr(node, "_saved_dropout_p", 0.0) > 0.0:
            rule = f"drop the same in each pass (call this inside {MATH}, or use method='finite_difference')"
            raise ValueError(must("the attention of source_loss", rule, f"dropout in {node.name()}"))


@contextmanager
def _explained(method: str) -> Iterator[None]:
    """Say what to do about a function without the derivatives that a method needs."""
    try:
        yield
    except RuntimeError as error:
        text = str(error)
        if re.search(r"forward AD|jvp|forward mode", text):
            rule = "have forward derivatives below meta_params (method='finite_difference' needs none)"
            raise ValueError(must("source_loss", rule, text.partition("\n")[0])) from error
        if re.search(r"derivative for .* is not implemented|double backward|differentiate twice", text):
            rule = (
                f"have second derivatives where {method} differentiates twice (for attention, call this inside {MATH})"
            )
            raise ValueError(must("source_loss", rule, text.partition("\n")[0])) from error
        raise


def _add(total: dict[str, Tensor], names: Mapping[str, object], found: Sequence[Tensor | None]) -> None:
    for name, tensor in zip(names, found, strict=True):
        if tensor is not None:
            total[name] = total[name] + _dense(tensor) if name in total else _dense(tensor)


def _dense(grad: Tensor) -> Tensor:
    """Fill up the gradient of an embedding that asks for a sparse one: the look-ahead has values everywhere."""
    return grad.to_dense() if grad.layout == torch.sparse_coo else grad


def rates_of(inner_lr: float | Mapping[str, Rate], theta: Leaves) -> dict[str, Rate]:
    """Give each parameter its rate."""
    if isinstance(inner_lr, Mapping):
        missing = [name for name in theta.leaves if name not in inner_lr]
        require(not missing, "inner_lr", "have a rate for each parameter", f"none for {', '.join(map(repr, missing))}")
        for name, leaf in theta.leaves.items():
            _check_rate(f"inner_lr[{name!r}]", inner_lr[name], leaf)
        return {name: inner_lr[name] for name in theta.leaves}
    _check_rate("inner_lr", inner_lr, None)
    require(bool(inner_lr > 0), "inner_lr", "be a positive number", inner_lr)
    return dict.fromkeys(theta.leaves, inner_lr)


def _check_rate(name: str, rate: Any, leaf: Tensor | None) -> None:
    """Require a number, or a tensor that broadcasts against a parameter."""
    if isinstance(rate, Tensor):
        shape = torch.Size() if leaf is None else leaf.shape
        both = zip(rate.shape[::-1], shape[::-1], strict=False)
        fits = rate.dim() <= len(shape) and all(one in (1, size) for one, size in both)
        require(fits, name, f"broadcast against the shape {tuple(shape)}", f"shape {tuple(rate.shape)}")
        return
    if not isinstance(rate, int | float) or isinstance(rate, bool):
        raise TypeError(must(name, "be a number, or a tensor of them", class_name(rate)))
    require(math.isfinite(rate) and rate >= 0, name, "be a positive number", rate)


@contextmanager
def _replaying(generators: Generators) -> Iterator[None]:
    """Draw the same random numbers again, without the fast paths that a pass with gradients does not take."""
    now = Generators(generators.devices)
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    generators.put_back()
    try:
        yield
    finally:
        now.put_back()
        torch.backends.mha.set_fastpath_enabled(fast)
