"""LASER: the encoder and its checkpoints, word embedders over it, sentence vectors."""

from polyembed.encoders.laser.encoder import LaserEncoder, load_laser
from polyembed.encoders.laser.words import BPEGRU, BPEBow, LaserElmo, LaserSentences, LaserTop

__all__ = [
    "BPEGRU",
    "BPEBow",
    "LaserElmo",
    "LaserEncoder",
    "LaserSentences",
    "LaserTop",
    "load_laser",
]
