"""A source pass of MetaXL, cut at the first layer that is transformed, and a target pass."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from polyembed.functional.hypergradient import (
    Randomness,
    check_loss,
    check_twice,
    difference_step,
    explained,
    present,
    target_slopes,
    twice,
)
from polyembed.transfer.rtn import check_called, hooks
from polyembed.transfer.steps import LOSS, add, with_autocast

forward_ad: Any = torch.autograd.forward_ad  # it has no annotations


class Options(NamedTuple):
    """The options of a step of MetaXL; see `metaxl_gradients`."""

    target_support: Sequence[Any] | None
    loss: Callable[[nn.Module, Any], Tensor]
    languages: str | Sequence[str] | None
    target_weight: float
    weight: float | Sequence[float] | None
    method: str
    amp_dtype: torch.dtype | None


class Setup(nn.Module):
    """The model with everything that its passes need; `forward` calls a function, for
    `functional_call`.
    """

    def __init__(
        self,
        model: nn.Module,
        networks: nn.ModuleList,
        layers: list[nn.Module],
        theta: Mapping[str, Tensor],
        phi: Mapping[str, Tensor],
        options: Options,
    ) -> None:
        super().__init__()
        self.model, self.theta, self.phi = model, theta, phi
        self.cuts = options.method != "reverse_over_reverse"
        self.hooks = partial(hooks, layers, list(networks), weight=options.weight)
        self.evaluate = with_autocast(options.loss, model, options.amp_dtype)
        self.evaluate_exactly = with_autocast(options.loss, model, None)

    def forward(self, function: Callable[[], Any]) -> Any:
        """Call the function."""
        return function()

    def call_at(self, values: Mapping[str, Tensor], function: Callable[[], Any]) -> None:
        """Call the function at other values of parameters and buffers.

        Each module takes its values once: `functional_call` would leave them in a module that is
        registered under two names.
        """
        own = dict([*self.named_parameters(), *self.named_buffers()])
        given = {own[name]: value for name, value in values.items()}
        places = {
            f"{place}.{name}": given[x]
            for place, part in self.named_modules()
            for name, x in (*part._parameters.items(), *part._buffers.items())
            if x in given
        }
        functional_call(self, places, (function,), tie_weights=False)

    def target_pass(
        self,
        batches: Sequence[Any],
        theta: Mapping[str, Tensor],
        share: float,
        total: dict[str, Tensor],
    ) -> None:
        """Add the mean loss of target batches at `theta` and its gradient, times `share`."""

        def run() -> None:
            for batch in batches:
                loss = check_loss("target_loss", self.evaluate(batch)) * (share / len(batches))
                add(total, {LOSS: loss.detach(), **target_slopes(loss, theta, self.phi)})

        self.call_at(theta, run)


class _Reached(BaseException):
    """The layer was reached; not an `Exception`, so that no model handles it."""


class SourcePass:
    """The pass of a source batch, which computes the gradient at once and the meta-gradient later.

    Args:
        setup: The model, the networks and the options.
        batch: The batch.
        language: The language of the batch.
        share: The weight of the batch's loss.
        total: The sums by name, to which the loss and the gradient are added.
    """

    def __init__(
        self, setup: Setup, batch: Any, language: str | None, share: float, total: dict[str, Tensor]
    ) -> None:
        self.setup, self.batch, self.language = setup, batch, language
        theta, phi = setup.theta, setup.phi
        self.randomness = Randomness(p.device for p in (*theta.values(), *phi.values()))
        self.buffers = {f"model.{n}": buffer.clone() for n, buffer in setup.model.named_buffers()}
        below: list[Tensor] = []  # the hidden states where the pass is cut
        leaves: list[Tensor] = []  # the leaf that takes their place for the part above
        seen = not setup.cuts

        def cut(h: Tensor) -> Tensor:
            nonlocal seen
            first, seen = not seen, True
            # no cut at a later layer, in gradient checkpointing, or where all below is frozen
            if not (first and h.requires_grad):
                return h
            below.append(h)
            leaves.append(h.detach().requires_grad_())
            return leaves[0]

        with self._passing(cut) as calls:
            loss = check_loss("source_loss", setup.evaluate(batch)) * share
            check_called(calls)
            inputs = [*theta.values(), *phi.values(), *leaves]
            found = torch.autograd.grad(loss, inputs, create_graph=True, allow_unused=True)
            check_twice(slope for slope in found if slope is not None)
            self.upper = present(theta, found)  # without the path through the leaf
            self.reached = present(phi, found[len(theta) :]).keys()
            self.slope = found[-1] if leaves else None
            lower: dict[str, Tensor] = {}
            if self.slope is not None:
                way = self.slope.detach()
                slopes = torch.autograd.grad(below, list(theta.values()), way, allow_unused=True)
                lower = present(theta, slopes)
        self.lower = set(lower)
        add(total, lower)
        add(total, {LOSS: loss.detach(), **{n: slope.detach() for n, slope in self.upper.items()}})

    def meta_gradient(self, direction: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Differentiate ``<dL_s/dtheta, direction>`` by ``phi``."""
        pairs = [
            (slope, direction[name]) for name, slope in self.upper.items() if name in direction
        ]
        moving = {name: direction[name] for name in self.lower if name in direction}
        if self.slope is not None and moving and self.slope.requires_grad:
            pairs.append((self.slope, self._tangent(moving).to(self.slope)))
        with self._passing(None), explained():  # gradient checkpointing runs layers again
            return twice(pairs, self.setup.phi)

    def _tangent(self, moving: Mapping[str, Tensor]) -> Tensor:
        """Return the derivative of the hidden states in the direction `moving`."""
        values = {f"model.{name}": p.detach() for name, p in self.setup.model.named_parameters()}
        with forward_ad.dual_level():
            dual = {name: forward_ad.make_dual(values[name], way) for name, way in moving.items()}
            try:
                with _Constants():
                    states = self._states(self.setup.evaluate, {**values, **dual})
            except RuntimeError as error:
                if not re.search(r"forward (AD|grad|mode)|jvp", str(error)):
                    raise
            else:
                tangent: Tensor | None = forward_ad.unpack_dual(states).tangent
                if tangent is not None:
                    return tangent
        step = difference_step(values, moving)
        high, low = (
            self._states(
                self.setup.evaluate_exactly,
                {**values, **{name: values[name] + size * way for name, way in moving.items()}},
            )
            for size in (step, -step)
        )
        return (high - low) / (2.0 * step)

    def _states(self, evaluate: Callable[[Any], Tensor], values: Mapping[str, Tensor]) -> Tensor:
        """Run the same pass with other parameters, and return the hidden states that are
        transformed first.
        """
        reached: list[Tensor] = []

        def stop(h: Tensor) -> Tensor:
            reached.append(h)
            raise _Reached

        buffers = {name: buffer.clone() for name, buffer in self.buffers.items()}
        fast = torch.backends.mha.get_fastpath_enabled()  # the fast path has no derivatives
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with suppress(_Reached), self.randomness.again(), self._passing(stop):
                self.setup.call_at({**values, **buffers}, partial(evaluate, self.batch))
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
        return reached[0]

    @contextmanager
    def _passing(self, cut: Callable[[Tensor], Tensor] | None) -> Iterator[list[int]]:
        """Apply the networks, and attention with all derivatives, during a pass or while layers run
        again.
        """
        with (
            sdpa_kernel(SDPBackend.MATH),
            self.setup.hooks(language=self.language, cut=cut) as calls,
        ):
            yield calls


class _Constants(TorchFunctionMode):
    """Treat values computed under ``torch.no_grad`` as constants in forward mode, as backward
    passes do.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Any = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        with forward_ad._set_fwd_grad_enabled(torch.is_grad_enabled()):
            return func(*args, **(kwargs or {}))
