"""Strings and ids: the lexicon, spellings, pieces, normalisation; other scripts and tag sets."""

from polyembed.text.fastbpe import FastBPETokenizer
from polyembed.text.laser import LaserTokenizer, PieceDictionary, SentencePieceTokenizer
from polyembed.text.lexicon import Lexicon
from polyembed.text.normalize import Normalizer
from polyembed.text.pieces import Pieces, align_words
from polyembed.text.spelling import Spelling
from polyembed.text.surface import SurfaceSpelling
from polyembed.text.surfaces import piece_surfaces
from polyembed.text.tagsets import to_universal_tags
from polyembed.text.transliterate import (
    DictionaryTransliterator,
    SchemeTransliterator,
    hinglish_words,
)

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
