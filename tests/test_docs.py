"""Every published example runs: the doctests of the package and the Python blocks of the pages."""

import doctest
import importlib
import inspect
import json
import pkgutil
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import polyembed
from polyembed.tables import Table, mean_and_deviation

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
REFERENCE = ROOT / "docs" / "api"
RESULTS = sorted(
    path for path in (ROOT / "docs" / "results").glob("*.json") if path.name != "schema.json"
)
# pages with constants of papers and versions of packages, which are not results
OTHER_FIGURES = {"fidelity.md", "compatibility.md"}
FIRST = [ROOT / name for name in ("README.md", "docs/index.md", "docs/results.md")]
GUIDES = [
    page
    for page in PAGES
    if page.parent.name not in ("results", "api") and page.name not in OTHER_FIGURES
]
WHY_NOT_RUN = {
    "docs/serving.md": ["a GPU"],
    "docs/alignment.md": ["files of several GB"],
    "docs/coming_from/laser.md": ["a download"],
    "docs/encoders.md": ["a download"],
    "docs/export.md": ["the extra onnx"],
    "docs/hub.md": ["a login on a hub"],
    "docs/laser.md": ["a download", "hours of pretraining"],
    "docs/metaxl.md": ["several GPUs"],
    "docs/trainers.md": ["peft and a download"],
    "docs/vectors.md": ["downloads"],
}


MODULES = [module.name for module in pkgutil.walk_packages(polyembed.__path__, "polyembed.")]


@pytest.mark.parametrize("name", ["polyembed", *MODULES, "seed_tests"])
def test_docstring_examples_run(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    module = importlib.import_module(name)
    import numpy as np
    import torch
    from torch import nn

    names = {"torch": torch, "np": np, "nn": nn, **vars(module)}
    failed, _ = doctest.testmod(
        module, extraglobs=names, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    assert failed == 0


BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run the blocks of a page one after the other, in an empty folder.

    Blocks that begin with ```python notest``` are left out.
    """
    text = page.read_text("utf-8")
    if page == ROOT / "docs" / "index.md":  # the README's code, which runs there
        assert BLOCK.findall(text) == BLOCK.findall((ROOT / "README.md").read_text("utf-8"))
        return
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in BLOCK.finditer(text):
        line = text[: block.start()].count("\n") + 1
        exec(compile("\n" * line + block[1], str(page), "exec"), names)


def test_what_does_not_run_needs_what_is_not_here():
    """The table `WHY_NOT_RUN` has one reason for each ```python notest``` block of a page."""
    pattern = re.compile(r"^ *```python (\w+)", re.MULTILINE)
    fences = {
        str(page.relative_to(ROOT)): pattern.findall(page.read_text("utf-8")) for page in PAGES
    }
    assert {page: len(found) for page, found in fences.items() if found} == {
        page: len(reasons) for page, reasons in WHY_NOT_RUN.items()
    }


@pytest.fixture(scope="module")
def results() -> ModuleType:
    """Import the extension for tables and charts, as Sphinx does."""
    pytest.importorskip("sphinx")
    sys.path.insert(0, str(ROOT / "docs" / "_ext"))
    try:
        return importlib.import_module("results")
    finally:
        sys.path.pop(0)


def overhang(canvas: Any) -> list[str]:
    """Return the texts outside the box of a drawing, and the overlaps of neighbouring ticks."""
    figure, renderer = canvas.figure, canvas.get_renderer()
    box = figure.bbox.padded(1)
    found = []
    for ax in filter(lambda ax: ax.get_visible(), figure.axes):
        legend = ax.get_legend()
        titles = [ax.title, ax._right_title]
        texts = [*titles, ax.xaxis.label, ax.yaxis.label, *(legend.get_texts() if legend else [])]
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            labels = [tick.label1 for tick in ticks if tick.label1.get_text()]
            texts += labels
            boxes = [label.get_window_extent(renderer) for label in labels]
            for label, one, other in zip(labels[1:], boxes, boxes[1:], strict=False):
                if one.padded(-1).overlaps(other.padded(-1)):
                    found.append(f"overlap at {label.get_text()}")
        for text in (text for text in texts if text.get_text()):
            extent = text.get_window_extent(renderer)
            if not all(box.contains(*corner) for corner in extent.corners()):
                found.append(text.get_text())
    return found


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_results_are_well_formed_and_drawn(
    results: ModuleType, path: Path, monkeypatch: pytest.MonkeyPatch
):
    backend = importlib.import_module("matplotlib.backends.backend_svg").FigureCanvasSVG
    draw, cut = backend.print_svg, []

    def measured(canvas, *args, **options):
        found = draw(canvas, *args, **options)
        cut.extend(overhang(backend_agg(canvas.figure)))
        return found

    backend_agg = importlib.import_module("matplotlib.backends.backend_agg").FigureCanvasAgg
    monkeypatch.setattr(backend, "print_svg", measured)
    data = results.load(path)  # loading checks the schema
    for table in data["tables"].values():
        assert results.write_table(table).count("\n") == len(table["rows"]) + 1
    for chart in data.get("charts", {}).values():
        picture = results.as_figure(chart, data["tables"])
        assert "currentColor" in picture
        assert results.INK not in picture
    assert cut == []


def test_every_result_is_shown():
    pages = "".join(page.read_text("utf-8") for page in PAGES)
    shown = set(re.findall(r"^```\{results\} (\w+)$", pages, re.MULTILINE))
    assert shown == {path.stem for path in RESULTS}


def test_the_chart_of_the_readme_is_of_the_data():
    pytest.importorskip("sphinx")
    found = runpy.run_path(str(ROOT / "docs" / "draw_quality.py"))
    assert found["mark"]() in found["PATH"].read_text("utf-8"), (
        "python docs/draw_quality.py draws it anew"
    )


def test_a_benchmark_writes_what_the_pages_show(
    results: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    path = tmp_path / "crf.json"
    written = importlib.import_module("_results")
    monkeypatch.setattr(sys, "argv", ["/any/crf.py", "--runs", "3", "--json", str(path)])
    rows = [("MME", mean_and_deviation([0.5, 0.7]), "1,234"), ("HME", None, "0.5 (n)")]
    table = Table(("system", "F1", "words/s"), rows)
    written.show(path, "main", table, seeds=range(2))
    assert capsys.readouterr().out == table.to_markdown() + "\n"
    data = json.loads(path.read_text("utf-8"))
    assert (data["command"], data["seeds"]) == ("python benchmarks/crf.py --runs 3", [0, 1])
    data["tables"]["main"]["caption"] = "Kept"
    path.write_text(json.dumps(data), "utf-8")
    series = [{"label": "HME", "x": [100, 300], "y": [mean_and_deviation([0.5, 0.6]), 0.7]}]
    written.write(
        path,
        {"main": table},
        charts={"curve": {"kind": "lines", "caption": "See.", "series": series}},
    )
    data = results.load(path)
    assert data["tables"]["main"]["caption"] == "Kept"
    assert results.write_table(data["tables"]["main"]).splitlines()[2:] == [
        "| MME | 0.60 ± 0.14 | 1,234 |",
        "| HME |  | 0.5 (n) |",
    ]
    assert "<figcaption>See.</figcaption>" in results.as_figure(
        data["charts"]["curve"], data["tables"]
    )


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_figures_stand_in_the_results(results: ModuleType, page: Path):
    """The measured figures in the README and in the guides occur in the results.

    The test reads numbers with two decimals or more and, on the first pages, with one or more.
    """
    prose = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"`[^`]*`|\$[^$]*\$|\b\d{4}\.\d{5}\b|Python 3\.\d+", "", prose)
    first = page in FIRST
    figures = re.findall(
        r"(?<![\d.])\d+\.\d+(?![\d.])" if first else r"(?<![\d.])\d+\.\d{2,}(?![\d.])", prose
    )
    known = set().union(*map(results.numbers, RESULTS))
    assert not first or len(figures) > 2
    assert [figure for figure in figures if figure not in known] == []


PACKAGES = [module.name for module in pkgutil.iter_modules(polyembed.__path__)]


@pytest.mark.parametrize("name", [name for name in PACKAGES if not name.startswith("_")])
def test_the_reference_has_every_public_name(name: str):
    """Each page includes all of `__all__`, and describes names without a docstring by hand."""
    page = (REFERENCE / f"{name}.md").read_text("utf-8")
    assert f".. automodule:: polyembed.{name}\n" in page
    assert f".. public-names:: polyembed.{name}\n" in page
    assert f"\n{name}\n" in (REFERENCE / "index.md").read_text("utf-8")
    module = importlib.import_module(f"polyembed.{name}")
    for public in getattr(module, "__all__", []):
        value = getattr(module, public)
        documented = inspect.isclass(value) or inspect.isroutine(value)
        here = f"\n{public} = " in inspect.getsource(module)  # a constant with a docstring below it
        assert documented or here or f"{public}\n" in page, (
            f"{public} is not described in docs/api/{name}.md"
        )
