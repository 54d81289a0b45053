"""Fixtures for every test: the data folder and a fixed random state."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
# compiling UMAP takes a minute, even for ten points
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")


def find_data_folder() -> Path | None:
    """Return the folder of real data, `$POLYEMBED_DATA` or else `../shared/data`, if it exists."""
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
    """Close the figures of a test and restore the progress bars of transformers.

    Many open figures raise a warning, and examples switch the progress bars off.
    """
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
    if verbosity := sys.modules.get("transformers.utils.logging"):
        verbosity.enable_progress_bar()
