"""How fast are the searches of an alignment, and what memory do they take?

    python benchmarks/alignment.py [--device cuda] [--words 50000] [--runs 5]
    python benchmarks/alignment.py --memory 200000  # one search of two whole vocabularies: minutes

The vectors are random, because the amount of work does not depend on their values. CSLS needs three
products of all words with all words: one for the neighbourhoods of each language, and one for the
search. The unit is therefore the time of three such products alone. They use the same blocks, and
they are timed in turns with CSLS. The memory is the peak of one search above the vectors
themselves, measured in a separate process.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from _memory import memory_option, peak_mb, processes
from _ratios import note
from _results import option, show

from polyembed.functional import length_normalize, nearest_csls, procrustes
from polyembed.functional.neighbors import CPU_BLOCK, DEVICE_BLOCK
from polyembed.tables import Table

DIM = 300
PAIRS = 5000


def vectors(words: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(words, DIM, device=device), torch.randn(words, DIM, device=device)


def bare_products(x: torch.Tensor, y: torch.Tensor) -> None:
    """Multiply all rows with all rows three times, in the same blocks as the search."""
    length = max(1, (CPU_BLOCK if x.device.type == "cpu" else DEVICE_BLOCK) // len(y))
    block = x.new_empty(length, len(y))
    for _ in range(3):
        for start in range(0, len(x), length):
            part = x[start : start + length]
            torch.mm(part, y.mT, out=block[: len(part)])


def seconds(call: Callable[[], object], device: torch.device) -> float:
    start = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def in_turns(
    calls: dict[str, Callable[[], object]], runs: int, device: torch.device
) -> dict[str, list[float]]:
    """Return the seconds of each call; each of `runs` rounds times every call once."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(runs):
        for name, call in calls.items():
            times[name].append(seconds(call, device))
    return times


def peak(words: int, device: str) -> float:
    """Return the peak memory of a search above the vectors, in MB."""
    place = torch.device(device)
    x, y = vectors(words, place)
    procrustes(x[:PAIRS], y[:PAIRS])  # the first calls load libraries
    nearest_csls(x[:100], y[:100])
    return peak_mb(lambda: nearest_csls(x, y), device)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--words", type=int, default=50_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--memory", type=int, metavar="WORDS", help="measure only the memory, with this many words"
    )
    memory_option(parser)
    option(parser)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    words = arguments.memory or arguments.words
    with processes(arguments.device, skip=arguments.no_memory) as alone:
        megabytes = alone(peak, (words, arguments.device))
    print(f"CSLS, {words:,} x {words:,} words: {megabytes:.0f} MB above the vectors", flush=True)
    if arguments.memory:
        return
    x, y = (length_normalize(rows) for rows in vectors(arguments.words, device))
    found, (sample, _) = nearest_csls(x[:50], y, space=x), (x[:50], y)
    similarity = sample @ y.mT  # checks the results before anything is timed
    near_y = torch.cat([(part @ x.mT).topk(10, 1).values.mean(1) for part in y.split(1000)])
    expected = 2 * similarity - similarity.topk(10, 1).values.mean(1)[:, None] - near_y
    torch.testing.assert_close(found.scores[:, 0], expected.amax(1), rtol=0, atol=1e-5)
    calls: dict[str, Callable[[], object]] = {
        "three bare products": lambda: bare_products(x, y),
        "nearest_csls": lambda: nearest_csls(x, y),
        f"procrustes, {PAIRS:,} pairs": lambda: procrustes(x[:PAIRS], y[:PAIRS]),
    }
    times = in_turns(calls, arguments.runs, device)
    unit = times["three bare products"]
    rows = []
    for name, found_times in times.items():
        ratio = statistics.median(time / base for time, base in zip(found_times, unit, strict=True))
        rows.append(
            (name, statistics.median(found_times), min(found_times), max(found_times), ratio)
        )
    columns = (
        f"{arguments.words:,} x {arguments.words:,} words, {DIM}-d",
        "median s",
        "min",
        "max",
        "ratio",
    )
    show(arguments.json, "main", Table(columns, rows, digits=3))
    print()
    note("nearest_csls over three bare products", rows[1][-1])


if __name__ == "__main__":
    main()
