"""Carrying over what was learned in one language to another: aligned spaces."""

from polyembed.transfer.adversarial import AdversarialMapping, adversarial_mapping, mapping_criterion
from polyembed.transfer.bli import BLIResult, bli
from polyembed.transfer.muse import align, similarity_pairs

__all__ = [
    "AdversarialMapping",
    "BLIResult",
    "adversarial_mapping",
    "align",
    "bli",
    "mapping_criterion",
    "similarity_pairs",
]
