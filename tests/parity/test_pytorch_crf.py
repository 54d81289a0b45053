"""The CRF against pytorch-crf where the latter is right.

It is right for masks without holes in which the first word is valid.
"""

import pytest
import torch
import torchcrf
from torch import Tensor

import polyembed as pe

LENGTHS = torch.tensor([5, 1, 3])


@pytest.fixture(params=[True, False], ids=["batch_first", "word_first"])
def both(request) -> tuple[pe.CRF, torchcrf.CRF]:
    mine, theirs = pe.CRF(7, batch_first=request.param), torchcrf.CRF(7, batch_first=request.param)
    theirs.load_state_dict(mine.state_dict())
    return mine.double(), theirs.double()


@pytest.fixture
def batch(both) -> tuple[Tensor, Tensor, Tensor]:
    emissions = torch.randn(3, 5, 7, dtype=torch.float64)
    tags = torch.randint(7, (3, 5))
    mask = torch.arange(5) < LENGTHS[:, None]
    return (
        (emissions, tags, mask)
        if both[0].batch_first
        else tuple(x.transpose(0, 1) for x in (emissions, tags, mask))
    )


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "token_mean"])
def test_log_likelihood_gradients_and_decode(both, batch, reduction: str, dtype: torch.dtype):
    emissions, tags, mask = batch

    def value_and_gradients(crf, mask):
        x = emissions.clone().requires_grad_()
        value = crf(x, tags, mask, reduction=reduction)
        return [value, *torch.autograd.grad(value.sum(), [x, *crf.parameters()])]

    mine, theirs = both
    # torchcrf accepts uint8 masks but warns about them in places, so it always gets a bool mask
    expected = value_and_gradients(theirs, mask)
    for found, reference in zip(value_and_gradients(mine, mask.to(dtype)), expected, strict=True):
        torch.testing.assert_close(found, reference)
    assert mine.decode(emissions, mask.to(dtype)) == theirs.decode(emissions, mask)


def test_without_a_mask(both, batch):
    emissions, tags, mask = batch
    mine, theirs = both
    full = torch.ones_like(mask)
    torch.testing.assert_close(mine(emissions, tags), theirs(emissions, tags, full))
    assert mine.decode(emissions) == theirs.decode(emissions, full)
