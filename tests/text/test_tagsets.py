"""Every tag of the corpora has a universal one, and the inverse is the inverse."""

import re
from pathlib import Path

import pytest
from checks import refused

from polyembed.data import read_conll
from polyembed.text import to_universal_tags
from polyembed.text.tagsets import TAGSETS, UNIVERSAL_TAGS

# The tags that occur in CoNLL-2002 (train, testa and testb), those of en-ptb.map and of CoNLL-2003,
# those of STTS and de-tiger.map, and the 17 of universaldependencies.org/u/pos.
_TAGS = {
    "conll2002-es": "AO AQ CC CS DA DD DE DI DN DP DT Faa Fat Fc Fd Fe Fg Fh Fia Fit Fp Fpa Fpt Fs Ft Fx Fz I NC NP P0 "
    "PD PI PN PP PR PT PX RG RN SP VAI VAM VAN VAP VAS VMG VMI VMM VMN VMP VMS VSG VSI VSM VSN VSP VSS Y Z",
    "conll2002-nl": "Adj Adv Art Conj Int Misc N Num Prep Pron Punc V",
    "ptb": "! \" # $ '' ( ) , -LRB- -RRB- . : ? `` CC CD CD|RB DT EX FW IN IN|RP JJ JJR JJRJR JJS JJ|RB JJ|VBG LS MD "
    "NN NNP NNPS NNS NN|NNS NN|SYM NN|VBG NP PDT POS PRP PRP$ PRP|VBP PRT RB RBR RBS RB|RP RB|VBG RN RP SYM TO UH VB "
    "VBD VBD|VBN VBG VBG|NN VBN VBP VBP|TO VBZ VP WDT WH WP WP$ WRB",
    "stts": "$( $, $. ADJA ADJD ADV APPO APPR APPRART APZR ART CARD FM ITJ KOKOM KON KOUI KOUS NE NN NNE PAV PDAT PDS "
    "PIAT PIDAT PIS PPER PPOSAT PPOSS PRELAT PRELS PRF PROAV PTKA PTKANT PTKNEG PTKVZ PTKZU PWAT PWAV PWS TRUNC VAFIN "
    "VAIMP VAINF VAPP VMFIN VMINF VMPP VVFIN VVIMP VVINF VVIZU VVPP XY",
    "ud": "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X",
}
TAGS = {name: tags.split() for name, tags in _TAGS.items()}


@pytest.mark.parametrize("tagset", TAGSETS)
def test_every_tag_has_one(tagset: str) -> None:
    mapped = {tag: to_universal_tags(tag, tagset=tagset) for tag in TAGS[tagset]}
    assert set(mapped.values()) <= set(UNIVERSAL_TAGS)


CHOSEN = {
    "conll2002-es": "AQ ADJ SP ADP RN ADV CS CONJ DN DET NP NOUN Z NUM PN PRON P0 PRON VSI VERB Y X I X Faa .",
    "conll2002-nl": "Prep ADP Int X Num NUM Punc .",
    "ptb": "NNP NOUN MD VERB TO PRT POS PRT IN ADP EX DET WDT DET PRP$ PRON WP$ PRON WRB ADV CD NUM CC CONJ UH X SYM X "
    'RP PRT JJR ADJ NN|SYM NOUN $ . # . -LRB- . `` . " .',
    "stts": "NE NOUN ADJD ADJ ART DET PPOSAT PRON PIDAT PRON PROAV PRON PAV PRON PWAV PRON ADV ADV APPRART ADP "
    "KOKOM CONJ KOUS CONJ PTKVZ PRT PTKNEG PRT CARD NUM VMFIN VERB TRUNC X ITJ X FM X $( .",
    "ud": "AUX VERB PROPN NOUN PART PRT SYM X",
}


@pytest.mark.parametrize("tagset", CHOSEN)
def test_to_universal(tagset: str) -> None:
    tags = CHOSEN[tagset].split()
    assert [to_universal_tags(tag, tagset=tagset) for tag in tags[::2]] == tags[1::2]


@pytest.mark.parametrize("tagset", ["ptb", "stts"])
def test_only_the_twelve(tagset: str) -> None:
    """Both maps of the authors reach each of the 12."""
    assert {to_universal_tags(tag, tagset=tagset) for tag in TAGS[tagset]} == set(UNIVERSAL_TAGS)
    assert len(UNIVERSAL_TAGS) == 12


UNKNOWN = [
    ("VMIP3S0", "conll2002-es"),
    ("-DOCSTART-", "conll2002-nl"),
    ("-X-", "ptb"),
    ("nn", "ptb"),
    ("$[", "stts"),
    ("", "ud"),
]


@pytest.mark.parametrize(("tag", "tagset"), UNKNOWN)
def test_unknown_tags_are_refused(tag: str, tagset: str) -> None:
    refused(
        ValueError,
        rf"^tag must be one of '.+', got '{re.escape(tag)}'$",
        to_universal_tags,
        tag,
        tagset=tagset,
    )


def test_unknown_sets_are_refused() -> None:
    rule = (
        r"^tagset must be one of 'conll2002-es', 'conll2002-nl', 'ptb', 'stts', 'ud', got 'eagles'$"
    )
    refused(ValueError, rule, to_universal_tags, "NC", tagset="eagles")


@pytest.mark.parametrize(("tagset", "prefix"), [("conll2002-es", "esp"), ("conll2002-nl", "ned")])
def test_tags_of_the_corpus(tagset: str, prefix: str, data_folder: Path) -> None:
    tags = {
        tag
        for split in ("train", "testa", "testb")
        for sentence in read_conll(data_folder / "conll2002" / f"{prefix}.{split}", tag_column=1)
        for tag in sentence.tags
    }
    assert tags == set(TAGS[tagset])


def test_tags_of_a_ud_treebank(data_folder: Path) -> None:
    paths = sorted((data_folder / "code_switched" / "ud_turkish_german_sagt").glob("*.conllu"))
    lines = (line.split("\t") for path in paths for line in path.read_text("utf-8").splitlines())
    tags = {line[3] for line in lines if len(line) == 10 and line[0].isdigit()}
    assert len(paths) == 3
    assert {to_universal_tags(tag, tagset="ud") for tag in tags} == set(UNIVERSAL_TAGS)
