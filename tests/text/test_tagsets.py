"""Every tag of the corpora has a universal tag."""

from pathlib import Path

import pytest
from checks import refused

from polyembed.data import read_conll
from polyembed.text import to_universal_tags
from polyembed.text.tagsets import TAGSETS, UNIVERSAL_TAGS

# The tags that occur in CoNLL-2002, the tags of en-ptb.map and CoNLL-2003, the tags of STTS and
# de-tiger.map, and the 17 tags of universaldependencies.org/u/pos.
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
def test_every_tag_has_one(tagset: str):
    mapped = {tag: to_universal_tags(tag, tagset=tagset) for tag in TAGS[tagset]}
    assert set(mapped.values()) <= set(UNIVERSAL_TAGS)
    assert tagset not in ("ptb", "stts") or len(set(mapped.values())) == 12, "as the authors' maps"


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
def test_to_universal(tagset: str):
    tags = CHOSEN[tagset].split()
    assert [to_universal_tags(tag, tagset=tagset) for tag in tags[::2]] == tags[1::2]


@pytest.mark.parametrize(
    ("tag", "tagset", "message"),
    [
        ("VMIP3S0", "conll2002-es", "tag must be one of '.+', got 'VMIP3S0'"),
        ("NC", "eagles", "tagset must be one of 'conll2002-es', .*, 'ud', got 'eagles'"),
    ],
)
def test_what_is_unknown_is_refused(tag: str, tagset: str, message: str):
    refused(ValueError, f"^{message}$", to_universal_tags, tag, tagset=tagset)


@pytest.mark.parametrize(("tagset", "prefix"), [("conll2002-es", "esp"), ("conll2002-nl", "ned")])
def test_tags_of_the_corpus(tagset: str, prefix: str, data_folder: Path):
    sentences = read_conll(data_folder / "conll2002" / f"{prefix}.testa", tag_column=1)
    assert {tag for sentence in sentences for tag in sentence.tags} <= set(TAGS[tagset])
