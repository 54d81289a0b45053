"""The CRF under `torch.compile`: one graph for every length, and the same numbers."""

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from toys import compiles

import polyembed as pe

pytestmark = compiles


def batch(rows: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    emissions = torch.randn(rows, width, 3, dtype=torch.float64, requires_grad=True)
    return emissions, torch.randint(3, (rows, width)), torch.rand(rows, width) < 0.7


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_one_graph_for_all_lengths(backend: str):
    torch.compiler.reset()
    crf = pe.CRF(3).double()
    counter = CompileCounterWithBackend(backend)
    plain = (crf.log_prob, crf.entropy, crf.decode_tensor)
    compiled = [torch.compile(one, fullgraph=True, dynamic=True, backend=counter) for one in plain]

    def values(log_prob, entropy, decode, emissions, tags, mask):
        found = log_prob(emissions, tags, mask)
        gradients = torch.autograd.grad(found.square().sum(), [emissions, *crf.parameters()])
        with torch.no_grad():
            others = entropy(emissions, mask), decode(emissions, mask)
        return found, *gradients, *others

    counts = []
    for rows, width in ((5, 7), (3, 11)):
        inputs = batch(rows, width)
        torch.testing.assert_close(values(*compiled, *inputs), values(*plain, *inputs))
        counts.append(counter.frame_count)
    assert len(set(counts)) == 1, f"a length was compiled anew: {counts} graphs"


def test_export_with_free_sizes():
    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    crf = pe.CRF(3).double()
    with torch.no_grad():
        program = torch.export.export(crf, batch(5, 7), dynamic_shapes=(sizes, sizes, sizes))
        for size in ((4, 13), (2, 1)):
            other = batch(*size)
            torch.testing.assert_close(program.module()(*other), crf(*other))
