"""NumPy's Viterbi against all paths, and against torch's recursion where there are many."""

import math

import numpy as np
import pytest
import torch

from polyembed.crf.best import in_chunks
from polyembed.crf.numpy_viterbi import viterbi


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def in_torch(*arrays: np.ndarray) -> np.ndarray:
    """Run the other implementation, that of a GPU."""
    return in_chunks(*map(torch.from_numpy, arrays), ignore_index=-100).numpy()


@pytest.mark.parametrize("scores", ["any", "few values", "forbidden"])
def test_equals_torch_on_ragged_batches(random, scores: str) -> None:
    """Scores of few values tie all the time: the same path then says that ties are broken alike."""
    shapes = (53, 50, 7), (7, 7), (7,), (7,)
    arrays = [random.standard_normal(shape, dtype=np.float32) for shape in shapes]
    if scores == "few values":
        arrays = [array.round() for array in arrays]
    if scores == "forbidden":
        for array, share in zip(arrays, (0.1, 0.3, 0.3, 0.3), strict=True):
            array[random.random(array.shape) < share] = -math.inf
    lengths = np.arange(53) % 51
    whole = np.arange(50) < lengths[:, None]
    for mask in (whole, random.random(whole.shape) < 0.7):
        found, expected = (run(arrays[0], mask, *arrays[1:]) for run in (viterbi, in_torch))
        np.testing.assert_array_equal(found, expected)
        assert (expected[mask] >= 0).any()


def test_prefers_the_lower_tag_at_the_last_difference() -> None:
    flat = np.zeros((3, 3)), np.zeros(3), np.zeros(3)
    assert viterbi(np.zeros((1, 4, 3)), np.ones((1, 4), bool), *flat).tolist() == [[0, 0, 0, 0]]
    emissions = np.array(
        [[[0.0, 1.0], [1.0, 0.0]]]
    )  # two paths of 1 + 1 - 1 and of 1: the last tag decides
    transitions = np.array([[0.0, 0.0], [-1.0, 0.0]])
    assert viterbi(
        emissions, np.ones((1, 2), bool), transitions, np.zeros(2), np.zeros(2)
    ).tolist() == [[0, 0]]


def test_rows_without_a_path_have_no_tags(random) -> None:
    emissions, transitions, ends = (
        random.standard_normal(shape) for shape in ((3, 4, 3), (3, 3), (2, 3))
    )
    mask = np.ones((3, 4), bool)
    emissions[0, 2], emissions[1, 1, 2] = -math.inf, math.nan
    found = viterbi(emissions, mask, transitions, *ends)
    np.testing.assert_array_equal(found, in_torch(emissions, mask, transitions, *ends))
    assert found[:2].tolist() == [[-100] * 4] * 2
    assert (found[2] >= 0).all()
    transitions[:] = -math.inf
    mask[1, 1:] = False  # one word needs no transition
    emissions = np.zeros_like(emissions)
    found = viterbi(emissions, mask, transitions, *ends)
    np.testing.assert_array_equal(found, in_torch(emissions, mask, transitions, *ends))
    assert (found < 0).tolist() == [[True] * 4, [False, True, True, True], [True] * 4]


@pytest.mark.parametrize("score", [math.nan, math.inf, 3e38])
def test_equals_torch_on_scores_beyond_all_numbers(score: float) -> None:
    """Nobody is warned of what is defined: warnings are errors here."""
    mask = np.arange(4) < np.array([[1], [4], [2]])
    for place in range(4):
        arrays = [np.zeros(shape, np.float32) for shape in ((3, 4, 3), (3, 3), (3,), (3,))]
        arrays[place][..., 1] = score
        np.testing.assert_array_equal(
            viterbi(arrays[0], mask, *arrays[1:]), in_torch(arrays[0], mask, *arrays[1:])
        )


def test_long_chains_keep_their_precision(random) -> None:
    """The best of each word is taken for 0, or the sums of a long chain would swallow what tags differ by."""
    shapes = (1, 2000, 5), (5, 5), (5,), (5,)
    first, *rest = (random.standard_normal(shape, dtype=np.float32) for shape in shapes)
    first, mask = first + np.float32(1000), np.ones((1, 2000), bool)
    wide = viterbi(first.astype(float), mask, *(array.astype(float) for array in rest))
    np.testing.assert_array_equal(viterbi(first, mask, *rest), wide)
