import oracles
import pytest
import torch
from checks import Largest, refused
from toys import own_words

from polyembed.functional import hausdorff_distance

Points = list[list[float]]
both = pytest.mark.parametrize("modified", [False, True])


def oracle(source: Points, target: Points, modified: bool) -> float:
    """Compute equations 5 and 6 by loops."""
    forth = [min(1 - oracles.cosine(s, t) for t in target) for s in source]
    back = [min(1 - oracles.cosine(s, t) for s in source) for t in target]
    return max(sum(x) / len(x) if modified else max(x) for x in (forth, back))


@both
@pytest.mark.parametrize(("chunk", "sizes"), [(1, (7, 5)), (3, (13, 7)), (9, (13, 7)), (3, (1, 5))])
def test_equations(modified: bool, chunk: int, sizes: tuple[int, int]):
    points = [torch.randn(size, 5, dtype=torch.float64, requires_grad=True) for size in sizes]
    expected = oracle(*(x.tolist() for x in points), modified)

    def distance(*points):
        return hausdorff_distance(*points, modified=modified, chunk=chunk)

    assert distance(*points).item() == pytest.approx(expected)
    assert distance(*points[::-1]).item() == pytest.approx(expected)
    assert torch.autograd.gradcheck(distance, points, fast_mode=True)


@both
def test_masks_and_leading_axes(modified: bool):
    source, target = torch.randn(3, 5, 4), torch.randn(2, 7, 4)
    of_source, of_target = torch.rand(3, 5) < 0.5, torch.rand(2, 7) < 0.5
    spoilt = torch.where(of_source[..., None], source, float("nan"))
    expected = oracle(source[of_source].tolist(), target[of_target].tolist(), modified)
    found = hausdorff_distance(spoilt, target, of_source, of_target, modified=modified, chunk=2)
    assert found.item() == pytest.approx(expected, rel=1e-5)
    nobody = torch.zeros_like(of_target)
    assert hausdorff_distance(source, target, None, nobody, modified=modified).item() == 0.0
    assert hausdorff_distance(source[:0], target, modified=modified).item() == 0.0


@both
def test_zeros_scale_and_equal_sets(modified: bool):
    points = torch.randn(11, 3, dtype=torch.float64)
    same = hausdorff_distance(points, 7 * points.flip(0), modified=modified)
    assert same.item() == pytest.approx(0.0, abs=1e-12)
    assert hausdorff_distance(torch.zeros(2, 3), points, modified=modified).item() == 1.0


@both
def test_any_length_and_two_dtypes(modified: bool):
    source, target = torch.randn(7, 5), torch.randn(7, 5)
    expected = hausdorff_distance(source.double(), target.double(), modified=modified).item()
    for one, tolerance in ((1e-38 * source, 1e-3), (1e30 * source, 1e-3), (source.bfloat16(), 0.1)):
        found = hausdorff_distance(one, target, modified=modified)
        assert found.dtype == torch.float32
        assert found.item() == pytest.approx(expected, rel=tolerance)
    with torch.autocast("cpu", torch.bfloat16):
        found = hausdorff_distance(source, target, modified=modified)
    assert found.item() == pytest.approx(expected, rel=1e-5)
    mixed = hausdorff_distance(source.double(), target, modified=modified)
    assert mixed.dtype == torch.float64
    assert mixed.item() == pytest.approx(expected)


def test_memory_does_not_grow_with_the_matrix():
    source, target = torch.randn(2003, 3), torch.randn(1999, 3)
    with Largest() as largest:
        hausdorff_distance(source, target, chunk=101)
    assert largest.size <= max(101 * 101, 3 * 2003)


POINTS = torch.ones(3, 5)


@own_words
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((POINTS, POINTS[:, :4]), ValueError, r"^target must have a last axis of size 5, got sh"),
        ((POINTS[0], POINTS), ValueError, r"^source must have at least 2 axes, got shape \(5,\)$"),
        ((POINTS.long(), POINTS), TypeError, "^source must be floating point, got torch.int64$"),
        ((POINTS, POINTS, None, POINTS), TypeError, r"^target_mask must be bool \(True = valid\)"),
        ((POINTS, POINTS, POINTS > 0), ValueError, r"^source_mask must have shape \(3,\), got \(3"),
    ],
)
def test_bad_input(arguments: tuple, error: type[Exception], message: str):
    refused(error, message, hausdorff_distance, *arguments)
