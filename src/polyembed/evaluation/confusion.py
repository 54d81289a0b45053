"""Which labels are mistaken for which."""

from collections import Counter
from typing import Any

from polyembed.metrics import Labels, check_labels, split_label
from polyembed.tables import Table


def bio_confusion(gold: Labels, predicted: Labels, *, normalize: bool = False) -> Table:
    """Count how often words labelled B, I or O are predicted as B, I or O (van der Heijden 2019,
    figure 5).

        counts[g, p] = #{words: trim(gold) = g and trim(predicted) = p},  trim(B-x) = B, trim(I-x) =
        I;
        normalised: counts[g, p] / sum(counts[g, :]), and 0.0 where no gold label is g.

    Args:
        gold: The right labels of each sentence: O, B-<type> and I-<type>.
        predicted: The predicted labels of each sentence.
        normalize: Whether to return shares of each row instead of counts.

    Returns:
        A row for each gold label, a column for each predicted one; the first column names the gold
        label.

    Raises:
        TypeError: If the labels are not one sequence for each sentence.
        ValueError: No labels, lengths that differ, or a label of another form.

    Example:
        >>> table = bio_confusion([["B-PER", "I-PER", "O", "B-LOC"]], [["B-LOC", "O", "O", "B-LOC"]])
        >>> print(table.to_markdown())
        | gold | B   | I   | O   |
        | ---- | --- | --- | --- |
        | B    | 2   | 0   | 0   |
        | I    | 0   | 0   | 1   |
        | O    | 0   | 0   | 1   |

    Deviations: the paper's picture does not say whether it shows counts or shares.
    """
    check_labels(gold, empty=False, predicted=predicted)
    pairs = Counter(
        (split_label(label)[0], split_label(other)[0])
        for right, guess in zip(gold, predicted, strict=True)
        for label, other in zip(right, guess, strict=True)
    )
    rows: list[tuple[Any, ...]] = []
    for label in "BIO":
        counts = [pairs[label, other] for other in "BIO"]
        total = sum(counts) or 1
        rows.append((label, *(count / total if normalize else count for count in counts)))
    return Table(("gold", "B", "I", "O"), rows)
