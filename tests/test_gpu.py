"""What only a GPU can show: the same numbers there, and forwards that never make the host wait."""

import copy

import pytest
import torch
from cases import CASES, DEVICE
from contracts import Case, each
from torch import Tensor

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_same_numbers_as_on_the_cpu(case: Case) -> None:
    module = case.module(torch.float32)
    batch = case.batch(dtype=torch.float32)
    expected = case.call(copy.deepcopy(module), batch)
    found = case.call(module.cuda(), each(batch, Tensor.cuda))
    torch.testing.assert_close(found.cpu(), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if DEVICE not in case.exceptions],
    ids=lambda case: case.name,
)
def test_forward_does_not_wait(case: Case) -> None:
    module, batch = case.module(torch.float32).cuda(), case.batch(dtype=torch.float32)
    batch = each(batch, Tensor.cuda)
    case.call(module, batch)  # what is built on first use
    torch.cuda.set_sync_debug_mode("error")
    try:
        case.call(module, batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
