"""Strings and ids: the lexicon, spellings, normalisation; other scripts and other tag sets."""

from polyembed.text.character_transliterator import CharacterTransliterator
from polyembed.text.error_rate import character_error_rate, fold_devanagari
from polyembed.text.hinglish import HINGLISH_WORDS
from polyembed.text.laser_tokenizers import (
    FastBPETokenizer,
    LaserTokenizer,
    SentencePieceTokenizer,
    open_sentencepiece,
)
from polyembed.text.lexicon import Lexicon
from polyembed.text.normalize import Normalizer
from polyembed.text.piece_dictionary import PieceDictionary
from polyembed.text.pieces import Pieces, align_words
from polyembed.text.romanize import social_romanizations, synthetic_pairs
from polyembed.text.spelling import CharacterSpelling, PieceSpelling, Spelling
from polyembed.text.tagsets import tags_of, to_universal
from polyembed.text.train_transliterator import train_transliterator
from polyembed.text.transliterate import (
    DictionaryTransliterator,
    SchemeTransliterator,
    Transliterator,
    transliterate_sentences,
)
from polyembed.text.word_prior import WordPrior

__all__ = [
    "HINGLISH_WORDS",
    "CharacterSpelling",
    "CharacterTransliterator",
    "DictionaryTransliterator",
    "FastBPETokenizer",
    "LaserTokenizer",
    "Lexicon",
    "Normalizer",
    "PieceDictionary",
    "PieceSpelling",
    "Pieces",
    "SchemeTransliterator",
    "SentencePieceTokenizer",
    "Spelling",
    "Transliterator",
    "WordPrior",
    "align_words",
    "character_error_rate",
    "fold_devanagari",
    "open_sentencepiece",
    "social_romanizations",
    "synthetic_pairs",
    "tags_of",
    "to_universal",
    "train_transliterator",
    "transliterate_sentences",
]
