"""Contextual embedders, which give each word of a sentence a vector, layer fusion, pooling and
sequence encoders.
"""

from polyembed.encoders.cached import (
    CachedEmbedder,
    FeatureStore,
    WordFeatures,
    cache_features,
)
from polyembed.encoders.char2subword import Char2Subword
from polyembed.encoders.character_encoder import CharWordEncoder
from polyembed.encoders.contextual import ContextualEmbedder
from polyembed.encoders.fusion import (
    AIF,
    DLFA,
    LastLayer,
    LayerAverage,
    LayerFusion,
    ScalarMix,
    SingleLayer,
)
from polyembed.encoders.laser import (
    BPEGRU,
    BPEBow,
    LaserElmo,
    LaserEncoder,
    LaserRelease,
    LaserSentences,
    LaserTop,
    load_laser,
)
from polyembed.encoders.pooling import pool_sequence, pool_words
from polyembed.encoders.pretrained import PretrainedWordEncoder
from polyembed.encoders.sequence import (
    LSTMSequenceEncoder,
    SequenceEncoder,
    TransformerSequenceEncoder,
)
from polyembed.encoders.wide_and_deep import WideAndDeepEncoder

__all__ = [
    "AIF",
    "BPEGRU",
    "DLFA",
    "BPEBow",
    "CachedEmbedder",
    "Char2Subword",
    "CharWordEncoder",
    "ContextualEmbedder",
    "FeatureStore",
    "LSTMSequenceEncoder",
    "LaserElmo",
    "LaserEncoder",
    "LaserRelease",
    "LaserSentences",
    "LaserTop",
    "LastLayer",
    "LayerAverage",
    "LayerFusion",
    "PretrainedWordEncoder",
    "ScalarMix",
    "SequenceEncoder",
    "SingleLayer",
    "TransformerSequenceEncoder",
    "WideAndDeepEncoder",
    "WordFeatures",
    "cache_features",
    "load_laser",
    "pool_sequence",
    "pool_words",
]
