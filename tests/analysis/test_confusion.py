"""BIO confusion: counted by hand, and drawn."""

import random

import pytest

from polyembed.analysis import bio_confusion, plot_confusion

GOLD = [["B-PER", "I-PER", "O", "B-LOC"], ["O"], ["B-PER", "I-PER", "I-PER"]]
PREDICTED = [["B-LOC", "O", "O", "I-LOC"], ["B-PER"], ["B-PER", "I-PER", "B-PER"]]


def test_counts() -> None:
    table = bio_confusion(GOLD, PREDICTED)
    assert table.columns == ("gold", "B", "I", "O")
    assert table.rows == [("B", 2, 1, 0), ("I", 1, 1, 1), ("O", 1, 0, 1)]


def test_shares_of_rows() -> None:
    table = bio_confusion(GOLD, PREDICTED, normalize=True)
    assert table.rows == [("B", 2 / 3, 1 / 3, 0.0), ("I", 1 / 3, 1 / 3, 1 / 3), ("O", 0.5, 0.0, 0.5)]
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
    with pytest.raises(ValueError, match=rf"^labels must be O, B-<type> or I-<type>, got '{label}'$"):
        bio_confusion([["O"]], [[label]])


def test_labels_must_fit() -> None:
    for gold, predicted, message in (
        ([], [], r"gold must hold at least one sentence with a label, got none"),
        ([[], []], [[], []], r"gold must hold at least one sentence with a label, got none"),
        ([["O"]], [["O"], ["O"]], r"predicted must have as many sentences as gold, 1, got 2"),
        ([["O"], ["O"]], [["O"], []], r"predicted\[1\] must have as many labels as gold\[1\], 1, got 0"),
    ):
        with pytest.raises(ValueError, match=f"^{message}$"):
            bio_confusion(gold, predicted)
    with pytest.raises(TypeError, match=r"^predicted\[0\] must be the labels of a sentence, got the string 'O'$"):
        bio_confusion([["O"]], ["O"])


@pytest.mark.parametrize("normalize", [False, True])
def test_picture(normalize: bool) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    table = bio_confusion(GOLD, PREDICTED, normalize=normalize)
    _, ax = plt.subplots()
    assert plot_confusion(table, ax=ax, title="MUSE") is ax
    texts = {tuple(map(round, text.get_position())): text.get_text() for text in ax.texts}
    assert texts[0, 0] == ("0.67" if normalize else "2")
    assert texts[1, 0] == ("0.33" if normalize else "1")  # gold B, predicted I
    assert texts[0, 1] == ("0.33" if normalize else "1")
    assert texts[2, 2] == ("0.50" if normalize else "1")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["B", "I", "O"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["B", "I", "O"]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("predicted", "gold", "MUSE")
    shares = ax.images[0].get_array()
    assert shares[0, 1] == pytest.approx(1 / 3)
    assert shares.sum() == pytest.approx(3)
    plt.close("all")


def test_picture_of_rows_without_words() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ax = plot_confusion(bio_confusion([["O"]], [["O"]]))
    assert ax.images[0].get_array().sum() == 1.0
    plt.close("all")
