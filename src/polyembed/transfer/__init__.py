"""Transfer from one language to another: aligned spaces, MetaXL, extended vocabularies."""

from polyembed.transfer.adversarial import AdversarialOptions
from polyembed.transfer.joint import JointStep, joint_step
from polyembed.transfer.metaxl import MetaXLStep, metaxl_gradients, metaxl_step
from polyembed.transfer.rtn import (
    RepresentationTransformationNetwork,
    encoder_layer,
    transformed_output,
)
from polyembed.transfer.spaces import TranslationAccuracy, align_spaces, translation_accuracy
from polyembed.transfer.vocabulary import ExtendedVocabulary, extend_vocabulary

__all__ = [
    "AdversarialOptions",
    "ExtendedVocabulary",
    "JointStep",
    "MetaXLStep",
    "RepresentationTransformationNetwork",
    "TranslationAccuracy",
    "align_spaces",
    "encoder_layer",
    "extend_vocabulary",
    "joint_step",
    "metaxl_gradients",
    "metaxl_step",
    "transformed_output",
    "translation_accuracy",
]
