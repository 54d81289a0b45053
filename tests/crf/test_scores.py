"""Scores and probabilities of paths against all paths, on every mask of four, eager and compiled."""

import itertools

import oracles
import pytest
import torch
from checks import refused
from torch import Tensor
from toys import own_words

from polyembed.crf import (
    entropy,
    log_partition,
    log_prob,
    marginals,
    pair_marginals,
    partial_log_prob,
    path_score,
    viterbi,
)

MASKS = torch.tensor(list(itertools.product([False, True], repeat=4)))
NUM_TAGS = 3
INFINITE = float("inf")

Scores = tuple[Tensor, Tensor, Tensor]


@pytest.fixture
def emissions() -> Tensor:
    return torch.randn(16, 4, NUM_TAGS, dtype=torch.float64)


@pytest.fixture
def tags() -> Tensor:
    return torch.randint(NUM_TAGS, (16, 4))


@pytest.fixture
def scores() -> Scores:
    shapes = (NUM_TAGS, NUM_TAGS), (NUM_TAGS,), (NUM_TAGS,)
    return tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)


def chains(emissions: Tensor, masks: Tensor = MASKS) -> list[list[list[float]]]:
    """Keep the valid positions of each row, as the papers' equations have it."""
    return [
        oracles.valid(row, mask)
        for row, mask in zip(emissions.tolist(), masks.tolist(), strict=True)
    ]


def probabilities(emissions: Tensor, scores: Scores) -> list[dict[oracles.Path, float] | None]:
    lists = [score.tolist() for score in scores]
    return [
        oracles.path_probabilities(chain, *lists) if chain else None for chain in chains(emissions)
    ]


def test_path_score_equals_the_loop(emissions, tags, scores) -> None:
    lists = [score.tolist() for score in scores]
    paths = [
        tuple(oracles.valid(row, mask))
        for row, mask in zip(tags.tolist(), MASKS.tolist(), strict=True)
    ]
    expected = [
        oracles.path_score(chain, path, *lists)
        for chain, path in zip(chains(emissions), paths, strict=True)
    ]
    spoilt = torch.where(MASKS, tags, -100)
    torch.testing.assert_close(
        path_score(emissions, spoilt, MASKS, *scores), torch.tensor(expected, dtype=torch.float64)
    )


def test_partition_sums_over_all_paths(emissions, scores) -> None:
    lists = [score.tolist() for score in scores]
    expected = [
        oracles.log_partition(chain, *lists) if chain else 0.0 for chain in chains(emissions)
    ]
    found = log_partition(emissions, MASKS, *scores)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_marginals_sum_over_all_paths(emissions, scores) -> None:
    found, pairs = marginals(emissions, MASKS, *scores), pair_marginals(emissions, MASKS, *scores)
    for row, mask, probability, expected_pairs in zip(
        found, MASKS, probabilities(emissions, scores), pairs, strict=True
    ):
        assert row[~mask].eq(0).all()
        if probability is None:
            assert expected_pairs.eq(0).all()
            continue
        expected = torch.tensor(oracles.marginals(probability, NUM_TAGS), dtype=torch.float64)
        torch.testing.assert_close(row[mask], expected)
        expected = torch.tensor(oracles.pair_marginals(probability, NUM_TAGS), dtype=torch.float64)
        torch.testing.assert_close(expected_pairs, expected)


def test_entropy_sums_over_all_paths(emissions, scores) -> None:
    expected = [0.0 if p is None else oracles.entropy(p) for p in probabilities(emissions, scores)]
    found = entropy(emissions, MASKS, *scores)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    certain = torch.zeros(2, 500, 5)
    certain[..., 1] = 50.0  # float32: a difference of 25,000s would have lost it
    flat = [torch.zeros(5, 5), torch.zeros(5), torch.zeros(5)]
    mask = torch.ones(2, 500, dtype=torch.bool)
    assert entropy(certain, mask, *flat).abs().max() < 1e-4
    torch.testing.assert_close(
        entropy(certain * 0, mask, *flat), torch.full((2,), 500 * torch.tensor(5.0).log())
    )


@pytest.mark.parametrize("function", [marginals, pair_marginals, entropy])
def test_gradients_of_what_the_marginals_give(emissions, scores, function) -> None:
    rows = [0, 5, 15]  # empty, with holes, full
    arguments = [emissions[rows].requires_grad_(), *(score.requires_grad_() for score in scores)]
    assert torch.autograd.gradcheck(
        lambda e, *s: function(e, MASKS[rows], *s), arguments, check_forward_ad=True, fast_mode=True
    )


FORBID = {
    "a tag everywhere": lambda e, a, s, f: (
        e,
        a.index_fill(1, torch.tensor(2), -INFINITE),
        s.index_fill(0, torch.tensor(2), -INFINITE),
        f,
    ),
    "an emission": lambda e, a, s, f: (
        e.masked_fill(torch.arange(NUM_TAGS) == 1, -INFINITE),
        a,
        s,
        f,
    ),
    "every path": lambda e, a, s, f: (torch.full_like(e, -INFINITE), a, s, f),
    "every transition": lambda e, a, s, f: (e, torch.full_like(a, -INFINITE), s, f),
}


@pytest.mark.parametrize("what", FORBID)
def test_what_is_forbidden_never_becomes_nan(emissions, scores, what: str) -> None:
    arguments = [x.detach().requires_grad_() for x in FORBID[what](emissions, *scores)]
    value = log_partition(arguments[0], MASKS, *arguments[1:])
    assert value.isfinite().all()
    for gradient in torch.autograd.grad(value.sum(), arguments):
        assert gradient.isfinite().all()
    for function in (marginals, entropy, pair_marginals):
        found = function(arguments[0], MASKS, *arguments[1:])
        assert found.isfinite().all()
        assert what != "every path" or found[15].eq(0).all()
        for gradient in torch.autograd.grad(found.sum(), arguments):
            assert gradient.isfinite().all()


def test_a_forbidden_tag_has_no_part(emissions, scores) -> None:
    """The same numbers as without the tag."""
    forbidden = FORBID["a tag everywhere"](emissions, *scores)
    transitions, start, end = scores
    fewer = transitions[:2, :2], start[:2], end[:2]
    torch.testing.assert_close(
        log_partition(forbidden[0], MASKS, *forbidden[1:]),
        log_partition(emissions[..., :2], MASKS, *fewer),
    )
    found = marginals(forbidden[0], MASKS, *forbidden[1:])
    assert found[..., 2].eq(0).all()
    torch.testing.assert_close(found[..., :2], marginals(emissions[..., :2], MASKS, *fewer))
    path = torch.tensor([[0, 2, 0, 0]])
    full = torch.ones(1, 4, dtype=torch.bool)
    assert path_score(forbidden[0][:1], path, full, *forbidden[1:]).item() == -INFINITE


def test_long_chains_keep_their_precision(scores) -> None:
    """In float32, against float64: nothing grows with the length but the partition itself."""
    emissions = 3 * torch.randn(2, 2000, NUM_TAGS, dtype=torch.float64) + 1000.0
    mask = torch.ones(2, 2000, dtype=torch.bool)
    narrow = [x.float() for x in scores]
    torch.testing.assert_close(
        marginals(emissions.float(), mask, *narrow).double(),
        marginals(emissions.float().double(), mask, *(x.double() for x in narrow)),
        atol=1e-5,
        rtol=1e-4,
    )


@pytest.mark.parametrize("what", ["a tag everywhere", "an emission"])
def test_entropy_and_its_gradient_where_something_is_forbidden(
    emissions, scores, what: str
) -> None:
    """By enumeration: the same as of the probabilities of all paths, differentiated by torch."""
    full = torch.ones(1, 4, dtype=torch.bool)
    arguments = [x.detach().requires_grad_() for x in FORBID[what](emissions[:1], *scores)]
    paths = torch.tensor(list(itertools.product(range(NUM_TAGS), repeat=4)))
    every = path_score(
        arguments[0].expand(len(paths), -1, -1), paths, full.expand(len(paths), -1), *arguments[1:]
    )
    log_probs = every[every.isfinite()].log_softmax(0)
    expected = -(log_probs.exp() * log_probs).sum()
    found = entropy(arguments[0], full, *arguments[1:]).squeeze()
    torch.testing.assert_close(found, expected)
    gradients = torch.autograd.grad(found, arguments)
    for gradient, reference in zip(
        gradients, torch.autograd.grad(expected, arguments), strict=True
    ):
        torch.testing.assert_close(gradient, torch.nan_to_num(reference))


@pytest.mark.parametrize(
    "known", [(True, False, False, True), (False, True, True, False), (False,) * 4]
)
def test_partial_tags_sum_over_the_paths_that_agree(
    emissions, tags, scores, known: tuple[bool, ...]
) -> None:
    """Every pattern of known tags, by enumeration, on a mask with holes and on a full one."""
    partial = torch.where(torch.tensor(known), tags, -100)
    found = partial_log_prob(emissions, partial, MASKS, *scores)
    lists = [score.tolist() for score in scores]
    for row in (5, 15):
        wanted = oracles.valid(partial[row].tolist(), MASKS[row].tolist())
        every = oracles.all_path_scores(
            oracles.valid(emissions[row].tolist(), MASKS[row].tolist()), *lists
        )
        agree = [
            s
            for path, s in every.items()
            if all(w in (-100, y) for w, y in zip(wanted, path, strict=True))
        ]
        sums = [
            torch.tensor(x, dtype=torch.float64).logsumexp(0) for x in (agree, [*every.values()])
        ]
        torch.testing.assert_close(found[row], sums[0] - sums[1])


def test_partial_tags_that_are_forbidden(emissions, tags, scores) -> None:
    scores[2][tags[15, 3]] = -INFINITE
    assert partial_log_prob(emissions, tags, MASKS, *scores)[15].item() == -INFINITE


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_scores_do_not_forbid(dtype: torch.dtype) -> None:
    """-1e20 is a score; only -inf forbids."""
    emissions = torch.zeros(1, 3, 2, dtype=dtype)
    emissions[0, 1] = -1e20
    never = torch.tensor([[0.0, -1e20], [-1e20, 0.0]], dtype=dtype)
    ends, mask = torch.zeros(2, 2, dtype=dtype), torch.ones(1, 3, dtype=torch.bool)
    assert viterbi(emissions, mask, never, *ends).tolist() == [[0, 0, 0]]
    torch.testing.assert_close(
        log_partition(emissions, mask, never, *ends), torch.tensor([-1e20], dtype=dtype)
    )
    torch.testing.assert_close(
        marginals(emissions, mask, never, *ends), torch.full_like(emissions, 0.5)
    )
    path = torch.tensor([[0, 1, 0]])
    torch.testing.assert_close(
        path_score(emissions, path, mask, never, *ends), torch.tensor([-3e20], dtype=dtype)
    )
    assert log_prob(emissions, path, mask, never, *ends).isfinite().all()
    forbidden = never.masked_fill(never < 0, -INFINITE)
    assert path_score(emissions, path, mask, forbidden, *ends).item() == -INFINITE


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_beyond_all_numbers_are_defined(sign: int) -> None:
    """Scores of 3e38 count as 1e28: sums of any length are finite, and so are their gradients."""
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


@own_words
def test_wrong_arguments(emissions, scores) -> None:
    with pytest.raises(TypeError, match=r"^mask must be bool \(True = valid\), got torch.int64$"):
        log_partition(emissions, MASKS.long(), *scores)
    refused(
        ValueError,
        r"^mask must have shape \(16, 4\), got \(15, 4\)$",
        marginals,
        emissions,
        MASKS[1:],
        *scores,
    )
