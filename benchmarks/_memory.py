"""How much memory does a call need? For a process that measures this alone."""

import argparse
import math
import multiprocessing
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch


def peak_mb(call: Callable[[], object], device: str) -> float:
    """Measure a call's peak above what was held before, in MB: on a CPU the resident set's (Linux)."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = resident_mb("VmRSS")
    call()
    return resident_mb("VmHWM") - before


def memory_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--no-memory``."""
    parser.add_argument(
        "--no-memory", action="store_true", help="time alone; memory takes a process a figure"
    )


@contextmanager
def processes(device: object, *, skip: bool = False) -> Iterator[Callable[..., float]]:
    """Give what calls a function with a tuple of arguments in a process of its own; NaN if skipped.

    On a GPU it is this process, as the allocator's peak can be forgotten.
    """
    if skip or str(device).startswith("cuda"):
        yield lambda function, arguments: math.nan if skip else function(*arguments)
        return
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        yield pool.apply


def resident_mb(field: str) -> float:
    """Read a size of this process that Linux counts, such as VmRSS, RssAnon (its own memory) and RssFile, in MB."""
    found = re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found.group(1)) / 1024 if found else float("nan")
