"""Entity F1 and accuracy, on cases worked out by hand; tests/parity compares with seqeval."""

import pytest
import torch
from checks import refused

from polyembed.metrics import (
    Scores,
    accuracy,
    entities,
    entity_f1,
    macro_f1,
    per_class,
    per_tag,
    scheme_of,
    to_iob2,
)


@pytest.mark.parametrize(
    ("tags", "conll", "strict"),
    [
        ("O O", "", ""),
        ("", "", ""),
        ("B-A I-A O B-B", "A02 B34", "A02 B34"),
        ("B-A B-A", "A01 A12", "A01 A12"),
        ("I-A I-A", "A02", ""),
        ("O I-A B-A", "A12 A23", "A23"),
        ("B-A I-B", "A01 B12", "A01"),
        ("B-A I-B I-A", "A01 B12 A23", "A01"),
        ("B-A O I-A", "A01 A23", "A01"),
        ("B-A-B I-A-B I-A", "A-B02 A23", "A-B02"),
        ("B I O I", "_02 _34", "_02"),
    ],
)
def test_entities(tags: str, conll: str, strict: str):
    """Each entity is written as its type, start and end."""
    for mode, expected in (("conll", conll), ("strict", strict)):
        found = entities(tags.split(), mode=mode)
        assert " ".join(f"{one.type}{one.start}{one.end}" for one in found) == expected
    assert entities(to_iob2(tags.split()), mode="strict") == entities(tags.split())


def test_macro_f1():
    """The three labels have equal weights in the mean.

    Label a has 2 hits in 3 gold and 3 predicted labels. Label b has 1 hit in 1 gold and 2 predicted
    labels. Label c has 0 hits.
    """
    gold = [["a", "a"], ["a"], ["b"], ["c"]]
    predicted = [["a", "b"], ["a"], ["b"], ["a"]]
    assert macro_f1(gold, predicted) == pytest.approx((2 * 2 / (3 + 3) + 2 * 1 / (2 + 1) + 0) / 3)
    assert macro_f1([["a"], ["a"]], [["a"], ["b"]]) == pytest.approx((2 / 3 + 0) / 2)


def test_entity_f1():
    assert entity_f1([["B-A"], ["O"]], [["O"], ["B-A"]]).correct == 0, "the same entity elsewhere"
    gold = [["B-A", "I-A", "O", "B-B"], ["B-A"], ["O"]]
    predicted = [["B-A", "I-A", "O", "B-A"], ["O"], ["B-B"]]
    scores = entity_f1(gold, predicted)
    assert scores == Scores(correct=1, predicted=3, support=3)
    assert (scores.precision, scores.recall, scores.f1) == (1 / 3, 1 / 3, 1 / 3)
    assert per_class(gold, predicted) == {"A": Scores(1, 2, 2), "B": Scores(0, 1, 1)}


def test_nothing_to_score_gives_zeros():
    for scores in (entity_f1([], []), entity_f1([["O"]], [["O"]]), entity_f1([[]], [[]])):
        assert (scores.precision, scores.recall, scores.f1, scores.support) == (0.0, 0.0, 0.0, 0)
    assert accuracy([], []) == accuracy([[]], [[]]) == macro_f1([[]], [[]]) == 0.0
    assert per_class([], []) == per_tag([], []) == {}


def test_unknown_gold_does_not_count_and_any_of_a_set_is_right():
    gold = [[None, {"X", "Y"}, {"X", "Y"}]]
    assert per_tag(gold, [["Z", "Y", "Z"]]) == {
        "X": Scores(0, 0, 1),
        "Y": Scores(1, 1, 1),
        "Z": Scores(0, 1, 0),
    }


def test_accuracy():
    gold, predicted = [["X", "Y", "Y"], ["X"]], [["X", "X", "Y"], ["Z"]]
    assert accuracy(gold, predicted) == 0.5
    found = {"X": Scores(1, 2, 2), "Y": Scores(1, 1, 2), "Z": Scores(0, 1, 0)}
    assert list(per_tag(gold, predicted).items()) == list(found.items())


@pytest.mark.parametrize("score", [entity_f1, accuracy, macro_f1, per_class])
def test_lengths_must_agree(score):
    rule = r"^predicted must have as many sentences as gold, 2, got 1$"
    refused(ValueError, rule, score, [["O"], ["O"]], [["O"]])
    rule = r"^predicted\[1\] must have as many labels as gold\[1\], 2, got 3$"
    refused(ValueError, rule, score, [["O"], ["O", "O"]], [["O"], ["O", "O", "O"]])
    rule = r"must be the labels of a sentence, got the string 'O'$"
    refused(TypeError, rf"^gold\[0\] {rule}", score, ["O"], ["O"])
    refused(TypeError, rf"^predicted\[0\] {rule}", score, [["O"]], ["O"])
    refused(TypeError, r"^gold\[0\] .*the tensor", score, *torch.ones(2, 1, 1))


def test_letters_alone_are_a_scheme_only_where_entities_begin_and_go_on():
    labels = ("B I O", "B-X O", "E O", "B E O", "O")
    assert [scheme_of(one.split()) for one in labels] == ["bio", "bio", None, None, None]


@pytest.mark.parametrize(
    ("label", "options", "message"),
    [
        ("Other", {}, "labels must be O, B-<type> or I-<type>, got 'Other'"),
        ("L-X", {"scheme": "bioes"}, "O, B-<type>, I-<type>, E-<type> or S-<type>, got 'L-X'"),
        ("O", {"scheme": "iobes"}, "scheme must be one of 'bio', 'iob1', 'bioes', 'bilou', got"),
        ("O", {"mode": "iob1"}, "mode must be one of 'conll', 'strict', got 'iob1'"),
    ],
)
def test_labels_schemes_and_modes_must_be_known(label: str, options, message: str):
    refused(ValueError, message, entity_f1, [["O"]], [[label]], **options)
    refused(ValueError, message, entities, [label], **options)
