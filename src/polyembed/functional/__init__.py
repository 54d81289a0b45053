"""Pure mathematics: tensors in, tensors out; no state, no files."""

from polyembed.functional.crf import (
    BestPaths,
    entropy,
    log_partition,
    marginals,
    n_best,
    pair_marginals,
    path_score,
    sample,
    viterbi,
)
from polyembed.functional.masking import masked_max, masked_mean
from polyembed.functional.voting import agreement, entity_vote, majority_vote, vote_entropy

__all__ = [
    "BestPaths",
    "agreement",
    "entity_vote",
    "entropy",
    "log_partition",
    "majority_vote",
    "marginals",
    "masked_max",
    "masked_mean",
    "n_best",
    "pair_marginals",
    "path_score",
    "sample",
    "viterbi",
    "vote_entropy",
]
