"""What does it cost to begin? Importing, tables from a fastText model, opening a saved tagger.

    python benchmarks/startup.py [--size small] [--vectors MODEL.bin]

Each figure is measured in a separate process. *Importing* is the time that ``import polyembed``
adds to ``import torch``. It is the median of runs in new processes, with compiled bytecode.
"Collector" is the part of this time that Python's garbage collector spends on torch's objects. This
collection takes place sooner or later, whatever is imported. *Tables* is the cost of building
a lexicon of the model's most frequent words and a `SourceEmbedding`. Without ``--vectors`` the
model is written here, with words of natural length and random rows, since their values do not
change the cost. *Opening* is the cost of opening a tagger over four such tables. The memory is
Linux's count: "own" is the memory of the process, "resident" also includes the pages of files, and
"peak" is the maximum during the step.
"""

import argparse
import json
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _memory import resident_mb

SIZES = {  # words, rows of n-grams, dimensions, runs of the import
    "small": (5_000, 20_000, 50, 1),
    "full": (100_000, 2_000_000, 300, 21),
}
IMPORT = """
import gc, time
paused = [0.0]
def count(phase, info):
    paused[0] += time.process_time() if phase == "stop" else -time.process_time()
import torch
gc.callbacks.append(count)
wall, cpu = time.perf_counter(), time.process_time()
import polyembed
print(time.perf_counter() - wall, time.process_time() - cpu, paused[0])
"""


def measured(call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return the result of a call, its duration, and the growth of the memory in MB."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = {field: resident_mb(field) for field in ("RssAnon", "VmRSS")}
    highest, done = [before["RssAnon"]], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            highest.append(resident_mb("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    seconds = time.perf_counter() - wall, time.process_time() - cpu
    done.set()
    watcher.join()
    return result, {
        "s": seconds[0],
        "CPU s": seconds[1],
        "own, MB": resident_mb("RssAnon") - before["RssAnon"],
        "own peak, MB": max(highest) - before["RssAnon"],
        "resident, MB": resident_mb("VmRSS") - before["VmRSS"],
        "resident peak, MB": resident_mb("VmHWM") - before["VmRSS"],
    }


def write_model(path: Path, words: int, bucket: int, dim: int) -> None:
    """Write a fastText model with random rows.

    Each word is one to nine random letters and a unique number.
    """
    import numpy as np

    random = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(
            struct.pack("<2i12id", 793712314, 12, dim, 5, 5, 1, 5, 1, 1, 2, bucket, 3, 6, 100, 1e-4)
        )
        file.write(struct.pack("<3i2q", words, words, 0, 99, -1))
        letters = random.integers(97, 123, (words, 9), np.uint8)
        for length, row in zip(random.integers(1, 10, words).tolist(), letters, strict=True):
            letter = row[:length].tobytes()
            file.write(letter + b"%d\0" % file.tell() + struct.pack("<qb", 7, 0))
        for rows in (words + bucket, words):
            file.write(b"\0" + struct.pack("<2q", rows, dim))
            for start in range(0, rows, 10_000):
                count = min(10_000, rows - start)
                file.write(random.standard_normal((count, dim), dtype=np.float32).tobytes())


def tables(path: Path, words: int) -> dict[str, Any]:
    """Measure the opening of the model and the building of a lexicon and its table."""
    import polyembed as pe

    most_frequent = pe.FastTextVectors(path).words[:words]
    pe.SourceEmbedding(
        pe.FastTextVectors(path), pe.Lexicon(most_frequent[:10])
    )  # imports the modules of the first use

    def build() -> pe.SourceEmbedding:
        return pe.SourceEmbedding(pe.FastTextVectors(path), pe.Lexicon(most_frequent))

    embedder, figures = measured(build)
    return {"tables, MB": embedder.weight.nbytes / 2**20, **figures}


def save(path: Path, words: int, dim: int) -> None:
    """Save a tagger over four tables."""
    import torch

    import polyembed as pe

    lexicon = pe.Lexicon(f"word{i}" for i in range(words))
    sources = [
        pe.SourceEmbedding.from_embedding(torch.nn.Embedding(len(lexicon), dim), lexicon)
        for _ in range(4)
    ]
    embedder = pe.MetaEmbedding.self_attention(sources, embedding_dim=dim)
    encoder = pe.TransformerSequenceEncoder(dim)
    pe.SequenceTagger(embedder, ["X", "VERB"], encoder=encoder).save_pretrained(path)


def opening(path: Path) -> dict[str, Any]:
    """Measure the opening of the saved tagger."""
    import safetensors.torch  # noqa: F401

    import polyembed as pe

    tagger, figures = measured(lambda: pe.SequenceTagger.from_pretrained(path))
    size = sum(
        tensor.nbytes
        for name, tensor in tagger.state_dict().items()
        if name.endswith("table.weight")
    )
    return {"tables, MB": size / 2**20, **figures}


def importing(runs: int, folder: Path | None) -> list[tuple[float, float, float]]:
    """Return the wall, CPU and collector ms of the import in new processes.

    An extra first process compiles the bytecode, into `folder` if there is one.
    """
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder)} if folder else {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    rows = []
    for _ in range(runs + 1):
        command = [sys.executable, "-c", IMPORT]
        printed = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout
        wall, cpu, paused = (1e3 * float(number) for number in printed.split())
        rows.append((wall, cpu, paused))
    return rows[1:]


def apart(step: str, *arguments: object) -> dict[str, Any]:
    """Run a step in a separate process, and return its figures."""
    command = [sys.executable, __file__, "--step", step, *map(str, arguments)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    figures: dict[str, Any] = json.loads(printed)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument(
        "--vectors", type=Path, help="a fastText .bin instead of a model of random rows"
    )
    parser.add_argument("--step", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="also write the figures to a file such as docs/results/<name>.json",
    )
    arguments = parser.parse_args()
    if arguments.step:
        step, path, *numbers = arguments.step
        figures = {"tables": tables, "save": save, "opening": opening}[step](
            Path(path), *map(int, numbers)
        )
        print(json.dumps(figures))
        return
    import torch
    from _results import show

    from polyembed.tables import Table

    words, bucket, dim, runs = SIZES[arguments.size]
    processor = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    print(
        f"torch {torch.__version__}, Python {sys.version.split()[0]}, {torch.get_num_threads()} threads, ",
        end="",
    )
    print(f"{os.cpu_count()} CPU cores ({processor[1] if processor else 'unknown'})\n")
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.vectors or Path(folder, "vectors.bin")
        bytecode = Path(folder, "bytecode") if arguments.size == "full" else None  # also of torch
        columns = list(zip(*importing(runs, bytecode), strict=True))
        rows = [
            (name, *(f"{value(column):.0f}" for column in columns))
            for name, value in (("median", statistics.median), ("least", min))
        ]
        show(
            arguments.json,
            "import",
            Table((f"import, of {runs}", "ms", "CPU ms", "collector, CPU ms"), rows),
        )
        print()
        if not arguments.vectors:
            write_model(path, words, bucket, dim)
        first = apart("tables", path, words)
        again = apart("tables", path, words)
        saved = Path(folder, "tagger")
        apart("save", saved, words, dim)
        opened = apart("opening", saved)
        steps = {
            f"lexicon and table, {words:,} words": first,
            "the same again": again,
            f"opening a tagger, 4 x {words:,} x {dim}": opened,
        }
        table = [
            (
                name,
                *(
                    f"{value:.2f}" if "s" in key.split() else f"{value:.0f}"
                    for key, value in figures.items()
                ),
            )
            for name, figures in steps.items()
        ]
        show(arguments.json, "files", Table(("what", *first), table))


if __name__ == "__main__":
    main()
