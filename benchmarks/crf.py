"""How fast is `polyembed.CRF` beside `torchcrf.CRF`? Loss with its gradient, and decoding, in one
run.

    python benchmarks/crf.py [--device cuda] [--runs 9]

The emissions are random and all words are valid. This is the most work for both modules, and
torchcrf's masks may have no holes. Both must compute the same numbers before anything is timed.
Times are medians of calls in turns, and an untimed call precedes each timed call. Peak memory is
the peak of one call in a separate process, above the memory before the call. "Sharp" emissions have
a standard deviation of 100 instead of 1. Probabilities cannot represent their range, so sums are
computed in logs. "Constrained" is polyembed's CRF with BIO constraints.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable

import torch
import torchcrf
from _memory import memory_option, peak_mb, processes
from _ratios import note
from _results import option, show

import polyembed as pe
from polyembed.tables import Table

SHAPES = ((32, 64, 9), (32, 512, 9), (8, 512, 18))


def make_calls(
    shape: tuple[int, int, int],
    device: torch.device,
    *,
    deviation: float = 1.0,
    constrained: bool = False,
    check: bool = True,
) -> dict[str, Callable[[], object]]:
    """Build the calls of both modules on the same numbers, and check that they agree."""
    batch, words, num_tags = shape
    torch.manual_seed(0)
    names = [
        "O",
        *(f"{prefix}-{kind}" for kind in range(num_tags // 2) for prefix in "BI"),
        "B-rest",
    ][:num_tags]
    theirs = torchcrf.CRF(num_tags, batch_first=True).to(device)
    ours = pe.CRF(num_tags, constraints=pe.Constraints.bio(names) if constrained else None).to(
        device
    )
    ours.load_state_dict(theirs.state_dict())
    emissions = (deviation * torch.randn(batch, words, num_tags, device=device)).requires_grad_()
    tags = torch.randint(num_tags, (batch, words), device=device)
    mask = torch.ones(batch, words, dtype=torch.bool, device=device)
    if constrained:
        tags = ours.decode_tensor(emissions, mask)
    elif check:
        torch.testing.assert_close(
            ours(emissions, tags, mask), theirs(emissions, tags, mask), rtol=1e-4, atol=1e-2
        )
        alike = [
            one == other
            for one, other in zip(
                ours.decode(emissions), theirs.decode(emissions, mask), strict=True
            )
        ]
        assert sum(alike) >= 0.9 * batch, "float32 lets near ties fall either way, but not so many"

    def loss(crf: torchcrf.CRF) -> Callable[[], object]:
        def call() -> None:
            crf.zero_grad()
            emissions.grad = None
            (-crf(emissions, tags, mask, reduction="mean")).backward()

        return call

    scores = emissions.detach()
    return {
        "loss torchcrf": loss(theirs),
        "loss polyembed": loss(ours),
        "decode torchcrf": lambda: theirs.decode(scores, mask),
        "decode polyembed": lambda: ours.decode(scores, mask),
        "decode_tensor polyembed": lambda: ours.decode_tensor(scores, mask),
    }


def time_ms(
    calls: dict[str, Callable[[], object]], device: torch.device, runs: int
) -> dict[str, float]:
    """Return the median time of each call in ms.

    The calls take turns, so that other load affects them all. An untimed call precedes each timed
    call, so that its memory is warm.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(runs + 1):
        for name, call in calls.items():
            call()
            if device.type == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            if device.type == "cuda":
                torch.cuda.synchronize()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def peak_memory_mb(name: str, shape: tuple[int, int, int], device: str) -> float:
    """Return the peak memory of one call in MB, after a small call as a warm-up."""
    call = make_calls(shape, torch.device(device), check=False)[
        name
    ]  # a check would warm up the memory
    make_calls((2, 3, 3), torch.device(device), check=False)[name]()
    return peak_mb(call, device)


def parse_shape(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument(
        "--shapes", nargs="+", type=parse_shape, default=SHAPES, metavar="BATCHxWORDSxTAGS"
    )
    memory_option(parser)
    option(parser)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    rows: list[tuple[str | float | None, ...]] = []
    with processes(arguments.device, skip=arguments.no_memory) as alone:
        for shape in arguments.shapes:
            ms = time_ms(make_calls(shape, device), device, arguments.runs)
            size = " x ".join(map(str, shape))
            for what in ("loss", "decode"):
                theirs, ours = f"{what} torchcrf", f"{what} polyembed"
                memory = [
                    alone(peak_memory_mb, (name, shape, arguments.device))
                    for name in (theirs, ours)
                ]
                rows.append((what, size, ms[theirs], ms[ours], ms[theirs] / ms[ours], *memory))
            if shape == arguments.shapes[-1]:
                for name, options in (
                    ("sharp", {"deviation": 100.0}),
                    ("constrained", {"constrained": True}),
                ):
                    calls = make_calls(shape, device, **options)
                    other = time_ms(calls, device, arguments.runs)
                    for what in ("loss", "decode"):
                        theirs, ours = other[f"{what} torchcrf"], other[f"{what} polyembed"]
                        rows.append(
                            (f"{what}, {name}", size, theirs, ours, theirs / ours, None, None)
                        )
            tensor = ms["decode_tensor polyembed"]
            rows.append(
                ("decode_tensor", size, None, tensor, ms["decode torchcrf"] / tensor, None, None)
            )
    where = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"{os.cpu_count()} CPU cores"
    )
    print(f"torch {torch.__version__}, {where}, {torch.get_num_threads()} threads\n")
    columns = (
        "what",
        "batch x words x tags",
        "torchcrf, ms",
        "ours, ms",
        "times faster",
        "torchcrf, MB",
        "ours, MB",
    )
    show(arguments.json, "main", Table(columns, rows, digits=1))
    print()
    for what, size, _, _, faster, *_ in rows:
        if what in ("loss", "decode", "decode_tensor"):
            note(f"torchcrf over polyembed, {what}, {size}", float(faster or 0.0))


if __name__ == "__main__":
    main()
