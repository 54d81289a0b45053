"""The bundled sample is what its documentation says."""

import re
from collections import Counter, defaultdict
from itertools import pairwise
from typing import get_args

import pytest

from polyembed.data import TaggedSentence, load_sample, sample_path
from polyembed.data.sample import SamplePair, SampleSplit
from polyembed.metrics import entities

UPOS = {
    "ADJ",
    "ADP",
    "ADV",
    "AUX",
    "CCONJ",
    "DET",
    "INTJ",
    "NOUN",
    "NUM",
    "PART",
    "PRON",
    "PROPN",
    "PUNCT",
}
UPOS |= {"SCONJ", "SYM", "VERB", "X"}
SPLITS = get_args(SampleSplit)

pairs = pytest.mark.parametrize("pair", get_args(SamplePair))


def whole(pair: SamplePair, tag: str) -> list[TaggedSentence]:
    return [sentence for split in SPLITS for sentence in load_sample(pair, split, tag=tag)]  # type: ignore[arg-type]


def names(sentences: list[TaggedSentence]) -> set[tuple[str, str]]:
    """Give the distinct entities: their words in lower case, and their type."""
    return {
        (" ".join(sentence.words[entity.start : entity.end]).lower(), entity.type)
        for sentence in sentences
        for entity in entities(sentence.tags, mode="strict")
    }


@pairs
def test_about_300_distinct_sentences(pair: SamplePair) -> None:
    holders: defaultdict[tuple[str, ...], set[int]] = defaultdict(set)
    sentences = whole(pair, "upos")
    for index, sentence in enumerate(sentences):
        lowered = [word.lower() for word in sentence.words]
        for start in range(len(lowered) - 3):
            holders[tuple(lowered[start : start + 4])].add(index)
    assert [run for run, where in holders.items() if len(where) >= 3] == []
    assert len({tuple(map(str.lower, sentence.words)) for sentence in sentences}) == len(sentences)
    words = {word for sentence in sentences for word in sentence.words}
    assert len(words) >= 1500
    assert all(word == "".join(word.split()) for word in words)
    sizes = [len(load_sample(pair, split)) for split in SPLITS]
    assert 280 <= sum(sizes) <= 340
    assert min(sizes) >= 30
    assert sizes[0] > sum(sizes[1:])


@pairs
def test_many_test_entities_are_new(pair: SamplePair) -> None:
    known = names(load_sample(pair, "train", tag="entities"))
    tested = names(load_sample(pair, "test", tag="entities"))
    assert len(tested) >= 20
    assert len(tested - known) >= 0.3 * len(tested)


@pairs
def test_tags_are_valid(pair: SamplePair) -> None:
    parts = whole(pair, "upos")
    assert {tag for sentence in parts for tag in sentence.tags} <= UPOS
    for sentence, part in zip(whole(pair, "entities"), parts, strict=True):
        assert sentence.words == part.words
        for before, tag in pairwise(("O", *sentence.tags)):
            assert re.fullmatch(r"O|[BI]-[A-Z]+", tag)
            assert not tag.startswith("I-") or before in (f"B-{tag[2:]}", tag), sentence


@pairs
def test_both_languages_in_every_sentence(pair: SamplePair) -> None:
    spoken = set(pair.split("-"))
    for sentence in whole(pair, "upos"):
        assert spoken <= set(sentence.languages or ()), sentence.words
    counts = Counter(language for s in whole(pair, "upos") for language in s.languages or ())
    assert set(counts) - spoken <= {"other", "ne", "mixed"}


def test_paths() -> None:
    path = sample_path("es-en", "train")
    assert path.parts[-4:] == ("data", "sample", "es-en", "train.conll")
    assert path.is_file()


def test_unknown_names() -> None:
    with pytest.raises(ValueError, match="pair must be one of 'es-en', 'hi-en', got 'de-en'"):
        sample_path("de-en")  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match="split must be one of 'train', 'dev', 'test', got 'valid'"
    ):
        sample_path("es-en", "valid")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tag must be one of 'upos', 'entities', got 'ner'"):
        load_sample("es-en", tag="ner")  # type: ignore[arg-type]
