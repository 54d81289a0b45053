"""Sequence encoders: the Transformer against loops, the LSTM against itself on compacted sentences."""

import numpy as np
import oracles
import pytest
import torch
from checks import refused
from torch import Tensor
from toys import own_words

import polyembed as pe

MASK = torch.tensor(
    [[1, 1, 1, 1, 1], [0, 1, 0, 1, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]], dtype=torch.bool
)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(4, 5, 3, dtype=torch.float64)


def transformer(**options) -> pe.TransformerSequenceEncoder:
    sizes = {"hidden_size": 6, "num_layers": 2, "num_heads": 2, "feed_forward_size": 7}
    encoder = pe.TransformerSequenceEncoder(3, **{**sizes, **options}).double().eval()
    for parameter in encoder.parameters():  # norms and biases that are not their neutral selves
        torch.nn.init.normal_(parameter)
    return encoder


def transform(
    encoder: pe.TransformerSequenceEncoder, words: list[list[float]]
) -> list[list[float]]:
    """The paper's equations for one sentence."""

    def linear(layer: torch.nn.Linear, x: list[float]) -> list[float]:
        return oracles.matvec(layer.weight.tolist(), x, layer.bias.tolist())

    def norm(layer: torch.nn.LayerNorm, x: list[float]) -> list[float]:
        return oracles.layer_norm(x, layer.weight.tolist(), layer.bias.tolist())

    def attend(layer, xs: list[list[float]]) -> list[list[float]]:
        fused = layer.query_key_value
        mixed = oracles.self_attention(
            xs, fused.weight.tolist(), fused.bias.tolist(), layer.num_heads
        )
        return [linear(layer.attention_output, row) for row in mixed]

    def feed(layer, xs: list[list[float]]) -> list[list[float]]:
        inner, outer = layer.feed_forward[0], layer.feed_forward[3]
        near = range(-(encoder.kernel_size // 2), encoder.kernel_size // 2 + 1)

        def convolve(weights: torch.nn.Linear, rows: list[list[float]]) -> list[list[float]]:
            zeros = [0.0] * len(rows[0])
            places = range(len(rows))
            windows = [
                [v for j in near for v in (rows[i + j] if i + j in places else zeros)]
                for i in places
            ]
            return [linear(weights, window) for window in windows]

        hidden = [[max(value, 0.0) for value in row] for row in convolve(inner, xs)]
        return convolve(outer, hidden)

    add = oracles.add
    xs = [linear(encoder.projection, word) for word in words]
    xs = [add(x, oracles.positions(position, len(x))) for position, x in enumerate(xs)]
    for layer in encoder.transformer.layers:
        if layer.norm_first:
            updates = attend(layer, [norm(layer.attention_norm, x) for x in xs])
            xs = [add(x, update) for x, update in zip(xs, updates, strict=True)]
            updates = feed(layer, [norm(layer.feed_forward_norm, x) for x in xs])
            xs = [add(x, update) for x, update in zip(xs, updates, strict=True)]
        else:
            xs = [
                norm(layer.attention_norm, add(x, update))
                for x, update in zip(xs, attend(layer, xs), strict=True)
            ]
            xs = [
                norm(layer.feed_forward_norm, add(x, update))
                for x, update in zip(xs, feed(layer, xs), strict=True)
            ]
    return [norm(encoder.transformer.norm, x) for x in xs] if layer.norm_first else xs


@pytest.mark.parametrize(
    ("norm_first", "kernel_size"), [(True, 1), (False, 1), (True, 3), (False, 5)]
)
def test_transformer_equals_the_loop(norm_first: bool, kernel_size: int, x: Tensor) -> None:
    encoder = transformer(norm_first=norm_first, kernel_size=kernel_size)
    found = encoder(x, MASK)
    assert found[~MASK].eq(0).all()
    for row, mask, words in zip(found, MASK, x, strict=True):
        if mask.any():
            expected = transform(encoder, words[mask].tolist())
            torch.testing.assert_close(row[mask], torch.tensor(expected, dtype=torch.float64))


def lstm(**options) -> pe.LSTMSequenceEncoder:
    return pe.LSTMSequenceEncoder(3, hidden_size=5, num_layers=2, **options).double().eval()


def test_holes_are_skipped(x: Tensor) -> None:
    encoder = lstm()
    found = encoder(x, MASK)
    assert found[~MASK].eq(0).all()
    for row, mask, words in zip(found, MASK, x, strict=True):
        if mask.any():
            torch.testing.assert_close(row[mask], encoder(words[mask][None])[0])


@pytest.mark.parametrize("build", [transformer, lstm])
def test_no_mask_is_a_full_mask(build, x: Tensor) -> None:
    encoder = build()
    torch.testing.assert_close(encoder(x), encoder(x, torch.ones_like(MASK)))


def test_looks_at_context_on_both_sides(x: Tensor) -> None:
    encoder = lstm()
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(encoder(x)[:, 2].sum(), x)
    assert gradient.ne(0).any(-1).all()


OFF = {"dropout": 0.0, "attention_dropout": 0.0, "input_dropout": 0.0}


@pytest.mark.parametrize(
    ("build", "options"), [(lstm, {"dropout": 0.5})] + [(transformer, {**OFF, n: 0.5}) for n in OFF]
)
def test_dropout_only_in_training(build, options: dict[str, float], x: Tensor) -> None:
    encoder = build(**options)
    assert torch.equal(encoder(x, MASK), encoder(x, MASK))
    encoder.train()
    assert not torch.equal(encoder(x, MASK), encoder(x, MASK))
    assert encoder(x, MASK)[~MASK].eq(0).all()


def test_wrong_constructions() -> None:
    with pytest.raises(ValueError, match=r"^hidden_size must be a multiple of num_heads=4, got 6$"):
        pe.TransformerSequenceEncoder(3, hidden_size=6, num_heads=4)
    with pytest.raises(ValueError, match=r"^num_layers must be a positive integer, got 0$"):
        pe.TransformerSequenceEncoder(3, num_layers=0)
    refused(
        ValueError, r"^input_size must be a positive integer, got 2.5$", pe.LSTMSequenceEncoder, 2.5
    )
    refused(
        ValueError, r"^dropout must be in \[0, 1\), got 1$", pe.LSTMSequenceEncoder, 3, dropout=1
    )
    with pytest.raises(ValueError, match=r"^input_dropout must be in \[0, 1\), got 1.0$"):
        pe.TransformerSequenceEncoder(3, input_dropout=1.0)
    with pytest.raises(ValueError, match=r"^attention_dropout must be in \[0, 1\), got -0.1$"):
        pe.TransformerSequenceEncoder(3, attention_dropout=-0.1)


@own_words
@pytest.mark.parametrize("wrong", [None, [[1.0]], "x", np.zeros((2, 3, 5), np.float32)])
def test_what_is_no_tensor_is_named(wrong: object) -> None:
    modules = (
        pe.LSTMSequenceEncoder(5, hidden_size=4),
        pe.TransformerSequenceEncoder(5, hidden_size=8, num_heads=2),
    )
    for module in modules:
        with pytest.raises(TypeError, match=rf"^x must be a tensor, got {type(wrong).__name__}$"):
            module(wrong)
