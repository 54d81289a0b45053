"""LASER: the encoder and its checkpoints, word embedders over it, sentence vectors."""

from polyembed.encoders.laser.bpe import BPEGRU, BPEBow
from polyembed.encoders.laser.encoder import LaserEncoder
from polyembed.encoders.laser.release import LaserRelease, load_laser
from polyembed.encoders.laser.sentences import LaserSentences
from polyembed.encoders.laser.words import LaserElmo, LaserTop

__all__ = [
    "BPEGRU",
    "BPEBow",
    "LaserElmo",
    "LaserEncoder",
    "LaserRelease",
    "LaserSentences",
    "LaserTop",
    "load_laser",
]
