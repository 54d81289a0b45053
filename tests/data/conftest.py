"""A fixture that writes a file with a given content."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes a text into one file and returns its path."""
    path = tmp_path / "file"

    def write(text):
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        return path

    return write
