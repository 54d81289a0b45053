"""Pretrained static word vectors: fastText, word2vec, text files, BPEmb; mapped and joined."""

from polyembed.vectors.bpemb import BPEmbVectors
from polyembed.vectors.fasttext import FastTextVectors
from polyembed.vectors.laser import fetch_laser, read_merges, read_pieces
from polyembed.vectors.mapped import JoinedVectors, OrthogonalMapping
from polyembed.vectors.protocol import WordVectors
from polyembed.vectors.textfile import TextVectors, Word2VecBinaryVectors
from polyembed.vectors.words import as_source

__all__ = [
    "BPEmbVectors",
    "FastTextVectors",
    "JoinedVectors",
    "OrthogonalMapping",
    "TextVectors",
    "Word2VecBinaryVectors",
    "WordVectors",
    "as_source",
    "fetch_laser",
    "read_merges",
    "read_pieces",
]
