"""Strings and ids: the lexicon, spellings, pieces, normalisation; other scripts and tag sets."""

from polyembed.text.fastbpe import FastBPETokenizer
from polyembed.text.laser import LaserTokenizer, PieceDictionary, SentencePieceTokenizer
from polyembed.text.lexicon import Lexicon
from polyembed.text.normalize import (
    DictionaryTransliterator,
    Normalizer,
    SchemeTransliterator,
    hinglish_words,
)
from polyembed.text.pieces import Pieces, align_words
from polyembed.text.spelling import Spelling, SurfaceSpelling
from polyembed.text.surfaces import piece_surfaces
from polyembed.text.tagsets import to_universal_tags

__all__ = [
    "DictionaryTransliterator",
    "FastBPETokenizer",
    "LaserTokenizer",
    "Lexicon",
    "Normalizer",
    "PieceDictionary",
    "Pieces",
    "SchemeTransliterator",
    "SentencePieceTokenizer",
    "Spelling",
    "SurfaceSpelling",
    "align_words",
    "hinglish_words",
    "piece_surfaces",
    "to_universal_tags",
]
