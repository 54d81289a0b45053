"""Pretrained static word vectors, on disk or on a hub: fastText, text files, BPEmb; turned and joined."""

from polyembed.vectors.bpemb import BPEmbVectors
from polyembed.vectors.fasttext import FastTextVectors
from polyembed.vectors.joined import JoinedVectors
from polyembed.vectors.laser import LaserFiles, fetch_laser, read_merges, read_piece_dictionary, read_pieces
from polyembed.vectors.mapped import MappedVectors, OrthogonalMapping
from polyembed.vectors.protocol import WordVectors
from polyembed.vectors.textfile import TextVectors

__all__ = [
    "BPEmbVectors",
    "FastTextVectors",
    "JoinedVectors",
    "LaserFiles",
    "MappedVectors",
    "OrthogonalMapping",
    "TextVectors",
    "WordVectors",
    "fetch_laser",
    "read_merges",
    "read_piece_dictionary",
    "read_pieces",
]
