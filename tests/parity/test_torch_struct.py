"""The CRF against torch-struct: partition, marginals, top-k and entropy, for all lengths."""

import pytest
import torch
from torch import Tensor

from polyembed.crf import entropy, log_partition, marginals, n_best

pytestmark = pytest.mark.filterwarnings("ignore:.*does not define `arg_constraints`:UserWarning")
torch_struct = pytest.importorskip("torch_struct")

LENGTHS = torch.tensor([6, 2, 4])
NUM_TAGS = 5


@pytest.fixture
def scores() -> tuple[Tensor, ...]:
    shapes = (3, 6, NUM_TAGS), (NUM_TAGS, NUM_TAGS), (NUM_TAGS,), (NUM_TAGS,)
    return tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)


@pytest.fixture
def theirs(scores):
    """Build potentials ``(batch, edge, to, from)``.

    The potentials of an edge are its transitions plus the emissions of its second word.
    """
    emissions, transitions, start, end = scores
    potentials = transitions.T + emissions[:, 1:, :, None]
    potentials[:, 0] += (start + emissions[:, 0])[:, None, :]
    for row, length in enumerate(LENGTHS):
        potentials[row, length - 2] += end[:, None]
    return torch_struct.LinearChainCRF(potentials, lengths=LENGTHS)


@pytest.fixture
def ours(scores) -> tuple[Tensor, ...]:
    emissions, *others = scores
    return emissions, torch.arange(6) < LENGTHS[:, None], *others


def test_partition(theirs, ours):
    torch.testing.assert_close(log_partition(*ours), theirs.partition)


def test_marginals(theirs, ours):
    edges = theirs.marginals  # (batch, edge, to, from)
    transitions = ours[2].requires_grad_()
    (pairs,) = torch.autograd.grad(log_partition(*ours).sum(), transitions)
    torch.testing.assert_close(pairs, edges.sum((0, 1)).mT)
    unary = marginals(*ours).detach()
    torch.testing.assert_close(unary[:, 0], edges[:, 0].sum(1))
    torch.testing.assert_close(unary[:, 1:], edges.sum(3))


def test_top_k(theirs, ours):
    best = n_best(*ours, k=4)
    edges = theirs.topk(4)  # (path, batch, edge, to, from)
    for row, length in enumerate(LENGTHS.tolist()):
        for place in range(4):
            steps = edges[place, row, : length - 1].nonzero()  # (edge, to, from)
            path = [steps[0, 2].item(), *steps[:, 1].tolist()]
            assert best.tags[row, place, :length].tolist() == path


def test_entropy(theirs, ours):
    torch.testing.assert_close(entropy(*ours), theirs.entropy)
