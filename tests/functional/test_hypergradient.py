"""The gradient through a gradient step against finite differences of the whole step."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from checks import refused
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from toys import SquareOnce

import polyembed as pe
from polyembed.functional import hypergradient

WORDS, TAGS, DIM = 7, 3, 10
Params = dict[str, Tensor]
Problem = tuple[Callable[[Params, Params], Tensor], Callable[[Params], Tensor], Params, Params]


class Model(nn.Module):
    """A small Transformer tagger. `transform` applies to the hidden states after `place` layers."""

    def __init__(self, *, place: int, head: type[nn.Module], shared: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, DIM, sparse=True)
        self.scale = nn.Parameter(torch.tensor(2.0))
        make = lambda: nn.TransformerEncoderLayer(DIM, 2, 13, 0.0, "gelu", batch_first=True)  # noqa: E731
        layer = make()
        self.layers = nn.ModuleList(layer if shared else make() for _ in range(3))
        self.head = head(DIM, TAGS)
        self.unused = nn.Linear(2, 3)
        self.place = place

    def forward(self, batch: Params, transform: Callable[[Tensor], Tensor] = lambda h: h) -> Tensor:
        h = self.scale * self.embedding(batch["ids"])
        for number, layer in enumerate(self.layers):
            h = layer(transform(h) if number == self.place else h)
        h = transform(h) if self.place == len(self.layers) else h
        return self.head.loss(h, batch["tags"], batch["mask"])


def batch(rows: int) -> Params:
    return {
        "ids": torch.randint(11, (rows, WORDS)),
        "tags": torch.randint(TAGS, (rows, WORDS)),
        "mask": torch.rand(rows, WORDS) < 0.8,
    }


def problem(
    place: int = 2, head: type[nn.Module] = pe.SoftmaxDecoder, shared: bool = False
) -> Problem:
    """Return both losses and both mappings of parameters."""
    model = Model(place=place, head=head, shared=shared).double()
    transform = nn.Sequential(nn.Linear(DIM, 5), nn.ReLU(), nn.Linear(5, DIM)).double()
    source, target = batch(5), batch(4)

    def source_loss(theta, phi):
        transformed = lambda h: functional_call(transform, phi, (h,))  # noqa: E731
        return functional_call(model, theta, (source, transformed))

    def target_loss(theta):
        return functional_call(model, theta, (target,))

    parameters = (dict(one.named_parameters()) for one in (model, transform))
    return source_loss, target_loss, *parameters


def check_by_differences(arguments: Problem, inner_lr: Any, rate: Callable[[str], Any]) -> None:
    """Check equation 4 by finite differences in phi of the target loss after a step."""
    source_loss, target_loss, theta, phi = arguments
    trained = {name: p for name, p in theta.items() if p.requires_grad}
    found = hypergradient(*arguments, inner_lr=inner_lr)

    def after(name, value):
        inner = source_loss(theta, {**phi, name: value})
        slopes = torch.autograd.grad(inner, list(trained.values()), allow_unused=True)
        pairs = zip(trained.items(), slopes, strict=True)
        moved = {n: (p if g is None else p - rate(n) * g).detach() for (n, p), g in pairs}
        return target_loss({**theta, **moved})

    step = 1e-5
    for name, value in phi.items():
        way = torch.randn_like(value)
        high, low = (after(name, (value + sign * way).detach()) for sign in (step, -step))
        expected = float(high - low) / (2 * step)
        got = float((found.meta_grads[name] * way).sum())
        assert got == pytest.approx(expected, rel=1e-4, abs=1e-9)
    assert max(float(grad.norm()) for grad in found.meta_grads.values()) > 1e-6
    expected = source_loss(theta, phi)
    torch.testing.assert_close(found.source_loss, expected.detach())
    slopes = torch.autograd.grad(expected, list(trained.values()), allow_unused=True)
    for (name, _), slope in zip(trained.items(), slopes, strict=True):
        assert (name in found.source_grads) == (slope is not None)
        if slope is not None:
            torch.testing.assert_close(found.source_grads[name], slope.to_dense())


@pytest.mark.parametrize(
    ("place", "head", "shared"),
    [(0, pe.SoftmaxDecoder, True), (2, pe.SoftmaxDecoder, False), (3, pe.CRFDecoder, True)],
)
def test_differences_of_the_whole_look_ahead(place: int, head: type[nn.Module], shared: bool):
    """Without dropout, attention on a CPU uses a fused kernel, which has no second derivatives."""
    check_by_differences(problem(place, head, shared), 0.3, lambda _: 0.3)


def test_rates_of_each_parameter():
    arguments = problem()
    rates: dict[str, Any] = {name: torch.rand_like(p) for name, p in arguments[2].items()}
    rates["embedding.weight"] = 0.3
    check_by_differences(arguments, rates, rates.__getitem__)


def test_constants_and_second_names():
    source_loss, target_loss, theta, phi = problem(place=1)
    theta["layers.0.linear1.weight"].requires_grad_(False)
    expected = hypergradient(source_loss, target_loss, theta, phi, inner_lr=0.3)
    theta["again"] = theta["layers.1.linear1.weight"]  # a second name of one tensor
    before = [{name: p.detach().clone() for name, p in params.items()} for params in (theta, phi)]

    def without(params):
        assert params["again"] is params["layers.1.linear1.weight"]
        return {name: p for name, p in params.items() if name != "again"}

    with torch.no_grad():
        found = hypergradient(
            lambda t, p: source_loss(without(t), p),
            lambda t: target_loss(without(t)),
            theta,
            phi,
            inner_lr=0.3,
        )
    torch.testing.assert_close(found.meta_grads, expected.meta_grads)
    absent = {"layers.0.linear1.weight", "unused.weight", "unused.bias"}
    assert theta.keys() - found.source_grads.keys() == absent
    assert found.source_grads["again"] is found.source_grads["layers.1.linear1.weight"]
    for old, new in zip(before, (theta, phi), strict=True):
        torch.testing.assert_close(old, {name: p.detach() for name, p in new.items()})
        assert all(p.grad is None for p in new.values())


def beside(t: Params, p: Params) -> Tensor:
    """Return a loss with two terms, of which autograd would silently leave out one."""
    x = p["b"] * t["a"]
    return SquareOnce.apply(x).square().sum() + x.square().sum()


def fused(t: Params, p: Params) -> Tensor:
    x = (p["b"] * t["a"]).expand(1, 1, 3, 2)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(x, x, x).square().sum()


ONES = torch.ones(2)
HALF = {"a": torch.ones(2, dtype=torch.bfloat16, requires_grad=True)}
SECOND = "^source_loss must have second derivatives where the gradient is differentiated, got "


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"params": {"a": ONES}}, "^params must hold a tensor that requires a gradient, got none "),
        ({"meta_params": {}}, "^meta_params must hold a tensor that requires a gradient, got none"),
        (
            {"source_loss": lambda t, p: t["a"].sum()},
            "^meta_params must all reach source_loss, got no effect of 'b'$",
        ),
        (
            {"target_loss": lambda t: (t["a"] * PHI["b"]).sum()},
            "^target_loss must be free of meta_params, got one that uses 'b'$",
        ),
        (
            {"target_loss": lambda t: ONES.sum()},
            "^target_loss must depend on params, got a loss that uses none of those it is given$",
        ),
        ({"source_loss": lambda t, p: p["b"].sum()}, "^source_loss must depend on params, got a l"),
        ({"source_loss": lambda t, p: t["a"] * p["b"]}, r"^source_loss must return a scalar, got"),
        ({"target_loss": lambda t: 1.0}, "^target_loss must return a tensor, got float$"),
        ({"target_loss": lambda t: t["a"].sum() * torch.inf}, "^target_loss must be finite, got i"),
        ({"inner_lr": {}}, "^inner_lr must have a rate for each parameter, got none for 'a'$"),
        ({"inner_lr": 0.0}, "^inner_lr must be a positive number, got 0.0$"),
        (
            {"source_loss": lambda t, p: (p["b"] * SquareOnce.apply(t["a"])).sum()},
            SECOND + "a function that is marked",
        ),
        ({"source_loss": beside}, SECOND + "a function that is marked"),
        ({"source_loss": fused}, SECOND + "der"),
        (
            {"params": HALF, "method": "finite_difference"},
            "^params must hold float32 or float64 for finite differences",
        ),
    ],
)
def test_bad_input(change: dict[str, Any], message: str):
    arguments: dict[str, Any] = {
        "source_loss": lambda t, p: (p["b"] * t["a"] ** 2).sum(),
        "target_loss": lambda t: t["a"].sum(),
        "params": {"a": torch.tensor([1.0, 2.0], requires_grad=True)},
        "meta_params": PHI,
        "inner_lr": 0.1,
    }
    refused((TypeError, ValueError), message, hypergradient, **{**arguments, **change})


PHI = {"b": torch.tensor([1.0, 2.0], requires_grad=True)}


def test_finite_differences_are_near_the_exact_gradient_of_a_random_loss():
    source_loss, target_loss, theta, phi = problem()

    def noisy(theta, phi):
        noise = 0.5 + torch.rand((), dtype=torch.float64)
        return source_loss(theta, {name: p * noise for name, p in phi.items()})

    arguments = noisy, target_loss, theta, phi
    torch.manual_seed(5)
    exact = hypergradient(*arguments, inner_lr=0.1)
    torch.manual_seed(5)
    found = hypergradient(*arguments, inner_lr=0.1, method="finite_difference")
    for name, value in exact.meta_grads.items():
        torch.testing.assert_close(found.meta_grads[name], value, rtol=1e-5, atol=1e-9)
