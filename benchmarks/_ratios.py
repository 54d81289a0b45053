"""The main ratios of a benchmark, printed, and written to a file for run_all.py."""

import json
import os
from pathlib import Path

FILE = "POLYEMBED_RATIOS"
"""The environment variable with the path of the file."""


def note(name: str, value: float, *, steady: bool = True) -> None:
    """Print a ratio of two figures from this run, and append it to the file if there is one.

    A ratio to something that takes almost no time, such as a look-up, is not steady. run_all.py
    does not compare such a ratio with the recorded one.
    """
    print(f"{name}: {value:.3g}", flush=True)
    if path := os.environ.get(FILE):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps([name, value, steady]) + "\n")
