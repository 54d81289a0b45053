"""The rotation and the searches against plain loops, in every way of cutting a search into blocks."""

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
    mean_center,
    mutual_csls,
    nearest_cosine,
    nearest_csls,
    neighborhood_similarity,
    neighbors,
    procrustes,
)
from polyembed.functional.neighbors import Nearest

SHAPES = [(1, 1), (2, 1), (13, 5), (11, 131), (101, 37)]
CLOSE = {"atol": 1e-12, "rtol": 1e-12}


def gaussian(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(dtype)


def spaces(
    n: int, m: int, dim: int = 5, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Two spaces with lengths of every size and, where there is room, a hub."""
    x, y = gaussian(n, dim, seed=1), gaussian(m, dim, seed=2)
    x = x * torch.logspace(-3, 3, n, dtype=torch.float64)[:, None]
    if m > 2:
        y[0] = x.mean(0) + y[0] / 9
    return x.to(dtype), y.to(dtype)


def rotation(dim: int, seed: int = 3) -> Tensor:
    return torch.linalg.qr(gaussian(dim, dim, seed=seed)).Q


def full_csls(x: Tensor, y: Tensor, k: int) -> Tensor:
    return torch.tensor(oracles.csls(x.tolist(), y.tolist(), k), dtype=torch.float64).reshape(
        len(x), len(y)
    )


def full_cosine(x: Tensor, y: Tensor) -> Tensor:
    rows = [[oracles.cosine(a, b) for b in y.tolist()] for a in x.tolist()]
    return torch.tensor(rows, dtype=torch.float64).reshape(len(x), len(y))


def check_nearest(found: Nearest, full: Tensor, k: int) -> None:
    """The best scores, in order; each id once a row and with its own score: so ties may fall either way."""
    k = min(k, full.shape[1])
    assert found.ids.shape == found.scores.shape == (len(full), k)
    assert found.ids.dtype == torch.int64
    torch.testing.assert_close(found.scores, full.sort(1, descending=True).values[:, :k], **CLOSE)
    torch.testing.assert_close(full.gather(1, found.ids), found.scores, **CLOSE)
    assert all(len(set(row)) == k for row in found.ids.tolist())


# Normalisation.


def test_lengths_are_one_whatever_they_were() -> None:
    x = torch.tensor([[3e-30, 4e-30], [3e30, -4e30], [0.0, 0.0], [5e-45, 0.0]])
    torch.testing.assert_close(
        length_normalize(x), torch.tensor([[0.6, 0.8], [0.6, -0.8], [0.0, 0.0], [1.0, 0.0]])
    )
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        unit = length_normalize(gaussian(2, 3, 5, dtype=dtype))
        assert unit.dtype == dtype
        torch.testing.assert_close(
            unit.double().norm(dim=-1), torch.ones(2, 3, dtype=torch.float64), atol=1e-2, rtol=0
        )
    assert length_normalize(torch.zeros(3, 0)).shape == (3, 0)


def test_the_mean_goes() -> None:
    x = gaussian(7, 3) + 5
    expected = [[value - sum(column) / 7 for value in column] for column in x.T.tolist()]
    torch.testing.assert_close(
        mean_center(x).T, torch.tensor(expected, dtype=torch.float64), **CLOSE
    )
    narrow = torch.full((4001, 2), 1.0, dtype=torch.bfloat16)  # whose sum no bfloat16 counts up to
    assert mean_center(narrow).eq(0).all()
    assert mean_center(narrow).dtype == torch.bfloat16
    assert mean_center(torch.zeros(0, 3)).shape == (0, 3)


# Procrustes.


@pytest.mark.parametrize(("n", "dim"), [(1, 1), (13, 5), (101, 31)])
def test_a_planted_rotation_is_found(n: int, dim: int) -> None:
    x, turn = gaussian(n, dim), rotation(dim)
    before = x.clone()
    torch.testing.assert_close(procrustes(x, x @ turn), turn, atol=1e-10, rtol=0)
    assert torch.equal(x, before)


@pytest.mark.parametrize("n", [0, 2, 5, 23])
def test_no_turn_of_any_plane_does_better(n: int) -> None:
    """With fewer pairs than dimensions too, and with none."""
    dim = 5
    x, y = gaussian(n, dim, seed=1), gaussian(n, dim, seed=2)
    weight = procrustes(x, y)
    torch.testing.assert_close(weight.mT @ weight, torch.eye(dim, dtype=torch.float64), **CLOSE)
    best = oracles.squared_distance(x.tolist(), y.tolist(), weight.tolist())
    for i in range(dim):
        for j in range(i):
            for angle in (-1.0, -1e-3, 1e-3, 1.0, math.pi):
                turn = torch.tensor(oracles.small_turn(dim, i, j, angle), dtype=torch.float64)
                for other in (weight @ turn, turn @ weight):
                    distance = oracles.squared_distance(x.tolist(), y.tolist(), other.tolist())
                    assert distance >= best - 1e-9
    if n:
        mirrored = weight @ torch.diag(torch.tensor([-1.0, 1, 1, 1, 1], dtype=torch.float64))
        assert oracles.squared_distance(x.tolist(), y.tolist(), mirrored.tolist()) > best


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_vectors_give_a_narrow_matrix_computed_in_wide_numbers(dtype: torch.dtype) -> None:
    x = gaussian(211, 7, dtype=dtype)
    y = (x.double() @ rotation(7)).to(dtype)
    weight = procrustes(x, y)
    assert weight.dtype == dtype
    assert torch.equal(weight, procrustes(x.double(), y.double()).to(dtype))


@own_words
def test_bad_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^x must have the axes \(n, dim\), got shape \(5,\)$"):
        procrustes(torch.ones(5), torch.ones(5))
    with pytest.raises(ValueError, match=r"^y must have the shape of x, \(3, 5\), got \(7, 5\)$"):
        procrustes(torch.ones(3, 5), torch.ones(7, 5))
    for bad in (torch.nan, torch.inf):
        with pytest.raises(ValueError, match=r"^x and y must be finite, got NaN or an infinity$"):
            procrustes(torch.full((3, 5), bad), torch.ones(3, 5))
    with pytest.raises(TypeError, match=r"^y must be floating point, got torch.int64$"):
        procrustes(torch.ones(3, 5), torch.ones(3, 5, dtype=torch.int64))


# All pairs.


@pytest.mark.parametrize(("n", "m"), SHAPES[:-1])
def test_csls_is_its_equation(n: int, m: int) -> None:
    x, y = spaces(n, m)
    for k in (1, 3, 500):
        torch.testing.assert_close(csls(x, y, k), full_csls(x, y, k), **CLOSE)


@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 3), (3, 0)])
def test_empty_spaces(n: int, m: int) -> None:
    x, y = gaussian(n, 5), gaussian(m, 5)
    assert csls(x, y).shape == (n, m)
    assert neighborhood_similarity(x, y).tolist() == [0.0] * n
    for found in (
        nearest_cosine(x, y, 2),
        nearest_csls(x, y, 2),
        nearest_csls(x, y, 2, space=gaussian(0, 5)),
    ):
        assert found.scores.shape == found.ids.shape == (n, min(2, m))
    assert mutual_csls(x, y).shape == (0, 2)


def test_zero_vectors_are_near_to_nothing() -> None:
    x, y = spaces(7, 5)
    x[2], y[1] = 0, 0
    found = csls(x, y, 3)
    torch.testing.assert_close(found, full_csls(x, y, 3), **CLOSE)
    check_nearest(nearest_csls(x, y, 5, neighborhood=3), full_csls(x, y, 3), 5)
    nothing = csls(torch.zeros(3, 5), torch.zeros(2, 5))
    assert nothing.eq(0).all()


def test_csls_has_a_gradient() -> None:
    x, y = gaussian(5, 3, seed=1).requires_grad_(), gaussian(7, 3, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: csls(a, b, 2), (x, y), fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda a, b: csls(a, b, 2), (x, y), fast_mode=True)
    with_zero = torch.cat([x.detach(), torch.zeros(1, 3)]).requires_grad_()
    csls(with_zero, y, 2).sum().backward()
    assert with_zero.grad is not None
    assert with_zero.grad.isfinite().all()


def test_narrow_numbers_stay_close_and_keep_their_dtype() -> None:
    dtype = torch.bfloat16
    x, y = gaussian(23, 31, seed=1, dtype=dtype), gaussian(29, 31, seed=2, dtype=dtype)
    exact = full_csls(x, y, 3)
    close = {"atol": 2 * torch.finfo(dtype).eps, "rtol": 0.0, "check_dtype": False}
    assert csls(x, y, 3).dtype == dtype
    torch.testing.assert_close(csls(x, y, 3), exact, **close)
    found = nearest_csls(x, y, 2, neighborhood=3)
    assert found.scores.dtype == dtype
    torch.testing.assert_close(found.scores, exact.topk(2, 1).values, **close)
    near = neighborhood_similarity(x, y, 3)
    assert near.dtype == nearest_cosine(x, y).scores.dtype == dtype
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(csls(x.float(), y.float(), 3), exact.float(), atol=1e-5, rtol=0)
        torch.testing.assert_close(
            nearest_csls(x.float(), y.float(), neighborhood=3).scores,
            exact.amax(1).float()[:, None],
        )


# Searches in blocks.


@pytest.fixture(params=[(8 << 20, 16), (1, 16), (300, 3), (37 * 4, 1)], ids=str)
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """As it is; one row a block; several blocks with a tail; groups with and without a tail."""
    size, group = request.param
    monkeypatch.setattr(neighbors, "CPU_BLOCK", size)
    monkeypatch.setattr(neighbors, "GROUP", group)
    return size, group


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_a_search_finds_what_all_pairs_hold(n: int, m: int, cut: tuple[int, int]) -> None:
    x, y = (space.requires_grad_() for space in spaces(n, m))
    cosines = (length_normalize(x) @ length_normalize(y).mT).detach()
    pairs = mutual_csls(x, y, neighborhood=3)
    assert pairs.dtype == torch.int64
    assert not nearest_cosine(x, y).scores.requires_grad
    assert not nearest_csls(x, y).scores.requires_grad
    assert list(map(tuple, pairs.tolist())) == oracles.mutual_pairs(csls(x, y, 3).tolist())
    for k in sorted({1, 7, m, m + 3}):
        check_nearest(nearest_cosine(x, y, k), cosines, k)
        check_nearest(nearest_csls(x, y, k, neighborhood=3), csls(x, y, 3).detach(), k)
        expected = torch.tensor(
            [oracles.neighbourhood(row, k) for row in cosines.tolist()], dtype=torch.float64
        )
        torch.testing.assert_close(neighborhood_similarity(x, y, k), expected, **CLOSE)


def test_equal_scores_fall_either_way(cut: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-1, 2, (17, 3), generator=generator).double()
    y = torch.randint(-1, 2, (61, 3), generator=generator).double()
    for k in (1, 4, 13, 61):
        check_nearest(nearest_cosine(x, y, k), full_cosine(x, y), k)
        check_nearest(nearest_csls(x, y, k, neighborhood=4), full_csls(x, y, 4), k)


def test_keys_have_their_neighbours_in_the_whole_space() -> None:
    x, y = spaces(101, 37)
    queries = torch.tensor([3, 50, 7, 7])
    found = nearest_csls(x[queries], y, 37, neighborhood=5, space=x)
    check_nearest(found, full_csls(x, y, 5)[queries], 37)
    alone = nearest_csls(x[queries], y, 37, neighborhood=5)
    assert not torch.allclose(found.scores, alone.scores)


def test_memory_holds_one_block_whatever_the_number_of_words() -> None:
    """All pairs would be 400 million numbers."""
    x, y = (
        gaussian(20_000, 5, seed=1, dtype=torch.float32),
        gaussian(20_000, 5, seed=2, dtype=torch.float32),
    )
    with Largest() as largest:
        nearest_cosine(x[:1000], y)
        nearest_csls(x[:1000], y, 5)
        mutual_csls(x[:1000], y)
    assert largest.size <= 8 << 20


def test_nan_comes_before_all_numbers(cut: tuple[int, int]) -> None:
    x, y = spaces(5, 37)
    clean = nearest_cosine(x, y, 3)
    spoilt = y.clone()
    spoilt[31, 2] = torch.nan
    assert nearest_cosine(x, spoilt, 3).ids[:, 0].tolist() == [31] * 5
    spoilt = x.clone()
    spoilt[1] = torch.nan
    found = nearest_cosine(spoilt, y, 3)
    others = [0, 2, 3, 4]
    assert torch.equal(found.ids[others], clean.ids[others])
    assert found.scores[1].isnan().all()


SEARCHES = [
    csls,
    neighborhood_similarity,
    nearest_cosine,
    nearest_csls,
    lambda x, y, k: mutual_csls(x, y, neighborhood=k),
]


@own_words
@pytest.mark.parametrize("search", SEARCHES)
def test_bad_spaces_are_refused(search: Callable) -> None:
    x = torch.ones(3, 5)
    first, second = ("queries", "keys") if search in (nearest_cosine, nearest_csls) else ("x", "y")
    refused(
        ValueError,
        rf"^{first} must have the axes \(n, dim\), got shape \(5,\)$",
        search,
        x[0],
        x,
        1,
    )
    refused(
        ValueError,
        rf"^{second} must have the axes \(m, dim\), got shape \(1, 3, 5\)$",
        search,
        x,
        x[None],
        1,
    )
    refused(
        ValueError,
        rf"^{second} must have a last axis of size 5, got shape \(3, 4\)$",
        search,
        x,
        x[:, :4],
        1,
    )
    for k in (0, -1, 1.5, True):
        refused(
            ValueError, rf"^(k|neighborhood) must be a positive integer, got {k}$", search, x, x, k
        )
    refused(
        TypeError,
        rf"^{first} must be floating point, got torch.int64$",
        search,
        x.long(),
        x.long(),
        1,
    )
    refused(
        TypeError,
        rf"^{second} must be torch.float32 as {first}, got torch.float64$",
        search,
        x,
        x.double(),
        1,
    )


@own_words
def test_other_bad_arguments_are_refused() -> None:
    x = torch.ones(3, 5)
    refused(
        ValueError,
        r"^neighborhood must be a positive integer, got 0$",
        nearest_csls,
        x,
        x,
        neighborhood=0,
    )
    with pytest.raises(
        ValueError, match=r"^space must have a last axis of size 5, got shape \(3, 4\)$"
    ):
        nearest_csls(x, x, space=x[:, :4])
    with pytest.raises(
        TypeError, match=r"^space must be torch.float32 as keys, got torch.float64$"
    ):
        nearest_csls(x, x, space=x.double())
    for normalize in (length_normalize, mean_center):
        refused(TypeError, r"^x must be floating point, got torch.int64$", normalize, x.long())
    refused(ValueError, r"^x must have the axes \(n, dim\), got shape \(5,\)$", mean_center, x[0])


def test_a_zero_row_has_no_gradient() -> None:
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    unit = length_normalize(x)
    (gradient,) = torch.autograd.grad(unit.sum(), x)
    assert torch.equal(gradient[0], torch.zeros(2))
    # (1 - u u') / |x| of a vector of ones, u = (0.6, 0.8)
    torch.testing.assert_close(gradient[1], torch.tensor([0.032, -0.024]))
    assert length_normalize(torch.tensor([[math.nan, 1.0]])).isnan().any(), "NaN is not hidden"


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_procrustes_takes_numbers_of_every_size(size: float) -> None:
    x, y = torch.randn(7, 3).double(), torch.randn(7, 3).double()
    torch.testing.assert_close(procrustes(size * x, size * y), procrustes(x, y))


def test_one_nan_spoils_all_scores_of_csls() -> None:
    x, y = torch.randn(7, 3), torch.randn(5, 3)
    bad = y.clone()
    bad[2, 1] = math.nan
    assert nearest_csls(x, bad).scores.isnan().all()
    assert nearest_csls(bad, x).scores.isnan().all()
    assert nearest_csls(x, y, space=bad).scores.isnan().all()
