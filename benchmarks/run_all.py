"""Everything that needs a certain machine, in one go: the benchmarks without training, and on a GPU its tests.

    python benchmarks/run_all.py [--device cuda] [--runs 9]

Prints each script's tables, one after the other; a script that fails does not stop the rest, but shows in the exit
status. `docs/results.md` says which of them were run where.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = {
    "alignment.py": ["--device", "{device}"],
    "crf.py": ["--runs", "{runs}", "--device", "{device}"],
    "embedding_speed.py": ["--device", "{device}"],
    "ensemble_speed.py": ["--device", "{device}"],
    "laser.py": ["--device", "{device}"],
    "metaxl_step.py": ["--device", "{device}"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--runs", default="9")
    arguments = parser.parse_args()
    commands = {
        name: [str(HERE / name), *(option.format(**vars(arguments)) for option in options)]
        for name, options in SCRIPTS.items()
    }
    if arguments.device.startswith("cuda"):
        commands["tests of the GPU"] = ["-m", "pytest", str(HERE.parent / "tests" / "test_gpu.py"), "-m", "gpu"]
    failed = []
    for name, command in commands.items():
        start = time.perf_counter()
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, *command], cwd=HERE.parent, check=False).returncode:
            failed.append(name)
        print(f"== {name}: {time.perf_counter() - start:.0f} s\n", flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
