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
    """Return the peak memory of a call above the memory before it, in MB.

    On a GPU it is the allocated memory, on a CPU the resident set of the process (Linux only).
    """
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = resident_mb("VmRSS")
    call()
    return resident_mb("VmHWM") - before


def memory_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--no-memory``."""
    parser.add_argument(
        "--no-memory",
        action="store_true",
        help="measure only the time; each memory figure needs a separate process",
    )


@contextmanager
def processes(device: object, *, skip: bool = False) -> Iterator[Callable[..., float]]:
    """Yield a callable that runs a function with a tuple of arguments in a separate process.

    On a GPU it runs the function in this process, because the allocator's peak can be reset. With
    `skip` it returns NaN and does not run the function.
    """
    if skip or str(device).startswith("cuda"):
        yield lambda function, arguments: math.nan if skip else function(*arguments)
        return
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        yield pool.apply


def resident_mb(field: str) -> float:
    """Return a memory size of this process in MB, by its field in ``/proc/self/status``.

    Such fields are VmRSS (resident memory), RssAnon (the process's own memory) and RssFile.
    """
    found = re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found.group(1)) / 1024 if found else float("nan")
