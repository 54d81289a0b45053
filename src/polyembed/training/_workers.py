"""Members trained side by side, each in a process of its own that can die without taking the others along."""

import multiprocessing
import os
import pickle
import pickletools
import signal
import sys
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import torch

from polyembed._checks import must
from polyembed.training._member import Failure, Member, MemberFolder, Task, build_member, train_member

END_SECONDS = 5.0
"""How long a process that was told to end may take before it is killed."""


class _Worker(NamedTuple):
    member: Member
    device: torch.device
    process: BaseProcess
    reports: Connection
    received: list[Failure | None]

    @property
    def failure(self) -> Failure:
        """Say how a process ended that left no result."""
        failures = [report for report in self.received if report is not None]
        if failures:
            return failures[-1]
        code = self.process.exitcode or 0
        if code < 0:
            return Failure(f"its process was ended by signal {-code} ({signal.strsignal(-code)})")
        hint = "" if self.received else "; a program that starts processes needs: if __name__ == '__main__'"
        return Failure(f"its process ended with exit code {code}{hint}")


def train_in_processes(
    task: Task,
    members: Sequence[Member],
    *,
    num_processes: int,
    devices: Sequence[torch.device],
    num_threads: int | None,
    progress: bool | None,
) -> dict[int, Failure]:
    """Train members in processes, at most so many at once, and return why some have no result, by seed.

    A process gets a copy of the task: what is done to it there reaches no other.
    """
    from tqdm import tqdm

    pickled = _pickle(task)
    num_threads = num_threads or max(1, torch.get_num_threads() // num_processes)
    waiting, failures = list(members), dict[int, Failure]()
    running: dict[Connection, _Worker] = {}
    disable = None if progress is None else not progress  # tqdm's None: off where there is no terminal
    with tqdm(total=len(members), desc="members", leave=False, disable=disable) as bar:
        try:
            while waiting or running:
                while waiting and len(running) < num_processes:
                    busy = [worker.device for worker in running.values()]
                    device = min(devices, key=busy.count)  # the first of the least busy
                    worker, writer = _make(pickled, waiting.pop(0), device, num_threads)
                    running[worker.reports] = worker  # known before it starts, so that Ctrl-C finds it
                    with writer:  # the process's copy will be the only one: its end is the end of the reports
                        worker.process.start()
                ready = wait(list(running))
                for reports in [reports for reports in running if reports in ready]:
                    worker = running[reports]
                    try:
                        worker.received.append(reports.recv())
                    except (EOFError, OSError):  # the process has ended, maybe in the middle of a report
                        worker.process.join()
                        reports.close()
                        del running[reports]
                        if not worker.member.folder.is_done:
                            failures[worker.member.seed] = worker.failure
                        bar.update()
        finally:
            _end([worker.process for worker in running.values() if worker.process.pid is not None])
    return failures


def _pickle(task: Task) -> dict[str, bytes]:
    """Pickle what a process gets, part by part, so that a refusal can name the part."""
    parts: dict[str, Any] = {**task._asdict(), "metric": task.options["metric"]}
    rule = "be a function of a module, or a partial of one, so that processes find it (not with num_processes=1)"
    main = sys.modules["__main__"]
    typed_in = getattr(main, "__file__", None) is None and getattr(main, "__spec__", None) is None
    pickled = {}
    for name in sorted(parts, key=lambda name: name == "options"):
        try:
            pickled[name] = pickle.dumps(parts[name])
        except Exception as error:  # pickle raises many kinds
            raise TypeError(must(name, rule, f"{parts[name]!r} ({error})")) from error
        if typed_in and name not in ("train", "dev"):
            names = (argument for _, argument, _ in pickletools.genops(pickled[name]))
            if "__main__" in names:  # of a notebook or a console, which other processes cannot import
                raise TypeError(must(name, rule, f"{parts[name]!r} of an interactive session"))
    del pickled["metric"]
    return pickled


def _make(
    pickled: dict[str, bytes], member: Member, device: torch.device, num_threads: int
) -> tuple[_Worker, Connection]:
    context = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA
    reports, writer = context.Pipe(duplex=False)
    arguments = (writer, pickled, member.seed, member.folder, str(device), num_threads)
    process = context.Process(target=_work, args=arguments, name=f"member-{member.seed}")
    return _Worker(member, device, process, reports, []), writer


def _work(
    reports: Connection,
    pickled: dict[str, bytes],
    seed: int,
    folder: MemberFolder,
    device: str,
    num_threads: int,
) -> None:
    """Train one member; what reaches the parent is "begun" (None) and, if so, a failure."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends its processes
    threading.Thread(target=_end_with_parent, daemon=True).start()
    reports.send(None)
    try:
        if device.startswith("cuda"):
            torch.cuda.set_device(device)
        torch.set_num_threads(num_threads)
        task = Task(**{name: pickle.loads(part) for name, part in pickled.items()})
        member = Member(seed, build_member(task.build, seed), folder)
        train_member(task, member, device=torch.device(device), progress=False, num_threads=num_threads)
    except BaseException as error:
        reports.send(Failure.of(error))
        sys.exit(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _end(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(END_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
