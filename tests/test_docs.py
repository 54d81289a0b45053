"""Every example that a reader can see runs: doctests of the package, Python blocks of the pages."""

import doctest
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import polyembed

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
REFERENCE = ROOT / "docs" / "api"
WHY_NOT_RUN = {
    "docs/serving.md": ["a GPU"],
    "docs/alignment.md": ["files of several GB"],
    "docs/coming_from/laser.md": ["a download"],
    "docs/encoders.md": ["a download"],
    "docs/ensembles.md": ["processes that import the script"],
    "docs/export.md": ["the extra onnx"],
    "docs/hub.md": ["a login on a hub"],
    "docs/laser.md": ["a download", "hours of pretraining"],
    "docs/metaxl.md": ["several GPUs"],
    "docs/trainers.md": ["lightning-fabric", "peft and a download"],
    "docs/vectors.md": ["downloads"],
}


def modules() -> Iterator[str]:
    yield "polyembed"
    for module in pkgutil.walk_packages(polyembed.__path__, "polyembed."):
        yield module.name


@pytest.mark.parametrize("name", list(modules()))
def test_docstring_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    import numpy as np
    import torch
    from torch import nn

    names = {"torch": torch, "np": np, "nn": nn, **vars(module)}
    failed, _ = doctest.testmod(module, extraglobs=names, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one page run one after the other, in an empty folder; ```python notest``` are left out."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in re.finditer(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        line = page.read_text("utf-8")[: block.start()].count("\n") + 1
        exec(compile("\n" * line + block[1], str(page), "exec"), names)


def test_what_does_not_run_needs_what_is_not_here() -> None:
    """A new ```python notest`` block says why in the table above; an old one that is gone leaves it."""
    pattern = re.compile(r"^ *```python (\w+)", re.MULTILINE)
    fences = {str(page.relative_to(ROOT)): pattern.findall(page.read_text("utf-8")) for page in PAGES}
    assert {page: len(found) for page, found in fences.items() if found} == {
        page: len(reasons) for page, reasons in WHY_NOT_RUN.items()
    }


@pytest.mark.parametrize("page", ["index.md", "choose.md"])
def test_figures_stand_in_the_results(page: str) -> None:
    """What the first pages promise was measured: each number with a decimal point stands there too."""
    prose = re.sub(r"^```.*?^```$", "", (ROOT / "docs" / page).read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    results = set(re.findall(r"\d+\.\d+", (ROOT / "docs" / "results.md").read_text("utf-8")))
    figures = re.findall(r"(?<![\d.])\d+\.\d+", prose)
    assert len(figures) > 5
    assert [figure for figure in figures if figure not in results] == []


def packages() -> Iterator[str]:
    yield from (module.name for module in pkgutil.iter_modules(polyembed.__path__) if not module.name.startswith("_"))


@pytest.mark.parametrize("name", list(packages()))
def test_the_reference_has_every_public_name(name: str) -> None:
    """A page takes the whole of `__all__`; what has no docstring to take is described on the page by hand."""
    page = (REFERENCE / f"{name}.md").read_text("utf-8")
    assert f".. automodule:: polyembed.{name}\n" in page
    assert f".. public-names:: polyembed.{name}\n" in page
    assert f"\n{name}\n" in (REFERENCE / "index.md").read_text("utf-8")
    module = importlib.import_module(f"polyembed.{name}")
    for public in getattr(module, "__all__", []):
        value = getattr(module, public)
        documented = inspect.isclass(value) or inspect.isroutine(value)
        here = f"\n{public} = " in inspect.getsource(module)  # a constant with a docstring below it
        assert documented or here or f"{public}\n" in page, f"{public} is not described in docs/api/{name}.md"


def test_every_name_at_the_top_belongs_to_a_package() -> None:
    modules = [importlib.import_module(f"polyembed.{name}") for name in packages()]
    names = {public for module in modules for public in getattr(module, "__all__", [])}
    assert set(polyembed.__all__) - names == {"__version__"}
