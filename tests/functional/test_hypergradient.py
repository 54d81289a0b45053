import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from checks import refused
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

import polyembed as pe
from polyembed.functional import Hypergradient, hypergradient

METHODS = ("reverse_over_reverse", "finite_difference")
EXACT, DIFFERENCES = METHODS
WORDS, TAGS, DIM = 7, 3, 10


class Model(nn.Module):
    """A small Transformer tagger; `transform` is called on the hidden states after `place` layers."""

    def __init__(
        self, *, place: int, head: str = "linear", shared: bool = False, dropout: float = 0.2
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, DIM)
        make = lambda: nn.TransformerEncoderLayer(DIM, 2, 13, dropout, "gelu", batch_first=True)  # noqa: E731
        layer = make()
        self.layers = nn.ModuleList(layer if shared else make() for _ in range(3))
        self.head = pe.CRFDecoder(DIM, TAGS) if head == "crf" else pe.SoftmaxDecoder(DIM, TAGS)
        self.unused = nn.Linear(2, 3)
        self.place = place

    def forward(
        self, batch: dict[str, Tensor], transform: Callable[[Tensor], Tensor] = lambda h: h
    ) -> Tensor:
        h = self.embedding(batch["ids"])
        for number, layer in enumerate(self.layers):
            h = layer(transform(h) if number == self.place else h)
        return self.head.loss(
            transform(h) if self.place == len(self.layers) else h, batch["tags"], batch["mask"]
        )


class Transform(nn.Module):
    def __init__(self, residual: bool = True, kink: bool = True) -> None:
        super().__init__()
        self.down, self.up, self.residual = nn.Linear(DIM, 5), nn.Linear(5, DIM), residual
        self.kink = kink

    def forward(self, h: Tensor) -> Tensor:
        inner = self.down(h)
        return self.up(inner.relu() if self.kink else inner.tanh()) + (h if self.residual else 0)


def batch(rows: int = 5) -> dict[str, Tensor]:
    return {
        "ids": torch.randint(11, (rows, WORDS)),
        "tags": torch.randint(TAGS, (rows, WORDS)),
        "mask": torch.rand(rows, WORDS) < 0.8,
    }


def problem(
    dtype: torch.dtype = torch.float64, residual: bool = True, kink: bool = True, **options: Any
) -> tuple[Any, ...]:
    """Both losses, and both mappings of parameters."""
    torch.manual_seed(3)
    model, transform = Model(**options).to(dtype).train(), Transform(residual, kink).to(dtype)
    source, target = batch(), batch(4)

    def source_loss(theta: dict[str, Tensor], phi: dict[str, Tensor]) -> Tensor:
        return functional_call(
            model, theta, (source, lambda h: functional_call(transform, phi, (h,)))
        )

    def target_loss(theta: dict[str, Tensor]) -> Tensor:
        return functional_call(model, theta, (target,))

    return (
        source_loss,
        target_loss,
        dict(model.named_parameters()),
        dict(transform.named_parameters()),
    )


def solve(*arguments: Any, method: str, inner_lr: Any = 0.3) -> Hypergradient:
    torch.manual_seed(7)
    return hypergradient(*arguments, inner_lr=inner_lr, method=method)


def error(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The largest relative error of any parameter."""
    assert found.keys() == expected.keys()
    return max(
        float((found[name] - expected[name]).norm() / expected[name].norm()) for name in expected
    )


@pytest.mark.parametrize(
    ("head", "place", "shared"), [("linear", 0, True), ("linear", 3, False), ("crf", 3, True)]
)
def test_methods_agree(head: str, place: int, shared: bool) -> None:
    """With dropout: all passes draw the same random numbers, and the generator goes on as after two passes."""
    arguments = problem(place=place, head=head, shared=shared)
    expected = solve(*arguments, method=EXACT)
    after = torch.get_rng_state()
    assert all(float(grad.norm()) > 1e-6 for grad in expected.meta_grads.values())
    found = solve(*arguments, method=DIFFERENCES)
    assert error(found.meta_grads, expected.meta_grads) < 1e-6
    assert error(found.source_grads, expected.source_grads) < 1e-12
    torch.testing.assert_close(found.source_loss, expected.source_loss)
    torch.testing.assert_close(found.target_loss, expected.target_loss)
    assert torch.equal(torch.get_rng_state(), after)


def numeric(loss: Callable[[Tensor], Tensor], x: Tensor, way: Tensor) -> float:
    step = 1e-5
    return float((loss(x + step * way) - loss(x - step * way)) / (2 * step))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("residual", [False, True])
def test_differences_of_the_whole_look_ahead(method: str, residual: bool) -> None:
    """The oracle of equation 4: the target loss after a step, as a function of phi, in numbers alone."""
    source_loss, target_loss, theta, phi = problem(place=2, dropout=0.0, residual=residual)
    found = solve(source_loss, target_loss, theta, phi, method=method, inner_lr=0.3)

    def after(name: str) -> Callable[[Tensor], Tensor]:
        def loss(value: Tensor) -> Tensor:
            inner = source_loss(theta, {**phi, name: value})
            slopes = torch.autograd.grad(inner, list(theta.values()), allow_unused=True)
            pairs = zip(theta.items(), slopes, strict=True)
            return target_loss(
                {n: (p if g is None else p - 0.3 * g).detach() for (n, p), g in pairs}
            )

        return loss

    for name, value in phi.items():
        way = torch.randn_like(value)
        expected = numeric(after(name), value.detach(), way)
        assert float((found.meta_grads[name] * way).sum()) == pytest.approx(
            expected, rel=1e-5, abs=1e-10
        )


@pytest.mark.parametrize("method", METHODS)
def test_rates_of_each_parameter(method: str) -> None:
    arguments = problem(place=2)
    names = list(arguments[2])
    rates = {
        name: 0.01 * (1 + i) if i % 2 else torch.rand_like(arguments[2][name])
        for i, name in enumerate(names)
    }
    expected = solve(*arguments, method=EXACT, inner_lr=rates)
    assert (
        error(solve(*arguments, method=method, inner_lr=rates).meta_grads, expected.meta_grads)
        < 1e-6
    )
    other = solve(*arguments, method=method, inner_lr=0.1)
    assert error(other.meta_grads, expected.meta_grads) > 1e-2


@pytest.mark.parametrize("method", METHODS)
def test_inputs_and_gradients_stay_untouched(method: str) -> None:
    arguments = problem(place=2)
    before = [{name: p.detach().clone() for name, p in params.items()} for params in arguments[2:]]
    solve(*arguments, method=method)
    for old, new in zip(before, arguments[2:], strict=True):
        for name, parameter in new.items():
            assert torch.equal(old[name], parameter)
            assert parameter.grad is None


def test_constants_unused_and_tied_names() -> None:
    source_loss, target_loss, theta, phi = problem(place=1)
    theta["layers.0.linear1.weight"].requires_grad_(False)
    theta["again"] = theta["layers.1.linear1.weight"]  # a second name of one tensor

    def without(params: dict[str, Tensor]) -> dict[str, Tensor]:
        assert params["again"] is params["layers.1.linear1.weight"]
        return {name: p for name, p in params.items() if name != "again"}

    arguments = (
        (lambda t, p: source_loss(without(t), p)),
        (lambda t: target_loss(without(t))),
        theta,
        phi,
    )
    expected = solve(*arguments, method=EXACT)
    found = solve(*arguments, method=DIFFERENCES)
    assert error(found.meta_grads, expected.meta_grads) < 1e-6
    absent = {"layers.0.linear1.weight", "unused.weight", "unused.bias"}
    assert theta.keys() - found.source_grads.keys() == absent
    assert theta.keys() - expected.source_grads.keys() == absent
    assert found.source_grads["again"] is found.source_grads["layers.1.linear1.weight"]


class Looked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.above = nn.Embedding(11, DIM, sparse=True), nn.Linear(DIM, TAGS)

    def forward(self, ids: Tensor, transform: Callable[[Tensor], Tensor] = lambda h: h) -> Tensor:
        return self.above(transform(self.table(ids)).tanh()).square().mean()


def test_sparse_gradients() -> None:
    torch.manual_seed(0)
    model, transform, ids = Looked().double(), Transform().double(), torch.randint(11, (4, 3))

    def source_loss(theta: dict[str, Tensor], phi: dict[str, Tensor]) -> Tensor:
        return functional_call(model, theta, (ids, lambda h: functional_call(transform, phi, (h,))))

    def target_loss(theta: dict[str, Tensor]) -> Tensor:
        return functional_call(model, theta, (ids[:2],))

    arguments = (
        source_loss,
        target_loss,
        dict(model.named_parameters()),
        dict(transform.named_parameters()),
    )
    expected, found = (solve(*arguments, method=method) for method in METHODS)
    assert error(found.meta_grads, expected.meta_grads) < 1e-6


@pytest.mark.parametrize("method", METHODS)
def test_inside_no_grad(method: str) -> None:
    with torch.no_grad():
        found = hypergradient(*tiny(), inner_lr=0.1, method=method).meta_grads["b"]
    torch.testing.assert_close(found, torch.tensor([-0.2, -0.4]), rtol=1e-3, atol=0.0)


def test_differences_in_float32() -> None:
    """Of smooth losses: at the kink of a ReLU, the step in float32 is too wide."""
    expected = solve(*problem(place=0, dropout=0.0, kink=False), method=EXACT)
    found = solve(*problem(torch.float32, place=0, dropout=0.0, kink=False), method=DIFFERENCES)
    assert (
        error({name: grad.double() for name, grad in found.meta_grads.items()}, expected.meta_grads)
        < 1e-2
    )


def tiny() -> tuple[Any, ...]:
    """``L_s = sum(b * a^2)``, ``L_t = sum(a)``."""
    theta, phi = (torch.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    return (
        (lambda t, p: (p["b"] * t["a"] ** 2).sum()),
        (lambda t: t["a"].sum()),
        {"a": theta},
        {"b": phi},
    )


@pytest.mark.parametrize("method", METHODS)
def test_bad_input(method: str) -> None:
    source_loss, target_loss, theta, phi = tiny()

    def call(
        source: Any = source_loss,
        target: Any = target_loss,
        t: Any = theta,
        p: Any = phi,
        lr: Any = 0.1,
    ) -> None:
        hypergradient(source, target, t, p, inner_lr=lr, method=method)

    frozen = {"a": torch.ones(2)}
    refused(
        ValueError,
        r"^params must hold a tensor that requires a gradient, got none among 1$",
        call,
        t=frozen,
    )
    refused(
        ValueError,
        r"^meta_params must hold a tensor that requires a gradient, got none among 0$",
        call,
        p={},
    )
    refused(TypeError, r"^params\['a'\] must be a tensor, got float$", call, t={"a": 1.0})
    rule = r"^meta_params must all reach source_loss, got no effect of 'c', 'd'$"
    with pytest.raises(ValueError, match=rule):
        call(
            p={
                **phi,
                "c": torch.ones(2, requires_grad=True),
                "d": torch.ones(2, requires_grad=True),
            }
        )
    with pytest.raises(
        ValueError, match=r"^meta_params must all reach source_loss, got no effect of 'b'$"
    ):
        call(source=lambda t, p: t["a"].square().sum())
    with pytest.raises(
        ValueError, match=r"^target_loss must be free of meta_params, got one that uses 'b'$"
    ):
        call(target=lambda t: target_loss(t) * phi["b"].sum())
    rule = r"^target_loss must depend on params, got a loss that uses none of those it is given$"
    refused(ValueError, rule, call, target=lambda t: target_loss(theta))
    with pytest.raises(
        ValueError, match=r"^target_loss must depend on params, got a loss that uses none"
    ):
        call(target=lambda t: torch.ones(()))
    with pytest.raises(ValueError, match=r"^source_loss must return a scalar, got shape \(2,\)$"):
        call(source=lambda t, p: t["a"] * p["b"])
    refused(
        ValueError,
        r"^target_loss must return a scalar, got shape \(2,\)$",
        call,
        target=lambda t: t["a"],
    )
    with pytest.raises(ValueError, match=r"^source_loss must be finite, got nan$"):
        call(source=lambda t, p: source_loss(t, p) * float("nan"))
    refused(
        ValueError,
        r"^target_loss must be finite, got inf$",
        call,
        target=lambda t: target_loss(t) * float("inf"),
    )
    refused(
        TypeError, r"^source_loss must return a tensor, got float$", call, source=lambda t, p: 1.0
    )
    refused(
        ValueError,
        r"^inner_lr must have a rate for each parameter, got none for 'a'$",
        call,
        lr={"b": 1.0},
    )
    refused(ValueError, r"^inner_lr must be a positive number, got 0.0$", call, lr=0.0)
    for rate, kind in (("x", "str"), (True, "bool")):
        refused(
            TypeError,
            rf"^inner_lr must be a number, or a tensor of them, got {kind}$",
            call,
            lr=rate,
        )
    for rate in (-1.0, math.nan, math.inf):
        refused(
            ValueError,
            rf"^inner_lr\['a'\] must be a positive number, got {rate}$",
            call,
            lr={"a": rate},
        )
    with pytest.raises(
        ValueError,
        match=r"^inner_lr\['a'\] must broadcast against the shape \(2,\), got shape \(3,\)$",
    ):
        call(lr={"a": torch.ones(3)})
    with pytest.raises(
        ValueError, match=r"^source_loss must depend on params, got a loss that uses none"
    ):
        call(source=lambda t, p: p["b"].sum())
    with pytest.raises(
        ValueError, match=r"^method must be one of 'reverse_over_reverse', .*, got 'magic'$"
    ):
        hypergradient(*tiny(), inner_lr=0.1, method="magic")


def test_chooses_the_attention_kernel() -> None:
    """In eval mode, a CPU attends by a fused kernel without second derivatives."""
    arguments = problem(place=0, dropout=0.0)
    with sdpa_kernel(SDPBackend.MATH):
        expected = solve(*arguments, method=EXACT)
    for method, tolerance in ((EXACT, 1e-12), (DIFFERENCES, 1e-6)):
        assert error(solve(*arguments, method=method).meta_grads, expected.meta_grads) < tolerance


class Plain(torch.autograd.Function):
    """A square without forward derivatives, and without second ones."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * grad


def test_functions_without_second_derivatives() -> None:
    _, target_loss, theta, phi = tiny()

    def below(t: dict[str, Tensor], p: dict[str, Tensor]) -> Tensor:
        return (p["b"] * (Plain.apply(t["a"]) + 0.0)).sum()

    def beside(
        t: dict[str, Tensor], p: dict[str, Tensor]
    ) -> Tensor:  # autograd would leave out one of the two terms
        return Plain.apply(p["b"] * t["a"]).square().sum() + (p["b"] * t["a"]).square().sum()

    def fused(t: dict[str, Tensor], p: dict[str, Tensor]) -> Tensor:
        x = (p["b"] * t["a"]).expand(1, 1, 3, 2)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(x, x, x).square().sum()

    exact = hypergradient(*tiny(), inner_lr=0.1).meta_grads["b"]
    found = hypergradient(
        below, target_loss, theta, phi, inner_lr=0.1, method=DIFFERENCES
    ).meta_grads["b"]
    torch.testing.assert_close(found, exact, rtol=1e-3, atol=0.0)
    rule = (
        r"^source_loss must have second derivatives where the gradient is differentiated .*, got "
    )
    for loss, function in (
        (below, "a function that is marked"),
        (beside, "a function that is marked"),
        (fused, "der"),
    ):
        refused(
            ValueError, rule + function, hypergradient, loss, target_loss, theta, phi, inner_lr=0.1
        )


def test_differences_refuse_low_precision() -> None:
    arguments = problem(torch.bfloat16, place=3)
    with pytest.raises(
        ValueError,
        match=r"^params must hold float32 or float64 for finite differences, got torch.bf",
    ):
        solve(*arguments, method=DIFFERENCES)
