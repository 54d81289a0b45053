"""The best path, the k best and random ones against all paths, on every mask of four."""

import itertools
import math
from collections import Counter

import oracles
import pytest
import torch
from checks import refused
from torch import Tensor

from polyembed.crf import entropy, log_partition, marginals, n_best, pair_marginals, sample, viterbi
from polyembed.crf.best import in_chunks

MASKS = torch.tensor(list(itertools.product([False, True], repeat=4)))
NUM_TAGS = 3


@pytest.fixture
def emissions() -> Tensor:
    return torch.randn(16, 4, NUM_TAGS, dtype=torch.float64)


@pytest.fixture
def scores() -> tuple[Tensor, Tensor, Tensor]:
    shapes = (NUM_TAGS, NUM_TAGS), (NUM_TAGS,), (NUM_TAGS,)
    return tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)


def take(way: str, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Take NumPy's way, as on a CPU, or PyTorch's in one chunk, as under vmap, or in several, as on a GPU."""
    if "chunk" in way:
        monkeypatch.setattr("polyembed.crf.best._run", in_chunks)
    if way == "chunks":
        monkeypatch.setattr("polyembed.crf.best.chunk_length", lambda _: chunk)


def ranked(emissions: Tensor, scores: tuple[Tensor, ...]) -> list[list[tuple[oracles.Path, float]]]:
    """Rank all paths of each row by their probability."""
    lists = [score.tolist() for score in scores]
    rows = []
    for row, mask in zip(emissions.tolist(), MASKS.tolist(), strict=True):
        chain = oracles.valid(row, mask)
        probabilities = oracles.path_probabilities(chain, *lists) if chain else {(): 1.0}
        rows.append(sorted(probabilities.items(), key=lambda item: -item[1]))
    return rows


@pytest.mark.parametrize("way", ["numpy", "one chunk", "chunks"])
def test_viterbi_finds_the_best_of_all_paths(emissions, scores, way: str, monkeypatch) -> None:
    take(way, monkeypatch, 2)
    found = viterbi(emissions, MASKS, *scores, ignore_index=-7)
    assert found[~MASKS].eq(-7).all()
    for row, mask, paths in zip(
        found.tolist(), MASKS.tolist(), ranked(emissions, scores), strict=True
    ):
        assert tuple(oracles.valid(row, mask)) == paths[0][0]


@pytest.mark.parametrize("way", ["one chunk", "chunks"])
def test_viterbi_on_long_chains_of_many_tags(way: str, monkeypatch) -> None:
    """The path's own score is the best that the recursion finds, whichever way it is found."""
    emissions, transitions = (
        torch.randn(5, 97, 11, dtype=torch.float64),
        torch.randn(11, 11, dtype=torch.float64),
    )
    ends = torch.randn(2, 11, dtype=torch.float64)
    mask = torch.arange(97) < torch.tensor([97, 96, 50, 1, 0])[:, None]
    expected = viterbi(emissions, mask, transitions, *ends)
    take(way, monkeypatch, 7)
    monkeypatch.setattr("polyembed.crf.best.BLOCK", 1000)
    assert torch.equal(viterbi(emissions, mask, transitions, *ends), expected)
    score = (emissions[0, 0] + ends[0])[:, None]
    for t in range(1, 97):
        score = ((score + transitions).amax(0) + emissions[0, t])[:, None]
    path = expected[0]
    own = emissions[0].gather(1, path[:, None]).sum() + transitions[path[:-1], path[1:]].sum()
    torch.testing.assert_close(
        own + ends[0][path[0]] + ends[1][path[-1]], (score.squeeze(1) + ends[1]).max()
    )


def test_best_paths_are_the_best_of_all(emissions, scores) -> None:
    found = n_best(emissions, MASKS, *scores, k=5, ignore_index=-7)
    assert found.tags.shape == (16, 5, 4)
    assert found.tags.transpose(1, 2)[~MASKS].eq(-7).all()
    for tags, log_probs, mask, paths in zip(*found, MASKS, ranked(emissions, scores), strict=True):
        for place in range(5):
            if place < len(paths):
                assert tuple(tags[place][mask].tolist()) == paths[place][0]
                assert log_probs[place].item() == pytest.approx(math.log(paths[place][1]))
            else:
                assert tags[place].eq(-7).all()
                assert log_probs[place].item() == -math.inf


def test_samples_follow_the_distribution(emissions, scores) -> None:
    """Of 5,000 paths of each row each comes as often as its probability says, to five standard deviations."""
    count = 5_000
    generator = torch.Generator().manual_seed(0)
    found = sample(emissions, MASKS, *scores, count, generator=generator)
    assert found[:, ~MASKS].eq(-100).all()
    for row, mask, paths in zip(
        found.transpose(0, 1), MASKS, ranked(emissions, scores), strict=True
    ):
        drawn = Counter(map(tuple, row[:, mask].tolist()))
        for path, probability in paths:
            deviation = math.sqrt(count * probability * (1 - probability))
            assert abs(drawn[path] - count * probability) <= 5 * deviation + 1


def test_where_every_path_is_forbidden(emissions, scores) -> None:
    emissions[15, 2] = -math.inf
    assert viterbi(emissions, MASKS, *scores)[15].eq(-100).all()
    assert viterbi(emissions, MASKS, *scores)[14].ne(-100).any()
    assert sample(emissions, MASKS, *scores, 2)[:, 15].eq(-100).all()
    found = n_best(emissions, MASKS, *scores, k=2)
    assert found.tags[15].eq(-100).all()
    assert found.log_probs[15].eq(-math.inf).all()
    assert log_partition(emissions, MASKS, *scores)[15] < -1e17


def test_padding_may_hold_nan(emissions, scores) -> None:
    nan = torch.where(MASKS[..., None], emissions, math.nan)
    assert torch.equal(viterbi(nan, MASKS, *scores), viterbi(emissions, MASKS, *scores))
    for found, expected in zip(
        n_best(nan, MASKS, *scores, k=3), n_best(emissions, MASKS, *scores, k=3), strict=True
    ):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("way", ["numpy", "one chunk", "chunks"])
@pytest.mark.parametrize("score", [math.nan, math.inf, 3e38])
def test_viterbi_of_scores_that_spoil_longer_chains(way: str, score: float, monkeypatch) -> None:
    """Transitions mean nothing to a chain of one word, whatever stands beside it; and nobody is warned."""
    take(way, monkeypatch, 2)
    emissions = torch.tensor([0.0, 1.0, 0.0]).expand(3, 4, 3)
    mask = torch.arange(4) < torch.tensor([1, 4, 2])[:, None]
    transitions = torch.zeros(3, 3)
    transitions[:, 1] = score
    for width in (2, 3, 4):
        found = viterbi(emissions[:, :width], mask[:, :width], transitions, *torch.zeros(2, 3))
        assert found[0].tolist() == [1] + [-100] * (width - 1)
        if math.isnan(score):
            assert found[1:].eq(-100).all()


def test_no_positions_and_no_rows(scores) -> None:
    nothing = torch.zeros(2, 0, dtype=torch.bool)
    none = torch.zeros(2, 0, NUM_TAGS, dtype=torch.float64)
    assert viterbi(none, nothing, *scores).shape == (2, 0)
    assert sample(none, nothing, *scores, 5).shape == (5, 2, 0)
    assert marginals(none, nothing, *scores).shape == (2, 0, NUM_TAGS)
    assert pair_marginals(none, nothing, *scores).eq(0).all()
    assert entropy(none, nothing, *scores).tolist() == [0.0, 0.0]
    found = n_best(none, nothing, *scores, k=2)
    assert found.tags.shape == (2, 2, 0)
    assert found.log_probs.tolist() == [[0.0, -math.inf]] * 2
    no_rows, mask = (
        torch.zeros(0, 4, NUM_TAGS, dtype=torch.float64),
        torch.zeros(0, 4, dtype=torch.bool),
    )
    assert viterbi(no_rows, mask, *scores).shape == (0, 4)
    assert n_best(no_rows, mask, *scores, k=2).tags.shape == (0, 2, 4)
    assert sample(no_rows, mask, *scores, 3).shape == (3, 0, 4)


def test_counts_must_be_positive(emissions, scores) -> None:
    refused(
        ValueError, r"^k must be a positive integer, got 0$", n_best, emissions, MASKS, *scores, k=0
    )
    refused(
        ValueError,
        r"^k must be a positive integer, got 1.5$",
        n_best,
        emissions,
        MASKS,
        *scores,
        k=1.5,
    )
    refused(
        ValueError,
        r"^num_samples must be a positive integer, got 0$",
        sample,
        emissions,
        MASKS,
        *scores,
        0,
    )


def test_long_chains_keep_their_precision() -> None:
    """In float32, against float64: the paths' log-probabilities do not drift with the length."""
    emissions, transitions = 3 * torch.randn(1, 2000, 5), torch.randn(5, 5)
    ends, mask = torch.zeros(2, 5), torch.ones(1, 2000, dtype=torch.bool)
    found = n_best(emissions, mask, transitions, *ends, k=3)
    wide = n_best(emissions.double(), mask, transitions.double(), *ends.double(), k=3)
    torch.testing.assert_close(found.log_probs.double(), wide.log_probs, atol=5e-3, rtol=1e-5)
    assert torch.equal(viterbi(emissions, mask, transitions, *ends), wide.tags[:, 0])
