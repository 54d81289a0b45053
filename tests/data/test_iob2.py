"""Conversion of IOB1 to IOB2: the entities stay the same, and each one begins with B."""

from itertools import pairwise, product

import pytest
from checks import refused

from polyembed.metrics import entities, to_iob2

LABELS = ("O", "B-A", "I-A", "B-B", "I-B")
SENTENCES = [tags for length in range(6) for tags in product(LABELS, repeat=length)]


def chunks(tags: tuple[str, ...]) -> list[tuple[str, int, int]]:
    """Return the chunks by conlleval's rules, startOfChunk and endOfChunk.

    The words before the first and after the last count as O.
    """
    found, start = [], 0
    words = [("O", ""), *((tag[0], tag[2:]) for tag in tags), ("O", "")]
    for position, ((before, type_before), (now, type_now)) in enumerate(pairwise(words)):
        if before != "O" and (now != "I" or type_now != type_before):
            found.append((type_before, start, position))
        if now == "B" or (now == "I" and (before == "O" or type_now != type_before)):
            start = position
    return found


def written(found: list[tuple[str, int, int]], length: int, *, iob1: bool) -> tuple[str, ...]:
    """Return the labels of chunks. IOB1 has B only directly after a chunk of the same type."""
    labels = ["O"] * length
    for type_, start, end in found:
        labels[start:end] = [f"I-{type_}"] * (end - start)
        if not iob1 or any(other == type_ and stop == start for other, _, stop in found):
            labels[start] = f"B-{type_}"
    return tuple(labels)


def test_equals_the_oracle():
    for tags in SENTENCES:
        found = chunks(tags)
        iob2 = written(found, len(tags), iob1=False)
        assert to_iob2(tags) == to_iob2(written(found, len(tags), iob1=True)) == iob2, tags
        assert entities(tags) == entities(iob2, mode="strict") == found, tags


@pytest.mark.parametrize(
    ("iob1", "expected"),
    [
        ("I-PER I-PER B-PER O I-LOC", "B-PER I-PER B-PER O B-LOC"),
        ("I-PER I-LOC I-LOC", "B-PER B-LOC I-LOC"),
        ("B-PER I-LOC I-PER", "B-PER B-LOC B-PER"),
        ("I I O I", "B I O B"),
        ("I-A-B I-A", "B-A-B B-A"),
    ],
)
def test_known(iob1: str, expected: str):
    assert to_iob2(iter(iob1.split())) == tuple(expected.split())


def test_other_labels_are_refused():
    rule = r"^labels must be O, B-<type> or I-<type>, got 'E-PER'"
    refused(ValueError, rule, to_iob2, ["O", "E-PER"])
    refused(TypeError, r"^tags must be the labels of a sentence, got the string 'O'$", to_iob2, "O")
