"""Pure mathematics: tensors in, tensors out; no state, no files."""

from polyembed.functional.alignment import length_normalize, mean_center, procrustes
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
from polyembed.functional.losses import cross_entropy, focal_loss
from polyembed.functional.masking import masked_max, masked_mean
from polyembed.functional.neighbors import (
    Nearest,
    csls,
    mutual_csls,
    nearest_cosine,
    nearest_csls,
    neighborhood_similarity,
)
from polyembed.functional.voting import agreement, entity_vote, majority_vote, vote_entropy

__all__ = [
    "BestPaths",
    "Hypergradient",
    "Nearest",
    "agreement",
    "cross_entropy",
    "csls",
    "entity_vote",
    "entropy",
    "focal_loss",
    "hausdorff_distance",
    "hypergradient",
    "length_normalize",
    "log_partition",
    "majority_vote",
    "marginals",
    "masked_max",
    "masked_mean",
    "mean_center",
    "mean_cosine",
    "modified_hausdorff_distance",
    "mutual_csls",
    "n_best",
    "nearest_cosine",
    "nearest_csls",
    "neighborhood_similarity",
    "pair_marginals",
    "path_score",
    "procrustes",
    "sample",
    "viterbi",
    "vote_entropy",
]
