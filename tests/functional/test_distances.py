import math

import pytest
import torch
from checks import Largest, refused
from toys import own_words

from polyembed.functional import hausdorff_distance, mean_cosine, modified_hausdorff_distance

Points = list[list[float]]


def cosine(one: list[float], other: list[float]) -> float:
    length = math.sqrt(sum(x * x for x in one) * sum(y * y for y in other))
    return sum(x * y for x, y in zip(one, other, strict=True)) / length if length else 0.0


def oracle(source: Points, target: Points, *, modified: bool = False) -> float:
    """Equations 5 and 6 in loops."""
    if not source or not target:
        return 0.0
    forth = [min(1 - cosine(s, t) for t in target) for s in source]
    back = [min(1 - cosine(s, t) for s in source) for t in target]
    if modified:
        return max(sum(forth) / len(forth), sum(back) / len(back))
    return max(max(forth), max(back))


FUNCTIONS = [(hausdorff_distance, False), (modified_hausdorff_distance, True)]


@pytest.mark.parametrize(("function", "modified"), FUNCTIONS)
@pytest.mark.parametrize(
    ("chunk", "sizes"), [(1, (7, 5)), (3, (13, 7)), (1024, (13, 7)), (3, (1, 5))]
)
def test_equations(function, modified: bool, chunk: int, sizes: tuple[int, int]) -> None:
    source, target = (torch.randn(size, 5, dtype=torch.float64) for size in sizes)
    found = function(source, target, chunk=chunk)
    assert found.item() == pytest.approx(
        oracle(source.tolist(), target.tolist(), modified=modified)
    )
    assert function(target, source, chunk=chunk).item() == pytest.approx(found.item())


@pytest.mark.parametrize(("function", "modified"), FUNCTIONS)
def test_masks_and_leading_axes(function, modified: bool) -> None:
    source, target = torch.randn(3, 5, 4), torch.randn(2, 7, 4)
    of_source, of_target = torch.rand(3, 5) < 0.5, torch.rand(2, 7) < 0.5
    spoilt = torch.where(of_source[..., None], source, float("nan"))
    expected = oracle(source[of_source].tolist(), target[of_target].tolist(), modified=modified)
    assert function(spoilt, target, of_source, of_target, chunk=2).item() == pytest.approx(
        expected, rel=1e-5
    )
    assert function(source, target, ~of_source & of_source).item() == 0.0
    assert function(source[:0], target).item() == 0.0
    assert function(source, target, None, of_target & ~of_target).item() == 0.0


@pytest.mark.parametrize(("function", "modified"), FUNCTIONS)
def test_zeros_scale_and_equal_sets(function, modified: bool) -> None:
    points = torch.randn(11, 3, dtype=torch.float64)
    assert function(points, 7 * points.flip(0)).item() == pytest.approx(0.0, abs=1e-12)
    assert function(torch.zeros(2, 3), torch.randn(3, 3)).item() == 1.0


def test_one_outlier() -> None:
    cloud = torch.tensor([[1.0, 0.0]]).repeat(9, 1)
    outlier = torch.cat([cloud, torch.tensor([[-1.0, 0.0]])])
    assert hausdorff_distance(outlier, cloud).item() == pytest.approx(2.0)
    assert modified_hausdorff_distance(outlier, cloud).item() == pytest.approx(0.2)


def test_memory_does_not_grow_with_the_matrix() -> None:
    """Every tensor that is made is far smaller than the matrix."""
    source, target = torch.randn(2003, 3), torch.randn(1999, 3)
    with Largest() as largest:
        hausdorff_distance(source, target, chunk=101)
    assert largest.size <= max(101 * 101, 3 * 2003)


def test_mean_cosine() -> None:
    source, target = (
        torch.randn(3, 5, 4, dtype=torch.float64),
        torch.randn(3, 5, 4, dtype=torch.float64),
    )
    mask = torch.rand(3, 5) < 0.6
    pairs = list(zip(source[mask].tolist(), target[mask].tolist(), strict=True))
    expected = sum(cosine(s, t) for s, t in pairs) / len(pairs)
    spoilt = torch.where(mask[..., None], target, float("nan"))
    assert mean_cosine(source, spoilt, mask).item() == pytest.approx(expected)
    assert mean_cosine(source, 3 * source).item() == pytest.approx(1.0)
    assert mean_cosine(source, target, torch.zeros_like(mask)).item() == 0.0
    assert mean_cosine(torch.zeros(2, 3), torch.ones(2, 3)).item() == 0.0


@own_words
def test_bad_input() -> None:
    points = torch.randn(3, 5)
    with pytest.raises(
        ValueError, match=r"^target must have a last axis of size 5, got shape \(3, 4\)$"
    ):
        hausdorff_distance(points, points[:, :4])
    refused(
        ValueError,
        r"^source must have at least 2 axes, got shape \(5,\)$",
        hausdorff_distance,
        points[0],
        points,
    )
    with pytest.raises(TypeError, match=r"^source must be floating point, got torch.int64$"):
        modified_hausdorff_distance(points.long(), points)
    with pytest.raises(
        TypeError, match=r"^target_mask must be bool \(True = valid\), got torch.float32$"
    ):
        hausdorff_distance(points, points, None, torch.ones(3))
    with pytest.raises(ValueError, match=r"^source_mask must have shape \(3,\), got \(2,\)$"):
        hausdorff_distance(points, points, torch.ones(2, dtype=torch.bool))
    refused(
        ValueError,
        r"^chunk must be a positive integer, got 0$",
        hausdorff_distance,
        points,
        points,
        chunk=0,
    )
    with pytest.raises(
        ValueError, match=r"^target must have the shape \(3, 5\) of source, got \(2, 5\)$"
    ):
        mean_cosine(points, points[:2])
    with pytest.raises(ValueError, match=r"^mask must have shape \(3,\), got \(3, 5\)$"):
        mean_cosine(points, points, torch.ones(3, 5, dtype=torch.bool))


@pytest.mark.parametrize("function", [hausdorff_distance, modified_hausdorff_distance, mean_cosine])
def test_any_length_and_two_dtypes(function) -> None:
    source, target = torch.randn(7, 5), torch.randn(7, 5)
    expected = function(source.double(), target.double()).item()
    for scale in (1e-38, 1e30):
        assert function(scale * source, target).item() == pytest.approx(expected, rel=1e-3)
    low = function(source.bfloat16(), target.bfloat16())
    assert low.dtype == torch.float32
    assert low.item() == pytest.approx(expected, abs=0.02)
    mixed = function(source.double(), target)
    assert mixed.dtype == torch.float64
    assert mixed.item() == pytest.approx(expected)


@pytest.mark.parametrize("function", [hausdorff_distance, modified_hausdorff_distance])
@pytest.mark.parametrize("chunk", [2, 1024])
def test_gradients(function, chunk: int) -> None:
    points = [torch.randn(size, 5, dtype=torch.float64, requires_grad=True) for size in (7, 5)]
    assert torch.autograd.gradcheck(lambda *both: function(*both, chunk=chunk), points)
