"""What only a GPU can show: the same numbers there, and forwards that never make the host wait."""

import copy

import pytest
import torch
from cases import CASES, DEVICE
from contracts import Batch, Case
from torch import Tensor

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def to_gpu(batch: Batch) -> Batch:
    def move(value: object) -> object:
        if isinstance(value, Tensor):
            return value.cuda()
        return [move(item) for item in value] if isinstance(value, list) else value

    return {name: move(value) for name, value in batch.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_same_numbers_as_on_the_cpu(case: Case) -> None:
    module = case.module(torch.float32)
    batch = case.batch(dtype=torch.float32)
    expected = case.call(copy.deepcopy(module), batch)
    found = case.call(module.cuda(), to_gpu(batch))
    torch.testing.assert_close(found.cpu(), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if DEVICE not in case.exceptions],
    ids=lambda case: case.name,
)
def test_forward_does_not_wait(case: Case) -> None:
    module, batch = case.module(torch.float32).cuda(), to_gpu(case.batch(dtype=torch.float32))
    case.call(module, batch)  # what is built on first use
    torch.cuda.set_sync_debug_mode("error")
    try:
        case.call(module, batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
