"""Linear-chain conditional random fields (Lafferty et al. 2001): pure functions, the module `CRF`,
and `Constraints`.

A chain over emissions ``e`` (position by tag), transitions ``A`` (from, to), start scores ``s`` and
end scores ``f`` gives a path ``y`` of ``n`` tags the score

    score(y) = s[y_1] + sum_t e[t, y_t] + sum_t A[y_t, y_{t+1}] + f[y_n],

and the probability ``exp(score(y) - log_partition)``. All functions take
``emissions (batch, word, tag)``, a bool ``mask (batch, word)``, ``transitions (tag, tag)`` and
``start`` and ``end (tag,)``. The chain of a row runs over its valid positions, wherever they are: a
masked position is skipped, and an empty row has the score 0, the log-partition 0 and the path
``[]``. A score of -inf forbids a tag or a transition, without NaN in values or gradients. Finite
scores are clamped to [-1e28, 1e28]; a score of NaN or +inf gives NaN.
"""

from polyembed.crf.best import n_best, sample, viterbi
from polyembed.crf.constraints import Constraints
from polyembed.crf.module import CRF
from polyembed.crf.scores import (
    entropy,
    log_partition,
    log_prob,
    marginals,
    partial_log_prob,
)
from polyembed.crf.spans import span_log_probs

__all__ = [
    "CRF",
    "Constraints",
    "entropy",
    "log_partition",
    "log_prob",
    "marginals",
    "n_best",
    "partial_log_prob",
    "sample",
    "span_log_probs",
    "viterbi",
]
