"""What was learned in one language, carried over to another."""

from polyembed.transfer.layers import encoder_layer
from polyembed.transfer.metaxl import MetaXLStep, metaxl_step
from polyembed.transfer.rtn import RepresentationTransformationNetwork, transformed_output

__all__ = [
    "MetaXLStep",
    "RepresentationTransformationNetwork",
    "encoder_layer",
    "metaxl_step",
    "transformed_output",
]
