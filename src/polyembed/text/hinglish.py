"""Frequent Hindi words as social media spell them in Roman letters."""

from functools import cache
from importlib.resources import files
from types import MappingProxyType


@cache
def hinglish_words() -> MappingProxyType[str, str]:
    """Return Roman spellings in lower case -> Devanagari words; 731 spellings of 438 words.

    The list, ``data/hinglish.tsv``, was written by hand for this library. The words are those that
    Hinglish tweets use
    most (SentiMix, SemEval-2020 task 9, showed which): pronouns, auxiliaries, postpositions,
    particles, common verbs and nouns. Many spellings follow no rule (``h`` है, ``k`` के, ``q``
    क्यों). A spelling of several words has the most common one.

    Returns:
        Spelling -> word.

    Example:
        >>> hinglish_words()["nhi"]
        'नहीं'
    """
    lines = (files(__package__) / "data" / "hinglish.tsv").read_text("utf-8").splitlines()
    rows = (line.split("\t") for line in lines)
    return MappingProxyType(
        {spelling: word for word, spellings in rows for spelling in spellings.split(" ")}
    )
