"""Every tag of the corpora has a universal one, and the inverse is the inverse."""

from pathlib import Path

import pytest

from polyembed.data import read_conll
from polyembed.text import tags_of, to_universal
from polyembed.text.tagsets import TAGSETS, UNIVERSAL_TAGS

# The tags that occur in CoNLL-2002 (train, testa and testb), and the 17 of universaldependencies.org/u/pos.
_TAGS = {
    "conll2002-es": "AO AQ CC CS DA DD DE DI DN DP DT Faa Fat Fc Fd Fe Fg Fh Fia Fit Fp Fpa Fpt Fs Ft Fx Fz I NC NP P0 "
    "PD PI PN PP PR PT PX RG RN SP VAI VAM VAN VAP VAS VMG VMI VMM VMN VMP VMS VSG VSI VSM VSN VSP VSS Y Z",
    "conll2002-nl": "Adj Adv Art Conj Int Misc N Num Prep Pron Punc V",
    "ud": "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X",
}
TAGS = {name: tags.split() for name, tags in _TAGS.items()}


@pytest.mark.parametrize("tagset", TAGSETS)
def test_every_tag_has_one(tagset: str) -> None:
    mapped = {tag: to_universal(tag, tagset=tagset) for tag in TAGS[tagset]}
    assert set(mapped.values()) <= set(UNIVERSAL_TAGS)
    inverse = {tag: universal for universal in UNIVERSAL_TAGS for tag in tags_of(universal, tagset=tagset)}
    assert inverse == mapped  # nothing more, nothing less


def test_twelve_tags() -> None:
    assert len(set(UNIVERSAL_TAGS)) == 12
    assert len(TAGS["ud"]) == 17


@pytest.mark.parametrize(
    ("tag", "tagset", "universal"),
    [
        ("AQ", "conll2002-es", "ADJ"),
        ("SP", "conll2002-es", "ADP"),
        ("RN", "conll2002-es", "ADV"),
        ("CS", "conll2002-es", "CONJ"),
        ("DN", "conll2002-es", "DET"),
        ("NP", "conll2002-es", "NOUN"),
        ("Z", "conll2002-es", "NUM"),
        ("PN", "conll2002-es", "PRON"),
        ("P0", "conll2002-es", "PRON"),
        ("VSI", "conll2002-es", "VERB"),
        ("Y", "conll2002-es", "X"),
        ("I", "conll2002-es", "X"),
        ("Faa", "conll2002-es", "."),
        ("Prep", "conll2002-nl", "ADP"),
        ("Int", "conll2002-nl", "X"),
        ("Num", "conll2002-nl", "NUM"),
        ("Punc", "conll2002-nl", "."),
        ("AUX", "ud", "VERB"),
        ("PROPN", "ud", "NOUN"),
        ("PART", "ud", "PRT"),
        ("SYM", "ud", "X"),
    ],
)
def test_to_universal(tag: str, tagset: str, universal: str) -> None:
    assert to_universal(tag, tagset=tagset) == universal


def test_back_to_ud() -> None:
    several = {"CONJ": "CCONJ SCONJ", "NOUN": "NOUN PROPN", "VERB": "AUX VERB", "X": "INTJ SYM X"}
    for universal in UNIVERSAL_TAGS:
        one = {"PRT": "PART", ".": "PUNCT"}.get(universal, universal)
        assert tags_of(universal, tagset="ud") == set(several.get(universal, one).split())


def test_no_particles_in_spanish_and_dutch() -> None:
    assert tags_of("PRT", tagset="conll2002-es") == tags_of("PRT", tagset="conll2002-nl") == frozenset()


@pytest.mark.parametrize(
    ("tag", "tagset"),
    [("vmi", "conll2002-es"), ("VMIP3S0", "conll2002-es"), ("F", "conll2002-es"), ("-DOCSTART-", "conll2002-nl"),
     ("CONJ", "ud"), ("_", "ud"), ("", "ud")],
)  # fmt: skip
def test_unknown_tags_are_refused(tag: str, tagset: str) -> None:
    with pytest.raises(ValueError, match=rf"^tag must be one of {tagset}: [\w, ]+, got '{tag}'$"):
        to_universal(tag, tagset=tagset)


def test_unknown_sets_are_refused() -> None:
    rule = r"^tagset must be one of 'conll2002-es', 'conll2002-nl', 'ud', got 'eagles'$"
    with pytest.raises(ValueError, match=rule):
        to_universal("NC", tagset="eagles")
    with pytest.raises(ValueError, match=rule):
        tags_of("NOUN", tagset="eagles")
    with pytest.raises(ValueError, match=r"^universal must be one of 'ADJ', .*, '.', got 'PROPN'$"):
        tags_of("PROPN", tagset="ud")


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
    assert {to_universal(tag, tagset="ud") for tag in tags} == set(UNIVERSAL_TAGS)
