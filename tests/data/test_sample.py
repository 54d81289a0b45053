"""The bundled sample agrees with its documentation."""

import re
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from checks import refused

from polyembed.data import TaggedSentence, load_sample
from polyembed.text import to_universal_tags

SPLITS = ("train", "dev", "test")

pairs = pytest.mark.parametrize("pair", ["es-en", "hi-en"])


def whole(pair: str, tag: str) -> list[TaggedSentence]:
    return [sentence for split in SPLITS for sentence in load_sample(pair, split, tag=tag)]  # type: ignore[arg-type]


@pairs
def test_about_300_distinct_sentences(pair: str):
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
    sizes = [len(load_sample(pair, split)) for split in SPLITS]
    assert 280 <= sum(sizes) <= 340
    assert min(sizes) >= 30
    assert sizes[0] > sum(sizes[1:])


@pairs
def test_tags_are_valid(pair: str):
    parts = whole(pair, "upos")
    assert all(to_universal_tags(tag, tagset="ud") for part in parts for tag in part.tags)
    for sentence, part in zip(whole(pair, "entities"), parts, strict=True):
        assert sentence.words == part.words
        for before, tag in pairwise(("O", *sentence.tags)):
            assert re.fullmatch(r"O|[BI]-[A-Z]+", tag)
            assert not tag.startswith("I-") or before in (f"B-{tag[2:]}", tag), sentence


@pairs
def test_both_languages_in_every_sentence(pair: str):
    spoken = set(pair.split("-"))
    for sentence in whole(pair, "upos"):
        assert spoken <= set(sentence.languages or ()), sentence.words
    counts = Counter(language for s in whole(pair, "upos") for language in s.languages or ())
    assert set(counts) - spoken <= {"other", "ne", "mixed"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pair": "de-en"}, "pair must be one of 'es-en', 'hi-en', got 'de-en'"),
        ({"split": "valid"}, "split must be one of 'train', 'dev', 'test', got 'valid'"),
        ({"tag": "ner"}, "tag must be one of 'upos', 'entities', got 'ner'"),
    ],
)
def test_unknown_names(options: dict[str, str], message: str):
    refused(ValueError, message, load_sample, **options)
