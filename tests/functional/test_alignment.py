"""The rotation and the searches against plain loops, for all divisions of a search into blocks."""

import math
from collections.abc import Callable

import oracles
import pytest
import torch
from checks import Largest, refused
from torch import Tensor
from toys import own_words

from polyembed.functional import (
    csls,
    length_normalize,
    mutual_csls,
    nearest_cosine,
    nearest_csls,
    neighbors,
    procrustes,
)

SHAPES = [(1, 1), (2, 1), (13, 5), (11, 131), (101, 37)]
CLOSE = {"atol": 1e-12, "rtol": 1e-12}


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def spaces(n: int, m: int) -> tuple[Tensor, Tensor]:
    """Return two spaces of vectors with very different lengths.

    The second space has a hub if it has more than two vectors.
    """
    x, y = gaussian(n, 5, seed=1), gaussian(m, 5, seed=2)
    x = x * torch.logspace(-3, 3, n, dtype=torch.float64)[:, None]
    if m > 2:
        y[0] = x.mean(0) + y[0] / 9
    return x, y


def rotation(dim: int) -> Tensor:
    return torch.linalg.qr(gaussian(dim, dim, seed=3)).Q


def full_csls(x: Tensor, y: Tensor, k: int) -> Tensor:
    scores = torch.tensor(oracles.csls(x.tolist(), y.tolist(), k), dtype=torch.float64)
    return scores.reshape(len(x), len(y))


def check_nearest(found: neighbors.Nearest, full: Tensor, k: int) -> None:
    """Check that the best scores are in order, and that each id is unique and has its own score.

    Ids with tied scores may be in any order.
    """
    k = min(k, full.shape[1])
    assert found.ids.dtype == torch.int64
    torch.testing.assert_close(found.scores, full.sort(1, descending=True).values[:, :k], **CLOSE)
    torch.testing.assert_close(full.gather(1, found.ids), found.scores, **CLOSE)
    assert all(len(set(row)) == k for row in found.ids.tolist())


# Normalisation.


def test_lengths_are_one_whatever_they_were():
    x = torch.tensor([[3e-30, 4e-30], [3e30, -4e30], [0.0, 0.0], [5e-45, 0.0]])
    expected = torch.tensor([[0.6, 0.8], [0.6, -0.8], [0.0, 0.0], [1.0, 0.0]])
    torch.testing.assert_close(length_normalize(x), expected)
    unit = length_normalize(gaussian(3, 5).bfloat16())
    assert unit.dtype == torch.bfloat16
    torch.testing.assert_close(unit.float().norm(dim=-1), torch.ones(3), atol=1e-2, rtol=0)


# Procrustes.


@pytest.mark.parametrize(("n", "dim"), [(1, 1), (13, 5), (101, 31)])
def test_a_planted_rotation_is_found(n: int, dim: int):
    x, turn = gaussian(n, dim), rotation(dim)
    torch.testing.assert_close(procrustes(x, x @ turn), turn, atol=1e-10, rtol=0)


@pytest.mark.parametrize("n", [0, 2, 5, 23])
def test_no_turn_of_any_plane_does_better(n: int):
    """The pairs may be fewer than the dimensions, or missing."""
    dim = 5
    x, y = gaussian(n, dim, seed=1), gaussian(n, dim, seed=2)
    weight = procrustes(x, y)
    torch.testing.assert_close(weight.mT @ weight, torch.eye(dim, dtype=torch.float64), **CLOSE)

    def distance(weight):
        return oracles.squared_distance(x.tolist(), y.tolist(), weight.tolist())

    best = distance(weight)
    for i in range(dim):
        for j in range(i):
            for angle in (-1.0, -1e-3, 1e-3, 1.0, math.pi):
                turn = torch.tensor(oracles.small_turn(dim, i, j, angle), dtype=torch.float64)
                assert min(distance(weight @ turn), distance(turn @ weight)) >= best - 1e-9
    mirror = torch.tensor([-1.0, 1, 1, 1, 1], dtype=torch.float64).diag()
    assert not n or distance(weight @ mirror) > best


# All pairs.


@pytest.mark.parametrize(("n", "m"), SHAPES[:-1])
def test_csls_is_its_equation(n: int, m: int):
    x, y = spaces(n, m)
    x[-1] = 0.0  # the zero vector has a cosine of 0 to all vectors
    for k in (1, 3, 500):
        torch.testing.assert_close(csls(x, y, k), full_csls(x, y, k), **CLOSE)
        check_nearest(nearest_csls(x, y, 5, neighborhood=k), full_csls(x, y, k), 5)


@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 3), (3, 0)])
def test_empty_spaces(n: int, m: int):
    x, y = gaussian(n, 5), gaussian(m, 5)
    assert csls(x, y).shape == (n, m)
    for found in (nearest_cosine(x, y, 2), nearest_csls(x, y, 2, space=x[:0])):
        assert found.scores.shape == found.ids.shape == (n, min(2, m))
    assert mutual_csls(x, y).shape == (0, 2)


def test_csls_has_a_gradient():
    x, y = gaussian(5, 3, seed=1).requires_grad_(), gaussian(7, 3, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: csls(a, b, 2), (x, y), fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda a, b: csls(a, b, 2), (x, y), fast_mode=True)
    zero = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.grad(csls(torch.cat([x, zero]), y, 2).sum(), zero)[0].isfinite().all()


def test_narrow_numbers_stay_close_and_keep_their_dtype():
    x, y = gaussian(23, 31, seed=1).bfloat16(), gaussian(29, 31, seed=2).bfloat16()
    exact = full_csls(x, y, 3)
    close = {"atol": 2 * torch.finfo(x.dtype).eps, "rtol": 0.0, "check_dtype": False}
    found = csls(x, y, 3), nearest_csls(x, y, 2, neighborhood=3).scores
    assert {one.dtype for one in found} == {x.dtype}
    torch.testing.assert_close(found, (exact, exact.topk(2, 1).values), **close)
    with torch.autocast("cpu", torch.bfloat16):
        wide = csls(x.float(), y.float(), 3)
    torch.testing.assert_close(wide, exact.float(), atol=1e-5, rtol=0)


# Searches in blocks.


@pytest.fixture(params=[(8 << 20, 16), (1, 16), (300, 3), (37 * 4, 1)], ids=str)
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the sizes of blocks and groups in a search.

    The sizes are the defaults, one row per block, several blocks with a tail, and groups with and
    without a tail.
    """
    monkeypatch.setattr(neighbors, "CPU_BLOCK", request.param[0])
    monkeypatch.setattr(neighbors, "GROUP", request.param[1])


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_a_search_finds_what_all_pairs_hold(n: int, m: int, cut: None):
    x, y = spaces(n, m)
    cosines, scores = length_normalize(x) @ length_normalize(y).mT, csls(x, y, 3)
    pairs = mutual_csls(x, y, neighborhood=3)
    assert list(map(tuple, pairs.tolist())) == oracles.mutual_pairs(scores.tolist())
    for k in sorted({1, 7, m, m + 3}):
        check_nearest(nearest_cosine(x, y, k), cosines, k)
        check_nearest(nearest_csls(x, y, k, neighborhood=3), scores, k)


def test_keys_have_their_neighbours_in_the_whole_space():
    x, y = spaces(101, 37)
    queries = torch.tensor([3, 50, 7, 7])
    found = nearest_csls(x[queries], y, 37, neighborhood=5, space=x)
    check_nearest(found, full_csls(x, y, 5)[queries], 37)
    alone = nearest_csls(x[queries], y, 37, neighborhood=5)
    assert not torch.allclose(found.scores, alone.scores)


def test_memory_holds_one_block_whatever_the_number_of_words():
    """All pairs of the searches would have 20 million scores."""
    x, y = torch.randn(2, 20_000, 5)
    with Largest() as largest:
        nearest_cosine(x[:1000], y)
        nearest_csls(x[:1000], y, 5)
        mutual_csls(x[:1000], y)
    assert largest.size <= 8 << 20


X = torch.ones(3, 5)


@own_words
@pytest.mark.parametrize(
    ("x", "y", "k", "error", "message"),
    [
        (X[0], X, 1, ValueError, r"^(x|queries) must have the axes \(n, dim\), got shape \(5,\)$"),
        (X, X[None], 1, ValueError, r"^(y|keys) must have the axes \(n, dim\), got shape \(1, 3,"),
        (X, X[:, :4], 1, ValueError, r"^(y|keys) must have a last axis of size 5, got shape \(3"),
        (X, X, 0, ValueError, "^(k|neighborhood) must be a positive integer, got 0$"),
        (X.long(), X, 1, TypeError, "^(x|queries) must be floating point, got torch.int64$"),
    ],
)
def test_bad_spaces(x: Tensor, y: Tensor, k: int, error: type[Exception], message: str):
    for search in (csls, nearest_cosine, nearest_csls):
        refused(error, message, search, x, y, k)
    refused(error, message, mutual_csls, x, y, neighborhood=k)


@own_words
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nearest_csls(X, X, space=X[:, :4]), ValueError, "^space must have a last axis of"),
        (lambda: length_normalize(X.long()), TypeError, "^x must be floating point, got torch.in"),
        (lambda: procrustes(X[0], X), ValueError, r"^x must have the axes \(n, dim\), got shape"),
        (lambda: procrustes(X, X[:2]), ValueError, r"^y must have the shape of x, \(3, 5\), got"),
        (lambda: procrustes(X, X / 0), ValueError, "^x and y must be finite, got NaN or an infin"),
        (lambda: procrustes(X, X.long()), TypeError, "^y must be floating point, got torch.int64$"),
    ],
)
def test_bad_arguments(call: Callable, error: type[Exception], message: str):
    refused(error, message, call)
