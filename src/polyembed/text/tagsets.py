"""Maps from tag sets to the 12 universal parts of speech of Petrov, Das and McDonald (2011)."""

from polyembed._checks import check_choice

UNIVERSAL_TAGS = (
    "ADJ",
    "ADP",
    "ADV",
    "CONJ",
    "DET",
    "NOUN",
    "NUM",
    "PRON",
    "PRT",
    "VERB",
    "X",
    ".",
)
"""Adjectives, adpositions, adverbs, conjunctions, determiners, nouns, numerals, pronouns,
particles, verbs, anything else, punctuation."""


def _invert(groups: dict[str, str]) -> dict[str, str]:
    return {tag: universal for universal, tags in groups.items() for tag in tags.split()}


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
    "ptb": _invert(
        {
            "ADJ": "JJ JJR JJRJR JJS JJ|RB JJ|VBG",
            "ADP": "IN IN|RP",
            "ADV": "RB RBR RBS RB|RP RB|VBG WRB",
            "CONJ": "CC",
            "DET": "DT EX PDT WDT",
            "NOUN": "NN NNP NNPS NNS NN|NNS NN|SYM NN|VBG NP",
            "NUM": "CD",
            "PRON": "PRP PRP$ PRP|VBP WP WP$",
            "PRT": "POS PRT RP TO",
            "VERB": "MD VB VBD VBD|VBN VBG VBG|NN VBN VBP VBP|TO VBZ VP",
            "X": "CD|RB FW LS RN SYM UH WH",
            ".": "! \" # $ '' ( ) , -LRB- -RRB- . : ? ``",
        }
    ),
    "stts": _invert(
        {
            "ADJ": "ADJA ADJD",
            "ADP": "APPO APPR APPRART APZR",
            "ADV": "ADV",
            "CONJ": "KOKOM KON KOUI KOUS",
            "DET": "ART",
            "NOUN": "NE NN NNE",
            "NUM": "CARD",
            "PRON": (
                "PAV PDAT PDS PIAT PIDAT PIS PPER PPOSAT PPOSS PRELAT PRELS PRF PROAV PWAT PWAV PWS"
            ),
            "PRT": "PTKA PTKANT PTKNEG PTKVZ PTKZU",
            "VERB": "VAFIN VAIMP VAINF VAPP VMFIN VMINF VMPP VVFIN VVIMP VVINF VVIZU VVPP",
            "X": "FM ITJ TRUNC XY",
            ".": "$( $, $.",
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
"""The names that `to_universal_tags` knows."""


def to_universal_tags(tag: str, *, tagset: str) -> str:
    """Map a tag to the 12 universal ones.

    - ``"conll2002-es"``: Spanish CoNLL-2002: EAGLES tags cut to category and type, and verbs' tags
      to category, type and mood;
    - ``"conll2002-nl"``: Dutch CoNLL-2002: the categories of the tagger MBT;
    - ``"ptb"``: English Penn Treebank, with the tags of CoNLL-2003;
    - ``"stts"``: German Stuttgart-Tübingen tag set, as in TIGER and NEGRA;
    - ``"ud"``: the 17 tags of Universal Dependencies, version 2.

    In Spanish, numerals before a noun (DN) are determiners, and numerals without a noun (PN) are
    pronouns; Dutch has one tag for all numerals. Dutch ``Pron`` includes possessives and
    demonstratives that are ``DET`` in Spanish; German determiners are the articles alone, and
    pronominal and interrogative adverbs (PROAV, PWAV) are pronouns.

    Args:
        tag: The tag, spelt as in the corpus.
        tagset: The name of its tag set, one of `TAGSETS`.

    Returns:
        One of `UNIVERSAL_TAGS`.

    Raises:
        ValueError: If the tag set is unknown, or does not have the tag.

    Example:
        >>> to_universal_tags("VMI", tagset="conll2002-es")
        'VERB'
        >>> to_universal_tags("SCONJ", tagset="ud")
        'CONJ'
        >>> to_universal_tags("VBZ", tagset="ptb"), to_universal_tags("ADJA", tagset="stts")
        ('VERB', 'ADJ')

    Deviations: Spanish agrees with the authors' map for the treebank Cast3LB, whose tags have the
    same first two letters. Dutch and UD are mapped by the definitions of their tags. The paper has
    no tag for UD's INTJ and SYM; they become X, "other". English is the authors' ``en-ptb.map`` and
    the quotation mark of CoNLL-2003. German is their ``de-tiger.map`` with PIDAT from
    ``de-negra.map`` and with PAV, the first name of PROAV.
    """
    check_choice("tagset", tagset, TAGSETS)
    check_choice("tag", tag, _TAGSETS[tagset])
    return _TAGSETS[tagset][tag]
