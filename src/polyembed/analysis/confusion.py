"""Which labels are taken for which: is an entity found at all?"""

from collections import Counter
from typing import Any

from polyembed._checks import import_optional, must
from polyembed.analysis._labels import check_labels
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


def plot_confusion(table: Table, *, ax: Any = None, title: str | None = None) -> Any:
    """Draw a confusion table: a square a pair of labels, darker the larger its share of its row.

    Args:
        table: What `bio_confusion` gives, counts or shares.
        ax: The matplotlib axes to draw on; new ones if None.
        title: For example the system's name.

    Returns:
        The axes.

    Raises:
        ImportError: If matplotlib is not installed.

    Example:
        >>> import matplotlib; matplotlib.use("Agg")
        >>> ax = plot_confusion(bio_confusion([["B-PER", "O"]], [["O", "O"]]), title="MUSE")
        >>> [text.get_text() for text in ax.texts][:3]
        ['0', '0', '1']
    """
    if ax is None:
        ax = import_optional("matplotlib.pyplot", pip="matplotlib", feature="plot_confusion").subplots()[1]
    labels = [str(row[0]) for row in table.rows]
    values = [list(row[1:]) for row in table.rows]
    totals = [sum(row) or 1 for row in values]
    shares = [[value / total for value in row] for row, total in zip(values, totals, strict=True)]
    ax.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            text = f"{value:.2f}" if isinstance(value, float) else f"{value:,}"
            ax.text(x, y, text, ha="center", va="center", color="white" if shares[y][x] > 0.5 else "black")
    ax.set_xticks(range(len(table.columns) - 1), table.columns[1:])
    ax.set_yticks(range(len(labels)), labels)
    ax.set_xlabel("predicted")
    ax.set_ylabel(table.columns[0])
    if title is not None:
        ax.set_title(title)
    return ax


def _trim(label: str) -> str:
    prefix = label.partition("-")[0]
    if prefix not in BIO or (prefix == "O" and label != "O"):
        raise ValueError(must("labels", "be O, B-<type> or I-<type>", repr(label)))
    return prefix
