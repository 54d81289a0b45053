"""Masked reductions against loops, on every mask of four."""

import itertools

import oracles
import pytest
import torch
from checks import refused
from toys import own_words

from polyembed.functional import masked_max, masked_mean
from polyembed.functional.masking import valid_first

MASKS = torch.tensor(list(itertools.product([False, True], repeat=4)))
REDUCTIONS = {"mean": (masked_mean, oracles.masked_mean), "max": (masked_max, oracles.masked_max)}


@pytest.fixture
def x() -> torch.Tensor:
    return (
        torch.randn(16, 4, 3, dtype=torch.float64) - 3
    )  # negative, so that a zero would win the maximum


@pytest.mark.parametrize("name", REDUCTIONS)
def test_equals_the_loop_on_every_mask(name: str, x: torch.Tensor) -> None:
    reduce, oracle = REDUCTIONS[name]
    expected = [oracle(row, mask) for row, mask in zip(x.tolist(), MASKS.tolist(), strict=True)]
    torch.testing.assert_close(reduce(x, MASKS), torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(reduce(x, None), reduce(x, torch.ones_like(MASKS)))


@pytest.mark.parametrize("filler", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_padding_may_hold_anything(name: str, filler: float, x: torch.Tensor) -> None:
    reduce, _ = REDUCTIONS[name]
    expected = reduce(x, MASKS)
    spoilt = torch.where(MASKS[..., None], x, filler).requires_grad_()
    value = reduce(spoilt, MASKS)
    assert torch.equal(value, expected)
    (gradient,) = torch.autograd.grad(value.sum(), spoilt)
    assert (
        torch.equal(gradient.ne(0).any(-1), MASKS)
        if name == "mean"
        else gradient[~MASKS].eq(0).all()
    )


@pytest.mark.parametrize("name", REDUCTIONS)
def test_is_differentiable_twice(name: str, x: torch.Tensor) -> None:
    reduce, _ = REDUCTIONS[name]
    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: reduce(x, MASKS), x, fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda x: reduce(x, MASKS), x, fast_mode=True)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_takes_any_batch_axes_and_no_positions(name: str) -> None:
    reduce, _ = REDUCTIONS[name]
    assert torch.equal(reduce(torch.ones(4, 3), torch.ones(4, dtype=torch.bool)), torch.ones(3))
    assert reduce(torch.ones(2, 5, 4, 3), torch.ones(2, 5, 4, dtype=torch.bool)).shape == (2, 5, 3)
    for mask in (None, torch.ones(2, 0, dtype=torch.bool)):
        assert torch.equal(reduce(torch.ones(2, 0, 3), mask), torch.zeros(2, 3))


def test_mean_accumulates_in_float32() -> None:
    x = torch.ones(1, 4096, 1, dtype=torch.bfloat16)  # bfloat16 cannot count beyond 256
    for mask in (None, torch.ones(1, 4096, dtype=torch.bool)):
        mean = masked_mean(x, mask)
        assert mean.dtype == torch.bfloat16
        assert mean.item() == 1.0


@own_words
@pytest.mark.parametrize("name", REDUCTIONS)
def test_refuses_other_masks(name: str, x: torch.Tensor) -> None:
    reduce, _ = REDUCTIONS[name]
    refused(
        TypeError, r"^mask must be bool \(True = valid\), got torch.int64$", reduce, x, MASKS.long()
    )
    refused(ValueError, r"^mask must have shape \(16, 4\), got \(4, 16\)$", reduce, x, MASKS.T)


def test_valid_first_closes_holes_and_opens_them_again() -> None:
    order = valid_first(MASKS)
    for row, mask in zip(order.tolist(), MASKS.tolist(), strict=True):
        assert row == [i for i in range(4) if mask[i]] + [i for i in range(4) if not mask[i]]
    assert torch.equal(torch.zeros_like(MASKS).scatter(1, order, MASKS.gather(1, order)), MASKS)
