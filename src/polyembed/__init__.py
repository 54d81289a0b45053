"""polyembed: composable PyTorch modules for multilingual and code-switched text.

The names here are those of the README and the guides; the rest is in the subpackages. A name is
loaded when it is first asked for, so that importing polyembed takes no time.
"""

import importlib
from typing import TYPE_CHECKING, Any

from polyembed._version import __version__ as __version__

if TYPE_CHECKING:  # the same names for type checkers
    from polyembed.crf import CRF as CRF
    from polyembed.crf import Constraints as Constraints
    from polyembed.embeddings import CharCNN as CharCNN
    from polyembed.embeddings import HierarchicalMetaEmbedding as HierarchicalMetaEmbedding
    from polyembed.embeddings import MetaEmbedding as MetaEmbedding
    from polyembed.embeddings import SourceEmbedding as SourceEmbedding
    from polyembed.embeddings import SpelledEmbedding as SpelledEmbedding
    from polyembed.embeddings import UniqueWords as UniqueWords
    from polyembed.embeddings import WordEmbedder as WordEmbedder
    from polyembed.embeddings import bake as bake
    from polyembed.encoders import AIF as AIF
    from polyembed.encoders import BPEGRU as BPEGRU
    from polyembed.encoders import DLFA as DLFA
    from polyembed.encoders import BPEBow as BPEBow
    from polyembed.encoders import CharWordEncoder as CharWordEncoder
    from polyembed.encoders import LaserElmo as LaserElmo
    from polyembed.encoders import LaserTop as LaserTop
    from polyembed.encoders import LastLayer as LastLayer
    from polyembed.encoders import LayerAverage as LayerAverage
    from polyembed.encoders import LSTMSequenceEncoder as LSTMSequenceEncoder
    from polyembed.encoders import PretrainedWordEncoder as PretrainedWordEncoder
    from polyembed.encoders import ScalarMix as ScalarMix
    from polyembed.encoders import TransformerSequenceEncoder as TransformerSequenceEncoder
    from polyembed.tagging import CRFDecoder as CRFDecoder
    from polyembed.tagging import PairClassifier as PairClassifier
    from polyembed.tagging import SequenceClassifier as SequenceClassifier
    from polyembed.tagging import SequenceTagger as SequenceTagger
    from polyembed.tagging import SoftmaxDecoder as SoftmaxDecoder
    from polyembed.tagging import TokenClassifier as TokenClassifier
    from polyembed.tagging import VotingEnsemble as VotingEnsemble
    from polyembed.text import Lexicon as Lexicon
    from polyembed.text import Normalizer as Normalizer
    from polyembed.text import Pieces as Pieces
    from polyembed.training import FitOptions as FitOptions
    from polyembed.training import MetaXLTrainer as MetaXLTrainer
    from polyembed.training import adapt_masked_lm as adapt_masked_lm
    from polyembed.training import fit as fit
    from polyembed.training import fit_ensemble as fit_ensemble
    from polyembed.transfer import (
        RepresentationTransformationNetwork as RepresentationTransformationNetwork,
    )
    from polyembed.transfer import align_spaces as align_spaces
    from polyembed.transfer import extend_vocabulary as extend_vocabulary
    from polyembed.transfer import metaxl_gradients as metaxl_gradients
    from polyembed.transfer import metaxl_step as metaxl_step
    from polyembed.transfer import transformed_output as transformed_output
    from polyembed.transfer import translation_accuracy as translation_accuracy
    from polyembed.vectors import BPEmbVectors as BPEmbVectors
    from polyembed.vectors import FastTextVectors as FastTextVectors
    from polyembed.vectors import JoinedVectors as JoinedVectors
    from polyembed.vectors import TextVectors as TextVectors

_ROOMS = {
    "crf": "CRF Constraints",
    "embeddings": (
        "CharCNN HierarchicalMetaEmbedding MetaEmbedding SourceEmbedding SpelledEmbedding UniqueWords WordEmbedder bake"
    ),
    "encoders": (
        "AIF BPEGRU DLFA BPEBow CharWordEncoder LaserElmo LaserTop LastLayer LayerAverage "
        "LSTMSequenceEncoder PretrainedWordEncoder ScalarMix TransformerSequenceEncoder"
    ),
    "tagging": (
        "CRFDecoder PairClassifier SequenceClassifier SequenceTagger SoftmaxDecoder TokenClassifier VotingEnsemble"
    ),
    "text": "Lexicon Normalizer Pieces",
    "training": "FitOptions MetaXLTrainer adapt_masked_lm fit fit_ensemble",
    "transfer": (
        "RepresentationTransformationNetwork align_spaces extend_vocabulary metaxl_gradients metaxl_step "
        "transformed_output translation_accuracy"
    ),
    "vectors": "BPEmbVectors FastTextVectors JoinedVectors TextVectors",
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names.split()}
_SUBPACKAGES = {*_ROOMS, "data", "evaluation", "functional", "metrics", "saving", "tables"}

__all__ = sorted(
    [*_HOMES, "__version__"], key=lambda name: (not name.isupper(), not name[0].isupper(), name)
)


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"polyembed.{name}")
    if name in _HOMES:
        value = globals()[name] = getattr(
            importlib.import_module(f"polyembed.{_HOMES[name]}"), name
        )
        return value
    raise AttributeError(f"module 'polyembed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBPACKAGES})
