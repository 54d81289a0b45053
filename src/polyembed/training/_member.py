"""One member of an ensemble: its training, and the folder that outlives the process it trains in."""

import json
import math
import os
import re
import traceback
import zlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from polyembed._checks import class_name, must, require
from polyembed.tagging.tagger import SequenceTagger, Tagged
from polyembed.training.fit import (
    CHECKPOINT_NAME,
    Epoch,
    FitResult,
    check_fit,
    checksum,
    default_optimizer,
    fit,
    trained_state,
)

FORMAT_VERSION = 1
RUN_NAME = "run.json"
WEIGHTS_NAME = "model.safetensors"
RESULT_NAME = "result.json"

Build = Callable[[int], SequenceTagger]
MakeOptimizer = Callable[[SequenceTagger], Optimizer]
MakeScheduler = Callable[[Optimizer], LRScheduler | ReduceLROnPlateau]


class Task(NamedTuple):
    """What the trainings of all members have in common; `options` are those that `fit` takes as they are."""

    build: Build
    train: Sequence[Tagged]
    dev: Sequence[Tagged]
    optimizer: MakeOptimizer | None
    scheduler: MakeScheduler | None
    options: dict[str, Any]


class Failure(NamedTuple):
    """Why a member has no result."""

    text: str
    trace: str = ""

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        return cls(f"{class_name(error)}: {error}", "".join(traceback.format_exception(error)))


class Member(NamedTuple):
    """A member, and where it is kept."""

    seed: int
    tagger: SequenceTagger
    folder: "MemberFolder"


def build_member(build: Build, seed: int) -> SequenceTagger:
    """Make an untrained member whose random numbers come from its seed alone."""
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if started else ()
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        tagger = build(seed)
    if not isinstance(tagger, SequenceTagger):
        raise TypeError(must(f"build({seed})", "return a SequenceTagger", class_name(tagger)))
    return tagger


def train_member(
    task: Task, member: Member, *, device: torch.device, progress: bool | None, num_threads: int | None
) -> None:
    """Train a member on a device and leave its best state and its history in its folder."""
    home = member.tagger.device
    threads = torch.get_num_threads()
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        try:
            torch.set_num_threads(num_threads or threads)
            member.folder.begin()
            tagger = member.tagger.to(device)
            optimizer = make_optimizer(task, tagger)
            result = fit(
                tagger,
                task.train,
                task.dev,
                optimizer=optimizer,
                scheduler=make_scheduler(task, optimizer),
                checkpoint=member.folder.path,
                seed=member.seed,
                progress=progress,
                **task.options,
            )
            member.folder.finish(tagger, result)
        finally:
            member.tagger.to(home)
            torch.set_num_threads(threads)


def make_optimizer(task: Task, tagger: SequenceTagger) -> Optimizer:
    """Make a member's optimiser."""
    optimizer = default_optimizer(tagger) if task.optimizer is None else task.optimizer(tagger)
    if not isinstance(optimizer, Optimizer):
        raise TypeError(must("optimizer", "make an Optimizer", class_name(optimizer)))
    return optimizer


def make_scheduler(task: Task, optimizer: Optimizer) -> LRScheduler | ReduceLROnPlateau | None:
    """Make a member's schedule, if it has one."""
    scheduler = None if task.scheduler is None else task.scheduler(optimizer)
    if not isinstance(scheduler, LRScheduler | ReduceLROnPlateau | None):
        raise TypeError(must("scheduler", "make an LRScheduler", class_name(scheduler)))
    return scheduler


def describe_run(task: Task, seed: int, tagger: SequenceTagger) -> dict[str, Any]:
    """Say in JSON what a member's numbers depend on, after checking that it can be trained at all."""
    optimizer = make_optimizer(task, tagger)
    groups = [
        {key: _plain(value) for key, value in group.items() if key != "params"} for group in optimizer.param_groups
    ]
    scheduler = make_scheduler(task, optimizer)  # which writes to the groups
    checked = {key: value for key, value in task.options.items() if key not in ("max_grad_norm", "amp_dtype")}
    check_fit(tagger, task.train, task.dev, scheduler=scheduler, **checked)
    state = trained_state(tagger)
    numbers = [
        [name, class_name(module), {key: value for key, value in vars(module).items() if isinstance(value, Real)}]
        for name, module in tagger.named_modules()
    ]
    parts = re.sub(r" at 0x[0-9a-f]+", "", repr(tagger))  # what is no number: constraints, ways of pooling
    description = {
        "format_version": FORMAT_VERSION,
        "seed": seed,
        "train": checksum(tagger, task.train),
        "dev": checksum(tagger, task.dev),
        "tags": tagger.tags,
        "lexicon": None if tagger.lexicon is None else tagger.lexicon.checksum,
        "architecture": zlib.crc32(json.dumps(_plain([numbers, parts])).encode()),
        "parameters": {name: [str(value.dtype), *value.shape] for name, value in state.items()},
        "frozen": {name: _norm(value) for name, value in tagger.named_parameters() if name not in state},
        "optimizer": [class_name(optimizer), groups],
        "scheduler": None if scheduler is None else [class_name(scheduler), scheduler.state_dict()],
        **task.options,
    }
    plain: dict[str, Any] = _plain(description)
    return plain


class MemberFolder:
    """`run.json` says which run the folder is of; a member is done when its weights and `result.json` are there."""

    def __init__(self, path: Path, run: dict[str, Any]) -> None:
        self.path = path
        self.run = run

    @property
    def is_done(self) -> bool:
        return (self.path / WEIGHTS_NAME).is_file() and (self.path / RESULT_NAME).is_file()

    def check(self) -> None:
        """Refuse what another run has left here."""
        path = self.path / RUN_NAME
        if not path.exists():
            strange = [name for name in (CHECKPOINT_NAME, WEIGHTS_NAME, RESULT_NAME) if (self.path / name).exists()]
            require(not strange, str(self.path), "say which run it is of (remove it to start anew)", strange)
            return
        theirs = _read_json(path)
        differs = [key for key, value in self.run.items() if theirs.get(key) != value]
        require(not differs, str(self.path), "come from this run (remove it to start anew)", f"other {differs}")

    def begin(self) -> None:
        """Say which run the folder is of from now on."""
        self.write({RUN_NAME: json.dumps(self.run, indent=1).encode()})

    def finish(self, tagger: SequenceTagger, result: FitResult) -> None:
        """Keep a trained member, the result last; what only its training needed goes."""
        from safetensors.torch import save

        state = {name: value.detach().to("cpu", copy=True) for name, value in trained_state(tagger).items()}
        history = {"best": result.best._asdict(), "history": [epoch._asdict() for epoch in result.history]}
        weights = save({name: value.contiguous() for name, value in state.items()}, metadata={"format": "pt"})
        self.write({WEIGHTS_NAME: weights, RESULT_NAME: json.dumps(history, indent=1).encode()})
        (self.path / CHECKPOINT_NAME).unlink(missing_ok=True)

    def load(self, tagger: SequenceTagger) -> FitResult:
        """Give a member what its training came to."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self.path / WEIGHTS_NAME
        try:
            state: dict[str, Tensor] = load_file(path)
        except (SafetensorError, ValueError, OSError) as error:
            raise ValueError(must(str(path), "be an intact safetensors file", error)) from error
        shapes = {name: tuple(value.shape) for name, value in trained_state(tagger).items()}
        found = {name: tuple(value.shape) for name, value in state.items()}
        require(found == shapes, str(path), "hold the member's tensors", found)
        data = _read_json(self.path / RESULT_NAME)
        try:
            result = FitResult(Epoch(**data["best"]), tuple(Epoch(**epoch) for epoch in data["history"]))
        except (KeyError, TypeError) as error:
            raise ValueError(must(str(self.path / RESULT_NAME), "hold a training's result", repr(error))) from error
        tagger.load_state_dict(state, strict=False)
        return result

    def read(self) -> dict[str, bytes]:
        """Return the files of a finished member, for a machine that lacks them."""
        return {name: (self.path / name).read_bytes() for name in (RUN_NAME, WEIGHTS_NAME, RESULT_NAME)}

    def write(self, files: dict[str, bytes]) -> None:
        """Write files in the order given, each whole or not at all."""
        self.path.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            draft = self.path / f".{name}.{os.getpid()}.draft"  # several processes may write the same
            draft.write_bytes(content)
            draft.replace(self.path / name)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(must(str(path), "be JSON", error)) from error
    require(isinstance(data, dict), str(path), "hold a JSON object", class_name(data))
    return dict(data)


def _plain(value: Any) -> Any:
    """Turn a description into JSON values that are the same in every process; objects count by their names."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Tensor):
        return _plain(value.tolist())
    return str(value) if isinstance(value, torch.dtype) else getattr(value, "__qualname__", class_name(value))


def _norm(frozen: Tensor) -> str:
    """Tell pretrained vectors from others, whatever the last bits in which machines differ."""
    norm = torch.linalg.vector_norm(frozen.detach().double())
    return f"{list(frozen.shape)} of norm {float(norm):.6g}"
