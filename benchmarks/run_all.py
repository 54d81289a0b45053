"""Run the benchmarks that need no trained model, and on a GPU also the GPU tests.

    python benchmarks/run_all.py [--size small] [--device cuda] [--only crf.py] [--results FOLDER]
    [--check]

The script prints the tables of each benchmark. It writes one JSON file with the machine, the
versions and the main ratios of each benchmark. If a benchmark fails, the others still run, and the
exit status shows the failure. ``small`` takes two minutes on two cores. Its figures are from small
cases and are not comparable with ``full``. It uses one thread: on small tensors two threads wait
for each other, and a ratio can differ twofold between runs.

``--check`` compares each steady ratio with the one in ``recorded.json`` for this size and kind of
device. The run fails if a ratio is more than double or less than half the recorded one, also in a
second attempt. ``--record`` writes the ratios to ``recorded.json``.
"""

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from _ratios import FILE
from _results import cpu_name

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "recorded.json"
FACTOR = 2.0
PACKAGES = ("torch", "transformers", "numpy")
SMALL = {  # the options of a small run
    "alignment.py": "--words 5000 --runs 3 --no-memory",
    "crf.py": "--shapes 32x64x9 --runs 5 --no-memory",
    "efficiency.py": "--lengths 128 --runs 7 --max-seconds 2 --predict 100 --sentences 2000 "
    "--models HME 'HME, baked'",
    "embedding_speed.py": "--runs 4 --sentences 2000",
    "cached_features.py": "--sentences 16",
    "ensemble_speed.py": "--small --runs 9",
    "fine_tuning.py": "--layers 1 --steps 2 --runs 2",
    "fusion.py": "--shape 2x16 --pooling-shape 8x64 --no-large --no-memory --runs 3",
    "laser.py": "--sentences 16 --runs 3 --hidden-size 192 --threads 1",
    "startup.py": "--size small",
    "metaxl_step.py": "--shapes 2x32 --places 12 --no-memory --runs 5",
}
SCRIPTS: dict[str, dict[str, list[str]]] = {
    name: {"small": shlex.split(options), "full": []} for name, options in SMALL.items()
}


WITHOUT_DEVICE = {"startup.py"}
UNRECORDED = {"startup.py", "cached_features.py", "fine_tuning.py"}
"""Scripts without a steady ratio, which ``--check`` leaves out."""


class Found(NamedTuple):
    """The result of one script.

    Attributes:
        ratios: The ratios by name.
        steady: The names of the steady ratios.
        seconds: The duration of the script.
        good: Whether the script ended without an error.
    """

    ratios: dict[str, float]
    steady: set[str]
    seconds: float
    good: bool


def run(script: str, size: str, device: str, results: Path | None = None) -> Found:
    """Run one script, and return its result."""
    options = SCRIPTS[script][size]
    threads = {"OMP_NUM_THREADS": "1"} if size == "small" else {}
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratios"
        command = [sys.executable, str(HERE / script), *options]
        command += [] if script in WITHOUT_DEVICE else ["--device", device]
        command += ["--json", str(results / f"{Path(script).stem}.json")] if results else []
        done = subprocess.run(
            command, cwd=HERE.parent, check=False, env={**os.environ, **threads, FILE: str(path)}
        )
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
    ratios = [json.loads(line) for line in lines]
    steady = {name for name, _, is_steady in ratios if is_steady}
    seconds = time.perf_counter() - start
    return Found({name: value for name, value, _ in ratios}, steady, seconds, done.returncode == 0)


def describe(device: str) -> dict[str, Any]:
    """Return the names of the machine and the versions of the packages."""
    gpu = {"gpu": torch.cuda.get_device_name(device)} if device.startswith("cuda") else {}
    return {
        "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), **gpu},
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in PACKAGES},
        },
    }


def compare(found: Found, recorded: dict[str, float]) -> list[str]:
    """Return a message for each steady ratio that is far from the recorded one."""
    pairs = [
        (name, found.ratios[name], recorded[name])
        for name in sorted(found.steady)
        if name in recorded
    ]
    return [
        f"{name}: {value:.3g}, recorded {expected:.3g}"
        for name, value, expected in pairs
        if not expected / FACTOR <= value <= expected * FACTOR
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=("small", "full"), default="full")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, help="the scripts; default: all")
    parser.add_argument("--json", type=Path, default=Path("runs") / "benchmarks.json")
    parser.add_argument(
        "--results", type=Path, help="the folder of each script's tables, such as docs/results"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help=f"fail if a ratio differs from the recorded one by more than a factor of {FACTOR:g}",
    )
    parser.add_argument(
        "--record", action="store_true", help="record the ratios for later comparisons"
    )
    arguments = parser.parse_args()
    kind = f"{arguments.size}, {torch.device(arguments.device).type}"
    recorded = json.loads(RECORDED.read_text("utf-8")) if RECORDED.exists() else {}
    results: dict[str, Found] = {}
    failed = []
    left_out = UNRECORDED if arguments.check else set()
    for script in arguments.only or [name for name in SCRIPTS if name not in left_out]:
        for last in (False, True):
            print(f"== {script}", flush=True)
            results[script] = found = run(
                script, arguments.size, arguments.device, arguments.results
            )
            print(f"== {script}: {found.seconds:.0f} s\n", flush=True)
            off = compare(found, recorded.get(kind, {})) if arguments.check else []
            if not off and found.good:
                break
            if last or not arguments.check:
                failed += off + ([] if found.good else [script])
                break
            print("once more: " + ", ".join(off or [script]) + "\n", flush=True)
    if arguments.check and not arguments.only:
        known = {name for found in results.values() for name in found.ratios}
        failed += [
            f"{name}: recorded, not measured"
            for name in sorted(recorded.get(kind, {}).keys() - known)
        ]
    if arguments.device.startswith("cuda"):
        tests = [
            sys.executable,
            "-m",
            "pytest",
            str(HERE.parent / "tests" / "test_gpu.py"),
            "-m",
            "gpu",
        ]
        if subprocess.run(tests, cwd=HERE.parent, check=False).returncode:
            failed.append("tests of the GPU")
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    report = {"size": arguments.size, "device": arguments.device, **describe(arguments.device)}
    ratios = {
        name: float(f"{value:.4g}")
        for found in results.values()
        for name, value in found.ratios.items()
    }
    seconds = {script: round(found.seconds, 1) for script, found in results.items()}
    report |= {"seconds": seconds, "ratios": ratios}
    arguments.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    print(f"{arguments.json}: {len(ratios)} ratios, {sum(seconds.values()):.0f} s")
    if arguments.record:
        steady = {name for found in results.values() for name in found.steady}
        kept = {name: value for name, value in recorded.get(kind, {}).items() if arguments.only}
        recorded[kind] = kept | {name: value for name, value in ratios.items() if name in steady}
        RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n", "utf-8")
    if failed:
        sys.exit("failed:\n" + "\n".join(failed))


if __name__ == "__main__":
    main()
