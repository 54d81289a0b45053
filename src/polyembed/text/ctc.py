"""The likeliest label sequences of a connectionist temporal classification."""

import math
from collections.abc import Sequence

BLANK = 0
_NOTHING = (-math.inf, -math.inf)


def ctc_beam_search(
    log_probs: Sequence[Sequence[float]], *, beam_size: int, threshold: float = -10.0
) -> list[tuple[tuple[int, ...], float]]:
    """Find likely label sequences: ``p(y) = sum over paths that collapse to y of prod_t p_t(path_t)`` (Graves 2006).

    A path has a label or the blank at each frame; it collapses by merging equal neighbours and dropping blanks. The
    search keeps the `beam_size` best sequences from frame to frame, each as the sum of its paths that end in a
    blank and of those that do not.

    Args:
        log_probs: A row of natural-log probabilities for each frame; column 0 is the blank.
        beam_size: How many sequences are kept. The sums are exact if none had to go.
        threshold: Labels with a lower log-probability than this at a frame are passed over there.

    Returns:
        At most `beam_size` label sequences with their log-probabilities, the likeliest first.

    Example:
        >>> rows = [[math.log(0.4), math.log(0.6)], [math.log(0.5), math.log(0.5)]]
        >>> [(labels, round(math.exp(score), 2)) for labels, score in ctc_beam_search(rows, beam_size=3)]
        [((1,), 0.8), ((), 0.2)]

    Deviations: none but the threshold, which Graves 2006 does not have.
    """
    beam: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, -math.inf)}  # ended by a blank, by a label
    for row in log_probs:
        labels = [label for label, value in enumerate(row) if label != BLANK and value > threshold]
        longer: dict[tuple[int, ...], tuple[float, float]] = {}
        for prefix, (blank, label) in beam.items():
            total = _add(blank, label)
            same = longer.get(prefix, _NOTHING)
            repeated = label + row[prefix[-1]] if prefix else -math.inf
            longer[prefix] = (_add(same[0], total + row[BLANK]), _add(same[1], repeated))
            for new in labels:
                start = blank if prefix and new == prefix[-1] else total
                if start > -math.inf:  # a label is not repeated without a blank between
                    other = longer.get((*prefix, new), _NOTHING)
                    longer[*prefix, new] = (other[0], _add(other[1], start + row[new]))
        ranked = sorted(longer.items(), key=lambda item: (-_add(*item[1]), item[0]))
        beam = dict(ranked[:beam_size])
    return [(prefix, _add(*scores)) for prefix, scores in beam.items()]


def _add(a: float, b: float) -> float:
    if a < b:
        a, b = b, a
    return a if b == -math.inf else a + math.log1p(math.exp(b - a))
