"""The partition function against the textbook's loop, up to the third derivative.

The tests run in probabilities, in logarithms, in chunks and under vmap.
"""

import pytest
import torch
from torch import Tensor
from torch.func import grad, hessian, jacfwd, jvp

from polyembed.crf import partition
from polyembed.crf.numpy_viterbi import FORBIDDEN
from polyembed.crf.partition import by_loop, in_probabilities, partition_and_marginals

LENGTHS = torch.tensor([7, 1, 0, 4, 3])
MASK = torch.arange(7) < LENGTHS[:, None]
NUM_TAGS = 3


@pytest.fixture(params=["probabilities", "logs", "chunks"])
def way(request, monkeypatch) -> str:
    """Select the computation: float64 probabilities, logarithms, or logarithms in chunks.

    A CPU uses probabilities, or logarithms where the probabilities are out of range. A GPU uses
    chunks.
    """
    if request.param != "probabilities":
        monkeypatch.setattr(partition, "in_probabilities", lambda *_: None)
    if request.param == "chunks":
        monkeypatch.setattr(partition, "chunk_length", lambda _: 2)
    monkeypatch.setattr(partition, "BLOCK", 100)  # several blocks of words
    return request.param


@pytest.fixture
def arguments() -> tuple[Tensor, Tensor]:
    emissions = torch.randn(5, 7, NUM_TAGS, dtype=torch.float64)
    transitions = torch.randn(NUM_TAGS, NUM_TAGS, dtype=torch.float64)
    return emissions, transitions


def ours(emissions: Tensor, transitions: Tensor) -> Tensor:
    emissions = torch.where(MASK[..., None], emissions, 0.0)
    return partition.partition(emissions, MASK, transitions)


def theirs(emissions: Tensor, transitions: Tensor) -> Tensor:
    emissions = torch.where(MASK[..., None], emissions, 0.0)
    return by_loop(emissions, MASK, transitions)


def test_marginals_are_the_gradient(way, arguments):
    emissions, transitions = arguments
    emissions = torch.where(MASK[..., None], emissions, 0.0)
    found = partition_and_marginals(emissions, MASK, transitions)
    inputs = emissions.requires_grad_(), transitions.expand(5, -1, -1).clone().requires_grad_()
    expected = by_loop(inputs[0], MASK, inputs[1])
    gradients = torch.autograd.grad(expected.sum(), inputs)
    torch.testing.assert_close(found, (expected.detach(), *gradients))


def test_derivatives_to_the_third(way, arguments):
    """Check two backward passes, as in a trainer, and the derivatives of ``torch.func``."""
    emissions, transitions = (x.requires_grad_() for x in arguments)
    assert torch.autograd.gradcheck(ours, arguments, fast_mode=True)
    assert torch.autograd.gradgradcheck(ours, arguments, fast_mode=True)
    weights = torch.randn(*[NUM_TAGS] * 4, dtype=torch.float64)
    found, expected = (
        grad(lambda a: (hessian(lambda a: one(emissions, a).sum())(a) * weights).sum())(transitions)  # noqa: B023
        for one in (ours, theirs)
    )
    torch.testing.assert_close(found, expected)
    second = jacfwd(jacfwd(lambda a: ours(emissions, a).sum()))(transitions)
    torch.testing.assert_close(second, hessian(lambda a: theirs(emissions, a).sum())(transitions))


def test_the_ways_of_a_bilevel_trainer_agree(way, arguments):
    """Three orders of differentiation have the same mixed second derivative.

    The orders are reverse over reverse, forward over reverse, and reverse over forward.
    """
    emissions, transitions = arguments
    way = torch.randn_like(transitions)

    def value(e, a):
        return ours(e, a).sum()

    expected = grad(lambda e: (grad(value, 1)(e, transitions) * way).sum())(emissions)
    forward = jvp(lambda a: grad(value)(emissions, a), (transitions,), (way,))[1]
    torch.testing.assert_close(forward, expected)
    inner = lambda e: jvp(lambda a: value(e, a), (transitions,), (way,))[1]  # noqa: E731
    torch.testing.assert_close(grad(inner)(emissions), expected)


def test_probabilities_know_their_limits():
    """Scores beyond the range of float64 probabilities are computed correctly, in logarithms."""
    emissions, mask = torch.zeros(1, 3, 2, dtype=torch.float64), torch.ones(1, 3, dtype=torch.bool)
    emissions[0, 0] = torch.tensor([0.0, -800.0])  # tag 1 is far behind after the first word
    emissions[0, 2] = torch.tensor([-2000.0, 0.0])  # and far ahead after the last word
    never = torch.tensor([[0.0, -5000.0], [-5000.0, 0.0]], dtype=torch.float64)
    log_z, unary, _ = partition_and_marginals(emissions, mask, never)
    torch.testing.assert_close(log_z, by_loop(emissions, mask, never))
    assert log_z.item() == -800.0
    torch.testing.assert_close(unary[0, :, 1], torch.ones(3, dtype=torch.float64))
    assert in_probabilities(emissions, mask, never) is None
    assert in_probabilities(emissions / 100, mask, never / 100) is not None
    forbidden = torch.where(never < -1, FORBIDDEN, never)
    assert in_probabilities(emissions / 100, mask, forbidden) is not None


def _agree(emissions: Tensor, transitions: Tensor) -> None:
    mask = torch.ones(emissions.shape[:2], dtype=torch.bool)
    log_z, unary, _ = partition_and_marginals(emissions, mask, transitions)
    point = emissions.clone().requires_grad_()
    expected = by_loop(point, mask, transitions)
    torch.testing.assert_close(log_z, expected.detach())
    torch.testing.assert_close(unary, torch.autograd.grad(expected.sum(), point)[0])


def test_a_finite_score_that_no_probability_holds_is_not_taken_for_forbidden():
    """A path with a change of tag has a finite score, but its probability is 0 in float64.

    The best path never changes its tag.
    """
    emissions = torch.zeros(1, 60, 2, dtype=torch.float64)
    emissions[0, 1:-1, 0] = -90.0
    emissions[0, 0, 1] = -1e3
    _agree(emissions, torch.tensor([[0.0, -1e3], [-1e3, 0.0]], dtype=torch.float64))


def test_messages_that_meet_far_behind_are_not_lost():
    """Each message is in range, but their product is not.

    The chain has three tags that never change. Two of the tags are forbidden in one half each.
    """
    reach = 5
    emissions = torch.zeros(1, 2 * reach + 1, 3, dtype=torch.float64)
    emissions[0, :, 1] = -90.0
    emissions[0, reach, 1] = 0.0
    emissions[0, reach + 1 :, 0] = emissions[0, :reach, 2] = FORBIDDEN
    _agree(emissions, torch.full((3, 3), FORBIDDEN, dtype=torch.float64).fill_diagonal_(0.0))
