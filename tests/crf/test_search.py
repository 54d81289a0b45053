"""The best path, the k best and random paths against enumeration, on every mask of four words."""

import itertools
import math
from collections import Counter

import oracles
import pytest
import torch
from torch import Tensor

from polyembed.crf import best, n_best, sample, viterbi

MASKS = torch.tensor(list(itertools.product([False, True], repeat=4)))
WAYS = ("numpy", "one chunk", "chunks")


@pytest.fixture(params=WAYS)
def way(request, monkeypatch) -> str:
    """Select the search: NumPy's, as on a CPU, or PyTorch's in one chunk or in several.

    A GPU uses PyTorch's search.
    """
    if request.param == "chunks":
        monkeypatch.setattr(best, "chunk_length", lambda _: 2)
        monkeypatch.setattr(best, "BLOCK", 1000)
    return request.param


def search(way: str, *arguments: Tensor) -> Tensor:
    return viterbi(*arguments) if way == "numpy" else best.in_chunks(*arguments, -100)


def ranked(emissions: Tensor, scores: tuple[Tensor, ...]) -> list[list[tuple[oracles.Path, float]]]:
    """Return all paths of each row with their probabilities, the most probable path first."""
    lists = [score.tolist() for score in scores]
    rows = []
    for row, mask in zip(emissions.tolist(), MASKS.tolist(), strict=True):
        chain = oracles.valid(row, mask)
        probabilities = oracles.path_probabilities(chain, *lists) if chain else {(): 1.0}
        rows.append(sorted(probabilities.items(), key=lambda item: -item[1]))
    return rows


def test_viterbi_finds_the_best_of_all_paths(emissions, scores, way: str):
    nan = torch.where(MASKS[..., None], emissions, math.nan)
    found = search(way, nan, MASKS, *scores)
    assert found[~MASKS].eq(-100).all()
    for tags, mask, paths in zip(found, MASKS, ranked(emissions, scores), strict=True):
        assert tuple(tags[mask].tolist()) == paths[0][0]
    assert viterbi(nan, MASKS, *scores, ignore_index=-7)[~MASKS].eq(-7).all()


@pytest.mark.parametrize("kind", ["any", "few values", "forbidden"])
def test_the_ways_agree_on_long_chains(kind: str, way: str):
    """Scores with few values have many ties, so equal paths show that ties are broken alike."""
    scores = [torch.randn(shape) for shape in ((53, 50, 7), (7, 7), (7,), (7,))]
    if kind == "few values":
        scores = [x.round() for x in scores]
    if kind == "forbidden":
        scores = [x.masked_fill(torch.rand_like(x) < 0.2, -math.inf) for x in scores]
    whole = torch.arange(50) < (torch.arange(53) % 51)[:, None]
    for mask in (whole, torch.rand(53, 50) < 0.7):
        found = search(way, scores[0], mask, *scores[1:])
        assert torch.equal(found, viterbi(scores[0], mask, *scores[1:]))
        assert found[mask].ge(0).any()


def test_the_lower_tag_at_the_last_difference_wins(way: str):
    full, ends = torch.ones(1, 4).bool(), torch.zeros(2, 2)
    assert search(way, torch.zeros(1, 4, 2), full, torch.zeros(2, 2), *ends).eq(0).all()
    # the paths' scores are 1 + 1 - 1 and 1: the last tag decides
    emissions, transitions = torch.eye(2).flip(0)[None], torch.tensor([[0.0, 0.0], [-1.0, 0.0]])
    assert search(way, emissions, full[:, :2], transitions, *ends).tolist() == [[0, 0]]


@pytest.mark.parametrize("score", [math.nan, math.inf, 3e38, -math.inf])
def test_scores_that_spoil_longer_chains(way: str, score: float):
    """Scores that spoil longer chains do not matter to a chain of one word, and do not warn."""
    emissions = torch.tensor([0.0, 1.0, 0.0]).expand(3, 4, 3)
    mask = torch.arange(4) < torch.tensor([1, 4, 2])[:, None]
    transitions = torch.full((3, 3), score)
    found = search(way, emissions, mask, transitions, *torch.zeros(2, 3))
    assert found[0].tolist() == [1, -100, -100, -100]
    assert found[1:].eq(-100).all() == (score != 3e38)
    for place in range(4):
        scores = [torch.zeros(shape) for shape in ((3, 4, 3), (3, 3), (3,), (3,))]
        scores[place][..., 1] = score
        expected = viterbi(scores[0], mask, *scores[1:])
        assert torch.equal(search(way, scores[0], mask, *scores[1:]), expected)


def test_best_paths_are_the_best_of_all(emissions, scores):
    nan = torch.where(MASKS[..., None], emissions, math.nan)
    found = n_best(nan, MASKS, *scores, k=5, ignore_index=-7)
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


def test_samples_follow_the_distribution(emissions, scores):
    """Each path is drawn as often as its probability says, within five standard deviations.

    The sample has 5,000 paths per row.
    """
    count, generator = 5_000, torch.Generator().manual_seed(0)
    found = sample(emissions, MASKS, *scores, count, generator=generator)
    assert found[:, ~MASKS].eq(-100).all()
    rows = zip(found.transpose(0, 1), MASKS, ranked(emissions, scores), strict=True)
    for row, mask, paths in rows:
        drawn = Counter(map(tuple, row[:, mask].tolist()))
        for path, probability in paths:
            deviation = math.sqrt(count * probability * (1 - probability))
            assert abs(drawn[path] - count * probability) <= 5 * deviation + 1


def test_where_every_path_is_forbidden(emissions, scores, way: str):
    emissions[15, 2] = -math.inf
    found = search(way, emissions, MASKS, *scores)
    assert found[15].eq(-100).all()
    assert found[14].ne(-100).any()
    assert sample(emissions, MASKS, *scores, 2)[:, 15].eq(-100).all()
    best = n_best(emissions, MASKS, *scores, k=2)
    assert best.tags[15].eq(-100).all()
    assert best.log_probs[15].eq(-math.inf).all()


@pytest.mark.parametrize(("rows", "width"), [(2, 0), (0, 4)])
def test_no_positions_and_no_rows(scores, way: str, rows: int, width: int):
    arguments = torch.zeros(rows, width, 3).double(), torch.zeros(rows, width).bool(), *scores
    assert search(way, *arguments).shape == (rows, width)
    assert sample(*arguments, 5).shape == (5, rows, width)
    found = n_best(*arguments, k=2)
    assert found.tags.shape == (rows, 2, width)
    assert found.log_probs.tolist() == [[0.0, -math.inf]] * rows


def test_long_chains_keep_their_precision():
    """The best paths in float32 and in float64 are equal, as scores do not drift with length."""
    emissions, transitions = 1000 + 3 * torch.randn(1, 2000, 5), torch.randn(5, 5)
    ends, mask = torch.zeros(2, 5), torch.ones(1, 2000, dtype=torch.bool)
    found = n_best(emissions, mask, transitions, *ends, k=3)
    wide = n_best(emissions.double(), mask, transitions.double(), *ends.double(), k=3)
    assert torch.equal(viterbi(emissions, mask, transitions, *ends), wide.tags[:, 0])
    assert torch.equal(found.tags, wide.tags)
