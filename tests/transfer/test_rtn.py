import warnings
from collections.abc import Callable
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


def test_equation() -> None:
    """Equation 1 in loops."""
    h = torch.randn(3, HIDDEN, dtype=torch.float64)
    for residual in (False, True):
        network = rtn(residual=residual).double()
        w1, b1 = network.down.weight.tolist(), network.down.bias.tolist()
        w2, b2 = network.up.weight.tolist(), network.up.bias.tolist()
        for row, found in zip(h.tolist(), network(h).tolist(), strict=True):
            inner = [
                max(0.0, sum(w * x for w, x in zip(ws, row, strict=True)) + b) for ws, b in zip(w1, b1, strict=True)
            ]
            outer = [sum(w * x for w, x in zip(ws, inner, strict=True)) + b for ws, b in zip(w2, b2, strict=True)]
            assert found == pytest.approx([y + residual * x for y, x in zip(outer, row, strict=True)])


def test_where_the_gradient_goes() -> None:
    h = torch.randn(3, HIDDEN, requires_grad=True)

    def gradient(network: nn.Module) -> Tensor | None:
        return torch.autograd.grad(network(h).sum(), h, allow_unused=True)[0]

    torch.testing.assert_close(gradient(rtn(detach_input=True)), torch.ones(3, HIDDEN))
    assert gradient(rtn(detach_input=True, residual=False)) is None
    assert gradient(rtn()).sub(1).abs().max() > 1e-3


@own_words
def test_wrong_sizes() -> None:
    with pytest.raises(ValueError, match=r"^bottleneck must be a positive integer, got 0$"):
        RepresentationTransformationNetwork(12, 0)
    with pytest.raises(ValueError, match=r"^h must have a last axis of size 12, got shape \(2, 11\)$"):
        rtn()(torch.zeros(2, 11))


def test_transforms_a_tensor_a_tuple_and_a_list() -> None:
    stack, x, double = Stack(), torch.randn(3, HIDDEN), lambda h: 2 * h
    h1 = stack.first(x)
    with transformed_output(stack.first, double):
        first = stack(x)
    h2 = stack.second(2 * h1.tanh() * 0 + (2 * h1).tanh()).tanh()
    torch.testing.assert_close(first, stack.third(h2).tanh() + 1.0)
    h2 = stack.second(h1.tanh()).tanh()
    with transformed_output(stack.pair, double):
        torch.testing.assert_close(stack(x), stack.third(2 * h2).tanh() + 1.0)
    with transformed_output(stack.row, double):
        torch.testing.assert_close(stack(x), 2 * stack.third(h2).tanh() + 1.0)
        assert type(stack.row(x)) is list
    torch.testing.assert_close(stack(x), stack.third(h2).tanh() + 1.0)


class Pair(NamedTuple):
    states: Tensor
    more: float


def test_transforms_a_named_tuple() -> None:
    layer = Wrap(lambda items: Pair(*items))
    with transformed_output(layer, lambda h: 2 * h):
        assert layer(torch.ones(1)) == Pair(torch.full((1,), 2.0), 1.0)


def test_nests_in_order() -> None:
    layer, x = nn.Identity(), torch.ones(2)
    with transformed_output(layer, lambda h: h + 1), transformed_output(layer, lambda h: h * 3):
        assert layer(x).tolist() == [6.0, 6.0]


def test_several_layers_weights_and_languages() -> None:
    layers, x = nn.ModuleList([nn.Identity(), nn.Identity()]), torch.ones(2)

    def run(*arguments: Any, **options: Any) -> list[float]:
        with transformed_output(*arguments, **options):
            return [layer(x)[0].item() for layer in layers]

    assert run(layers, lambda h: 3 * h) == [3.0, 3.0]
    assert run(list(layers), [lambda h: 3 * h, lambda h: 5 * h]) == [3.0, 5.0]
    assert run(layers, lambda h: 3 * h, weight=0.5) == [2.0, 2.0]
    assert run(layers, lambda h: 3 * h, weight=[0.5, torch.tensor(0.0)]) == [2.0, 1.0]

    def of(scale: float) -> nn.Module:
        linear = nn.Linear(2, 2, bias=False)
        linear.weight.data = scale * torch.eye(2)
        return linear

    networks = nn.ModuleDict({"en": of(3), "es": of(5)})
    assert run(layers, networks, language="es") == [5.0, 5.0]
    assert run(layers, [networks, of(7)], language="en") == [3.0, 7.0]
    with pytest.raises(ValueError, match=r"^language must be one of 'en', 'es', got 'fr'$"):
        run(layers, networks, language="fr")
    with pytest.raises(ValueError, match=r"^language must be one of 'en', 'es', got None$"):
        run(layers, networks)
    rule = r"must be one for all or one for each of 2 layers, got 3$"
    with pytest.raises(ValueError, match=rf"^transform {rule}"):
        run(layers, [of(1)] * 3)
    with pytest.raises(ValueError, match=rf"^weight {rule}"):
        run(layers, of(1), weight=[1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"^layer must name at least one layer, got none$"):
        run([], of(1))


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
    with pytest.raises(RuntimeError, match=rf"^layer {rule}"), transformed_output(stack.first, rtn()):
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


def test_wrong_types() -> None:
    with (
        pytest.raises(TypeError, match=r"^layer must be a module, or several, got str$"),
        transformed_output("x", rtn()),
    ):
        pass
    rule = r"^transform must be callable, an nn.ModuleDict, or a list of such, got float$"
    with pytest.raises(TypeError, match=rule), transformed_output(nn.Identity(), 1.0):
        pass
    rule = r"^weight must be a number, or one for each layer, got str$"
    with pytest.raises(TypeError, match=rule), transformed_output(nn.Identity(), rtn(), weight="x"):
        pass
    layer = Wrap(lambda items: {"h": items[0]})
    rule = r"^layer must return a tensor, or a tuple whose first item is one, got dict$"
    with pytest.raises(TypeError, match=rule), transformed_output(layer, rtn()):
        layer(torch.zeros(1, HIDDEN))


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


SIZES = {"vocab_size": 31, "hidden_size": HIDDEN, "num_hidden_layers": 3, "num_attention_heads": 2}


def bert() -> tuple[nn.Module, Callable[[nn.Module], list[nn.Module]]]:
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(**SIZES, intermediate_size=17), add_pooling_layer=False)
    return model, [model.embeddings, *model.encoder.layer]


def xlm_r() -> Any:
    from transformers import XLMRobertaConfig, XLMRobertaModel

    model = XLMRobertaModel(XLMRobertaConfig(**SIZES, intermediate_size=17), add_pooling_layer=False)
    return model, [model.embeddings, *model.encoder.layer]


def xlm() -> Any:
    from transformers import XLMConfig, XLMModel

    model = XLMModel(XLMConfig(vocab_size=31, emb_dim=HIDDEN, n_layers=3, n_heads=2, max_position_embeddings=20))
    return model, [model.layer_norm_emb, *model.layer_norm2]


def distilbert() -> Any:
    from transformers import DistilBertConfig, DistilBertModel

    model = DistilBertModel(DistilBertConfig(vocab_size=31, dim=HIDDEN, n_layers=3, n_heads=2, hidden_dim=17))
    return model, [model.embeddings, *model.transformer.layer]


def modernbert() -> Any:
    from transformers import ModernBertConfig, ModernBertModel

    config = ModernBertConfig(**SIZES, intermediate_size=17, pad_token_id=0, reference_compile=False)
    model = ModernBertModel(config)
    return model, [model.embeddings, *model.layers]


@pytest.mark.parametrize("make", [bert, xlm_r, xlm, distilbert, modernbert])
def test_encoders_of_transformers(make: Callable[[], Any]) -> None:
    """After each layer: `hidden_states` tells what went in, and the rest of the model is given what came out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, layers = make()
    model.eval()
    batch = {"input_ids": torch.randint(5, 31, (2, 7)), "attention_mask": torch.ones(2, 7, dtype=torch.int64)}
    network = rtn()
    with torch.no_grad():
        network.up.weight.mul_(20.0)
        plain = model(**batch, output_hidden_states=True).hidden_states
        own_hooks = [len(module._forward_hooks) for module in model.modules()]  # transformers has some for itself
        for place, layer in enumerate(layers):
            seen: list[Tensor] = []

            def watch(h: Tensor, seen: list[Tensor] = seen) -> Tensor:
                seen.append(h.clone())
                return network(h)

            with transformed_output(layer, watch):
                last = model(**batch).last_hidden_state
            if place < len(layers) - 1:
                torch.testing.assert_close(seen[0], plain[place], rtol=1e-4, atol=1e-4)
            assert (last - plain[-1]).abs().max() > 1e-3
    for place in (0, len(layers) - 1):
        with transformed_output(layers[place], network):
            model(**batch).last_hidden_state.sum().backward()
        assert network.up.weight.grad is not None
        network.zero_grad()
    assert [len(module._forward_hooks) for module in model.modules()] == own_hooks
