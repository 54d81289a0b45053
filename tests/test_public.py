"""The public surface: its names, the laws on its modules, and the cost of its import."""

import ast
import importlib
import inspect
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import public_names
import pytest
from cases import CASES
from torch import nn

import polyembed

LIGHT = {"polyembed", "jaxtyping", "numpy", "torchcrf"}
"""Packages that may be imported besides torch, the imports of torch, and the standard library."""


def test_type_checkers_see_the_names_that_are_loaded():
    tree = ast.parse(Path(str(polyembed.__file__)).with_suffix(".pyi").read_text("utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname: node.module for node in imports for alias in node.names}
    rooms = {name for name, room in seen.items() if room is None}
    assert {*seen} - rooms == set(polyembed.__all__)
    for name in seen.keys() - rooms:
        room = importlib.import_module(f"polyembed.{seen[name]}")
        assert getattr(polyembed, name) is getattr(room, name)
    assert set(polyembed.__all__) <= set(dir(polyembed))
    with pytest.raises(AttributeError, match=r"^module 'polyembed' has no attribute 'nothing'$"):
        _ = polyembed.nothing


def test_names_and_signatures_are_those_written_down():
    """The file of names and signatures shows changes of the public surface in a review.

    The command is python tests/public_names.py > tests/public_names.txt.
    """
    written = Path(__file__).with_name("public_names.txt").read_text("utf-8").splitlines()
    assert list(public_names.describe()) == written


def test_the_version_is_the_same_everywhere():
    root = Path(__file__).resolve().parents[1]
    assert f"\nversion: {polyembed.__version__}\n" in (root / "CITATION.cff").read_text("utf-8")
    assert version("polyembed") == polyembed.__version__


def test_every_public_module_is_under_the_laws():
    """This includes modules in subpackages. The members of a family cover its base class."""
    public = [
        getattr(family, name)
        for family in public_names.FAMILIES
        for name in getattr(family, "__all__", ())
    ]
    public += [getattr(polyembed, name) for name in polyembed.__all__]
    modules = {cls for cls in public if inspect.isclass(cls) and issubclass(cls, nn.Module)}
    covered = {base for case in CASES for base in type(case.build()).__mro__}
    missing = sorted(cls.__name__ for cls in modules - covered)
    assert not missing, f"add a case to cases.py for each of {missing}"


def imported_with_the_package() -> list[str]:
    """List the modules that the package imports in a new process in addition to torch."""
    program = (
        # torch itself imports some modules
        "import sys, torch; before = set(sys.modules); import polyembed; "
        "print(*sorted(set(sys.modules) - before))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return result.stdout.split()


def test_importing_loads_nothing_heavy():
    """The names exclude new packages, and the number limits the growth of the known packages."""
    modules = imported_with_the_package()
    packages = {name.split(".")[0] for name in modules}
    known = LIGHT | set(sys.stdlib_module_names)
    assert packages - known == set()
    others = [name for name in modules if not name.startswith("polyembed")]
    assert len(others) <= 20, others
