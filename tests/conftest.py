"""What every test may ask for: the data folder, and a fixed random state."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")  # UMAP of ten points, which compiles for a minute


def find_data_folder() -> Path | None:
    """Find the real data: `$POLYEMBED_DATA`, else `../shared/data` beside the repository."""
    folder = Path(os.environ.get("POLYEMBED_DATA") or ROOT.parent / "shared" / "data")
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def data_folder() -> Path:
    folder = find_data_folder()
    if folder is None:
        pytest.skip("no real data: set POLYEMBED_DATA, or lay it in ../shared/data")
    return folder


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Close what a test has drawn, as many open figures are a warning; undo what examples tell transformers."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
    if verbosity := sys.modules.get("transformers.utils.logging"):
        verbosity.enable_progress_bar()
