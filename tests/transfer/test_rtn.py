import math
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from toys import compiles, own_words

from polyembed import RepresentationTransformationNetwork, transformed_output

HIDDEN = 12


def rtn(**options: Any) -> RepresentationTransformationNetwork:
    return RepresentationTransformationNetwork(HIDDEN, bottleneck=5, **options)


class Stack(nn.Module):
    """Three layers; the second returns a tuple, the third a list."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
        self.pair, self.row = Wrap(tuple), Wrap(list)

    def forward(self, x: Tensor) -> Tensor:
        h, more = self.pair(self.second(self.first(x).tanh()).tanh())
        h, _ = self.row(self.third(h).tanh())
        return h + more


class Wrap(nn.Module):
    def __init__(self, kind: type) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, h: Tensor) -> Any:
        return self.kind([h, 1.0])


def dot(one: list[float], other: list[float]) -> float:
    return sum(x * y for x, y in zip(one, other, strict=True))


def two_layers(row: list[float], down: nn.Linear, up: nn.Linear) -> list[float]:
    """Equation 1 in loops."""
    first, second = (
        [
            (*weights, bias)
            for weights, bias in zip(part.weight.tolist(), part.bias.tolist(), strict=True)
        ]
        for part in (down, up)
    )
    inner = [max(0.0, dot(weights, [*row, 1.0])) for weights in first]
    return [dot(weights, [*inner, 1.0]) for weights in second]


@pytest.mark.parametrize("gate", ["none", "tied", "separate"])
@pytest.mark.parametrize("residual", [False, True])
def test_equation(gate: str, residual: bool) -> None:
    h = torch.randn(3, HIDDEN, dtype=torch.float64)
    network = rtn(residual=residual, gate=gate).double()
    for row, found in zip(h.tolist(), network(h).tolist(), strict=True):
        new = two_layers(row, network.down, network.up)
        score = math.inf
        if gate == "tied":
            *new, score = new
        elif gate == "separate":
            [score] = two_layers(row, network.gate_network[0], network.gate_network[2])
        share = 1.0 / (1.0 + math.exp(-score))
        assert found == pytest.approx(
            [share * y + residual * x for x, y in zip(row, new, strict=True)]
        )
    with pytest.raises(
        ValueError, match=r"^gate must be one of 'none', 'tied', 'separate', got 'open'$"
    ):
        rtn(gate="open")


def test_initial_weights() -> None:
    """By Xavier: a normal distribution of variance ``2 / (fan_in + fan_out)``, and no bias."""
    network = RepresentationTransformationNetwork(300, bottleneck=200, gate="tied", xavier=True)
    for layer in (network.down, network.up):
        expected = math.sqrt(2 / sum(layer.weight.shape))
        assert float(layer.weight.detach().std()) == pytest.approx(expected, rel=0.02)
        assert float(layer.weight.detach().abs().max()) > 3 * expected, "no uniform distribution"
        assert not layer.bias.any()
    assert rtn().up.bias.any()


def test_where_the_gradient_goes() -> None:
    h = torch.randn(3, HIDDEN, requires_grad=True)

    def gradient(network: nn.Module) -> Tensor | None:
        return torch.autograd.grad(network(h).sum(), h, allow_unused=True)[0]

    for gate in ("none", "tied", "separate"):
        torch.testing.assert_close(
            gradient(rtn(detach_input=True, gate=gate)), torch.ones(3, HIDDEN)
        )
    assert gradient(rtn(detach_input=True, residual=False)) is None
    assert gradient(rtn()).sub(1).abs().max() > 1e-3


def test_transforms_a_tensor_a_tuple_and_a_list() -> None:
    stack, x, double = Stack(), torch.randn(3, HIDDEN), lambda h: 2 * h
    h1 = stack.first(x)
    with transformed_output(stack.first, double):
        first = stack(x)
    h2 = stack.second((2 * h1).tanh()).tanh()
    torch.testing.assert_close(first, stack.third(h2).tanh() + 1.0)
    h2 = stack.second(h1.tanh()).tanh()
    with transformed_output(stack.pair, double):
        torch.testing.assert_close(stack(x), stack.third(2 * h2).tanh() + 1.0)
    with transformed_output(stack.row, double):
        torch.testing.assert_close(stack(x), 2 * stack.third(h2).tanh() + 1.0)
        assert type(stack.row(x)) is list
    torch.testing.assert_close(stack(x), stack.third(h2).tanh() + 1.0)
    layer = Wrap(lambda items: Pair(*items))
    with transformed_output(layer, double):
        assert layer(torch.ones(1)) == Pair(torch.full((1,), 2.0), 1.0)


class Pair(NamedTuple):
    states: Tensor
    more: float


def test_nests_in_order() -> None:
    layer, x = nn.Identity(), torch.ones(2)
    with transformed_output(layer, lambda h: h + 1), transformed_output(layer, lambda h: h * 3):
        assert layer(x).tolist() == [6.0, 6.0]


def test_several_layers_weights_and_languages() -> None:
    layers, x = nn.ModuleList([nn.Identity(), nn.Identity()]), torch.ones(2)

    def run(*arguments: Any, **options: Any) -> list[float]:
        with transformed_output(*arguments, **options):
            return [layer(x)[0].item() for layer in layers]

    def of(scale: float) -> nn.Module:
        linear = nn.Linear(2, 2, bias=False)
        linear.weight.data = scale * torch.eye(2)
        return linear

    networks = nn.ModuleDict({"en": of(3), "es": of(5)})
    assert run(layers, lambda h: 3 * h) == [3.0, 3.0]
    assert run(list(layers), [lambda h: 3 * h, lambda h: 5 * h]) == [3.0, 5.0]
    assert run(layers, lambda h: 3 * h, weight=0.5) == [2.0, 2.0]
    assert run(layers, lambda h: 3 * h, weight=[0.5, torch.tensor(0.0)]) == [2.0, 1.0]
    assert run(layers, networks, language="es") == [5.0, 5.0]
    assert run(layers, [networks, of(7)], language="en") == [3.0, 7.0]
    for arguments, options, message in (
        ((layers, networks), {"language": "fr"}, "language must be one of 'en', 'es', got 'fr'"),
        ((layers, networks), {}, "language must be one of 'en', 'es', got None"),
        (
            (layers, [of(1)] * 3),
            {},
            "transform must be one for all or one for each of 2 layers, got 3",
        ),
        (
            (layers, of(1)),
            {"weight": [1.0] * 3},
            "weight must be one for all or one for each of 2 layers, got 3",
        ),
        (([], of(1)), {}, "layer must name at least one layer, got none"),
    ):
        with pytest.raises(ValueError, match=f"^{message}$"):
            run(*arguments, **options)


def test_a_weight_can_learn() -> None:
    weight, layer = torch.tensor(0.5, requires_grad=True), nn.Identity()
    with transformed_output(layer, lambda h: 3 * h, weight=weight):
        layer(torch.ones(2)).sum().backward()
    assert weight.grad == 4.0


def test_detached_input() -> None:
    layer, x = nn.Identity(), torch.randn(2, HIDDEN, requires_grad=True)
    network = rtn()
    with transformed_output(layer, network, detach_input=True):
        layer(x).sum().backward()
    assert x.grad is None
    assert network.down.weight.grad is not None


def test_leaves_nothing_behind() -> None:
    stack = Stack()

    class StopError(Exception):
        pass

    def stop(h: Tensor) -> Tensor:
        raise StopError

    with pytest.raises(StopError), transformed_output(stack.first, stop):
        stack(torch.zeros(1, HIDDEN))
    with pytest.raises(StopError), transformed_output([stack.first, stack.second], rtn()):
        raise StopError  # not the complaint that no hook ran
    with pytest.raises(TypeError), transformed_output([stack.first, "second"], rtn()):
        pass
    assert not any(module._forward_hooks for module in stack.modules())


def test_raises_if_the_layer_did_not_run() -> None:
    stack = Stack()
    rule = r"must run inside transformed_output \(a model that is compiled already skips its hook\), got no call$"
    with (
        pytest.raises(RuntimeError, match=rf"^layer {rule}"),
        transformed_output(stack.first, rtn()),
    ):
        pass
    with (
        pytest.raises(RuntimeError, match=rf"^layer 1 {rule}"),
        transformed_output([stack.first, nn.Identity()], rtn()),
    ):
        stack(torch.zeros(1, HIDDEN))


@compiles
def test_raises_for_a_compiled_model() -> None:
    stack = Stack()
    compiled = torch.compile(stack, backend="aot_eager")
    x = torch.randn(2, HIDDEN)
    compiled(x)
    with (
        pytest.raises(RuntimeError, match=r"^layer must run inside transformed_output"),
        transformed_output(stack.first, rtn()),
    ):
        compiled(x)


@own_words
@pytest.mark.parametrize(
    ("layer", "transform", "options", "message"),
    [
        ("x", rtn(), {}, "layer must be a module, or several, got str"),
        (
            nn.Identity(),
            1.0,
            {},
            "transform must be callable, an nn.ModuleDict, or a list of such, got float",
        ),
        (
            nn.Identity(),
            rtn(),
            {"weight": "x"},
            "weight must be a number, or one for each layer, got str",
        ),
        (
            Wrap(lambda items: {}),
            rtn(),
            {},
            "layer must return a tensor, or a tuple whose first item is one, got dict",
        ),
    ],
)
def test_wrong_types(layer: Any, transform: Any, options: dict, message: str) -> None:
    with (
        pytest.raises(TypeError, match=f"^{message}$"),
        transformed_output(layer, transform, **options),
    ):
        layer(torch.zeros(1, HIDDEN))
    with pytest.raises(ValueError, match=r"^bottleneck must be a positive integer, got 0$"):
        RepresentationTransformationNetwork(12, 0)
    with pytest.raises(
        ValueError, match=r"^h must have a last axis of size 12, got shape \(2, 11\)$"
    ):
        rtn()(torch.zeros(2, 11))


def test_survives_functional_call() -> None:
    stack, network, x = Stack(), rtn(), torch.randn(3, HIDDEN)
    theta = {name: 1.5 * p.detach() for name, p in stack.named_parameters()}
    phi = {name: 0.5 * p.detach() for name, p in network.named_parameters()}
    with transformed_output(stack.first, lambda h: functional_call(network, phi, (h,))):
        found = functional_call(stack, theta, (x,))
    stack.load_state_dict(theta)
    network.load_state_dict(phi)
    with transformed_output(stack.first, network):
        torch.testing.assert_close(stack(x), found)
