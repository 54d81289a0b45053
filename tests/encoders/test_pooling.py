"""Pooling of pieces to words and of sequences to vectors, against loops."""

import oracles
import pytest
import torch
from checks import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from toys import own_words

from polyembed.encoders.pooling import (
    SEQUENCE_POOLINGS,
    WORD_POOLINGS,
    pool_sequence,
    pool_words,
)

INDEX = torch.tensor(
    [[-1, 0, 0, 1, 3, -1, -1], [-1, 2, 0, 0, 2, 1, -1], [-1] * 7]
)  # rows with a gap, with words out of order, and without words


def by_loops(hidden: Tensor, index: Tensor, num_words: int, pooling: str) -> Tensor:
    rows = [
        oracles.pool_words(pieces, words, num_words, pooling)
        for pieces, words in zip(hidden.tolist(), index.tolist(), strict=True)
    ]
    return torch.tensor(rows, dtype=torch.float64).reshape(len(hidden), num_words, hidden.shape[2])


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from(WORD_POOLINGS))
def test_any_index_is_a_loop_over_words(data: st.DataObject, pooling: str):
    num_words = data.draw(st.integers(1, 4))
    index = data.draw(st.lists(st.integers(-1, num_words - 1), min_size=1, max_size=9))
    hidden = torch.randint(
        -2, 3, (1, len(index), 2), generator=torch.Generator().manual_seed(len(index))
    ).double()
    found = pool_words(hidden, torch.tensor([index]), num_words, pooling=pooling)
    torch.testing.assert_close(found, by_loops(hidden, torch.tensor([index]), num_words, pooling))


@pytest.mark.parametrize("pooling", WORD_POOLINGS)
def test_pieces_of_no_word_do_not_matter(pooling):
    hidden = torch.randn(3, 7, 5, dtype=torch.float64)
    spoilt = torch.where((INDEX == -1)[..., None], float("nan"), hidden).requires_grad_()
    found = pool_words(spoilt, INDEX, 4, pooling=pooling)
    torch.testing.assert_close(found, by_loops(hidden, INDEX, 4, pooling))
    (gradient,) = torch.autograd.grad(found.square().sum(), spoilt)
    assert gradient.isfinite().all()
    assert not gradient[INDEX == -1].any()
    beyond = torch.where(INDEX == 3, 9, INDEX)  # more words than the requested number
    fewer = pool_words(hidden, beyond, 3, pooling=pooling)
    torch.testing.assert_close(fewer, found[:, :3])
    for shape, count in (((0, 7), 2), ((3, 0), 2), ((3, 7), 0)):
        none = pool_words(torch.ones(*shape, 5), torch.zeros(shape).int(), count, pooling=pooling)
        assert torch.equal(none, torch.zeros(shape[0], count, 5))


@pytest.mark.parametrize("pooling", WORD_POOLINGS)
def test_nan_in_a_word_is_not_hidden(pooling):
    """Regression: the maximum over pieces of NaN was 0, as if the word had no pieces."""
    hidden = torch.tensor([[[float("nan")], [1.0], [float("nan")], [5.0], [6.0]]])
    found = pool_words(hidden, torch.tensor([[0, 0, 0, 1, 1]]), 2, pooling=pooling)
    assert found[0, 0].isnan().all()
    assert found[0, 1].isfinite().all()


@pytest.mark.parametrize("pooling", WORD_POOLINGS)
def test_low_precision_adds_up_in_float32(pooling):
    hidden = torch.full((1, 1000, 1), 1.01, dtype=torch.bfloat16)
    found = pool_words(hidden, torch.zeros(1, 1000, dtype=torch.int64), 1, pooling=pooling)
    assert found.dtype == torch.bfloat16
    expected = 1000 * float(hidden[0, 0, 0]) if pooling == "sum" else float(hidden[0, 0, 0])
    assert float(found) == pytest.approx(expected, rel=0.004)


@pytest.mark.parametrize("pooling", SEQUENCE_POOLINGS)
def test_sequences(pooling):
    hidden = torch.randn(3, 4, 2, dtype=torch.float64)
    mask = torch.tensor([[0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 0, 0]], dtype=torch.bool)
    spoilt = torch.where(mask[..., None], hidden, float("nan"))
    expected = torch.zeros(3, 2, dtype=torch.float64)
    for row in range(2):
        valid = hidden[row][mask[row]]
        expected[row] = {"cls": valid[0], "mean": valid.mean(0), "max": valid.amax(0)}[pooling]
    torch.testing.assert_close(pool_sequence(spoilt, mask, pooling=pooling), expected)
    whole = pool_sequence(hidden, torch.ones(3, 4, dtype=torch.bool), pooling=pooling)
    torch.testing.assert_close(pool_sequence(hidden, pooling=pooling), whole)
    assert pool_sequence(hidden[:, :0], pooling=pooling).tolist() == [[0.0, 0.0]] * 3


X = torch.ones(3, 7, 5)


@own_words
@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ValueError, r"^word_index must have shape \(3, 7\)", lambda: pool_words(X, INDEX[:2], 4)),
        (ValueError, "^pooling must be one of", lambda: pool_words(X, INDEX, 4, pooling="cls")),
        (TypeError, "^mask must be bool", lambda: pool_sequence(X, INDEX)),
    ],
)
def test_bad_input(error, message, call):
    refused(error, message, call)
