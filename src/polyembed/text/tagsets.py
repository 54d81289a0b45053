"""Part-of-speech tags of one tag set as those of another.

The 12 universal tags of Petrov, Das and McDonald (2011, "A Universal Part-of-Speech Tagset") are the common ground:
every tag set here maps to them, and no tag is guessed at.
"""

from types import MappingProxyType

from polyembed._checks import check_choice, must

UNIVERSAL_TAGS = ("ADJ", "ADP", "ADV", "CONJ", "DET", "NOUN", "NUM", "PRON", "PRT", "VERB", "X", ".")
"""Adjectives, adpositions, adverbs, conjunctions, determiners, nouns, numerals, pronouns, particles, verbs, anything
else, punctuation."""


def _invert(groups: dict[str, str]) -> MappingProxyType[str, str]:
    return MappingProxyType({tag: universal for universal, tags in groups.items() for tag in tags.split()})


_TAGSETS = {
    "conll2002-es": _invert(
        {
            "ADJ": "AO AQ",
            "ADP": "SP",
            "ADV": "RG RN",
            "CONJ": "CC CS",
            "DET": "DA DD DE DI DN DP DT",
            "NOUN": "NC NP",
            "NUM": "Z",
            "PRON": "P0 PD PI PN PP PR PT PX",
            "VERB": "VAI VAM VAN VAP VAS VMG VMI VMM VMN VMP VMS VSG VSI VSM VSN VSP VSS",
            "X": "I Y",
            ".": "Faa Fat Fc Fd Fe Fg Fh Fia Fit Fp Fpa Fpt Fs Ft Fx Fz",
        }
    ),
    "conll2002-nl": _invert(
        {
            "ADJ": "Adj",
            "ADP": "Prep",
            "ADV": "Adv",
            "CONJ": "Conj",
            "DET": "Art",
            "NOUN": "N",
            "NUM": "Num",
            "PRON": "Pron",
            "VERB": "V",
            "X": "Int Misc",
            ".": "Punc",
        }
    ),
    "ud": _invert(
        {
            "ADJ": "ADJ",
            "ADP": "ADP",
            "ADV": "ADV",
            "CONJ": "CCONJ SCONJ",
            "DET": "DET",
            "NOUN": "NOUN PROPN",
            "NUM": "NUM",
            "PRON": "PRON",
            "PRT": "PART",
            "VERB": "AUX VERB",
            "X": "INTJ SYM X",
            ".": "PUNCT",
        }
    ),
}
TAGSETS = tuple(_TAGSETS)
"""The names that `to_universal` and `tags_of` know."""


def to_universal(tag: str, *, tagset: str) -> str:
    """Map a tag to the 12 universal ones.

    ======================  =========================================================================
    ``"conll2002-es"``      Spanish CoNLL-2002: EAGLES tags cut to category and type, to category, type and
                            mood for verbs
    ``"conll2002-nl"``      Dutch CoNLL-2002: the categories that the tagger MBT gives
    ``"ud"``                the 17 tags of Universal Dependencies, version 2
    ======================  =========================================================================

    Numerals that stand before a noun (DN) stay determiners and those that stand alone (PN) pronouns in Spanish, while
    Dutch has one tag for all, so ``NUM`` means less in Spanish. In the same way ``Pron`` covers Dutch possessives and
    demonstratives that Spanish counts as ``DET``.

    Args:
        tag: A tag, spelt as in the corpus.
        tagset: One of `TAGSETS`.

    Returns:
        One of `UNIVERSAL_TAGS`.

    Raises:
        ValueError: An unknown tag set, or a tag that it does not have.

    Example:
        >>> to_universal("VMI", tagset="conll2002-es"), to_universal("Art", tagset="conll2002-nl")
        ('VERB', 'DET')
        >>> to_universal("SCONJ", tagset="ud")
        'CONJ'

    Deviations: Spanish agrees with the authors' map for the treebank Cast3LB, whose tags have the same first two
    letters. Dutch and UD are mapped by the definitions of their tags. The paper has no place for UD's INTJ and SYM:
    they become X, "other", here.
    """
    check_choice("tagset", tagset, TAGSETS)
    universal = _TAGSETS[tagset].get(tag)
    if universal is None:
        raise ValueError(must("tag", f"be one of {tagset}: {', '.join(_TAGSETS[tagset])}", repr(tag)))
    return universal


def tags_of(universal: str, *, tagset: str) -> frozenset[str]:
    """List the tags that a universal tag may stand for: the inverse of `to_universal`.

    For UD the answer is one tag for ADJ, ADP, ADV, DET, NUM, PRON, PRT (PART) and ``.`` (PUNCT). It is ambiguous for
    CONJ (CCONJ, SCONJ), NOUN (NOUN, PROPN), VERB (AUX, VERB) and X (INTJ, SYM, X): the distinction is gone, and
    only the word or its context can bring it back.

    Args:
        universal: One of `UNIVERSAL_TAGS`.
        tagset: One of `TAGSETS`.

    Returns:
        Tags; none where the tag set has nothing of the kind.

    Raises:
        ValueError: An unknown tag set or universal tag.

    Example:
        >>> sorted(tags_of("NOUN", tagset="ud")), sorted(tags_of("PRT", tagset="conll2002-nl"))
        (['NOUN', 'PROPN'], [])

    Deviations: none; the paper defines no inverse.
    """
    check_choice("tagset", tagset, TAGSETS)
    check_choice("universal", universal, UNIVERSAL_TAGS)
    return frozenset(tag for tag, mapped in _TAGSETS[tagset].items() if mapped == universal)
