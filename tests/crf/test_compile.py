"""Under the compiler: one graph for every length, and the same numbers."""

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from toys import compiles

import polyembed as pe

pytestmark = compiles


def batch(rows: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    emissions = torch.randn(rows, width, 3, dtype=torch.float64, requires_grad=True)
    return emissions, torch.randint(3, (rows, width)), torch.rand(rows, width) < 0.7


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_one_graph_for_all_lengths(backend: str) -> None:
    torch.compiler.reset()
    crf = pe.CRF(3).double()
    counter = CompileCounterWithBackend(backend)
    plain = (crf.log_prob, crf.marginals, crf.entropy, crf.decode_tensor)
    compiled = [torch.compile(one, fullgraph=True, dynamic=True, backend=counter) for one in plain]

    def values(log_prob, marginals, entropy, decode, emissions: Tensor, tags: Tensor, mask: Tensor):
        found = log_prob(emissions, tags, mask)
        gradients = torch.autograd.grad(found.square().sum(), [emissions, *crf.parameters()])
        with torch.no_grad():
            others = [call(emissions, mask) for call in (marginals, entropy, decode)]
        return found, *gradients, *others

    counts = []
    for rows, width in ((5, 7), (13, 3), (3, 11)):
        inputs = batch(rows, width)
        torch.testing.assert_close(values(*compiled, *inputs), values(*plain, *inputs))
        counts.append(counter.frame_count)
    assert len(set(counts)) == 1, f"a length was compiled anew: {counts} graphs"


class Both(nn.Module):
    def __init__(self, crf: pe.CRF) -> None:
        super().__init__()
        self.crf = crf

    def forward(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return self.crf.log_prob(emissions, tags, mask), self.crf.decode_tensor(emissions, mask)


def test_export_with_free_sizes() -> None:
    module = Both(pe.CRF(3, constraints=pe.Constraints.bio(["O", "B-X", "I-X"])).double())
    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with torch.no_grad():
        program = torch.export.export(module, batch(5, 7), dynamic_shapes=(sizes, sizes, sizes))
        for rows, width in ((4, 13), (3, 2), (2, 1)):
            other = batch(rows, width)
            torch.testing.assert_close(program.module()(*other), module(*other))
