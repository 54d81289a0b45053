"""A source pass of MetaXL that is cut where the network first transforms it, and a target pass."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from polyembed._checks import must, require
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
from polyembed.transfer.rtn import check_called, hooks, listed
from polyembed.transfer.steps import LOSS, add, buffers_of, with_autocast


class Setup(nn.Module):
    """The model with everything that its passes need; `forward` calls a function, for
    `functional_call`.
    """

    def __init__(
        self,
        model: nn.Module,
        rtn: Any,
        layers: list[nn.Module],
        theta: Mapping[str, Tensor],
        phi: Mapping[str, Tensor],
        loss: Callable[[nn.Module, Any], Tensor],
        weight: float | Sequence[float] | None,
        method: str,
        amp_dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.model, self.theta, self.phi, self.method = model, theta, phi, method
        self.hooks = partial(hooks, layers, listed(rtn), weight=weight)
        self.evaluate = with_autocast(loss, model, amp_dtype)
        self.evaluate_exactly = with_autocast(loss, model, None)

    def forward(self, function: Callable[[], Any]) -> Any:
        """Call the function."""
        return function()

    def target_pass(
        self,
        batches: Sequence[Any],
        theta: Mapping[str, Tensor],
        share: float,
        total: dict[str, Tensor],
    ) -> None:
        """Add the mean loss of target batches at `theta`, and its gradient, times `share`."""

        def run() -> None:
            for batch in batches:
                loss = check_loss("target_loss", self.evaluate(batch)) * (share / len(batches))
                add(total, {LOSS: loss.detach(), **target_slopes(loss, theta, self.phi)})

        functional_call(self, dict(theta), (run,))


class _Reached(BaseException):
    """The layer was reached; not an `Exception`, so that no model handles it."""


class _Cut:
    """Cuts a pass before the first transform: the hidden states become a new leaf for the part
    above.
    """

    def __init__(self) -> None:
        self.seen = False
        self.below: Tensor | None = None
        self.leaf: Tensor | None = None

    def __call__(self, h: Tensor) -> Tensor:
        if (
            self.seen or not h.requires_grad
        ):  # a later layer, a layer in gradient checkpointing, or frozen layers below
            self.seen = True
            return h
        self.seen, self.below, self.leaf = True, h, h.detach().requires_grad_()
        return self.leaf


class SourcePass:
    """A source batch: its gradient now, its meta-gradient when the direction is known.

    Args:
        setup: Model, network and options.
        batch: The batch.
        language: Its language.
        share: The weight of its loss.
        total: Loss and gradient are added to this.
    """

    def __init__(
        self, setup: Setup, batch: Any, language: str | None, share: float, total: dict[str, Tensor]
    ) -> None:
        self.setup, self.batch, self.language = setup, batch, language
        self.randomness = Randomness(p.device for p in (*setup.theta.values(), *setup.phi.values()))
        self.buffers = buffers_of(setup.model)
        theta, phi = setup.theta, setup.phi
        cut = _Cut() if setup.method != "reverse_over_reverse" else None
        with self._passing(cut) as calls:
            loss = check_loss("source_loss", setup.evaluate(batch)) * share
            check_called(calls)
            require(
                loss.requires_grad, "source_loss", "depend on the model's parameters", "a constant"
            )
            leaf, below = (None, None) if cut is None else (cut.leaf, cut.below)
            leaves = [*theta.values(), *phi.values(), *([] if leaf is None else [leaf])]
            found = torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
            check_twice(slope for slope in found if slope is not None)
            self.upper = present(theta, found)  # without the path through the leaf
            self.reached = present(phi, found[len(theta) :]).keys()
            self.slope = None if leaf is None else found[-1]
            lower: dict[str, Tensor] = {}
            if below is not None and self.slope is not None:
                slopes = torch.autograd.grad(
                    below, list(theta.values()), self.slope.detach(), allow_unused=True
                )
                lower = present(theta, slopes)
        self.lower = set(lower)
        require(
            bool(self.upper or lower),
            "source_loss",
            "depend on the model's parameters",
            "a loss that uses none",
        )
        add(total, lower)
        add(
            total,
            {LOSS: loss.detach(), **{name: slope.detach() for name, slope in self.upper.items()}},
        )

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
        make_dual: Any = forward_ad.make_dual
        unpack_dual: Any = forward_ad.unpack_dual
        with forward_ad.dual_level():
            dual = {n: make_dual(values[n], way) for n, way in moving.items()}
            try:
                with _Constants():
                    tangent: Tensor | None = unpack_dual(self._states({**values, **dual})).tangent
            except RuntimeError as error:
                if not re.search(r"forward (AD|grad|mode)|jvp", str(error)):
                    raise
            else:
                if tangent is not None:
                    return tangent
        step = difference_step(values, moving)
        high, low = (
            self._states(
                {**values, **{name: values[name] + sign * way for name, way in moving.items()}},
                exact=True,
            )
            for sign in (step, -step)
        )
        return (high - low) / (2.0 * step)

    def _states(self, values: Mapping[str, Tensor], *, exact: bool = False) -> Tensor:
        """Return the hidden states that are transformed first, of the same pass with other
        parameters.
        """
        found: list[Tensor] = []

        def stop(h: Tensor) -> Tensor:
            found.append(h)
            raise _Reached

        def run() -> None:
            (self.setup.evaluate_exactly if exact else self.setup.evaluate)(self.batch)

        buffers = {f"model.{name}": buffer.clone() for name, buffer in self.buffers.items()}
        fast = torch.backends.mha.get_fastpath_enabled()  # has no derivatives
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with self.randomness.again(), self._passing(stop):
                functional_call(self.setup, {**values, **buffers}, (run,))
        except _Reached:
            return found[0]
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
        raise RuntimeError(
            must("source_loss", "run the layer whenever it is called", "a pass without it")
        )

    @contextmanager
    def _passing(self, cut: Callable[[Tensor], Tensor] | None) -> Iterator[list[int]]:
        """Surround a pass, and whatever runs layers again, by the network and an attention with all
        derivatives.
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
        if torch.is_grad_enabled():
            return func(*args, **(kwargs or {}))
        with forward_ad._set_fwd_grad_enabled(False):
            return func(*args, **(kwargs or {}))
