"""A vector per word in its sentence: fusion of layers, pooling of pieces, word and sequence encoders."""

from polyembed.encoders._fit_table import RowScore, TableFit
from polyembed.encoders.char2subword import Char2Subword
from polyembed.encoders.character_encoder import CharacterWordEncoder
from polyembed.encoders.fusion import AIF, DLFA, LastLayer, LayerAverage, LayerFusion, ScalarMix
from polyembed.encoders.laser import LaserEncoder, LaserRelease, load_laser
from polyembed.encoders.laser_sentences import LaserSentences
from polyembed.encoders.laser_words import BPEGRU, BPEBow, LaserElmo, LaserTop
from polyembed.encoders.pooling import pool_sequence, pool_words
from polyembed.encoders.pretrained import PretrainedWordEncoder
from polyembed.encoders.sequence import LSTMSequenceEncoder, SequenceEncoder, TransformerSequenceEncoder
from polyembed.encoders.word_encoder import WordEncoder

__all__ = [
    "AIF",
    "BPEGRU",
    "DLFA",
    "BPEBow",
    "Char2Subword",
    "CharacterWordEncoder",
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
    "RowScore",
    "ScalarMix",
    "SequenceEncoder",
    "TableFit",
    "TransformerSequenceEncoder",
    "WordEncoder",
    "load_laser",
    "pool_sequence",
    "pool_words",
]
