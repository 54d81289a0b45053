"""polyembed: composable PyTorch modules for multilingual and code-switched text."""

from polyembed import functional
from polyembed._version import __version__
from polyembed.embeddings import (
    AttentionCombiner,
    BakedEmbedding,
    CharCNN,
    ConcatCombiner,
    HierarchicalMetaEmbedding,
    LinearCombiner,
    MetaEmbedding,
    PieceMean,
    PieceTransformer,
    SourceEmbedding,
    SpelledEmbedding,
    UniqueWords,
    bake,
)
from polyembed.encoders import LSTMSequenceEncoder, TransformerSequenceEncoder
from polyembed.tagging import CRF, Constraints, CRFDecoder, SequenceTagger, SoftmaxDecoder, VotingEnsemble
from polyembed.text import (
    CharacterSpelling,
    CharacterTransliterator,
    DictionaryTransliterator,
    Lexicon,
    Normalizer,
    Pieces,
    PieceSpelling,
    SchemeTransliterator,
    train_transliterator,
)
from polyembed.training import MetaXLTrainer, adapt_masked_lm, fit, fit_ensemble
from polyembed.transfer import RepresentationTransformationNetwork, align, bli, metaxl_step, transformed_output
from polyembed.vectors import BPEmbVectors, FastTextVectors, JoinedVectors, TextVectors

__all__ = [
    "CRF",
    "AttentionCombiner",
    "BPEmbVectors",
    "BakedEmbedding",
    "CRFDecoder",
    "CharCNN",
    "CharacterSpelling",
    "CharacterTransliterator",
    "ConcatCombiner",
    "Constraints",
    "DictionaryTransliterator",
    "FastTextVectors",
    "HierarchicalMetaEmbedding",
    "JoinedVectors",
    "LSTMSequenceEncoder",
    "Lexicon",
    "LinearCombiner",
    "MetaEmbedding",
    "MetaXLTrainer",
    "Normalizer",
    "PieceMean",
    "PieceSpelling",
    "PieceTransformer",
    "Pieces",
    "RepresentationTransformationNetwork",
    "SchemeTransliterator",
    "SequenceTagger",
    "SoftmaxDecoder",
    "SourceEmbedding",
    "SpelledEmbedding",
    "TextVectors",
    "TransformerSequenceEncoder",
    "UniqueWords",
    "VotingEnsemble",
    "__version__",
    "adapt_masked_lm",
    "align",
    "bake",
    "bli",
    "fit",
    "fit_ensemble",
    "functional",
    "metaxl_step",
    "train_transliterator",
    "transformed_output",
]
