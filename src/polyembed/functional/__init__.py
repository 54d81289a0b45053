"""Pure mathematics: tensors in, tensors out; no state, no files."""

from polyembed.functional.bilevel import Hypergradient, hypergradient
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
from polyembed.functional.distances import hausdorff_distance, mean_cosine, modified_hausdorff_distance
from polyembed.functional.masking import masked_max, masked_mean
from polyembed.functional.voting import agreement, entity_vote, majority_vote, vote_entropy

__all__ = [
    "BestPaths",
    "Hypergradient",
    "agreement",
    "entity_vote",
    "entropy",
    "hausdorff_distance",
    "hypergradient",
    "log_partition",
    "majority_vote",
    "marginals",
    "masked_max",
    "masked_mean",
    "mean_cosine",
    "modified_hausdorff_distance",
    "n_best",
    "pair_marginals",
    "path_score",
    "sample",
    "viterbi",
    "vote_entropy",
]
