"""Every benchmark that trains nothing, in one go; on a GPU its tests too.

    python benchmarks/run_all.py [--size small] [--device cuda] [--only crf.py] [--json FILE] [--check]

Prints each script's tables, one after the other, and writes one JSON with the machine, the versions and the ratios that
each script stands for. A script that fails does not stop the rest, but shows in the exit status. ``small`` takes five
minutes on two cores; its figures are of small cases, and stand beside ``full`` in nothing but the names.

With ``--check`` a ratio that is more than twice, or less than half, the one recorded in ``recorded.json`` for this size
and kind of device fails the run. ``--record`` records.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from _ratios import FILE

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "recorded.json"
FACTOR = 2.0
PACKAGES = ("torch", "transformers", "numpy")
SCRIPTS: dict[str, dict[str, list[str]]] = {
    "alignment.py": {"small": ["--words", "10000", "--runs", "3"], "full": []},
    "crf.py": {"small": ["--shapes", "32x64x9", "--runs", "5"], "full": []},
    "efficiency.py": {
        "small": [
            *["--lengths", "16", "128", "--runs", "9", "--max-seconds", "4", "--predict", "500", "--models"],
            "HME",
            "HME, baked",
            "mBERT",
        ],
        "full": [],
    },
    "embedding_speed.py": {"small": ["--runs", "9"], "full": []},
    "ensemble_speed.py": {"small": ["--small", "--runs", "15"], "full": []},
    "fusion.py": {"small": [*["--shape", "2x32", "--pooling-shape", "8x64", "--no-large", "--runs", "5"]], "full": []},
    "laser.py": {"small": [*["--sentences", "64", "--runs", "3", "--hidden-size", "256"]], "full": []},
    "startup.py": {"small": ["--size", "small"], "full": ["--size", "full"]},
    "metaxl_step.py": {"small": [*["--shapes", "4x32", "--places", "12", "--runs", "3"]], "full": []},
}


WITHOUT_DEVICE = {"startup.py"}


def run(script: str, options: list[str], device: str) -> tuple[dict[str, float], float, bool]:
    """Run one script and give its ratios, how long it took and whether it came to its end."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratios"
        command = [sys.executable, str(HERE / script), *options]
        command += [] if script in WITHOUT_DEVICE else ["--device", device]
        done = subprocess.run(command, cwd=HERE.parent, check=False, env={**os.environ, FILE: str(path)})
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return dict(map(json.loads, lines)), time.perf_counter() - start, done.returncode == 0


def describe(device: str) -> dict[str, Any]:
    """Name the machine and the versions."""
    gpu = {"gpu": torch.cuda.get_device_name(device)} if device.startswith("cuda") else {}
    return {
        "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), **gpu},
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }


def cpu_name() -> str:
    """Read what Linux says of the CPU."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def compare(found: dict[str, float], recorded: dict[str, float]) -> list[str]:
    """Word what is off: ratios far from the recorded ones, and recorded ones that were not measured."""
    lines = [f"{name}: recorded {value:.3g}, not measured" for name, value in recorded.items() if name not in found]
    for name, value in found.items():
        expected = recorded.get(name)
        if expected is None:
            lines.append(f"{name}: {value:.3g}, nothing recorded")
        elif not expected / FACTOR <= value <= expected * FACTOR:
            lines.append(f"{name}: {value:.3g}, recorded {expected:.3g}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("small", "full"), default="full")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, help="all if missing")
    parser.add_argument("--json", type=Path, default=Path("runs") / "benchmarks.json")
    parser.add_argument("--check", action="store_true", help=f"fail where a ratio is off by more than {FACTOR:g} times")
    parser.add_argument("--record", action="store_true", help="record the ratios as those to compare with")
    arguments = parser.parse_args()
    kind = f"{arguments.size}, {torch.device(arguments.device).type}"
    ratios: dict[str, float] = {}
    seconds: dict[str, float] = {}
    failed = []
    for script in arguments.only or SCRIPTS:
        print(f"== {script}", flush=True)
        found, spent, good = run(script, SCRIPTS[script][arguments.size], arguments.device)
        ratios |= found
        seconds[script] = round(spent, 1)
        if not good:
            failed.append(script)
        print(f"== {script}: {spent:.0f} s\n", flush=True)
    if arguments.device.startswith("cuda"):
        tests = [sys.executable, "-m", "pytest", str(HERE.parent / "tests" / "test_gpu.py"), "-m", "gpu"]
        if subprocess.run(tests, cwd=HERE.parent, check=False).returncode:
            failed.append("tests of the GPU")
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    report = {"size": arguments.size, "device": arguments.device, **describe(arguments.device)}
    report |= {"seconds": seconds, "ratios": {name: float(f"{value:.4g}") for name, value in ratios.items()}}
    arguments.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    print(f"{arguments.json}: {len(ratios)} ratios, {sum(seconds.values()):.0f} s")
    recorded = json.loads(RECORDED.read_text("utf-8")) if RECORDED.exists() else {}
    if arguments.record:
        recorded[kind] = {**recorded.get(kind, {}), **report["ratios"]}
        RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n", "utf-8")
    if arguments.check:
        expected = recorded.get(kind, {})
        failed += compare(
            ratios, expected if arguments.only is None else {k: v for k, v in expected.items() if k in ratios}
        )
    if failed:
        sys.exit("failed:\n" + "\n".join(failed))


if __name__ == "__main__":
    main()
