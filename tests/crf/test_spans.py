"""Spans and sets of tags against the enumeration of all paths, in float64."""

import itertools
import math
from collections.abc import Iterator

import pytest
import torch
from checks import refused
from torch import Tensor
from toys import own_words

from polyembed import crf
from polyembed.metrics import entities

BIO = ["O", "B-P", "I-P", "B-L", "I-L"]
SCHEMES = {
    "bio": BIO,
    "bio in another order": ["I-P", "O", "B-P"],
    "bio of no type": ["O"],
    "bio without all tags": ["I-P", "B-P", "B-L", "I-M", "O"],
    "bioes": ["O", "B-P", "I-P", "E-P", "S-P"],
    "bioes without all tags": ["O", "B-P", "E-P", "S-L"],
    "bilou": ["U-P", "O", "B-P", "I-P", "L-P"],
}
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]]).bool()
Scores = tuple[Tensor, Tensor, Tensor, Tensor]


def scores(tags: int, forbidden: float = 0.0, seed: int = 0) -> Scores:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((4, 5, tags), (tags, tags), (tags,), (tags,))
    found = [2 * torch.randn(x, generator=generator, dtype=torch.float64) for x in shapes]
    chance = torch.rand(tags, tags, generator=generator)
    found[1][chance < forbidden] = -math.inf
    found[1].fill_diagonal_(0.5)  # at least one path is left
    return found[0], found[1], found[2], found[3]


def paths(row: int, values: Scores) -> Iterator[tuple[list[int], tuple[int, ...], float]]:
    """Yield each path of a row, with the positions of the row's words and the path's weight."""
    emissions, transitions, start, end = values
    places = MASK[row].nonzero()[:, 0].tolist()
    for path in itertools.product(range(emissions.shape[2]), repeat=len(places)):
        if path:
            score = start[path[0]] + end[path[-1]]
            score += sum(emissions[row, i, tag] for i, tag in zip(places, path, strict=True))
            score += sum(transitions[a, b] for a, b in itertools.pairwise(path))
            yield places, path, math.exp(score)


@pytest.mark.parametrize("forbidden", [0.0, 0.3])
@pytest.mark.parametrize("name", SCHEMES)
def test_each_span_is_the_share_of_the_paths_that_have_it(name: str, forbidden: float):
    tags, scheme = SCHEMES[name], name.split()[0]
    values = scores(len(tags), forbidden)
    found = crf.span_log_probs(values[0], MASK, *values[1:], tags, scheme=scheme, max_length=4)
    expected = torch.zeros_like(found.log_probs)
    for row in range(len(MASK)):
        total = sum(weight for _, _, weight in paths(row, values))
        for places, path, weight in paths(row, values):
            names = [tags[i] for i in path]
            for one in entities(names, mode="strict", scheme=scheme):
                if one.end - one.start <= 4:
                    kind = found.types.index(one.type)
                    place = places[one.start], one.end - one.start - 1, kind
                    expected[(row, *place)] += weight / total
    torch.testing.assert_close(found.log_probs.exp(), expected, rtol=1e-10, atol=1e-12)


def test_gradients_are_those_of_differences():
    def shares(emissions, *others):
        return crf.span_log_probs(emissions, MASK, *others, BIO[:3]).log_probs.exp()

    assert torch.autograd.gradcheck(shares, [x.requires_grad_() for x in scores(3, 0.3)])


def test_long_chains_in_float32_are_those_of_float64():
    generator = torch.Generator().manual_seed(1)
    tags = len(BIO)
    values = [torch.randn(x, generator=generator) for x in ((2, 300, tags), (tags, tags))]
    ends = torch.randn(2, tags, generator=generator)
    mask = torch.ones(2, 300, dtype=torch.bool)
    one = crf.span_log_probs(values[0], mask, values[1], *ends, BIO).log_probs
    wide = [x.double() for x in (*values, *ends)]
    other = crf.span_log_probs(wide[0], mask, *wide[1:], BIO).log_probs
    torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)
    steep = [1e4 * x for x in values]  # beyond the range of probabilities
    found = crf.span_log_probs(steep[0], mask, steep[1], *ends, BIO).log_probs
    assert not found.isnan().any()
    assert bool((found <= 1e-2).all())


@pytest.mark.parametrize("forbidden", [0.0, 0.3])
@pytest.mark.parametrize("given", ["sets", "ids"])
def test_partial_tags_are_the_sum_over_the_paths_that_agree(given: str, forbidden: float):
    values = scores(3, forbidden)
    allowed = torch.rand(4, 5, 3, generator=torch.Generator().manual_seed(2)) < 0.6
    allowed[..., 1] |= ~allowed.any(-1)
    tags = allowed
    if given == "ids":
        tags = torch.tensor([[0, -100, 2, 1, -100]] * 4)
        allowed = (tags[..., None] == torch.arange(3)) | (tags == -100)[..., None]
    found = crf.partial_log_prob(values[0], tags, MASK, *values[1:])
    for row in range(len(MASK)):
        inside = total = 0.0
        for places, path, weight in paths(row, values):
            pairs = zip(places, path, strict=True)
            inside += weight * all(bool(allowed[row, i, tag]) for i, tag in pairs)
            total += weight
        expected = math.log(inside / total) if inside else (-math.inf if total else 0.0)
        assert found[row].item() == pytest.approx(expected, abs=1e-10)


@own_words
@pytest.mark.parametrize(
    ("tags", "message"),
    [
        (BIO[:3], "^tags must be 5 names, got 3$"),
        ([*BIO[:4], "S-L"], "labels must be O, B-<type>"),
    ],
)
def test_wrong_tags(tags: list[str], message: str):
    values = scores(5)
    refused(ValueError, message, crf.span_log_probs, values[0], MASK, *values[1:], tags)
