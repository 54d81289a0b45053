"""Type embedders, meta-embeddings and combiners."""

from polyembed.embeddings.char_cnn import CharCNN
from polyembed.embeddings.combine import AttentionCombiner, Combiner, ConcatCombiner, LinearCombiner
from polyembed.embeddings.embedder import WordEmbedder
from polyembed.embeddings.meta import HierarchicalMetaEmbedding, MetaEmbedding, surface_scores
from polyembed.embeddings.piece_pooling import PieceTransformer
from polyembed.embeddings.precomputed import UniqueWords, bake
from polyembed.embeddings.source import SourceEmbedding
from polyembed.embeddings.spelled import SpelledEmbedding
from polyembed.embeddings.surface import FeatureEncoder

__all__ = [
    "AttentionCombiner",
    "CharCNN",
    "Combiner",
    "ConcatCombiner",
    "FeatureEncoder",
    "HierarchicalMetaEmbedding",
    "LinearCombiner",
    "MetaEmbedding",
    "PieceTransformer",
    "SourceEmbedding",
    "SpelledEmbedding",
    "UniqueWords",
    "WordEmbedder",
    "bake",
    "surface_scores",
]
