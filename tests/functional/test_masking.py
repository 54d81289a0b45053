"""Masked reductions against loops, on every mask of four positions."""

import itertools

import oracles
import pytest
import torch
from checks import refused
from toys import own_words

from polyembed.functional import masked_max, masked_mean
from polyembed.functional.masking import valid_first

MASKS = torch.tensor(list(itertools.product([False, True], repeat=4)))
each = pytest.mark.parametrize(
    ("reduce", "oracle"), [(masked_mean, oracles.masked_mean), (masked_max, oracles.masked_max)]
)


@pytest.fixture
def x() -> torch.Tensor:
    # negative, so that a zero would win the maximum
    return (torch.randn(16, 4, 3, dtype=torch.float64) - 3).requires_grad_()


@each
def test_equals_the_loop_on_every_mask(reduce, oracle, x: torch.Tensor):
    expected = [oracle(row, mask) for row, mask in zip(x.tolist(), MASKS.tolist(), strict=True)]
    torch.testing.assert_close(reduce(x, MASKS), torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(reduce(x, None), reduce(x, torch.ones_like(MASKS)))
    for mask in (None, torch.ones(2, 0, dtype=torch.bool)):
        assert torch.equal(reduce(torch.ones(2, 0, 3), mask), torch.zeros(2, 3))
    assert torch.autograd.gradgradcheck(lambda x: reduce(x, MASKS), x, fast_mode=True)


@each
@pytest.mark.parametrize("filler", [float("nan"), float("inf")])
def test_padding_may_hold_anything(reduce, oracle, filler: float, x: torch.Tensor):
    value = reduce(torch.where(MASKS[..., None], x, filler), MASKS)
    assert torch.equal(value, reduce(x, MASKS))
    (gradient,) = torch.autograd.grad(value.sum(), x)
    assert gradient[~MASKS].eq(0).all()
    assert reduce is masked_max or gradient[MASKS].ne(0).all()


def test_maximum_of_infinities():
    x = torch.full((1, 4, 3), -torch.inf)
    assert torch.equal(masked_max(x, MASKS[1:2]), masked_max(x, None))


def test_mean_accumulates_in_float32():
    x = torch.ones(1, 4096, 1, dtype=torch.bfloat16)  # bfloat16 cannot count beyond 256
    for mask in (None, torch.ones(1, 4096, dtype=torch.bool)):
        mean = masked_mean(x, mask)
        assert mean.dtype == torch.bfloat16
        assert mean.item() == 1.0


@own_words
@each
def test_refuses_other_masks(reduce, oracle, x: torch.Tensor):
    refused(
        TypeError, r"^mask must be bool \(True = valid\), got torch.int64$", reduce, x, MASKS + 0
    )
    refused(ValueError, r"^mask must have shape \(16, 4\), got \(4, 16\)$", reduce, x, MASKS.T)


def test_valid_first_closes_holes():
    for row, mask in zip(valid_first(MASKS).tolist(), MASKS.tolist(), strict=True):
        assert row == [i for i in range(4) if mask[i]] + [i for i in range(4) if not mask[i]]
