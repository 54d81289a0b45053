"""Contextual embedders, with one vector per word of a sentence; layer fusion, pooling and sequence
encoders.
"""

from polyembed.encoders.cached import CachedEmbedder, cache_features
from polyembed.encoders.char2subword import Char2Subword
from polyembed.encoders.character_encoder import CharWordEncoder
from polyembed.encoders.fusion import (
    AIF,
    DLFA,
    LastLayer,
    LayerAverage,
    ScalarMix,
    SingleLayer,
)
from polyembed.encoders.laser import (
    BPEGRU,
    BPEBow,
    LaserElmo,
    LaserEncoder,
    LaserSentences,
    LaserTop,
    load_laser,
)
from polyembed.encoders.pooling import pool_words
from polyembed.encoders.pretrained import PretrainedWordEncoder
from polyembed.encoders.sequence import (
    LSTMSequenceEncoder,
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
    "LSTMSequenceEncoder",
    "LaserElmo",
    "LaserEncoder",
    "LaserSentences",
    "LaserTop",
    "LastLayer",
    "LayerAverage",
    "PretrainedWordEncoder",
    "ScalarMix",
    "SingleLayer",
    "TransformerSequenceEncoder",
    "WideAndDeepEncoder",
    "cache_features",
    "load_laser",
    "pool_words",
]
