"""Strings and ids: the lexicon, spellings, normalisation; other scripts and other tag sets."""

from polyembed.text.character_transliterator import Candidate, CharacterTransliterator
from polyembed.text.draw_spellings import draw_spellings
from polyembed.text.error_rate import character_error_rate, fold_devanagari
from polyembed.text.fastbpe import FastBPETokenizer
from polyembed.text.hinglish import hinglish_words
from polyembed.text.laser_tokenizers import (
    LaserTokenizer,
    SentencePieceTokenizer,
    open_sentencepiece,
)
from polyembed.text.lexicon import Lexicon
from polyembed.text.normalize import Normalizer
from polyembed.text.pairs import PairedPieces, align_pairs
from polyembed.text.piece_dictionary import PieceDictionary
from polyembed.text.piece_surfaces import PieceSurface, piece_surfaces
from polyembed.text.pieces import Pieces, align_words
from polyembed.text.spelling import CharSpelling, PieceSpelling, Spelling
from polyembed.text.surface import SurfaceSpelling
from polyembed.text.tagsets import tags_of, to_universal_tags
from polyembed.text.train_transliterator import train_transliterator
from polyembed.text.transliterate import (
    DictionaryTransliterator,
    SchemeTransliterator,
    Transliterator,
    transliterate_sentences,
)
from polyembed.text.typos import misspell

__all__ = [
    "Candidate",
    "CharSpelling",
    "CharacterTransliterator",
    "DictionaryTransliterator",
    "FastBPETokenizer",
    "LaserTokenizer",
    "Lexicon",
    "Normalizer",
    "PairedPieces",
    "PieceDictionary",
    "PieceSpelling",
    "PieceSurface",
    "Pieces",
    "SchemeTransliterator",
    "SentencePieceTokenizer",
    "Spelling",
    "SurfaceSpelling",
    "Transliterator",
    "align_pairs",
    "align_words",
    "character_error_rate",
    "draw_spellings",
    "fold_devanagari",
    "hinglish_words",
    "misspell",
    "open_sentencepiece",
    "piece_surfaces",
    "tags_of",
    "to_universal_tags",
    "train_transliterator",
    "transliterate_sentences",
]
