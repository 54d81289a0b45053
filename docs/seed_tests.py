"""Test systems of docs/results against each other by the spread of their seeds.

    python docs/seed_tests.py metaxl_5000 main --against "MetaXL, the authors' preset"
    python docs/seed_tests.py winata main --pair "Scratch, two layers" MME --columns SAGT Spanglish
    python docs/seed_tests.py metaxl_sentiment main --against 67.61 --columns test
    python docs/seed_tests.py few_labels labels --transpose --seeds 3 --pair sets guessed

A file of results has the mean and the deviation of a system's seeds, which are all that Welch's
t-test needs: ``t = (a - b) / sqrt(s_a^2 / n_a + s_b^2 / n_b)``, with the degrees of freedom of
Welch (1947). It answers whether other seeds would differ too. Tests over sentences
(`polyembed.evaluation.significance_table`) answer whether other sentences would, and need the
predictions. Three seeds are few, so a large p-value is no sign that two systems are equal.

Instead of a row one may give a score that no seed changes, such as a rule's; the test is then
Student's of one sample. Cells without a deviation are not tested. All p-values that one call prints
are corrected together by Holm (1979), so name the columns that answer one question. Captions that
correct over several tables or calls do it from the uncorrected p-values. Means and deviations are
as rounded in the file.
"""

import argparse
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from scipy.stats import t as student
from scipy.stats import ttest_ind_from_stats

from polyembed.tables import Table

COUNTS = {"two seeds": 2, "three seeds": 3, "five seeds": 5}


Spread = tuple[float, float, int]
"""The mean, the deviation and the number of seeds; the deviation of a fixed score is 0."""


def as_number(text: str) -> float | None:
    """Return the finite number that a text is, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def spread(row: list[Any], column: int, names: list[str], seeds: int) -> Spread | None:
    """Return the spread of a row's cell, or None if it has no deviation.

    Example:
        >>> row = ["MME", 4, {"mean": 0.5, "deviation": 0.1}, 0.5]
        >>> spread(row, 2, ["", "parameters", "F1", "dev"], 3)
        (0.5, 0.1, 3)
        >>> spread(row, 2, ["", "seeds", "F1", "dev"], 3)
        (0.5, 0.1, 4)
        >>> spread([{"mean": 0.5, "deviation": 0.1, "note": "five seeds"}], 0, ["F1"], 3)
        (0.5, 0.1, 5)
        >>> spread(row, 3, ["", "seeds", "F1", "dev"], 3) is None
        True
        >>> spread([{"mean": 0.5, "deviation": None}], 0, ["F1"], 3) is None
        True
    """
    cell = row[column]
    if not isinstance(cell, dict) or cell.get("deviation") is None:
        return None
    if "seeds" in names:
        seeds = row[names.index("seeds")]
    return cell["mean"], cell["deviation"], COUNTS.get(cell.get("note", ""), seeds)


def p_value(a: Spread, b: Spread) -> float:
    """Test two spreads by Welch's t-test, or one against a fixed number by Student's.

    Example:
        >>> round(p_value((81.0, 1.0, 3), (79.0, 2.0, 5)), 4)  # t = 1.8787, 5.9588 degrees
        0.1097
        >>> round(p_value((81.0, 1.0, 3), (79.0, 0.0, 1)), 4)  # t = 2 * sqrt(3), 2 degrees
        0.0742
    """
    if not a[1] or not b[1]:
        (_, deviation, seeds), difference = (a if a[1] else b), abs(a[0] - b[0])
        return 2 * float(student.sf(difference * seeds**0.5 / deviation, seeds - 1))
    return float(ttest_ind_from_stats(*a, *b, equal_var=False).pvalue)


def holm(p_values: list[float]) -> list[float]:
    """Correct p-values for their number: ``max over j <= i of min(1, (m - j + 1) * p_j)``.

    Example:
        >>> holm([0.03, 0.01, 0.02]), holm([0.7, 0.6])
        ([0.04, 0.03, 0.04], [1.0, 1.0])
    """
    found, least = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[i]))
        found[i] = least
    return found


def transposed(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table whose columns are the systems with the systems as rows.

    Example:
        >>> transposed({"columns": ["task", "MME", "HME"], "rows": [["es", 1, 2], ["nl", 3, 4]]})
        {'columns': ['task', 'es', 'nl'], 'rows': [['MME', 1, 3], ['HME', 2, 4]]}
    """
    columns, *rows = zip(table["columns"], *table["rows"], strict=True)
    return {"columns": list(columns), "rows": [list(row) for row in rows]}


def seed_tests(
    table: dict[str, Any], seeds: int, pairs: list[tuple[str, str]], columns: list[str]
) -> Table:
    """Test the first row of each pair against the second, or against a fixed score.

    Every column is tested in which both have a deviation. A column named seeds has the number of
    seeds of its row.

    Example:
        >>> runs = [{"mean": 81.0, "deviation": 1.0}, {"mean": 79.0, "deviation": 1.0}]
        >>> table = {"columns": ["", "F1"], "rows": [["MME", runs[0]], ["HME", runs[1]]]}
        >>> [(a, b, i, d, round(p, 4), round(q, 4)) for a, b, i, d, p, q in
        ...     seed_tests(table, 3, [("MME", "HME"), ("MME", "79")], []).rows]
        [('MME', 'HME', 'F1', 2.0, 0.0705, 0.141), ('MME', '79', 'F1', 2.0, 0.0742, 0.141)]
        >>> one = {"columns": ["", "F1"], "rows": [["MME", 81.0], ["HME", 79.0]]}
        >>> for wrong, first, second in (
        ...     (table, "MME", "BPE"),
        ...     (table, "MME", "nan"),
        ...     (table, "MME", "MME"),
        ...     (one, "MME", "HME"),
        ...     (table | {"columns": ["F1", "F1"]}, "MME", "HME"),
        ... ):
        ...     try:
        ...         seed_tests(wrong, 3, [(first, second)], [])
        ...     except SystemExit as error:
        ...         print(error)
        ['BPE'] must be among ['', 'F1'] or ['MME', 'HME']
        ['nan'] must be among ['', 'F1'] or ['MME', 'HME']
        the pairs must differ, and be of two rows, got [('MME', 'MME')]
        a pair must have a column in which both rows have a deviation, got none
        the names of rows and of columns must differ, got twice: ['F1']
    """
    names, rows = table["columns"], table["rows"]
    cells = {row[0]: row for row in rows}
    for what in (names, [row[0] for row in rows]):
        twice = [name for name, count in Counter(what).items() if count > 1]
        if twice:
            raise SystemExit(
                f"the names of rows and of columns must differ, got twice: {twice}"
            )
    unknown = [x for x in columns if x not in names]
    unknown += [first for first, _ in pairs if first not in cells]
    unknown += [x for _, x in pairs if x not in cells and as_number(x) is None]
    if unknown:
        raise SystemExit(
            f"{sorted(set(unknown))} must be among {names} or {list(cells)}"
        )
    different = {frozenset(pair) for pair in pairs}
    if len(different) < len(pairs) or any(len(pair) == 1 for pair in different):
        raise SystemExit(f"the pairs must differ, and be of two rows, got {pairs}")
    tests = []
    for first, second in pairs:
        for i, column in enumerate(names):
            a = spread(cells[first], i, names, seeds)
            b = (
                spread(cells[second], i, names, seeds)
                if second in cells
                else (float(second), 0.0, 1)
            )
            if (column in columns or not columns) and a and b and (a[1] or b[1]):
                tests.append((first, second, column, a[0] - b[0], p_value(a, b)))
    if not tests:
        raise SystemExit(
            "a pair must have a column in which both rows have a deviation, got none"
        )
    corrected = holm([test[-1] for test in tests])
    lines = [(*test, p) for test, p in zip(tests, corrected, strict=True)]
    titles = ("row", "against", "column", "difference", "p", "p, Holm")
    return Table(titles, lines, digits=4)


def main() -> None:
    """Print the tests that the command line asks for."""
    sys.path.insert(0, str(Path(__file__).resolve().parent / "_ext"))
    import results

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "file", help="the name of a file in docs/results, without its ending"
    )
    parser.add_argument("table", help="the name of one of its tables")
    parser.add_argument(
        "--against",
        help="the row, or the fixed score, that all others are tested against",
    )
    parser.add_argument(
        "--pair",
        nargs=2,
        action="append",
        default=[],
        help="a row and the one it is tested against",
    )
    parser.add_argument(
        "--columns", nargs="+", default=[], help="the columns; all if missing"
    )
    parser.add_argument(
        "--seeds",
        type=int,
        help="the number of seeds of a cell without a note; the file's if missing",
    )
    parser.add_argument(
        "--transpose",
        action="store_true",
        help="the systems are the columns of the table",
    )
    arguments = parser.parse_args()
    files = {path.stem: path for path in results.files()}
    if arguments.file not in files:
        parser.error(f"file must be among {list(files)}, got {arguments.file!r}")
    data = results.load(files[arguments.file])
    tables = data["tables"]
    seeds = len(data.get("seeds", ())) if arguments.seeds is None else arguments.seeds
    if arguments.table not in tables:
        parser.error(f"table must be among {list(tables)}, got {arguments.table!r}")
    if seeds < 2:
        parser.error(
            f"--seeds must be 2 or more, and be given if the file has none, got {seeds}"
        )
    if (arguments.against is None) == (not arguments.pair):
        parser.error("there must be either --against or --pair")
    table = tables[arguments.table]
    table = transposed(table) if arguments.transpose else table
    rows = [row[0] for row in table["rows"]]
    pairs = arguments.pair or [
        (row, arguments.against) for row in rows if row != arguments.against
    ]
    print(seed_tests(table, seeds, pairs, arguments.columns).to_markdown())


if __name__ == "__main__":
    main()
