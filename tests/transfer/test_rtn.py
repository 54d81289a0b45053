import math
from collections import namedtuple
from typing import Any

import pytest
import torch
from checks import refused
from torch import Tensor, nn
from toys import own_words

from polyembed import RepresentationTransformationNetwork, transformed_output

HIDDEN = 12


def rtn(**options: Any) -> RepresentationTransformationNetwork:
    return RepresentationTransformationNetwork(HIDDEN, bottleneck=5, **options)


class Wrap(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, h: Tensor) -> Any:
        return self.kind([h, 1.0])


def dot(one: list[float], other: list[float]) -> float:
    return sum(x * y for x, y in zip(one, other, strict=True))


def two_layers(row: list[float], down: nn.Linear, up: nn.Linear) -> list[float]:
    """Compute equation 1 by loops."""
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
def test_equation(gate, residual):
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


def test_initial_weights():
    """Xavier weights are normal with variance ``2 / (fan_in + fan_out)``, and the bias is 0."""
    network = RepresentationTransformationNetwork(300, bottleneck=200, gate="tied", xavier=True)
    for layer in (network.down, network.up):
        expected = math.sqrt(2 / sum(layer.weight.shape))
        assert float(layer.weight.detach().std()) == pytest.approx(expected, rel=0.02)
        assert float(layer.weight.detach().abs().max()) > 3 * expected, "no uniform distribution"
        assert not layer.bias.any()
    assert rtn().up.bias.any()


def test_where_the_gradient_goes():
    h = torch.randn(3, HIDDEN, requires_grad=True)

    def gradient(network):
        return torch.autograd.grad(network(h).sum(), h, allow_unused=True)[0]

    for gate in ("none", "tied", "separate"):
        torch.testing.assert_close(
            gradient(rtn(detach_input=True, gate=gate)), torch.ones(3, HIDDEN)
        )
    assert gradient(rtn(detach_input=True, residual=False)) is None
    assert gradient(rtn()).sub(1).abs().max() > 1e-3


@pytest.mark.parametrize("kind", [tuple, list, namedtuple("Pair", "h rest")._make])
def test_transforms_a_tensor_or_the_first_item(kind):
    inner, outer = nn.Identity(), Wrap(kind)
    model = nn.Sequential(inner, outer)
    with transformed_output([inner, outer], lambda h: 2 * h):
        found = model(torch.ones(1))
        assert found == (expected := kind([torch.full((1,), 4.0), 1.0]))
        assert type(found) is type(expected)
    assert model(torch.ones(1)) == kind([torch.ones(1), 1.0])


def scaled(scale: float) -> nn.Module:
    linear = nn.Linear(2, 2, bias=False)
    linear.weight.data = scale * torch.eye(2)
    return linear


LAYERS = [nn.Identity(), nn.Identity()]
NETWORKS = nn.ModuleDict({"en": scaled(3), "es": scaled(5)})


@pytest.mark.parametrize(
    ("transform", "options", "expected"),
    [
        (scaled(3), {}, [3.0, 3.0]),
        ([scaled(3), scaled(5)], {}, [3.0, 5.0]),
        (scaled(3), {"weight": 0.5}, [2.0, 2.0]),
        (scaled(3), {"weight": [0.5, torch.tensor(0.0)]}, [2.0, 1.0]),
        ([NETWORKS, scaled(7)], {"language": "en"}, [3.0, 7.0]),
        (NETWORKS, {"language": "fr"}, "language must be one of 'en', 'es', got 'fr'"),
        ([scaled(1)] * 3, {}, "transform must be one for all or one for each of 2 layers, got 3"),
        (scaled(1), {"weight": [1.0] * 3}, "weight must be one for all or one .* layers, got 3"),
    ],
)
def test_several_layers_weights_and_languages(transform, options, expected):
    if isinstance(expected, str):
        call = transformed_output(LAYERS, transform, **options).__enter__
        refused(ValueError, f"^{expected}$", call)
        return
    with transformed_output(LAYERS, transform, **options):
        assert [layer(torch.ones(2))[0].item() for layer in LAYERS] == expected


def test_leaves_nothing_behind():
    layer = Wrap(lambda items: {})
    message = "^layer must return a tensor, or a tuple whose first item is one, got dict$"
    with pytest.raises(TypeError, match=message), transformed_output(layer, rtn()):
        layer(torch.zeros(1, HIDDEN))
    assert not layer._forward_hooks


def test_raises_if_the_layer_did_not_run():
    rule = r"^layer 1 must run inside transformed_output \(a model that is compiled already skips its hook\), got no"
    with pytest.raises(RuntimeError, match=rule), transformed_output(LAYERS, scaled(1)):
        LAYERS[0](torch.zeros(2))


@own_words
def test_wrong_values():
    message = "^gate must be one of 'none', 'tied', 'separate', got 'open'$"
    refused(ValueError, message, rtn, gate="open")
    message = r"^h must have a last axis of size 12, got shape \(2, 11\)$"
    refused(ValueError, message, rtn(), torch.zeros(2, 11))
