"""Vectors to tags and labels."""

from polyembed.tagging.build import build_tagger
from polyembed.tagging.classifiers import PairClassifier, SequenceClassifier
from polyembed.tagging.conformal import ConformalTagger
from polyembed.tagging.decoders import CRFDecoder, Decoder, SoftmaxDecoder
from polyembed.tagging.ensemble import VotingEnsemble
from polyembed.tagging.export import export_onnx, export_program
from polyembed.tagging.losses import FocalLoss, LabelCrossEntropy, class_weights
from polyembed.tagging.onnx_tagger import OnnxTagger
from polyembed.tagging.tagger import SequenceTagger, TokenClassifier
from polyembed.tagging.text_model import to_device

__all__ = [
    "CRFDecoder",
    "ConformalTagger",
    "Decoder",
    "FocalLoss",
    "LabelCrossEntropy",
    "OnnxTagger",
    "PairClassifier",
    "SequenceClassifier",
    "SequenceTagger",
    "SoftmaxDecoder",
    "TokenClassifier",
    "VotingEnsemble",
    "build_tagger",
    "class_weights",
    "export_onnx",
    "export_program",
    "to_device",
]
