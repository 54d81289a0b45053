"""Viterbi's algorithm in NumPy, which decodes on a CPU and in `OnnxTagger`.

For short steps PyTorch's call overhead dominates; NumPy takes a third of the time. This file
imports NumPy alone, so that a copy of it serves exported taggers where torch is not installed.
"""

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORBIDDEN = -1e36
"""The finite value that replaces -inf: its exp is also 0, and its gradient is 0 where the gradient
of -inf is NaN.
"""

LARGEST = 1e28
"""The bound of finite scores: the sum over a chain of a million words is far above `FORBIDDEN` and
below 3e38.
"""

Floats = NDArray[np.floating[Any]]


@np.errstate(over="ignore", invalid="ignore")
def viterbi(
    emissions: Floats,
    mask: NDArray[np.bool_],
    transitions: Floats,
    start: Floats,
    end: Floats,
    *,
    ignore_index: int = -100,
) -> NDArray[np.int64]:
    """Return the path of the highest score; of paths with equal scores, the path with the lower tag
    at the last position where they differ.

    Args:
        emissions: Scores of each tag at each word, ``(batch, word, tag)``.
        mask: True = valid, ``(batch, word)``; a chain runs over the valid positions wherever they
            are.
        transitions: ``A[i, j]``, the score of going from tag i to tag j.
        start: Score of each tag at a chain's first position.
        end: Score of each tag at a chain's last position.
        ignore_index: The result at masked positions, and in rows with NaN or without a permitted
            path.

    Returns:
        The tag ids, ``(batch, word)`` int64.
    """
    found = np.full(mask.shape, ignore_index, np.int64)
    lengths = mask.sum(1)
    width = lengths.max(initial=0)
    if not width:
        return found
    dtype = np.result_type(np.float32, emissions, transitions, start, end)
    rows, last = np.arange(len(mask)), np.maximum(lengths - 1, 0)
    inside = np.arange(width) < lengths[:, None]
    unary = np.zeros((len(mask), width, len(start)), dtype)
    unary[inside] = _bounded(emissions[mask], dtype)  # closes the holes
    unary[rows, last] += _bounded(end, dtype)
    unary[:, 0] += _bounded(start, dtype)
    moves = _bounded(transitions, dtype)
    path, final = _search(unary, moves, last)
    worst = np.where(inside, np.take_along_axis(unary, path[..., None], 2)[..., 0], 0.0).min(1)
    steps = np.where(inside[:, 1:], moves[path[:, :-1], path[:, 1:]], 0.0).min(1, initial=0.0)
    possible = (np.minimum(worst, steps) > FORBIDDEN / 2) & ~np.isnan(final).any(1)
    found[mask] = np.where(possible[:, None], path, ignore_index)[inside]
    return found


def _bounded(scores: Floats, dtype: np.dtype[Any]) -> Floats:
    """Replace -inf by `FORBIDDEN` and +inf by NaN, and bound the finite scores."""
    scores = np.asarray(scores, dtype)
    bounded = np.clip(scores, -LARGEST, LARGEST)
    bounded[scores == -np.inf] = FORBIDDEN
    bounded[scores == np.inf] = np.nan
    return bounded


def _search(
    unary: Floats, transitions: Floats, last: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Floats]:
    """Return the best paths ``(batch, word)``, and the score of the best path to each last tag,
    ``(batch, tag)``.
    """
    batch, width, num_tags = unary.shape
    # the best tag of each word has the score 0, so that float32 resolves the sums of a long chain;
    # the batch is last for speed
    scores = np.ascontiguousarray((unary - unary.max(2, keepdims=True)).transpose(1, 2, 0))
    pairs = np.empty((num_tags, num_tags, batch), unary.dtype)
    best = np.empty((num_tags, batch), unary.dtype)
    for before, now in itertools.pairwise(scores):
        np.add(before[:, None], transitions[..., None], out=pairs)
        now += np.maximum.reduce(pairs, 0, out=best)
    by_chain = np.ascontiguousarray(scores.transpose(0, 2, 1))
    final = by_chain[last, np.arange(batch)]
    into = np.ascontiguousarray(transitions.T)
    path = np.empty((width, batch), np.int64)
    path[-1] = tag = final.argmax(1)
    for place in range(width - 2, -1, -1):  # past a chain's last word: its last tag
        tag = np.where(place < last, (by_chain[place] + into[tag]).argmax(1), tag)
        path[place] = tag
    return path.T, final
