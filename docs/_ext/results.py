"""Tables and charts of docs/results/*.json: ``{results} crf`` in a page shows what a benchmark
wrote.

`docs/results/schema.json` says what such a file holds; `benchmarks/_results.py` writes it. Without
an option the directive shows the charts, the tables and the run; ``:table:``, ``:chart:`` and
``:run:`` choose one.
"""

import html
import io
import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import jsonschema
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

FOLDER = Path(__file__).resolve().parents[1] / "results"
# medium tones that the colour-blind can tell apart, on white and on black
COLORS = (
    "#2f7fd1",
    "#d9731a",
    "#1f9d73",
    "#b65fc4",
    "#c9a100",
    "#d0505a",
    "#6f8796",
    "#8b6fd8",
    "#55a630",
    "#a0785a",
)
MARKERS = "osD^vPX*hd"
INK = "#000001"
"""The colour of text and axes, replaced by the page's own."""


@cache
def load(path: Path) -> dict[str, Any]:
    """Read a file of results, and check it against the schema."""
    data = json.loads(path.read_text("utf-8"))
    jsonschema.validate(data, json.loads((FOLDER / "schema.json").read_text("utf-8")))
    for name, table in data["tables"].items():
        if any(len(row) != len(table["columns"]) for row in table["rows"]):
            raise ValueError(f"{path}: table {name} must have one cell a column in each row")
        check_correction(f"{path}: table {name}", table)
    return data


def check_correction(name: str, table: dict[str, Any]) -> None:
    """Check p-values after Holm's correction: how many there are, and what they are.

    Caption or column say the number of tests after the word Holm. Where the table has the
    uncorrected p-values too, the correction is computed again from them.
    """
    columns = table["columns"]
    stated = re.search(r"Holm\D+(\d+)", "; ".join([table.get("caption", ""), *columns]))
    corrected = [i for i, column in enumerate(columns) if "Holm" in column]
    plain = [i for i, x in enumerate(columns) if re.search(r"\bp\b", x) and i not in corrected]
    if stated:
        places = corrected or plain or range(1, len(columns))
        found = sum(mean_of(row[i]) is not None for row in table["rows"] for i in places)
        if found != int(stated[1]):
            raise ValueError(f"{name} must have {stated[1]} p-values after Holm, got {found}")
    if corrected and plain:
        pairs = [(mean_of(row[plain[-1]]), mean_of(row[corrected[0]])) for row in table["rows"]]
        tests = sorted(pair for pair in pairs if None not in pair)
        least = 0.0
        for rank, (p, holm) in enumerate(tests):
            least = min(1.0, max(least, (len(tests) - rank) * p))
            if abs(holm - least) > (len(tests) - rank) * 5e-5 + 5e-5:  # both are rounded
                raise ValueError(f"{name} must have {least:.4f} for p = {p} after Holm, got {holm}")


def files() -> list[Path]:
    """List the files of results."""
    return sorted(path for path in FOLDER.glob("*.json") if path.name != "schema.json")


def write_cell(cell: Any, digits: int = 2) -> str:
    """Write a cell as the tables show it.

    A number has its digits, deviation and remark, and the best one is bold.
    """
    if cell is None:
        return ""
    if not isinstance(cell, dict):
        cell = {"mean": cell} if isinstance(cell, (int, float)) else {"text": cell}
    if "text" in cell:
        text = cell["text"]
    else:
        form = ",d" if isinstance(cell["mean"], int) else f",.{cell.get('digits', digits)}f"
        text = " ± ".join(
            format(cell[key], form) for key in ("mean", "deviation") if cell.get(key) is not None
        )
    text = f"**{text}**" if cell.get("best") else text
    return f"{text} ({cell['note']})" if "note" in cell else text


def write_table(table: dict[str, Any]) -> str:
    """Write a table in Markdown, with columns of numbers aligned to the right."""
    digits = table.get("digits", 2)
    numeric = [
        all(cell is None or not isinstance(cell, str) for cell in column)
        for column in zip(*table["rows"], strict=True)
    ]
    lines = [table["columns"], ["--:" if right else "---" for right in numeric]]
    lines += [
        [write_cell(cell, digits).replace("|", r"\|") for cell in row] for row in table["rows"]
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_run(data: dict[str, Any]) -> str:
    """Return a sentence with the command, machine and date of the figures."""
    versions = ", ".join(f"{name} {version}" for name, version in data.get("versions", {}).items())
    seeds = data.get("seeds", [])
    said = [
        f"Measured by `{data['command']}`",
        data["machine"],
        versions,
        f"seed{'s' * (len(seeds) > 1)} " + ", ".join(map(str, seeds)) if seeds else "",
        data["date"] + " (first committed: the run is older than its file)" * ("dated" in data),
    ]
    note = f" {data['note']}" if data.get("note") else ""
    return "; ".join(part for part in said if part) + "." + note


def numbers(path: Path) -> set[str]:
    """Return all numbers with a decimal point of a file, as its tables and its run write them."""
    data = load(path)
    texts = [write_run(data)]
    for table in data["tables"].values():
        texts += [table.get("caption", ""), *map(str, table["columns"])]
        texts += [write_cell(cell, table.get("digits", 2)) for row in table["rows"] for cell in row]
    return set(re.findall(r"\d+\.\d+", " ".join(texts).replace(",", "")))


def mean_of(cell: Any) -> float | None:
    """Return the number of a cell, or None if it is not a number."""
    cell = cell.get("mean") if isinstance(cell, dict) else cell
    return cell if isinstance(cell, (int, float)) else None


def deviation_of(cell: Any) -> float:
    """Return the deviation of a cell, or 0 without one."""
    return (cell.get("deviation") or 0.0) if isinstance(cell, dict) else 0.0


def series_of(
    chart: dict[str, Any], tables: dict[str, Any]
) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Yield each series of a chart: its label, and the places and cells that have a number."""
    if "series" in chart:
        found = [(one["label"], one["x"], one["y"]) for one in chart["series"]]
    else:
        table = tables[chart["table"]]
        names, rows = table["columns"], table["rows"]
        rows = [row for row in rows if row[0] in chart["rows"]] if "rows" in chart else rows
        labelled = chart.get("labels", 1)
        labels = [", ".join(str(cell) for cell in row[:labelled]) for row in rows]
        chosen = [names.index(name) for name in chart.get("columns", names[labelled:])]
        if chart.get("by") == "columns":
            found = [(names[i], labels, [row[i] for row in rows]) for i in chosen]
        else:
            places = [names[i] for i in chosen]
            found = [
                (label, places, [row[i] for i in chosen])
                for label, row in zip(labels, rows, strict=True)
            ]
    for label, places, cells in found:
        kept = [
            (x, cell) for x, cell in zip(places, cells, strict=True) if mean_of(cell) is not None
        ]
        yield label, [x for x, _ in kept], [cell for _, cell in kept]


def place_of(text: Any) -> float:
    """Read a place on an axis of numbers, such as 1,024 or 10 %."""
    return float(str(text).replace(",", "").rstrip(" %"))


def draw_lines(
    ax: Any, chart: dict[str, Any], series: list[tuple[str, list[Any], list[Any]]]
) -> None:
    """Draw a line for each series, with its deviation as a band."""
    for index, (label, places, cells) in enumerate(series):
        x = [place_of(place) for place in places]
        y = [mean_of(cell) for cell in cells]
        color = COLORS[index % len(COLORS)]
        dashed = {"linestyle": "--"} if label == chart.get("reference") else {}
        ax.plot(
            x,
            y,
            marker=MARKERS[index % len(MARKERS)],
            markersize=4,
            color=color,
            label=label,
            **dashed,
        )
        spread = [deviation_of(cell) for cell in cells]
        if any(spread):
            low, high = ([m + sign * s for m, s in zip(y, spread, strict=True)] for sign in (-1, 1))
            ax.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)
    if chart.get("x", {}).get("log"):
        ax.set_xscale("log")
        ticks = sorted({place_of(place) for _, places, _ in series for place in places})
        ax.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
        ax.minorticks_off()
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), labelcolor=INK)


def draw_marks(
    ax: Any, chart: dict[str, Any], one: tuple[str, list[Any], list[Any]], color: str
) -> None:
    """Draw a bar or a dot for each place, with its deviation.

    The reference is also drawn as a dashed line.
    """
    _, places, cells = one
    values = [mean_of(cell) for cell in cells]
    spread = [deviation_of(cell) for cell in cells]
    reference = chart.get("reference")
    colors = ["#8a8f98" if place == reference else color for place in places]
    if chart["kind"] == "bars":
        ax.barh(
            places,
            values,
            xerr=[s or None for s in spread] if any(spread) else None,
            color=colors,
            ecolor=INK,
        )
    else:
        for place, value, deviation, tone in zip(places, values, spread, colors, strict=True):
            ax.errorbar(
                [value],
                [place],
                xerr=[deviation] if deviation else None,
                fmt="o",
                color=tone,
                capsize=3,
            )
    for place, value in zip(places, values, strict=True):
        if place == reference:
            ax.axvline(value, linestyle="--", linewidth=1, color="#8a8f98")
    ax.margins(x=0.08, y=0.6 / (len(places) + 1))
    ax.invert_yaxis()
    if not chart.get("x", {}).get("log"):
        ax.locator_params(axis="x", nbins=4)


def draw(chart: dict[str, Any], tables: dict[str, Any]) -> str:
    """Draw a chart as SVG that keeps its text as text and takes the colour of the page's text."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    series = [one for one in series_of(chart, tables) if one[1]]
    ink = dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
    )
    salt = json.dumps(
        chart, sort_keys=True
    )  # ids inside the SVG differ between the charts of a page, not between runs
    style = {
        **ink,
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        "font.size": 9,
        "font.family": "sans-serif",
    }
    with mpl.rc_context(
        {**mpl.rcParamsDefault, **style, "axes.spines.top": False, "axes.spines.right": False}
    ):
        if chart["kind"] == "lines":
            figure = Figure(figsize=(7, 3.6))
            axes: Sequence[Any] = [figure.subplots()]
            draw_lines(axes[0], chart, series)
        else:
            wide = 2 if len(series) > 1 else 1
            high = -(-len(series) // wide)
            side = "right" if wide > 1 else "center"  # two narrow columns
            most = max(len(places) for _, places, _ in series)
            figure = Figure(figsize=(7, high * (0.9 + 0.26 * most)))
            axes = list(figure.subplots(high, wide, squeeze=False).flat)
            for index, (ax, one) in enumerate(zip(axes, series, strict=False)):
                draw_marks(ax, chart, one, COLORS[0])
                if len(series) > 1 or not chart.get("x", {}).get("label"):
                    ax.set_title(one[0], fontsize=10, color=INK, loc=side)
                if wide > 1 and not chart.get("x", {}).get("log"):
                    ax.locator_params(axis="x", nbins=3)
                if index % wide and one[1] == series[index - 1][1]:
                    ax.set_yticklabels([])
            for ax in axes[len(series) :]:
                ax.set_visible(False)
        for index, ax in enumerate(axes[: len(series)]):
            bottom = index >= len(series) - wide if chart["kind"] != "lines" else True
            ax.set_xlabel(chart.get("x", {}).get("label", "") if bottom else "")
            if chart["kind"] == "lines":
                ax.set_ylabel(chart.get("y", {}).get("label", ""))
            if chart["kind"] != "lines" and chart.get("x", {}).get("log"):
                ax.set_xscale("log")
            if chart.get("y", {}).get("log"):
                ax.set_yscale("log")
            for target in chart.get("targets", []):
                line = ax.axhline if chart["kind"] == "lines" else ax.axvline
                line(target, linestyle=":", linewidth=1.2, color="#d0505a")
            ax.grid(alpha=0.25, axis="both" if chart["kind"] == "lines" else "x")
        figure.patch.set_alpha(0)
        for ax in axes:
            ax.patch.set_alpha(0)
        figure.tight_layout()
        file = io.StringIO()
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None}, bbox_inches_restore=None)
    text = file.getvalue()
    text = re.sub(r"^.*?(?=<svg )", "", text, flags=re.DOTALL)
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    return text.replace(INK, "currentColor")


def as_figure(chart: dict[str, Any], tables: dict[str, Any]) -> str:
    """Return a figure element with the chart and its caption."""
    caption = html.escape(chart["caption"])
    picture = draw(chart, tables).replace("<svg ", f'<svg role="img" aria-label="{caption}" ', 1)
    return f'<figure class="chart">{picture}<figcaption>{caption}</figcaption></figure>'


class Results(SphinxDirective):
    """The directive ``{results} crf``, which shows the content of docs/results/crf.json."""

    required_arguments = 1
    option_spec: ClassVar = {
        "table": directives.unchanged_required,
        "chart": directives.unchanged_required,
        "run": directives.flag,
    }

    def run(self) -> list[nodes.Node]:
        """Return the nodes of the table, the chart or the run."""
        path = FOLDER / f"{self.arguments[0]}.json"
        self.env.note_dependency(str(path))
        self.env.note_dependency(__file__)
        data = load(path)
        options = self.options
        tables = data["tables"] if not options else [options["table"]] if "table" in options else []
        charts = (
            data.get("charts", {})
            if not options
            else [options["chart"]]
            if "chart" in options
            else []
        )
        found: list[nodes.Node] = [
            nodes.raw("", as_figure(data["charts"][name], data["tables"]), format="html")
            for name in charts
        ]
        for name in tables:
            table = data["tables"][name]
            caption = f"*{table['caption']}*\n\n" if table.get("caption") else ""
            found += self.parse_text_to_nodes(caption + write_table(table))
        if not options or "run" in options:
            run = nodes.container(classes=["run"])
            run += self.parse_text_to_nodes(write_run(data))
            found.append(run)
        return found


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive; every build reads the files again."""
    app.add_directive("results", Results)
    app.connect("builder-inited", lambda _: load.cache_clear())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
