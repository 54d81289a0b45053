"""What was learned in one language, carried over to another: aligned spaces, MetaXL."""

from polyembed.transfer.adversarial import AdversarialMapping, adversarial_mapping, mapping_criterion
from polyembed.transfer.bli import BLIResult, bli
from polyembed.transfer.layers import encoder_layer
from polyembed.transfer.metaxl import MetaXLStep, metaxl_step
from polyembed.transfer.muse import align, similarity_pairs
from polyembed.transfer.rtn import RepresentationTransformationNetwork, transformed_output

__all__ = [
    "AdversarialMapping",
    "BLIResult",
    "MetaXLStep",
    "RepresentationTransformationNetwork",
    "adversarial_mapping",
    "align",
    "bli",
    "encoder_layer",
    "mapping_criterion",
    "metaxl_step",
    "similarity_pairs",
    "transformed_output",
]
