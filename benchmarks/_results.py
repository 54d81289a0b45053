"""What a benchmark measured, as a file that the documentation shows: docs/results/<name>.json.

A script adds the option ``--json FILE`` with `option(parser)`. It prints each table with
`show(arguments.json, "main", table)`, which also writes the table to the file. For example, these
calls write a table and its learning curves. The values of a curve are floats or results of
`mean_and_deviation`::

    show(arguments.json, "main", Table(columns, rows, digits=4), seeds=range(3))
    axes = {"x": {"label": "training sentences", "log": True}, "y": {"label": "accuracy"}}
    series = [{"label": "HME", "x": [100, 300], "y": [mean_and_deviation([0.5, 0.6]), 0.7]}]
    chart = {"kind": "lines", "caption": "What to see.", "reference": "hand-featured CRF",
             **axes, "series": series}
    write(arguments.json, charts={"curve SAGT": chart})

A page shows them with the directive ``{results} name`` and its option ``:table: main`` or
``:chart: curve SAGT`` (docs/_ext/results.py). The file keeps everything that a run does not write:
other tables, captions, charts, the title and the note.
"""

import argparse
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from polyembed.tables import MeanAndDeviation, Table

NUMBER = r"-?\d[\d,]*(?:\.(\d+))?"


def option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--json FILE``."""
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="also write the figures to a file such as docs/results/<name>.json",
    )


def cpu_name() -> str:
    """Return the name of the CPU on Linux, else the machine's architecture."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def as_cell(value: object) -> Any:
    """Return the JSON cell of a table's value.

    The text of a number, with or without a remark in brackets, becomes a number.
    """
    if isinstance(value, MeanAndDeviation):
        return {"mean": as_cell(value.mean), "deviation": as_cell(value.deviation)}
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return float(f"{value:.6g}")
    found = re.fullmatch(rf"({NUMBER})(?: \((.*)\))?", str(value))
    if found is None:
        return str(value)
    text, decimals, note = found.groups()
    number = text.replace(",", "")
    if not decimals and not note:
        return int(number)
    cell = {"mean": float(number), "digits": len(decimals)} if decimals else {"mean": int(number)}
    return cell | ({"note": note} if note else {})


def write(
    path: Path | None,
    tables: Mapping[str, Table] | None = None,
    *,
    charts: Mapping[str, Mapping[str, Any]] | None = None,
    seeds: Sequence[int] = (),
) -> None:
    """Write the tables and charts of this run to `path`, unless it is None.

    The file keeps its other tables and charts.
    """
    if path is None:
        return
    data: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {"tables": {}}
    script, *arguments = sys.argv
    if "--json" in arguments:
        del arguments[arguments.index("--json") : arguments.index("--json") + 2]
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    first = (sys.modules["__main__"].__doc__ or path.stem).partition("\n")[0]
    data = {"title": data.get("title", first)} | data
    data.pop("dated", None)
    data |= {
        "command": shlex.join(["python", f"benchmarks/{Path(script).name}", *arguments]),
        "machine": f"{cpu_name()}, {os.cpu_count()} cores{gpu}, {torch.get_num_threads()} threads",
        "versions": {"python": platform.python_version(), "torch": version("torch")},
        "date": datetime.now(UTC).date().isoformat(),
    }
    if seeds:
        data["seeds"] = list(seeds)
    for name, table in (tables or {}).items():
        rows = [[str(row[0]), *map(as_cell, row[1:])] for row in table.rows]
        figures = {"digits": table.digits, "columns": list(map(str, table.columns)), "rows": rows}
        data["tables"][name] = data["tables"].get(name, {}) | figures
    for name, chart in (charts or {}).items():
        series = [
            {**one, "y": [as_cell(cell) for cell in one["y"]]} for one in chart.get("series", ())
        ]
        data.setdefault("charts", {})[name] = {**chart, **({"series": series} if series else {})}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, indent=1, ensure_ascii=False)
    flat = re.sub(
        r"\[\n\s+([^\[\]]*?)\n\s+\]", lambda row: "[" + re.sub(r"\n\s*", " ", row[1]) + "]", text
    )
    path.write_text(flat + "\n", "utf-8")  # one line per row of a table


def show(path: Path | None, name: str, table: Table, *, seeds: Sequence[int] = ()) -> None:
    """Print a table, and write it to `path`, unless that is None."""
    print(table.to_markdown(), flush=True)
    write(path, {name: table}, seeds=seeds)
