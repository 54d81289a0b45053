"""How much memory does a call need? For a process that measures this alone."""

import re
from collections.abc import Callable
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


def resident_mb(field: str) -> float:
    """Read a size of this process that Linux counts, such as VmRSS, RssAnon (its own memory) and RssFile, in MB."""
    found = re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found.group(1)) / 1024 if found else float("nan")
