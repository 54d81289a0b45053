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
    log_prob = torch.compile(crf.log_prob, fullgraph=True, dynamic=True, backend=counter)
    decode = torch.compile(crf.decode_tensor, fullgraph=True, dynamic=True, backend=counter)
    counts = []
    for rows, width in ((5, 7), (4, 11), (13, 3), (3, 2)):
        emissions, tags, mask = batch(rows, width)
        inputs = [emissions, *crf.parameters()]
        found, expected = log_prob(emissions, tags, mask), crf.log_prob(emissions, tags, mask)
        torch.testing.assert_close(found, expected)
        gradients = zip(
            torch.autograd.grad(found.sum(), inputs), torch.autograd.grad(expected.sum(), inputs), strict=True
        )
        for gradient, reference in gradients:
            torch.testing.assert_close(gradient, reference)
        with torch.no_grad():
            assert torch.equal(decode(emissions, mask), crf.decode_tensor(emissions, mask))
        counts.append(counter.frame_count)
    assert len(set(counts)) == 1, f"a length was compiled anew: {counts} graphs"


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_as_users_do(backend: str) -> None:
    """Without an option: the likelihood, the probabilities, and their gradients."""
    torch.compiler.reset()
    crf = pe.CRF(5)
    for run in (lambda e, t: crf(e, t), lambda e, t: crf.marginals(e).square(), lambda e, t: crf.entropy(e)):
        compiled = torch.compile(run, backend=backend)
        for rows, width in ((3, 4), (4, 7)):
            emissions, tags = torch.randn(rows, width, 5, requires_grad=True), torch.randint(5, (rows, width))
            inputs = [emissions, *crf.parameters()]
            found, expected = compiled(emissions, tags), run(emissions, tags)
            torch.testing.assert_close(found, expected)
            gradients = (torch.autograd.grad(value.sum(), inputs) for value in (found, expected))
            torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-4)


class Both(nn.Module):
    def __init__(self, crf: pe.CRF) -> None:
        super().__init__()
        self.crf = crf

    def forward(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return self.crf.log_prob(emissions, tags, mask), self.crf.decode_tensor(emissions, mask)


def test_export_with_free_sizes() -> None:
    tags = ["O", "B-X", "I-X"]
    module = Both(pe.CRF(3, constraints=pe.Constraints.bio(tags)).double())
    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with torch.no_grad():
        program = torch.export.export(module, batch(5, 7), dynamic_shapes=(sizes, sizes, sizes))
        for rows, width in ((4, 13), (3, 2), (2, 1)):
            other = batch(rows, width)
            for found, expected in zip(program.module()(*other), module(*other), strict=True):
                torch.testing.assert_close(found, expected)
