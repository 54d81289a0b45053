"""One step of MetaXL: of the network that transforms representations, and of the model (Xia 2021, algorithm 1)."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.stateless import _reparametrize_module
from torch.optim import Optimizer

from polyembed._checks import check_choice, class_name, must, require
from polyembed.functional.bilevel import METHODS, Leaves, Params, Problem, Source, rates_of, solve
from polyembed.transfer.rtn import check_called, hooks, listed, network

WRAPPERS = {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "FSDPModule"}


class MetaXLStep(NamedTuple):
    """What one step saw.

    Attributes:
        source_loss: The inner loss before the step.
        target_loss: The target loss after the look-ahead.
        source_norm: The norm of the inner loss's gradient, before clipping.
        meta_norm: The norm of the meta-gradient, before clipping.
        cosine: Between the inner loss's gradient and the target's.
    """

    source_loss: float
    target_loss: float
    source_norm: float
    meta_norm: float
    cosine: float


def model_loss(model: nn.Module, batch: Mapping[str, Any]) -> Tensor:
    """Take the loss that a transformers model computes itself: ``model(**batch).loss``."""
    loss: Tensor = model(**batch).loss
    return loss


def metaxl_step(
    model: nn.Module,
    transform: nn.Module | Sequence[nn.Module],
    layer: nn.Module | Sequence[nn.Module],
    source: Sequence[Any],
    target: Sequence[Any],
    *,
    optimizer: Optimizer,
    meta_optimizer: Optimizer,
    loss: Callable[[nn.Module, Any], Tensor] = model_loss,
    languages: str | Sequence[str] | None = None,
    inner_lr: float | Mapping[str, float | Tensor] | None = None,
    target_weight: float = 0.0,
    weight: float | Sequence[float] | None = None,
    method: str = "forward_over_reverse",
    max_norm: float | None = None,
    meta_max_norm: float | None = None,
    autocast: torch.dtype | None = None,
    step: int | None = None,
) -> MetaXLStep:
    r"""Do lines 3 to 5 of algorithm 1 (Xia 2021): one step of the model and one of the transform, from where both are.

    ``theta <- theta - alpha * dL_s(theta, phi)/dtheta``, and with the ``theta`` from before
    ``phi <- phi - beta * dL_t(theta - alpha * dL_s(theta, phi)/dtheta)/dphi``.

    The look-ahead is plain gradient descent; the steps themselves are those of any optimisers, whose gradients this
    sets (and clips) and clears. Batches in a list are accumulated, exactly: their mean is the loss, of the source and
    of the target. With gradient checkpointing (``use_reentrant=False``) the gradients are the same. Buffers, such as
    batch statistics, change as in two training steps: once by each batch.

    Where ``torch.distributed`` runs, each process brings batches of its own, of the same sizes: source gradients,
    target gradients and meta-gradients are averaged, so all take the step that one process would take on the joined
    batches. Start from equal parameters. No `DistributedDataParallel` wrapper: it does not see these gradients.

    Args:
        model: Any model, in the mode that is wanted.
        transform: The network to train, or an ``nn.ModuleDict`` with one for each source language; or a list with one
            for each layer. See `transformed_output`.
        layer: The layer (a module of the model) whose output is transformed, or several.
        source: Source batches.
        target: Target batches.
        optimizer: Of the model. What it does not hold is a constant.
        meta_optimizer: Of the transform. What it does not hold is a constant.
        loss: From the model and a batch to the mean loss; by default ``model(**batch).loss``.
        languages: The language of each source batch, or of all, for an ``nn.ModuleDict``.
        inner_lr: ``alpha`` of the look-ahead, for all or by the parameter's name; by default the optimiser's.
        target_weight: How much of the target batches' own loss is added to the inner loss; the authors' code has 1.
        weight: How much of the transform; see `transformed_output`.
        method: How meta-gradients are computed; see `polyembed.functional.hypergradient`.
        max_norm: The norm to which the model's gradient is clipped.
        meta_max_norm: The norm to which the meta-gradient is clipped.
        autocast: The dtype in which the losses are computed, ``torch.bfloat16``.
        step: The number of the step, for messages.

    Returns:
        Losses, norms, and how far source and target agree.

    Raises:
        ValueError: No batch, a loss that is not finite (the message tells the step; nothing has changed then), a
            compiled model, options out of range, or what `polyembed.functional.hypergradient` refuses.
        TypeError: A wrapped model, a transform that is no module, or one batch where a list of them is asked for.
        RuntimeError: Another process failed, or a source pass did other things the second time.

    Example:
        >>> model, rtn = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), nn.Linear(7, 7)
        >>> step = metaxl_step(
        ...     model, rtn, model[1], [torch.randn(4, 5)], [torch.randn(2, 5)],
        ...     loss=lambda model, batch: model(batch).square().mean(),
        ...     optimizer=torch.optim.SGD(model.parameters(), 0.1),
        ...     meta_optimizer=torch.optim.Adam(rtn.parameters(), 1e-3),
        ... )
        >>> step.source_loss > 0
        True

    Deviations: none of algorithm 1. The authors' code adds the target batch to the inner loss (`target_weight`), and
    moves the model in a second pass, with the transform that has just been updated.
    """
    check_choice("method", method, METHODS)
    check_modules(model, transform)
    for kind, batches in (("source", source), ("target", target)):
        if not isinstance(batches, Sequence) or isinstance(batches, str) or hasattr(batches, "_fields"):
            raise TypeError(must(kind, "be a list of batches", class_name(batches)))
        require(len(batches) > 0, kind, "hold at least one batch", "none")
    check_weight(target_weight)
    check_norms(max_norm=max_norm, meta_max_norm=meta_max_norm)
    check_autocast("autocast", autocast)
    named = [languages] * len(source) if languages is None or isinstance(languages, str) else list(languages)
    require(len(named) == len(source), "languages", f"name one of each of {len(source)} source batches", len(named))
    networks = _networks(transform)
    parameters = {f"{place}.{name}": p for place, module in networks.items() for name, p in module.named_parameters()}
    phi = held(parameters, meta_optimizer)
    require(bool(phi), "meta_optimizer", "hold parameters of transform", "none")
    metas = {id(p) for p in parameters.values()}
    needed = {id(p) for one in listed(transform) for language in named for p in _parameters(network(one, language))}
    lrs = {id(parameter): group["lr"] for group in optimizer.param_groups for parameter in group["params"]}
    theta = {name: p for name, p in held(dict(model.named_parameters()), optimizer).items() if id(p) not in metas}
    require(bool(theta), "optimizer", "hold parameters of the model", "none")
    leaves, meta_leaves = Leaves("params", theta), Leaves("meta_params", phi)
    rates = rates_of({name: lrs[id(p)] for name, p in theta.items()} if inner_lr is None else inner_lr, leaves)
    averager = Averager({**theta, **phi})

    def evaluate(batch: Any) -> Tensor:
        device = next(iter(theta.values())).device.type
        with nullcontext() if autocast is None else torch.autocast(device, autocast):
            return loss(model, batch)

    def source_term(batch: Any, language: str | None) -> Source:
        """Hold parameters and transforms in place for a pass and its gradients, so that checkpoints find them."""
        counts: list[list[int]] = []
        buffers: list[dict[str, dict[str, Tensor]]] = []  # of each module, what the first pass changes, from before

        @contextmanager
        def scope(values: Params, meta_values: Params) -> Iterator[None]:
            modules = {"model": model, **networks}
            mine = {"model": values, **{prefix: _under(prefix, meta_leaves.all(meta_values)) for prefix in networks}}
            first = not buffers
            old = {name: _buffers(module) for name, module in modules.items()} if first else buffers[0]
            with ExitStack() as stack:
                for name, module in modules.items():
                    spare = {} if first else {key: value.clone() for key, value in old[name].items()}
                    stack.enter_context(holding(module, {**mine[name], **spare}))
                counts[:] = [stack.enter_context(hooks(layer, transform, weight=weight, language=language))]
                yield
            if first:
                buffers.append({name: _moved(module, old[name]) for name, module in modules.items()})

        def term(values: Params, meta_values: Params) -> Tensor:
            value = evaluate(batch)
            check_called(counts[0])
            return value

        return Source(term, 1.0 / len(source), scope=scope)

    def target_term(batch: Any) -> Source:
        share = target_weight / len(target)
        return Source(lambda values, _: evaluate(batch), share, "target_loss", lambda values, _: holding(model, values))

    terms = [source_term(batch, language) for batch, language in zip(source, named, strict=True)]
    terms += [target_term(batch) for batch in target] if target_weight else []
    targets = [lambda values, batch=batch: evaluate(batch) for batch in target]
    idle = frozenset(name for name, parameter in phi.items() if id(parameter) not in needed)
    cosines: list[float] = []

    def observe(grads: Mapping[str, Tensor], slopes: Mapping[str, Tensor]) -> None:
        both = [name for name in grads if name in slopes]
        dots = [torch.dot(grads[name].flatten().float(), slopes[name].flatten().float()) for name in both]
        size = norm_of(grads.values()) * norm_of(slopes.values())
        cosines.append(float(torch.stack([dot.cpu() for dot in dots]).sum()) / size if dots and size else 0.0)

    when = "" if step is None else f" (step {step})"
    with averager.together(), at_step(when), unchanged(model, *networks.values()), torch.enable_grad():
        found = solve(
            Problem(terms, targets, lambda values: holding(model, values), averager.average, idle, observe),
            leaves,
            meta_leaves,
            rates,
            method,
        )
        norms = []
        for name, grads in (
            ("the gradient of source_loss", found.source_grads),
            (
                "the meta-gradient",
                {name: found.meta_grads[name] for name in meta_leaves.leaves if name in found.meta_grads},
            ),
        ):
            norms.append(norm_of(grads.values()))
            require(math.isfinite(norms[-1]), name, "be finite", norms[-1])
    descend(optimizer, theta, found.source_grads, norms[0], max_norm)
    descend(meta_optimizer, phi, found.meta_grads, norms[1], meta_max_norm)
    return MetaXLStep(float(found.source_loss), float(found.target_loss), *norms, *cosines)


@contextmanager
def holding(module: nn.Module, values: Params) -> Iterator[None]:
    """Put other tensors in the place of a module's parameters."""
    # functional_call's own scope, which the losses and their gradients must share
    with _reparametrize_module(module, dict(values), tie_weights=True):
        yield


def _networks(transform: nn.Module | Sequence[nn.Module]) -> dict[str, nn.Module]:
    """Name every network once: by its number, and by its language."""
    found: dict[str, nn.Module] = {}
    for number, one in enumerate(listed(transform)):
        parts = {f"[{key!r}]": part for key, part in one.items()} if isinstance(one, nn.ModuleDict) else {"": one}
        for key, module in parts.items():
            if all(module is not other for other in found.values()):
                found[f"transform[{number}]{key}"] = module
    return found


def held(parameters: Mapping[str, nn.Parameter], optimizer: Optimizer) -> dict[str, nn.Parameter]:
    """Take the parameters that an optimiser holds."""
    ids = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    return {name: p for name, p in parameters.items() if id(p) in ids}


def _buffers(module: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in module.named_buffers()}


def _moved(module: nn.Module, before: Params) -> dict[str, Tensor]:
    """Take what is no longer as it was."""
    now = dict(module.named_buffers())
    return {name: value for name, value in before.items() if name in now and not _alike(now[name], value)}


def _alike(one: Tensor, other: Tensor) -> bool:
    return one is other or (one.shape == other.shape and torch.equal(one, other))


@contextmanager
def unchanged(*modules: nn.Module) -> Iterator[None]:
    """Give buffers, such as batch statistics, their values back if something fails."""
    before = [_buffers(module) for module in modules]
    try:
        yield
    except Exception:
        for module, old in zip(modules, before, strict=True):
            for name, buffer in module.named_buffers():
                if name in old and old[name].shape == buffer.shape:
                    buffer.copy_(old[name])
        raise


def _parameters(module: Any) -> list[nn.Parameter]:
    return list(module.parameters())


def _under(prefix: str, values: Params) -> dict[str, Tensor]:
    return {name.removeprefix(f"{prefix}."): value for name, value in values.items() if name.startswith(f"{prefix}.")}


def check_modules(model: nn.Module, transform: Any) -> None:
    """Refuse what hides gradients or hooks."""
    for name, module in (("model", model), *(("transform", one) for one in listed(transform))):
        if not isinstance(module, nn.Module):
            raise TypeError(must(name, "be a module", class_name(module)))
        for part in module.modules():
            kinds = {kind.__name__ for kind in type(part).__mro__}
            if kinds & WRAPPERS:
                rule = "not be wrapped for several processes (gradients are averaged here: pass the module inside)"
                raise TypeError(must(name, rule, class_name(part)))
            if "OptimizedModule" in kinds or getattr(part, "_compiled_call_impl", None) is not None:
                raise ValueError(must(name, "not be compiled (it would skip the hooks)", class_name(part)))


def check_weight(target_weight: float) -> None:
    """Require a weight of the target's loss."""
    require(target_weight >= 0.0 and math.isfinite(target_weight), "target_weight", "be 0 or more", target_weight)


def check_norms(**norms: float | None) -> None:
    """Require norms to clip to."""
    for name, norm in norms.items():
        require(norm is None or norm > 0.0, name, "be positive, or None", norm)


def check_autocast(name: str, dtype: torch.dtype | None) -> None:
    """Require a dtype whose losses need no scaling."""
    lossless = dtype in (None, torch.bfloat16)
    require(lossless, name, "be torch.bfloat16 (float16 needs its losses scaled)", dtype)


def norm_of(tensors: Any) -> float:
    """The norm of all, in at least float32."""
    norms = [
        torch.linalg.vector_norm(tensor.detach(), dtype=torch.promote_types(tensor.dtype, torch.float32))
        for tensor in tensors
    ]
    return float(torch.stack([norm.double() for norm in norms]).norm()) if norms else 0.0


def descend(optimizer: Optimizer, parameters: Params, grads: Params, norm: float, max_norm: float | None) -> None:
    """Let an optimiser step along gradients, and leave none behind."""
    scale = 1.0 if max_norm is None or norm <= max_norm else max_norm / norm
    optimizer.zero_grad(set_to_none=True)
    for name, grad in grads.items():
        parameters[name].grad = grad.detach() if scale == 1.0 else grad.detach() * scale
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


@contextmanager
def at_step(when: str) -> Iterator[None]:
    """Add the number of the step to an error."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{error}{when}") from error


class Averager:
    """Averages what processes found; where one fails, all do.

    Every exchange begins with a sum of failures. A process that fails joins the next one, and that one alone.
    """

    def __init__(self, known: Params, *, exchanges: int = 5) -> None:
        self.known = dict(known)
        self.planned = exchanges
        self.device = next(iter(known.values())).device
        self.alone = not (torch.distributed.is_available() and torch.distributed.is_initialized())
        self.alone = self.alone or torch.distributed.get_world_size() == 1
        self.exchanges = 0

    def average(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Average over processes; what only some of them have is zero for the rest."""
        if self.alone:
            return tensors
        self.exchanges += 1
        self._agree(0)
        size = torch.distributed.get_world_size()
        template = self.known if tensors.keys() <= self.known.keys() else tensors  # a loss is everywhere
        there = torch.tensor([float(name in tensors) for name in template], device=self.device)
        torch.distributed.all_reduce(there)
        found = {}
        for name, count in zip(template, there.tolist(), strict=True):
            if count:
                value = tensors[name].detach().clone() if name in tensors else torch.zeros_like(template[name])
                value = value.contiguous()
                torch.distributed.all_reduce(value)
                found[name] = value / size
        return found

    @contextmanager
    def together(self) -> Iterator[None]:
        """Tell the others of a failure."""
        try:
            yield
        except Exception:
            if not self.alone and self.exchanges < self.planned:
                self.exchanges = self.planned
                self._agree(1, raising=False)
            raise

    def _agree(self, failed: int, *, raising: bool = True) -> None:
        failures = torch.tensor([float(failed)], device=self.device)
        torch.distributed.all_reduce(failures)
        if raising and failures.item():
            self.exchanges = self.planned  # nobody waits for this one either
            raise RuntimeError(must("metaxl_step", "succeed in every process", f"{failures.item():.0f} that failed"))
