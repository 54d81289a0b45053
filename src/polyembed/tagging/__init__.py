"""Vectors to tags."""

from polyembed.tagging.constraints import Constraints
from polyembed.tagging.crf import CRF
from polyembed.tagging.decoders import CRFDecoder, Decoder, SoftmaxDecoder
from polyembed.tagging.ensemble import VotingEnsemble
from polyembed.tagging.tagger import SequenceTagger

__all__ = ["CRF", "CRFDecoder", "Constraints", "Decoder", "SequenceTagger", "SoftmaxDecoder", "VotingEnsemble"]
