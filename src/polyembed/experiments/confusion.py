"""Which labels are taken for which: is an entity found at all?"""

from collections import Counter
from typing import Any

from polyembed._checks import must
from polyembed.experiments._labels import check_labels
from polyembed.metrics import Labels
from polyembed.tables import Table

BIO = ("B", "I", "O")


def bio_confusion(gold: Labels, predicted: Labels, *, normalize: bool = False) -> Table:
    """Count which of B, I and O the words have and which they were given (van der Heijden 2019, figure 5).

        counts[g, p] = #{words: trim(gold) = g and trim(predicted) = p},  trim(B-x) = B, trim(I-x) = I;
        normalised: counts[g, p] / sum(counts[g, :]), and 0.0 where gold has no g.

    Args:
        gold: The right labels of each sentence: O, B-<type> and I-<type>.
        predicted: The predicted labels of each sentence.
        normalize: Whether to give shares of each row instead of counts.

    Returns:
        A row for each gold label, a column for each predicted one; the first column names the gold label.

    Raises:
        TypeError: If the labels are not one sequence a sentence.
        ValueError: If there are no labels, the lengths differ, or a label has another form.

    Example:
        >>> table = bio_confusion([["B-PER", "I-PER", "O", "B-LOC"]], [["B-LOC", "O", "O", "B-LOC"]])
        >>> print(table.to_markdown())
        | gold | B   | I   | O   |
        | ---- | --- | --- | --- |
        | B    | 2   | 0   | 0   |
        | I    | 0   | 0   | 1   |
        | O    | 0   | 0   | 1   |

    Deviations: the paper gives a picture for two systems; whether it shows counts or shares is not said.
    """
    check_labels(gold, predicted=predicted)
    pairs = Counter(
        (_trim(label), _trim(other))
        for right, guess in zip(gold, predicted, strict=True)
        for label, other in zip(right, guess, strict=True)
    )
    rows: list[tuple[Any, ...]] = []
    for label in BIO:
        counts = [pairs[label, other] for other in BIO]
        total = sum(counts)
        shares = [count / total if total else 0.0 for count in counts]
        rows.append((label, *(shares if normalize else counts)))
    return Table(("gold", *BIO), rows)


def _trim(label: str) -> str:
    prefix = label.partition("-")[0]
    if prefix not in BIO or (prefix == "O" and label != "O"):
        raise ValueError(must("labels", "be O, B-<type> or I-<type>", repr(label)))
    return prefix
