"""Pure mathematics: tensors in, tensors out; no state, no files."""

from polyembed.functional.alignment import length_normalize, procrustes
from polyembed.functional.distances import hausdorff_distance
from polyembed.functional.hypergradient import hypergradient
from polyembed.functional.losses import cross_entropy, focal_loss
from polyembed.functional.masking import masked_max, masked_mean
from polyembed.functional.neighbors import (
    csls,
    mutual_csls,
    nearest_cosine,
    nearest_csls,
)
from polyembed.functional.voting import entity_vote, majority_vote, vote_entropy

__all__ = [
    "cross_entropy",
    "csls",
    "entity_vote",
    "focal_loss",
    "hausdorff_distance",
    "hypergradient",
    "length_normalize",
    "majority_vote",
    "masked_max",
    "masked_mean",
    "mutual_csls",
    "nearest_cosine",
    "nearest_csls",
    "procrustes",
    "vote_entropy",
]
