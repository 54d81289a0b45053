"""The figures that a benchmark stands for, printed and, for run_all.py, written down."""

import json
import os
from pathlib import Path

FILE = "POLYEMBED_RATIOS"
"""The environment variable that names the file."""


def note(name: str, value: float, *, steady: bool = True) -> None:
    """Print one ratio of figures that were measured in this run; add it to the file if there is
    one.

    A ratio to something that takes no time, such as a look-up, is not steady: run_all.py compares
    it with nothing.
    """
    print(f"{name}: {value:.3g}", flush=True)
    if path := os.environ.get(FILE):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps([name, value, steady]) + "\n")
