"""Several trainings of one model, side by side, and the ensemble that they make."""

import os
from collections.abc import Iterable, Sequence
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from polyembed._checks import check_choice, check_device, check_positive, class_name, must, require
from polyembed.metrics import MetricName
from polyembed.tagging.ensemble import VotingEnsemble
from polyembed.tagging.tagger import SequenceTagger, Tagged
from polyembed.training._member import (
    Build,
    Failure,
    MakeOptimizer,
    MakeScheduler,
    Member,
    MemberFolder,
    Task,
    build_member,
    describe_run,
    train_member,
)
from polyembed.training._ranks import Ranks, open_ranks
from polyembed.training._workers import train_in_processes
from polyembed.training.fit import FitResult, Metric


class EnsembleResult(NamedTuple):
    """What the trainings of an ensemble came to.

    Attributes:
        ensemble: The members, in the order of their seeds, each with its best epoch's weights; in evaluation mode.
        results: What each member's training came to.
    """

    ensemble: VotingEnsemble
    results: tuple[FitResult, ...]


def fit_ensemble(
    build: Build,
    train: Sequence[Tagged],
    dev: Sequence[Tagged],
    *,
    folder: str | os.PathLike[str],
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    vote: Literal["hard", "soft", "entity"] = "hard",
    num_processes: int | None = None,
    devices: Sequence[str | torch.device] | None = None,
    num_threads: int | None = None,
    num_train_epochs: int = 20,
    batch_size: int = 32,
    optimizer: MakeOptimizer | None = None,
    scheduler: MakeScheduler | None = None,
    scheduler_interval: Literal["epoch", "step"] = "epoch",
    metric: MetricName | Metric = "f1",
    patience: int | None = None,
    max_decreases: int | None = None,
    max_grad_norm: float | None = 1.0,
    amp_dtype: torch.dtype | None = None,
    progress: bool | None = None,
) -> EnsembleResult:
    """Train one member a seed, side by side, and let them vote (HME-Ensemble of Winata 2021).

    Each member is what ``fit(build(seed), train, dev, seed=seed, ...)`` makes of it. How many are trained at once
    changes no number as long as each has the same `num_threads` and kind of device: sums over other numbers of
    threads are rounded otherwise.

    **Resuming.** ``folder/member-<seed>`` holds a member's checkpoint while it is trained, then its weights
    (safetensors), its history (JSON) and nothing else. When a member fails or its process is killed, the others
    finish first; the same call then trains only what is missing, from the last finished epoch. Arguments that
    change a member's numbers may not differ from call to call; `seeds` may.

    **Processes.** With `num_processes` above 1 each member has a process of its own. It gets `build`, `optimizer`,
    `scheduler` and `metric` by their names, so they must be functions of a module (or `functools.partial` of one),
    and a script must make this call under ``if __name__ == "__main__":``. Ctrl-C ends the processes.

    **Several machines.** Under `torchrun` each process makes this same call: rank r trains ``seeds[r::world_size]``
    in its own process, then all exchange what they have, so every rank returns the whole ensemble and every
    machine's folder holds it, shared or not. The caller may have initialised `torch.distributed`, with any backend.

    Args:
        build: Seed to an untrained tagger; called with torch's random state seeded, here and in the process that
            trains. Members may share frozen tables, and nothing that trains.
        train: Objects with ``words`` and ``tags``.
        dev: The same, to choose each member's epoch by.
        folder: Where members are kept.
        seeds: One a member: of its initial weights, its batches and its dropout.
        vote: How the ensemble votes; see `VotingEnsemble`.
        num_processes: Members trained at once; 1 = one after the other in this process, where nothing needs a
            name. If None, one a GPU, or else one a CPU core.
        devices: Where members are trained: each on the first that is least busy, under `torchrun` on that of its
            ``LOCAL_RANK``. All GPUs if None, or else the CPU. Members come back where `build` had put them.
        num_threads: CPU threads a member; if None, this process's number, divided by `num_processes`.
        num_train_epochs: As in `fit`, like all that follow.
        batch_size: Sentences a step.
        optimizer: Tagger to optimiser; Adam with a learning rate of 1e-3 if None.
        scheduler: Optimiser to schedule.
        scheduler_interval: When the scheduler steps.
        metric: ``"f1"``, ``"accuracy"``, ``"macro_f1"``, or a function of gold and predicted tags.
        patience: Stop after so many epochs without a better score; None = never.
        max_decreases: As in `fit`.
        max_grad_norm: Clip the gradient's norm to this; None = never.
        amp_dtype: Autocast forward passes to this dtype.
        progress: Whether to show a progress bar: of members where they have processes, else of steps; if None, only
            on a terminal.

    Returns:
        The ensemble and each member's history.

    Raises:
        ValueError: Seeds that repeat, members that differ in their tags or share what trains, wrong options, or a
            folder of another run.
        TypeError: A function that other processes cannot import, or one that makes something else.
        RuntimeError: Members that could not be trained; the message names their seeds and the first one's reason,
            and a note for each gives its traceback.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from polyembed import Lexicon, SourceEmbedding
        >>> from polyembed.data import TaggedSentence
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> def build(seed):
        ...     return SequenceTagger(SourceEmbedding.from_embedding(torch.nn.Embedding(4, 8), lexicon), ["O", "B-ES"])
        >>> data = [TaggedSentence(("me", "gusta"), ("O", "B-ES"))] * 8
        >>> with TemporaryDirectory() as folder:
        ...     ensemble, results = fit_ensemble(
        ...         build, data, data, folder=folder, seeds=(0, 1, 2), num_processes=1, num_train_epochs=2
        ...     )
        >>> [len(result.history) for result in results]
        [2, 2, 2]
    """
    options = {
        "num_train_epochs": num_train_epochs,
        "batch_size": batch_size,
        "scheduler_interval": scheduler_interval,
        "metric": metric,
        "patience": patience,
        "max_grad_norm": max_grad_norm,
        "amp_dtype": amp_dtype,
        # left out where it is off: a folder that knows nothing of it goes on
        **({} if max_decreases is None else {"max_decreases": max_decreases}),
    }
    with open_ranks() as ranks:

        def prepare() -> _Plan:
            check_choice("vote", vote, ("hard", "soft", "entity"))
            check_positive(num_threads=1 if num_threads is None else num_threads)
            task = Task(build, list(train), list(dev), optimizer, scheduler, options)
            members = _build_members(task, _check_seeds(seeds), Path(folder))
            VotingEnsemble([members[0].tagger], vote=vote)  # a vote that the tags do not allow shows now
            where = _check_devices(devices)
            return _Plan(task, members, where, _check_processes(num_processes, ranks, where, len(members)))

        plan = ranks.together(prepare)
        _agree(ranks, plan)
        failures = _train(ranks, plan, num_threads, progress)
        if failures:
            raise _lost(failures, [member.seed for member in plan.members])
        _exchange(ranks, plan.members)
        results = ranks.together(lambda: tuple(member.folder.load(member.tagger) for member in plan.members))
    ensemble = VotingEnsemble([member.tagger for member in plan.members], vote=vote)
    return EnsembleResult(ensemble.eval(), results)


class _Plan(NamedTuple):
    task: Task
    members: list[Member]
    devices: list[torch.device]
    num_processes: int


def _check_seeds(seeds: Iterable[int]) -> list[int]:
    seeds = list(seeds)
    good = len(seeds) > 0 and all(isinstance(seed, Integral) for seed in seeds) and len(set(seeds)) == len(seeds)
    require(good, "seeds", "be different integers, at least one", seeds)
    return [int(seed) for seed in seeds]


def _check_devices(devices: Sequence[str | torch.device] | None) -> list[torch.device]:
    if devices is None:
        return [torch.device("cuda", i) for i in range(torch.cuda.device_count())] or [torch.device("cpu")]
    require(len(devices) > 0 and not isinstance(devices, str), "devices", "be a list, at least one", repr(devices))
    return [check_device(f"devices[{i}]", device) for i, device in enumerate(devices)]


def _check_processes(num_processes: int | None, ranks: Ranks, devices: list[torch.device], num_members: int) -> int:
    if ranks.size > 1:
        require(num_processes in (None, 1), "num_processes", "be None under a launcher of processes", num_processes)
        return 1
    if num_processes is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        accelerators = {device for device in devices if device.type != "cpu"}
        num_processes = min(num_members, len(accelerators) or cores)
    check_positive(num_processes=num_processes)
    return num_processes


def _build_members(task: Task, seeds: list[int], folder: Path) -> list[Member]:
    """Build every member before any is trained, and refuse what could not become an ensemble."""
    require(not folder.is_file(), "folder", "be no file", folder)
    for name, function in (("build", task.build), ("optimizer", task.optimizer), ("scheduler", task.scheduler)):
        if not callable(function) and (function is not None or name == "build"):
            raise TypeError(must(name, "be a function that makes one", class_name(function)))
    taggers = {seed: build_member(task.build, seed) for seed in seeds}
    tags = taggers[seeds[0]].tags
    for seed, tagger in taggers.items():
        require(tagger.tags == tags, f"build({seed}).tags", f"be {tags}, as build({seeds[0]}) has it", tagger.tags)
    _check_apart(taggers)
    members = []
    for seed, tagger in taggers.items():
        path = folder.absolute() / f"member-{seed}"  # so that it stays true if the working folder changes
        members.append(Member(seed, tagger, MemberFolder(path, describe_run(task, seed, tagger))))
        members[-1].folder.check()
    return members


def _check_apart(taggers: dict[int, SequenceTagger]) -> None:
    """Refuse members that would train each other's weights, though in processes of their own they would not."""
    users: dict[int, set[int]] = {}
    for seed, tagger in taggers.items():
        for value in tagger.parameters():
            users.setdefault(value.untyped_storage().data_ptr(), set()).add(seed)
    for seed, tagger in taggers.items():
        for name, value in tagger.named_parameters():
            others = users[value.untyped_storage().data_ptr()] - {seed}
            if others and value.requires_grad and value.numel():
                rule = "share nothing that trains with another member"
                raise ValueError(must(f"build({seed})", rule, f"{name} of build({min(others)})"))


def _agree(ranks: Ranks, plan: _Plan) -> None:
    """Refuse ranks whose calls differ, before any of them trains."""
    first, *others = ranks.gather([member.folder.run for member in plan.members])
    for rank, runs in enumerate(others, start=1):
        differs = {key for ours, theirs in zip(first, runs, strict=False) for key in ours if ours[key] != theirs[key]}
        if len(first) != len(runs):
            differs.add("seeds")
        require(not differs, f"rank {rank}", "make the same call as rank 0", f"other {sorted(differs)}")


def _train(ranks: Ranks, plan: _Plan, num_threads: int | None, progress: bool | None) -> dict[int, Failure]:
    """Train what no rank has, and return why some have no result, on every rank."""
    done = {seed for seeds in ranks.gather(_done(plan.members)) for seed in seeds}
    mine = [member for member in plan.members[ranks.rank :: ranks.size] if member.seed not in done]
    if plan.num_processes > 1 and mine:
        failures = train_in_processes(
            plan.task,
            mine,
            num_processes=min(plan.num_processes, len(mine)),
            devices=plan.devices,
            num_threads=num_threads,
            progress=progress,
        )
    else:
        device, failures = plan.devices[ranks.local_rank % len(plan.devices)], {}
        for member in mine:
            try:
                shows = progress if ranks.rank == 0 else False
                train_member(plan.task, member, device=device, progress=shows, num_threads=num_threads)
            except Exception as error:
                failures[member.seed] = Failure.of(error)
    return {seed: failure for part in ranks.gather(failures) for seed, failure in part.items()}


def _done(members: list[Member]) -> list[int]:
    return [member.seed for member in members if member.folder.is_done]


def _lost(failures: dict[int, Failure], seeds: list[int]) -> RuntimeError:
    lost = [seed for seed in seeds if seed in failures]
    rule = "finish (the same call goes on where the lost ones stopped)"
    error = RuntimeError(must("every member", rule, f"seeds {lost} lost, the first: {failures[lost[0]].text}"))
    for seed in lost:
        error.add_note(f"seed {seed}: {failures[seed].trace or failures[seed].text}")
    return error


def _exchange(ranks: Ranks, members: list[Member]) -> None:
    """Bring every member to the ranks that lack it, whose folder is on another machine."""
    done = ranks.gather(_done(members))
    for seed, _, folder in members:
        holders = [rank for rank in range(ranks.size) if seed in done[rank]]
        if len(holders) < ranks.size:
            read = folder.read if ranks.rank == holders[0] else dict[str, bytes]
            files = ranks.broadcast(ranks.together(read), holders[0])
            ranks.together(partial(folder.write, {} if folder.is_done else files))
