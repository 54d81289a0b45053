"""The members of an ensemble: their training, in this process or each in another."""

import multiprocessing
import os
import pickle
import pickletools
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch

from polyembed._checks import class_name, must
from polyembed._fingerprint import trained_state
from polyembed._progress import progress_bar
from polyembed.tagging.tagger import SequenceTagger, Tagged
from polyembed.training.fit import Training
from polyembed.training.options import FitOptions
from polyembed.training.runs import Run

Build = Callable[[int], SequenceTagger]


class Task(NamedTuple):
    """What the trainings of all members have in common."""

    build: Build
    train: Sequence[Tagged]
    dev: Sequence[Tagged]
    options: FitOptions
    folder: Path


class Failure(NamedTuple):
    """Why a member has no result."""

    text: str
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """Describe an error."""
        hint = ""
        if isinstance(error, BrokenProcessPool):
            hint = " (it was killed, or a script lacks: if __name__ == '__main__')"
        return cls(
            f"{class_name(error)}: {error}{hint}", "".join(traceback.format_exception(error))
        )


def build_member(build: Build, seed: int) -> SequenceTagger:
    """Return an untrained member whose random numbers come from its seed alone."""
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if started else ()):
        torch.manual_seed(seed)
        tagger = build(seed)
    if not isinstance(tagger, SequenceTagger):
        raise TypeError(must(f"build({seed})", "return a SequenceTagger", class_name(tagger)))
    return tagger


def open_run(task: Task, seed: int, training: Training, *, writes: bool) -> Run:
    """Return the run of a member; its folder is not touched yet."""
    return Run(task.folder / f"member-{seed}", training.fingerprint(outcome=True), writes=writes)


def train_member(
    task: Task,
    seed: int,
    tagger: SequenceTagger | None,
    *,
    device: torch.device,
    num_threads: int | None,
    progress: bool | None,
) -> None:
    """Train a member on a device and leave its best weights and its history in its folder."""
    threads = torch.get_num_threads()
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        try:
            torch.set_num_threads(num_threads or threads)
            tagger = build_member(task.build, seed) if tagger is None else tagger
            home = tagger.device
            training = Training(tagger.to(device), task.train, task.dev, task.options, seed=seed)
            with open_run(task, seed, training, writes=True) as run:
                result = training.run(run, progress=progress)
                weights = {
                    name: value.detach().cpu() for name, value in trained_state(tagger).items()
                }
                run.finish(
                    {"weights": weights, "history": [tuple(epoch) for epoch in result.history]}
                )
            tagger.to(home)
        finally:
            torch.set_num_threads(threads)


def train_in_processes(
    task: Task,
    seeds: Sequence[int],
    *,
    num_processes: int,
    devices: Sequence[torch.device],
    num_threads: int | None,
    progress: bool | None,
) -> dict[int, Failure]:
    """Train members, each in another process, at most `num_processes` at once; return the failures by seed."""
    _check_importable(task)
    num_threads = num_threads or max(1, torch.get_num_threads() // num_processes)
    free: SimpleQueue[torch.device] = SimpleQueue()
    for i in range(num_processes):
        free.put(devices[i % len(devices)])
    alive, ours = multiprocessing.get_context("spawn").Pipe(duplex=False)

    def train_one(seed: int) -> None:
        device = free.get()
        try:
            _train_in_process(task, seed, device, num_threads, alive)
        finally:
            free.put(device)

    threads, failures = ThreadPoolExecutor(num_processes), dict[int, Failure]()
    try:
        futures = {threads.submit(train_one, seed): seed for seed in seeds}
        for future in progress_bar(
            as_completed(futures), progress=progress, total=len(seeds), desc="members"
        ):
            error = future.exception()
            if error is not None:
                failures[futures[future]] = Failure.of(error)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        ours.close()  # ends the processes that still train, after Ctrl-C for example
        threads.shutdown()
    return failures


def _train_in_process(
    task: Task, seed: int, device: torch.device, num_threads: int, alive: Connection
) -> None:
    """Train a member in a pool of one process, so that its death breaks no other member's pool."""
    context = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA
    with ProcessPoolExecutor(1, mp_context=context, initializer=_start, initargs=(alive,)) as pool:
        work = partial(train_member, device=device, num_threads=num_threads, progress=False)
        pool.submit(work, task, seed, None).result()


def _start(alive: Connection) -> None:
    """Leave Ctrl-C to the parent, and end this process when the parent closes the pipe or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def wait() -> None:
        alive.poll(None)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _check_importable(task: Task) -> None:
    """Refuse a function that another process cannot import, by its name."""
    rule = "be a function of a module, or a partial of one, so that processes find it (not with num_processes=1)"
    main = sys.modules["__main__"]
    typed_in = getattr(main, "__file__", None) is None and getattr(main, "__spec__", None) is None
    parts: dict[str, Any] = {
        name: getattr(task.options, name) for name in ("optimizer", "scheduler", "metric")
    }
    for name, part in {"build": task.build, **parts}.items():
        try:
            pickled = pickle.dumps(part)
        except Exception as error:  # pickle raises many kinds
            raise TypeError(must(name, rule, f"{part!r} ({error})")) from error
        if typed_in and "__main__" in (argument for _, argument, _ in pickletools.genops(pickled)):
            raise TypeError(must(name, rule, f"{part!r} of an interactive session"))
