"""Tables of results."""

import numpy as np
from checks import refused

from polyembed.tables import MeanAndDeviation, Table, mean_and_deviation


def test_mean_and_deviation_as_text():
    value = MeanAndDeviation(81.6, 0.314)
    assert str(value) == f"{value}" == "81.60 ± 0.31"
    assert f"{value:.1f}" == "81.6 ± 0.3"
    assert str(mean_and_deviation([7])) == "7.00"


def test_markdown():
    rows = [
        ("MME & co", mean_and_deviation(np.array([81, 82])), 2),
        ("A|B_c", np.float32(2 / 3), 1),
        ("none", None, 0),
    ]
    assert Table(("model", "F1 (%)", "runs"), rows).to_markdown().splitlines() == [
        "| model    | F1 (%)       | runs |",
        "| -------- | ------------ | ---- |",
        "| MME & co | 81.50 ± 0.71 | 2    |",
        r"| A\|B_c   | 0.67         | 1    |",
        "| none     |              | 0    |",
    ]


def test_no_rows():
    assert Table(("a", "b"), []).to_markdown() == "| a   | b   |\n| --- | --- |"
    refused(ValueError, "values must hold at least one result, got none", mean_and_deviation, [])
