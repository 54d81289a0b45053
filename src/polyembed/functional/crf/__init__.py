"""Linear-chain conditional random fields as pure functions (Lafferty et al. 2001).

A chain over emissions ``e`` (position by tag), transitions ``A`` (from, to), start ``s`` and end scores ``f``
gives a path ``y`` of ``n`` tags the score

    score(y) = s[y_1] + sum_t e[t, y_t] + sum_t A[y_t, y_{t+1}] + f[y_n],

and the probability ``exp(score(y) - log_partition)``. The chain of a row runs over its valid positions,
wherever they stand: a hole in the mask is skipped as if it were not there, and an empty row has the
score 0, the partition 1 and the path ``[]``. A score of -inf forbids what it scores; nothing becomes NaN of it.

`chain.py` closes the holes; `loop.py` is the forward algorithm as it stands in a textbook, `analytic.py` the same
with the marginals as its gradient (in probabilities by `scaled.py`, in logs by `semiring.py`), `scan.py` the same for
the compiler; `best.py`, `k_best.py` and `sampling.py` find and draw paths.
"""

from polyembed.functional.crf.best import viterbi
from polyembed.functional.crf.k_best import BestPaths, n_best
from polyembed.functional.crf.sampling import sample
from polyembed.functional.crf.scores import entropy, log_partition, marginals, pair_marginals, path_score

__all__ = [
    "BestPaths",
    "entropy",
    "log_partition",
    "marginals",
    "n_best",
    "pair_marginals",
    "path_score",
    "sample",
    "viterbi",
]
