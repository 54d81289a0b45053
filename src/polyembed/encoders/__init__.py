"""A vector per word in its sentence: fusion of an encoder's layers, pooling of pieces, sequence encoders."""

from polyembed.encoders.fusion import AIF, DLFA, LastLayer, LayerAverage, LayerFusion, ScalarMix
from polyembed.encoders.pooling import pool_sequence, pool_words
from polyembed.encoders.sequence import LSTMSequenceEncoder, SequenceEncoder, TransformerSequenceEncoder

__all__ = [
    "AIF",
    "DLFA",
    "LSTMSequenceEncoder",
    "LastLayer",
    "LayerAverage",
    "LayerFusion",
    "ScalarMix",
    "SequenceEncoder",
    "TransformerSequenceEncoder",
    "pool_sequence",
    "pool_words",
]
