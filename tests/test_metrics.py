"""Entity F1 and accuracy, on cases worked out by hand; tests/parity compares with seqeval."""

import importlib
import random

import pytest

from polyembed.metrics import (
    Entity,
    Scores,
    accuracy,
    bio_labels,
    entities,
    entity_f1,
    macro_f1,
    per_class,
    per_tag,
    to_iob2,
)


@pytest.mark.parametrize(
    ("tags", "conll", "strict"),
    [
        ("O O", [], []),
        ("", [], []),
        ("B-A I-A O B-B", [("A", 0, 2), ("B", 3, 4)], [("A", 0, 2), ("B", 3, 4)]),
        ("B-A B-A", [("A", 0, 1), ("A", 1, 2)], [("A", 0, 1), ("A", 1, 2)]),
        ("I-A I-A", [("A", 0, 2)], []),
        ("O I-A B-A", [("A", 1, 2), ("A", 2, 3)], [("A", 2, 3)]),
        ("B-A I-B", [("A", 0, 1), ("B", 1, 2)], [("A", 0, 1)]),
        ("B-A I-B I-A", [("A", 0, 1), ("B", 1, 2), ("A", 2, 3)], [("A", 0, 1)]),
        ("B-A O I-A", [("A", 0, 1), ("A", 2, 3)], [("A", 0, 1)]),
        ("B-A-B I-A-B I-A", [("A-B", 0, 2), ("A", 2, 3)], [("A-B", 0, 2)]),
        ("B I O I", [("_", 0, 2), ("_", 3, 4)], [("_", 0, 2)]),
    ],
)
def test_entities(
    tags: str, conll: list[tuple[str, int, int]], strict: list[tuple[str, int, int]]
) -> None:
    assert entities(tags.split()) == conll
    assert entities(tags.split(), mode="strict") == strict


def test_macro_f1() -> None:
    """2 of 3 are a, and of those named so; 1 is b, of 2 named so; c is never found. Each counts alike."""
    gold = [["a", "a"], ["a"], ["b"], ["c"]]
    predicted = [["a", "b"], ["a"], ["b"], ["a"]]
    assert macro_f1(gold, predicted) == pytest.approx((2 * 2 / (3 + 3) + 2 * 1 / (2 + 1) + 0) / 3)
    assert macro_f1([["a"]], [["b"]]) == 0.0
    assert macro_f1([["a"], ["a"]], [["a"], ["b"]]) == pytest.approx((2 / 3 + 0) / 2), (
        "labels of either side"
    )
    assert macro_f1([[]], [[]]) == 0.0
    with pytest.raises(
        ValueError, match=r"^predicted must have as many sentences as gold, 1, got 2$"
    ):
        macro_f1([["a"]], [["a"], ["b"]])


def test_entity_f1() -> None:
    assert entities(["O", "B-A", "I-A"]) == [Entity(type="A", start=1, end=3)]
    assert entity_f1([["B-A"], ["O"]], [["O"], ["B-A"]]).correct == 0, "the same entity elsewhere"
    gold = [["B-A", "I-A", "O", "B-B"], ["B-A"], ["O"]]
    predicted = [["B-A", "I-A", "O", "B-A"], ["O"], ["B-B"]]
    scores = entity_f1(gold, predicted)
    assert scores == Scores(correct=1, predicted=3, support=3)
    assert (scores.precision, scores.recall, scores.f1) == (1 / 3, 1 / 3, 1 / 3)
    assert per_class(gold, predicted) == {"A": Scores(1, 2, 2), "B": Scores(0, 1, 1)}


def test_the_modes_differ() -> None:
    gold, predicted = [["B-A", "I-A"]], [["I-A", "I-A"]]
    assert entity_f1(gold, predicted).f1 == 1.0
    assert entity_f1(gold, predicted, mode="strict") == Scores(correct=0, predicted=0, support=1)
    assert per_class(gold, predicted, mode="strict")["A"].precision == 0.0


def test_nothing_to_score_gives_zeros() -> None:
    for scores in (entity_f1([], []), entity_f1([["O"]], [["O"]]), entity_f1([[]], [[]])):
        assert (scores.precision, scores.recall, scores.f1, scores.support) == (0.0, 0.0, 0.0, 0)
    assert accuracy([], []) == accuracy([[]], [[]]) == 0.0
    assert per_class([], []) == per_tag([], []) == {}


def test_accuracy() -> None:
    gold, predicted = [["X", "Y", "Y"], ["X"]], [["X", "X", "Y"], ["Z"]]
    assert accuracy(gold, predicted) == 0.5
    assert per_tag(gold, predicted) == {
        "X": Scores(1, 2, 2),
        "Y": Scores(1, 1, 2),
        "Z": Scores(0, 1, 0),
    }
    assert list(per_tag(gold, predicted)) == ["X", "Y", "Z"]


@pytest.mark.parametrize("score", [entity_f1, accuracy, per_class, per_tag])
def test_lengths_must_agree(score) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(
        ValueError, match=r"^predicted must have as many sentences as gold, 2, got 1$"
    ):
        score([["O"], ["O"]], [["O"]])
    with pytest.raises(
        ValueError, match=r"^predicted\[1\] must have as many labels as gold\[1\], 2, got 3$"
    ):
        score([["O"], ["O", "O"]], [["O"], ["O", "O", "O"]])
    with pytest.raises(
        TypeError, match=r"^gold\[0\] must be the labels of a sentence, got the string 'O'$"
    ):
        score(["O"], ["O"])
    with pytest.raises(
        TypeError, match=r"^predicted\[0\] must be the labels of a sentence, got the string 'O'$"
    ):
        score([["O"]], ["O"])


@pytest.mark.parametrize("label", ["Other", "E-PER", "b-PER", "", "BPER"])
def test_labels_must_be_bio(label: str) -> None:
    with pytest.raises(ValueError, match=rf"labels must be O, B-<type> or I-<type>, got '{label}'"):
        entity_f1([["O"]], [[label]])


def test_modes_must_be_known() -> None:
    for score in (entity_f1, per_class):
        with pytest.raises(ValueError, match="mode must be one of 'conll', 'strict', got 'iob1'"):
            score([], [], mode="iob1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mode must be one of 'conll', 'strict', got 'iob1'"):
        entities([], mode="iob1")  # type: ignore[arg-type]


@pytest.mark.parametrize(("scheme", "prefixes"), [("bioes", "BIES"), ("bilou", "BILU")])
def test_closed_schemes_against_seqeval(scheme: str, prefixes: str) -> None:
    """Broken sequences too, as its strict mode counts them."""
    seqeval = pytest.importorskip("seqeval.metrics.v1", reason="seqeval is the reference")
    theirs = importlib.import_module("seqeval.scheme")
    kind = {"bioes": theirs.IOBES, "bilou": theirs.BILOU}[scheme]
    draw = random.Random(7)
    labels = ["O", *(f"{prefix}-{type_}" for prefix in prefixes for type_ in ("X", "Y"))]
    for _ in range(300):
        gold, found = ([draw.choices(labels, k=draw.randrange(1, 9))] for _ in range(2))
        found[0] = (found[0] * 9)[: len(gold[0])]
        if draw.random() < 0.5:
            found = [list(gold[0])]
            found[0][draw.randrange(len(gold[0]))] = draw.choice(labels)
        ours = entity_f1(gold, found, scheme=scheme)
        expected = seqeval.precision_recall_fscore_support(
            gold, found, average="micro", scheme=kind, zero_division=0
        )
        assert (ours.precision, ours.recall, ours.f1) == pytest.approx(expected[:3])
        parts = entities(gold[0], scheme=scheme)
        assert entities(bio_labels(parts, len(gold[0]), scheme), scheme=scheme) == parts
        assert entities(to_iob2(gold[0], scheme=scheme)) == parts


def test_a_wrong_scheme_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"labels must be O, B-<type>, I-<type>, E-<type> or S-<type>, got 'L-X'"
    ):
        entity_f1([["L-X"]], [["O"]], scheme="bioes")
    with pytest.raises(
        ValueError, match="scheme must be one of 'bio', 'iob1', 'bioes', 'bilou', got 'iobes'"
    ):
        entities(["O"], scheme="iobes")
