"""Scores and probabilities of paths against enumeration, on every mask of four words.

The tests run eagerly and compiled.
"""

import itertools
import math

import oracles
import pytest
import torch
from torch import Tensor

from polyembed.crf import entropy, log_partition, log_prob, marginals, viterbi

MASKS = torch.tensor(list(itertools.product([False, True], repeat=4)))
NUM_TAGS = 3

Scores = tuple[Tensor, Tensor, Tensor]


@pytest.fixture
def tags() -> Tensor:
    return torch.randint(NUM_TAGS, (16, 4))


def close(found: Tensor, expected: list) -> None:
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def chains(rows: Tensor) -> list[list]:
    """Return the valid positions of each row, as in the papers' equations."""
    pairs = zip(rows.tolist(), MASKS.tolist(), strict=True)
    return [oracles.valid(row, mask) for row, mask in pairs]


def test_equal_the_loops_and_the_sums_over_all_paths(emissions, tags, scores):
    arguments = emissions, MASKS, *scores
    lists = [score.tolist() for score in scores]
    rows = chains(emissions)
    paths = [tuple(path) for path in chains(tags)]
    found = log_prob(emissions, torch.where(MASKS, tags, -100), MASKS, *scores)
    found += log_partition(*arguments)
    pairs = zip(rows, paths, strict=True)
    close(found, [oracles.path_score(chain, path, *lists) for chain, path in pairs])
    log_z = [oracles.log_partition(chain, *lists) if chain else 0.0 for chain in rows]
    close(log_partition(*arguments), log_z)
    shares = [oracles.path_probabilities(chain, *lists) if chain else {(): 1.0} for chain in rows]
    close(entropy(*arguments), [oracles.entropy(p) for p in shares])
    unary = marginals(*arguments)
    assert unary[~MASKS].eq(0).all()
    close(unary[MASKS], [row for p in shares for row in oracles.marginals(p, NUM_TAGS)])


def test_the_entropy_of_a_long_certain_chain_is_not_lost():
    """A difference of two values near 25,000 would lose the entropy in float32."""
    certain, mask = torch.zeros(2, 500, 5), torch.ones(2, 500, dtype=torch.bool)
    certain[..., 1] = 50.0
    flat = [torch.zeros(5, 5), torch.zeros(5), torch.zeros(5)]
    assert entropy(certain, mask, *flat).abs().max() < 1e-4
    expected = torch.full((2,), 500 * math.log(5))
    torch.testing.assert_close(entropy(certain * 0, mask, *flat), expected)


TAG = torch.arange(NUM_TAGS)
FORBID = {  # emissions, transitions, start
    "a tag everywhere": (TAG < 0, TAG == 2, TAG == 2),
    "an emission": (TAG == 1, TAG < 0, TAG < 0),
    "every path": (TAG >= 0, TAG < 0, TAG < 0),
    "every transition": (TAG < 0, TAG >= 0, TAG < 0),
}


def forbid(what: str, emissions: Tensor, scores: Scores) -> list[Tensor]:
    pairs = zip((emissions, *scores), (*FORBID[what], TAG < 0), strict=True)
    return [x.masked_fill(forbidden, -math.inf).requires_grad_() for x, forbidden in pairs]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_stays_nan(emissions, scores, value: float):
    broken = emissions.clone()
    broken[-1, 0, 0] = value
    for function in (log_partition, marginals, entropy):
        found = function(broken, MASKS, *scores)
        assert found[-1].isnan().any()
        assert found[:-1].isfinite().all()


@pytest.mark.parametrize("what", FORBID)
def test_what_is_forbidden_never_becomes_nan(emissions, scores, what: str):
    arguments = forbid(what, emissions, scores)
    for function in (log_partition, marginals, entropy):
        found = function(arguments[0], MASKS, *arguments[1:])
        assert found.isfinite().all()
        if what == "every path" and function is not log_partition:
            assert found[15].eq(0).all()
        for gradient in torch.autograd.grad(found.sum(), arguments):
            assert gradient.isfinite().all()


@pytest.mark.parametrize("what", ["a tag everywhere", "an emission"])
def test_entropy_and_its_gradient_where_something_is_forbidden(emissions, scores, what: str):
    """The reference is the entropy of all enumerated paths, differentiated by torch."""
    arguments = forbid(what, emissions[:1], scores)
    paths = torch.tensor(list(itertools.product(range(NUM_TAGS), repeat=4)))
    rows = arguments[0].expand(len(paths), -1, -1)
    every = log_prob(rows, paths, torch.ones_like(paths).bool(), *arguments[1:])
    log_probs = every[every.isfinite()].log_softmax(0)
    expected = -(log_probs.exp() * log_probs).sum()
    found = entropy(arguments[0], MASKS[15:], *arguments[1:]).squeeze()
    torch.testing.assert_close(found, expected)
    gradients = (torch.autograd.grad(value, arguments) for value in (found, expected))
    for gradient, reference in zip(*gradients, strict=True):
        torch.testing.assert_close(gradient, torch.nan_to_num(reference))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_scores_do_not_forbid(dtype: torch.dtype):
    """A score of -1e20 does not forbid a path. Only -inf forbids it."""
    emissions = torch.zeros(1, 3, 2, dtype=dtype)
    emissions[0, 1] = -1e20
    never = torch.tensor([[0.0, -1e20], [-1e20, 0.0]], dtype=dtype)
    ends, mask = torch.zeros(2, 2, dtype=dtype), torch.ones(1, 3, dtype=torch.bool)
    arguments = mask, never, *ends
    assert viterbi(emissions, *arguments).tolist() == [[0, 0, 0]]
    torch.testing.assert_close(marginals(emissions, *arguments), torch.full_like(emissions, 0.5))
    found = log_prob(emissions, torch.tensor([[0, 1, 0]]), *arguments)
    torch.testing.assert_close(found, torch.tensor([-2e20], dtype=dtype))


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_beyond_all_numbers_are_defined(sign: int):
    """Scores of 3e38 count as 1e28, so that sums of any length and their gradients are finite."""
    emissions = torch.full((2, 300, 3), sign * 3e38).requires_grad_()
    transitions = torch.full((3, 3), sign * 3e38)
    ends, mask = torch.full((2, 3), sign * 3e38), torch.ones(2, 300, dtype=torch.bool)
    value = log_prob(emissions, torch.zeros(2, 300, dtype=torch.int64), mask, transitions, *ends)
    assert value.isfinite().all()
    assert torch.autograd.grad(value.sum(), emissions)[0].isfinite().all()
    torch.testing.assert_close(
        marginals(emissions.detach(), mask, transitions, *ends), torch.full_like(emissions, 1 / 3)
    )
    assert viterbi(emissions, mask, transitions, *ends).eq(0).all()
