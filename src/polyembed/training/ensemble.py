"""Several trainings of one model, side by side, and the ensemble that they make."""

import os
from collections.abc import Iterable, Sequence
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from polyembed._checks import check_choice, check_device, check_positive, class_name, must, require
from polyembed.tagging.ensemble import VotingEnsemble, check_bio
from polyembed.tagging.tagger import SequenceTagger, Tagged
from polyembed.training._members import (
    Build,
    Failure,
    Task,
    build_member,
    open_run,
    train_in_processes,
    train_member,
)
from polyembed.training._ranks import Ranks, open_ranks
from polyembed.training.fit import Training
from polyembed.training.options import DEFAULTS, FitOptions
from polyembed.training.runs import Run, differences
from polyembed.training.state import FitResult, read_result


class EnsembleResult(NamedTuple):
    """The result of training an ensemble.

    Attributes:
        ensemble: The members, in the order of their seeds, each with its best epoch's weights; in
            evaluation mode.
        results: The result of each member's training.
    """

    ensemble: VotingEnsemble
    results: tuple[FitResult, ...]


def fit_ensemble(
    build: Build,
    train: Sequence[Tagged],
    dev: Sequence[Tagged],
    options: FitOptions = DEFAULTS,
    *,
    folder: str | os.PathLike[str],
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    vote: Literal["hard", "soft", "entity"] = "hard",
    num_processes: int | None = None,
    devices: Sequence[str | torch.device] | None = None,
    num_threads: int | None = None,
    progress: bool | None = None,
) -> EnsembleResult:
    """Train one member a seed, side by side, and let them vote (HME-Ensemble of Winata 2021).

    Each member equals the result of ``fit(build(seed), train, dev, options, seed=seed)``. How many
    are trained at once changes no number as long as each has the same `num_threads` and kind of
    device: other numbers of threads round sums differently.

    **Resuming.** ``folder/member-<seed>/checkpoint.pt`` holds a member's state while it trains,
    then its best weights and its history. When a member fails or its process is killed, the others
    finish first; the same call then trains only what is missing, from the last finished epoch.
    Arguments that change a member's numbers may not differ from call to call; `seeds` may.

    **Processes.** With `num_processes` above 1 each member trains in another process, which imports
    `build` and the functions of `options`. So they must be functions of a module (or
    `functools.partial` of one), and a script must make this call under
    ``if __name__ == "__main__":``. Ctrl-C ends the processes.

    **Several machines.** Under `torchrun` each process makes this same call: rank r trains
    ``seeds[r::world_size]`` in its own process, then the ranks exchange their members, so every
    rank returns the whole ensemble and every machine's folder holds it, shared or not. The caller
    may have initialised `torch.distributed`, with any backend.

    Args:
        build: Seed to an untrained tagger; called with torch's random state seeded, here and in the
            process that trains. Members may share frozen tables, but no trainable parameter.
        train: Objects with ``words`` and ``tags``.
        dev: The same, to choose each member's epoch by.
        options: As in `fit`.
        folder: Where members are kept.
        seeds: One a member: of its initial weights, its batches and its dropout.
        vote: How the ensemble votes; see `VotingEnsemble`.
        num_processes: Members trained at once; 1 = one after the other in this process, where
            `build` may be any function. If None, one a GPU, or else one a CPU core.
        devices: Where members are trained: each on one that is free, under `torchrun` on that of
            its ``LOCAL_RANK``. All GPUs if None, or else the CPU. Members return to the device
            where `build` had put them.
        num_threads: CPU threads a member; if None, this process's number, divided by
            `num_processes`.
        progress: Whether to show a progress bar: of members where they have processes, else of
            steps; if None, only on a terminal.

    Returns:
        The ensemble and each member's history.

    Raises:
        ValueError: Seeds that repeat, members that differ in their tags or share what trains, wrong
            options, or a folder of another run.
        TypeError: A function that other processes cannot import, or one that makes something else.
        RuntimeError: Members that could not be trained; the message names their seeds and the first
            one's reason, and a note for each gives its traceback.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from polyembed import Lexicon, SourceEmbedding
        >>> from polyembed.data import TaggedSentence
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> def build(seed):
        ...     return SequenceTagger(SourceEmbedding.from_embedding(torch.nn.Embedding(4, 8), lexicon), ["O", "B-ES"])
        >>> data, options = [TaggedSentence(("me", "gusta"), ("O", "B-ES"))] * 8, FitOptions(num_train_epochs=2)
        >>> with TemporaryDirectory() as folder:
        ...     ensemble, results = fit_ensemble(
        ...         build, data, data, options, folder=folder, seeds=(0, 1, 2), num_processes=1
        ...     )
        >>> [len(result.history) for result in results]
        [2, 2, 2]
    """
    with open_ranks() as ranks:

        def prepare() -> _Plan:
            check_choice("vote", vote, ("hard", "soft", "entity"))
            check_positive(num_threads=1 if num_threads is None else num_threads)
            path = Path(folder).absolute()
            require(not path.is_file(), "folder", "be no file", path)
            if not callable(build):
                raise TypeError(must("build", "be a function that makes one", class_name(build)))
            task = Task(build, list(train), list(dev), options, path)
            members = _build_members(task, _check_seeds(seeds))
            if vote == "entity":
                check_bio(next(iter(members.values()))[0].tags)
            where = _check_devices(devices)
            return _Plan(
                task, members, where, _check_processes(num_processes, ranks, where, len(members))
            )

        plan = ranks.together(prepare)
        _agree(ranks, plan)
        failures = _train(ranks, plan, num_threads, progress)
        if failures:
            raise _lost(failures, list(plan.members))
        _exchange(ranks, plan)
        results = ranks.together(
            lambda: tuple(_load(tagger, run) for tagger, run in plan.members.values())
        )
    ensemble = VotingEnsemble([tagger for tagger, _ in plan.members.values()], vote=vote)
    return EnsembleResult(ensemble.eval(), results)


class _Plan(NamedTuple):
    """`members` has a tagger and a run that only reads, by seed."""

    task: Task
    members: dict[int, tuple[SequenceTagger, Run]]
    devices: list[torch.device]
    num_processes: int


def _check_seeds(seeds: Iterable[int]) -> list[int]:
    seeds = list(seeds)
    good = (
        len(seeds) > 0
        and all(isinstance(seed, Integral) for seed in seeds)
        and len(set(seeds)) == len(seeds)
    )
    require(good, "seeds", "be different integers, at least one", seeds)
    return [int(seed) for seed in seeds]


def _check_devices(devices: Sequence[str | torch.device] | None) -> list[torch.device]:
    if devices is None:
        return [torch.device("cuda", i) for i in range(torch.cuda.device_count())] or [
            torch.device("cpu")
        ]
    require(
        len(devices) > 0 and not isinstance(devices, str),
        "devices",
        "be a list, at least one",
        repr(devices),
    )
    return [check_device(f"devices[{i}]", device) for i, device in enumerate(devices)]


def _check_processes(
    num_processes: int | None, ranks: Ranks, devices: list[torch.device], num_members: int
) -> int:
    if ranks.size > 1:
        require(
            num_processes in (None, 1),
            "num_processes",
            "be None under a launcher of processes",
            num_processes,
        )
        return 1
    if num_processes is None:
        cores = (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
        accelerators = {device for device in devices if device.type != "cpu"}
        num_processes = min(num_members, len(accelerators) or cores)
    check_positive(num_processes=num_processes)
    return num_processes


def _build_members(task: Task, seeds: list[int]) -> dict[int, tuple[SequenceTagger, Run]]:
    """Build every member before any is trained, and refuse what could not become an ensemble."""
    taggers = {seed: build_member(task.build, seed) for seed in seeds}
    tags = taggers[seeds[0]].tags
    for seed, tagger in taggers.items():
        require(
            tagger.tags == tags,
            f"build({seed}).tags",
            f"be {tags}, as build({seeds[0]}) has it",
            tagger.tags,
        )
    _check_apart(taggers)
    members = {}
    for seed, tagger in taggers.items():
        training = Training(tagger, task.train, task.dev, task.options, seed=seed)
        members[seed] = (tagger, open_run(task, seed, training, writes=False))
        _outcome(members[seed][1])  # refuses another run's folder
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
    first, *others = ranks.gather(
        {seed: run.fingerprint for seed, (_, run) in plan.members.items()}
    )
    for rank, theirs in enumerate(others, start=1):
        differs = "" if list(theirs) == list(first) else "other seeds"
        for seed in first.keys() & theirs.keys():
            differs = differs or differences(theirs[seed], first[seed])
        require(not differs, f"rank {rank}", "make the same call as rank 0", differs)


def _train(
    ranks: Ranks, plan: _Plan, num_threads: int | None, progress: bool | None
) -> dict[int, Failure]:
    """Train what no rank has, and return why some have no result, on every rank."""
    done = {seed for seeds in ranks.gather(_done(plan)) for seed in seeds}
    mine = [seed for seed in list(plan.members)[ranks.rank :: ranks.size] if seed not in done]
    failures: dict[int, Failure] = {}
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
        device, shows = (
            plan.devices[ranks.local_rank % len(plan.devices)],
            progress if ranks.rank == 0 else False,
        )
        for seed in mine:
            tagger, _ = plan.members[seed]
            try:
                train_member(
                    plan.task, seed, tagger, device=device, num_threads=num_threads, progress=shows
                )
            except Exception as error:
                failures[seed] = Failure.of(error)
    return {seed: failure for part in ranks.gather(failures) for seed, failure in part.items()}


def _outcome(run: Run) -> dict[str, Any] | None:
    """Return a finished member's weights and history; None for a member that has to be trained."""
    state = run.load()
    return state if run.finished else None


def _done(plan: _Plan) -> list[int]:
    return [seed for seed, (_, run) in plan.members.items() if _outcome(run) is not None]


def _load(tagger: SequenceTagger, run: Run) -> FitResult:
    """Copy a finished member's weights into its tagger; return its history."""
    state = _outcome(run)
    if state is None:
        raise RuntimeError(f"{run.path} must hold a trained member, got none")
    tagger.load_state_dict(state["weights"], strict=False)
    return read_result(state["history"])


def _lost(failures: dict[int, Failure], seeds: list[int]) -> RuntimeError:
    lost = [seed for seed in seeds if seed in failures]
    rule = "finish (the same call continues where the lost ones stopped)"
    error = RuntimeError(
        must("every member", rule, f"seeds {lost} lost, the first: {failures[lost[0]].text}")
    )
    for seed in lost:
        error.add_note(f"seed {seed}: {failures[seed].trace}")
    return error


def _exchange(ranks: Ranks, plan: _Plan) -> None:
    """Copy every member's checkpoint to the ranks whose folder lacks it."""
    done = ranks.gather(_done(plan))
    for seed, (_, run) in plan.members.items():
        holders = [rank for rank in range(ranks.size) if seed in done[rank]]
        if len(holders) < ranks.size and run.path is not None:
            content = ranks.together(partial(_read, run.path if ranks.rank == holders[0] else None))
            content = ranks.broadcast(content, holders[0])
            ranks.together(partial(_write, None if ranks.rank in holders else run.path, content))


def _read(path: Path | None) -> bytes:
    return b"" if path is None else path.read_bytes()


def _write(path: Path | None, content: bytes) -> None:
    """Write a checkpoint that another machine has read, in one step."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(
        f".{os.getpid()}.draft"
    )  # several processes of one machine may write the same
    draft.write_bytes(content)
    draft.replace(path)
