"""The Transformer against loops, and the LSTM against itself on compacted sentences."""

from itertools import chain

import oracles
import pytest
import torch
from checks import refused
from torch import Tensor

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
    for parameter in encoder.parameters():  # norms and biases are not neutral either
        torch.nn.init.normal_(parameter)
    return encoder


def transform(
    encoder: pe.TransformerSequenceEncoder, words: list[list[float]]
) -> list[list[float]]:
    """Compute the paper's equations for one sentence."""

    def linear(layer, x):
        return oracles.matvec(layer.weight.tolist(), x, layer.bias.tolist())

    def norm(layer, x):
        return oracles.layer_norm(x, layer.weight.tolist(), layer.bias.tolist())

    def attend(layer, xs):
        fused = layer.query_key_value
        mixed = oracles.self_attention(
            xs, fused.weight.tolist(), fused.bias.tolist(), layer.num_heads
        )
        return [linear(layer.attention_output, row) for row in mixed]

    def feed(layer, xs):
        inner, outer = layer.feed_forward[0], layer.feed_forward[3]
        edge = encoder.kernel_size // 2

        def convolve(weights, rows):
            zeros = [[0.0] * len(rows[0])] * edge
            padded = [*zeros, *rows, *zeros]
            windows = (padded[i : i + 2 * edge + 1] for i in range(len(rows)))
            return [linear(weights, [*chain.from_iterable(window)]) for window in windows]

        hidden = [[max(value, 0.0) for value in row] for row in convolve(inner, xs)]
        return convolve(outer, hidden)

    add = oracles.add
    xs = [linear(encoder.projection, word) for word in words]
    xs = [add(x, oracles.positions(position, len(x))) for position, x in enumerate(xs)]
    for layer in encoder.transformer.layers:
        blocks = (layer.attention_norm, attend), (layer.feed_forward_norm, feed)
        for scale, block in blocks:
            read = [norm(scale, x) for x in xs] if layer.norm_first else xs
            xs = [add(x, update) for x, update in zip(xs, block(layer, read), strict=True)]
            xs = xs if layer.norm_first else [norm(scale, x) for x in xs]
    return [norm(encoder.transformer.norm, x) for x in xs] if layer.norm_first else xs


@pytest.mark.parametrize(
    ("norm_first", "kernel_size"), [(True, 1), (False, 1), (True, 3), (False, 5)]
)
def test_transformer_equals_the_loop(norm_first, kernel_size, x):
    encoder = transformer(norm_first=norm_first, kernel_size=kernel_size)
    found = encoder(x, MASK)
    assert found[~MASK].eq(0).all()
    for row, mask, words in zip(found, MASK, x, strict=True):
        if mask.any():
            expected = transform(encoder, words[mask].tolist())
            torch.testing.assert_close(row[mask], torch.tensor(expected, dtype=torch.float64))


def lstm(**options) -> pe.LSTMSequenceEncoder:
    return pe.LSTMSequenceEncoder(3, hidden_size=5, num_layers=2, **options).double().eval()


def test_the_lstm_is_torchs_over_the_words_of_a_mask(x):
    encoder = lstm()
    theirs = torch.nn.LSTM(3, 5, 2, bidirectional=True, batch_first=True).double()
    sides = {"": encoder.forward_layers, "_reverse": encoder.backward_layers}
    state = {
        name.replace("_l0", f"_l{number}{end}"): value
        for end, layers in sides.items()
        for number, layer in enumerate(layers)
        for name, value in layer.state_dict().items()
    }
    theirs.load_state_dict(state)
    found = encoder(x, MASK)
    assert found[~MASK].eq(0).all()
    for row in (0, 1, 3):
        expected = theirs(x[row][MASK[row]][None])[0][0]
        torch.testing.assert_close(found[row][MASK[row]], expected)
    torch.testing.assert_close(encoder(x), theirs(x)[0])


OFF = {"dropout": 0.0, "attention_dropout": 0.0, "input_dropout": 0.0}


@pytest.mark.parametrize(
    ("build", "options"), [(lstm, {"dropout": 0.5})] + [(transformer, {**OFF, n: 0.5}) for n in OFF]
)
def test_dropout_only_in_training(build, options, x):
    encoder = build(**options)
    assert torch.equal(encoder(x, MASK), encoder(x, MASK))
    encoder.train()
    assert not torch.equal(encoder(x, MASK), encoder(x, MASK))
    assert encoder(x, MASK)[~MASK].eq(0).all()


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (transformer, {"num_heads": 4}, "^hidden_size must be a multiple of num_heads=4, got 6$"),
        (transformer, {"input_dropout": 1.0}, r"^input_dropout must be in \[0, 1\), got 1.0$"),
        (lstm, {"dropout": 1}, r"^dropout must be in \[0, 1\), got 1$"),
    ],
)
def test_wrong_constructions(build, options, message):
    refused(ValueError, message, build, **options)


def test_the_lstm_is_told_whether_there_is_a_gradient(x, monkeypatch):
    """The flag is also set in evaluation mode, because cuDNN needs it to compute gradients."""
    encoder, told, lstm = pe.LSTMSequenceEncoder(3).double().eval(), [], torch._VF.lstm

    def record(*arguments):
        told.append(arguments[6])
        return lstm(*arguments)

    monkeypatch.setattr(torch._VF, "lstm", record)
    encoder(x, MASK)
    with torch.no_grad():
        encoder(x, MASK)
    assert told == [True, True, False, False]
