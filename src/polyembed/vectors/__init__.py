"""Pretrained static word vectors, on disk or on a hub: fastText, text files, BPEmb; turned and joined."""

from polyembed.vectors.bpemb import BPEmbVectors
from polyembed.vectors.fasttext import FastTextVectors
from polyembed.vectors.joined import JoinedVectors
from polyembed.vectors.mapped import MappedVectors, OrthogonalMapping
from polyembed.vectors.protocol import WordVectors
from polyembed.vectors.textfile import TextVectors

__all__ = [
    "BPEmbVectors",
    "FastTextVectors",
    "JoinedVectors",
    "MappedVectors",
    "OrthogonalMapping",
    "TextVectors",
    "WordVectors",
]
