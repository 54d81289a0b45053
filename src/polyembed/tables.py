"""Tables of results: rows of values, written out as Markdown."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyembed._checks import require


@dataclass(frozen=True, slots=True)
class MeanAndDeviation:
    """The mean of several runs and their standard deviation; `mean_and_deviation` computes it.

    ``format(value, ".1f")`` gives ``81.6 ± 0.3``, and ``str(value)`` has two decimals. A single run
    is printed without a deviation.

    Args:
        mean: The mean.
        deviation: The sample standard deviation, or None for a single run.

    Example:
        >>> f"{MeanAndDeviation(81.6, 0.31):.1f}", str(MeanAndDeviation(81.6, None))
        ('81.6 ± 0.3', '81.60')
    """

    mean: float
    deviation: float | None

    def __format__(self, spec: str) -> str:
        spec = spec or ".2f"
        known = [value for value in (self.mean, self.deviation) if value is not None]
        return " ± ".join(format(value, spec) for value in known)

    def __str__(self) -> str:
        return format(self)


def mean_and_deviation(values: Sequence[float]) -> MeanAndDeviation:
    """Compute the mean of runs, and ``deviation = sqrt(sum((x - mean)^2) / (n - 1))``.

    Args:
        values: The results, one per run.

    Returns:
        The mean and the sample standard deviation, which is None for one run.

    Raises:
        ValueError: If `values` is empty.

    Example:
        >>> str(mean_and_deviation([81.0, 82.0, 83.0]))
        '82.00 ± 1.00'
    """
    found = list(map(float, values))
    require(bool(found), "values", "hold at least one result", "none")
    deviation = float(np.std(found, ddof=1)) if len(found) > 1 else None
    return MeanAndDeviation(statistics.fmean(found), deviation)


@dataclass(frozen=True, slots=True)
class Table:
    r"""Rows of values under named columns.

    Floats and `MeanAndDeviation` are written with `digits` decimals, None as an empty cell,
    everything else as `str` writes it. ``pandas.DataFrame(table.rows, columns=table.columns)`` has
    the values in full precision.

    Args:
        columns: The names of the columns.
        rows: The values of each row, one for each column.
        digits: The number of decimals that are written.

    Example:
        >>> table = Table(("model", "F1"), [("MME", mean_and_deviation([0.5, 0.7])), ("HME",
        ...     2 / 3)])
        >>> print(table.to_markdown())
        | model | F1          |
        | ----- | ----------- |
        | MME   | 0.60 ± 0.14 |
        | HME   | 0.67        |
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    digits: int = 2

    def to_markdown(self) -> str:
        """Return a Markdown table, its cells padded to equal widths.

        Returns:
            The lines of the table, without a line end at the last.
        """
        rows = [list(map(self._write, row)) for row in (self.columns, *self.rows)]
        widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
        rows.insert(1, ["-" * width for width in widths])
        padded = (map(str.ljust, row, widths) for row in rows)
        return "\n".join(f"| {' | '.join(cells)} |" for cells in padded)

    def _write(self, value: object) -> str:
        if value is None:
            return ""
        if isinstance(value, float | np.floating | MeanAndDeviation):
            return f"{value:.{self.digits}f}"
        return " ".join(str(value).splitlines()).replace("|", r"\|")
