"""Tables of results."""

import statistics
import sys
from types import SimpleNamespace

import pytest

from polyembed.tables import MeanAndDeviation, Table, mean_and_deviation


@pytest.fixture
def table() -> Table:
    return Table(
        ("model", "F1 (%)", "runs"),
        [
            ("MME & co", mean_and_deviation([81.29, 81.91]), 2),
            ("A|B_c", 2 / 3, 1),
            ("none", None, 0),
        ],
    )


def test_mean_and_deviation() -> None:
    values = [0.3, 0.7, 0.1, 0.5, 0.11]
    found = mean_and_deviation(values)
    assert found.mean == pytest.approx(statistics.fmean(values))
    assert found.deviation == pytest.approx(statistics.stdev(values))


def test_mean_and_deviation_as_text() -> None:
    value = MeanAndDeviation(81.6, 0.314)
    assert str(value) == f"{value}" == "81.60 ± 0.31"
    assert f"{value:.1f}" == "81.6 ± 0.3"
    assert str(mean_and_deviation([7])) == "7.00"


def test_markdown(table: Table) -> None:
    assert table.to_markdown().splitlines() == [
        "| model    | F1 (%)       | runs |",
        "| -------- | ------------ | ---- |",
        "| MME & co | 81.60 ± 0.44 | 2    |",
        r"| A\|B_c   | 0.67         | 1    |",
        "| none     |              | 0    |",
    ]


def test_latex(table: Table) -> None:
    assert table.to_latex().splitlines() == [
        r"\begin{tabular}{lll}",
        r"\toprule",
        r"model & F1 (\%) & runs \\",
        r"\midrule",
        r"MME \& co & 81.60 $\pm$ 0.44 & 2 \\",
        r"A|B\_c & 0.67 & 1 \\",
        r"none &  & 0 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_latex_escapes_everything_once() -> None:
    (row,) = Table((r"\~^{}#$",), []).to_latex().splitlines()[2:3]
    assert row == r"\textbackslash{}\textasciitilde{}\textasciicircum{}\{\}\#\$ \\"


def test_csv_keeps_precision(table: Table) -> None:
    assert table.to_csv().splitlines() == [
        "model,F1 (%),runs",
        f"MME & co,{table.rows[0][1].mean!r} ± {table.rows[0][1].deviation!r},2",
        f"A|B_c,{2 / 3!r},1",
        "none,,0",
    ]
    runs = mean_and_deviation([0.12345, 0.12355, 0.2])
    cell = (
        Table(("a", "b"), [(runs, mean_and_deviation([1 / 3]))], digits=1)
        .to_csv()
        .splitlines()[1]
        .split(",")
    )
    assert [float(number) for number in cell[0].split(" ± ")] == [runs.mean, runs.deviation]
    assert float(cell[1]) == 1 / 3
    assert Table(("a",), [('x,"y',)]).to_csv() == 'a\n"x,""y"\n'


def test_digits_and_line_breaks() -> None:
    table = Table(("a\nb", "c"), [(1 / 3, mean_and_deviation([1, 2]))], digits=3)
    assert table.to_markdown().splitlines()[0].startswith("| a b")
    assert "| 0.333 | 1.500 ± 0.707 |" in table.to_markdown()


def test_pandas(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, object] = {}
    monkeypatch.setitem(
        sys.modules,
        "pandas",
        SimpleNamespace(DataFrame=lambda data, **more: made.update(more, data=data)),
    )
    table.to_pandas()
    assert made == {"columns": list(table.columns), "data": [list(row) for row in table.rows]}


def test_pandas_is_optional(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        ImportError,
        match=r"Table\.to_pandas must find the package 'pandas', got .* pip install pandas",
    ):
        table.to_pandas()


def test_rows_must_fit() -> None:
    assert Table(("a", "b"), []).to_markdown() == "| a   | b   |\n| --- | --- |"
    with pytest.raises(ValueError, match="values must hold at least one result, got none"):
        mean_and_deviation([])
    with pytest.raises(
        ValueError, match=r"^rows\[1\] must have one value for each of the 2 columns, got 1$"
    ):
        Table(("a", "b"), [(1, 2), (1,)])
