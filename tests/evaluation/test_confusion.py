"""BIO confusion: counted by hand."""

import random

import pytest

from polyembed.evaluation import bio_confusion

GOLD = [["B-PER", "I-PER", "O", "B-LOC"], ["O"], ["B-PER", "I-PER", "I-PER"]]
PREDICTED = [["B-LOC", "O", "O", "I-LOC"], ["B-PER"], ["B-PER", "I-PER", "B-PER"]]


def test_counts() -> None:
    table = bio_confusion(GOLD, PREDICTED)
    assert table.columns == ("gold", "B", "I", "O")
    assert table.rows == [("B", 2, 1, 0), ("I", 1, 1, 1), ("O", 1, 0, 1)]


def test_shares_of_rows() -> None:
    table = bio_confusion(GOLD, PREDICTED, normalize=True)
    assert table.rows == [
        ("B", 2 / 3, 1 / 3, 0.0),
        ("I", 1 / 3, 1 / 3, 1 / 3),
        ("O", 0.5, 0.0, 0.5),
    ]
    assert bio_confusion([["O"]], [["B-X"]], normalize=True).rows == [
        ("B", 0.0, 0.0, 0.0), ("I", 0.0, 0.0, 0.0), ("O", 1.0, 0.0, 0.0),
    ]  # fmt: skip


def test_random_labels_against_a_plain_loop() -> None:
    generator = random.Random(5)
    labels = ["O", "B-A", "I-A", "B-B-C", "I-B", "B", "I"]
    gold, predicted = ([generator.choices(labels, k=13) for _ in range(7)] for _ in range(2))
    for label, *counts in bio_confusion(gold, predicted).rows:
        for other, count in zip("BIO", counts, strict=True):
            found = 0
            for right, guess in zip(gold, predicted, strict=True):
                for i in range(13):
                    found += right[i][0] == label and guess[i][0] == other
            assert count == found


@pytest.mark.parametrize("label", ["NOUN", "O-PER", "E-PER", "", "BPER", "b-PER"])
def test_labels_must_be_bio(label: str) -> None:
    with pytest.raises(
        ValueError, match=rf"^labels must be O, B-<type> or I-<type>, got '{label}'$"
    ):
        bio_confusion([["O"]], [[label]])


def test_labels_must_fit() -> None:
    for gold, predicted, message in (
        ([], [], r"gold must hold at least one sentence with a label, got none"),
        ([[], []], [[], []], r"gold must hold at least one sentence with a label, got none"),
        ([["O"]], [["O"], ["O"]], r"predicted must have as many sentences as gold, 1, got 2"),
        (
            [["O"], ["O"]],
            [["O"], []],
            r"predicted\[1\] must have as many labels as gold\[1\], 1, got 0",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{message}$"):
            bio_confusion(gold, predicted)
    with pytest.raises(
        TypeError, match=r"^predicted\[0\] must be the labels of a sentence, got the string 'O'$"
    ):
        bio_confusion([["O"]], ["O"])
