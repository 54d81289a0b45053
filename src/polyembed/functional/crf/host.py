"""The best path where numbers lie in the host's memory: on a short step PyTorch's calls cost more than its sums.

NumPy spends a third of the time on each, and walks the same steps in the same order, so the paths are the same.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Integers = NDArray[np.int64]


@np.errstate(over="ignore", invalid="ignore")  # infinities and NaN mean what they do in PyTorch
def best_path(emissions: Floats, transitions: Floats, last: Integers) -> tuple[Integers, Floats]:
    """Find the path of the highest score, the lower tag where two are equal.

    Args:
        emissions: ``(word, tag, batch)``; anything past a chain's last word.
        transitions: ``(tag, tag)``, from and to.
        last: Each chain's last position, ``(batch,)``.

    Returns:
        Tags ``(word, batch)``, past a chain's last word its last tag again; and the scores of the best paths that
        end in each tag at the last word, ``(batch, tag)``.
    """
    num_words, num_tags, batch = emissions.shape
    scores = np.empty_like(emissions)
    scores[0] = emissions[0]
    pairs = np.empty((num_tags, num_tags, batch), emissions.dtype)
    moves = transitions[..., None]
    into = np.ascontiguousarray(transitions.T)
    path = np.empty((num_words, batch), np.int64)
    for now, before, emission in zip(scores[1:], scores, emissions[1:], strict=False):
        np.add(before[:, None], moves, out=pairs)
        np.maximum.reduce(pairs, 0, out=now)
        now += emission
    by_chain = np.ascontiguousarray(scores.transpose(0, 2, 1))
    final = by_chain[last, np.arange(batch)]
    path[:] = tag = final.argmax(1)
    inside = np.arange(num_words)[:, None] < last
    for place in range(num_words - 2, -1, -1):
        np.copyto(path[place], (by_chain[place] + into[tag]).argmax(1), where=inside[place])
        tag = path[place]
    return path, final
