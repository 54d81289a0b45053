"""Readers of public formats of tagged text, of pairs of sentences and of dictionaries, and the
bundled sample.
"""

from polyembed.data.conll import read_conll
from polyembed.data.conllu import read_conllu
from polyembed.data.csvfile import read_csv
from polyembed.data.dictionary import read_dictionary
from polyembed.data.formats import read_tagged
from polyembed.data.inline import read_inline
from polyembed.data.lince import read_lince, write_lince_predictions
from polyembed.data.lines import MISSING_TAG, TaggedSentence
from polyembed.data.sample import load_sample
from polyembed.data.sentence_pairs import SentencePair, read_pawsx, read_xnli
from polyembed.data.sentimix import read_sentimix
from polyembed.data.wikiann import read_wikiann
from polyembed.metrics import to_iob2

__all__ = [
    "MISSING_TAG",
    "SentencePair",
    "TaggedSentence",
    "load_sample",
    "read_conll",
    "read_conllu",
    "read_csv",
    "read_dictionary",
    "read_inline",
    "read_lince",
    "read_pawsx",
    "read_sentimix",
    "read_tagged",
    "read_wikiann",
    "read_xnli",
    "to_iob2",
    "write_lince_predictions",
]
