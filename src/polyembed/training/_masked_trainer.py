"""Transformers' Trainer over a stream of masked batches: its checkpoints, and the state that it changes."""

import hashlib
import json
import math
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from polyembed._checks import import_optional, must
from polyembed._progress import progress_bar
from polyembed.training._masked_batches import MaskedStream, step_seed

COMPLETE_NAME = "complete"
"""The file that is written last into a checkpoint: the digests of all others."""


def train(
    model: nn.Module,
    stream: MaskedStream,
    args: Any,
    checkpoint: Path | None,
    *,
    progress: bool | None,
) -> tuple[float, ...]:
    """Train on a stream by transformers' Trainer, from a checkpoint if there is one; return the logged losses."""
    from transformers import PrinterCallback, Trainer, TrainerCallback

    class Follow(TrainerCallback):
        """Seeds each step, logs the last one, marks whole checkpoints, stops at a loss that is not finite."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            options = {"total": state.max_steps, "initial": state.global_step, "desc": "steps"}
            self.bar = progress_bar(progress=progress, **options)

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            torch.manual_seed(step_seed("dropout", args.seed, state.global_step))

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.bar.update()
            control.should_log = control.should_log or state.global_step == state.max_steps
            if state.global_step == state.max_steps:
                control.should_save = False  # the last weights are saved with the result

        def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            loss = kwargs["logs"].get("loss", 0.0)
            if not math.isfinite(loss):
                raise ValueError(
                    must("loss", "stay finite", f"{loss} up to step {state.global_step}")
                )

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
            (folder / COMPLETE_NAME).write_text(json.dumps(_digests(folder)))

    class Streaming(Trainer):
        """A Trainer that takes its batches from the stream."""

        def get_train_dataloader(self) -> Any:
            return DataLoader(stream, batch_size=None)

    follow = Follow()
    trainer = Streaming(model=model, args=args, train_dataset=stream, callbacks=[follow])
    trainer.remove_callback(PrinterCallback)  # it writes to stdout
    try:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    finally:
        if hasattr(follow, "bar"):
            follow.bar.close()
    return tuple(entry["loss"] for entry in trainer.state.log_history if "loss" in entry)


def last_checkpoint(folder: Path) -> Path | None:
    """Return the last whole checkpoint in a folder, and remove the incomplete ones; refuse one with a changed file."""
    whole: list[tuple[int, Path]] = []
    for path in folder.glob("checkpoint-*"):
        if (path / COMPLETE_NAME).exists():
            whole.append((int(path.name.rpartition("-")[2]), path))
        else:
            shutil.rmtree(path)
    if not whole:
        return None
    found = max(whole)[1]
    if (found / COMPLETE_NAME).read_text() != json.dumps(_digests(found)):
        rule = "be a whole checkpoint (remove it to continue from the one before)"
        raise ValueError(must(str(found), rule, "damaged files"))
    return found


def _digests(folder: Path) -> dict[str, str]:
    """Return a digest of each file of a checkpoint."""
    digests = {}
    for path in sorted(folder.iterdir()):
        if path.name != COMPLETE_NAME:
            with path.open("rb") as file:
                digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Restore afterwards what a Trainer changes: modes, random states, verbosity, accelerate's state."""
    import numpy as np
    from transformers.utils import logging as verbosity

    modes = [(module, module.training) for module in model.modules()]
    wrapping = (
        "forward",
        "_original_forward",
        "_is_accelerate_prepared",
    )  # accelerate's, for autocast
    own = {name: value for name, value in vars(model).items() if name in wrapping}
    missing = object()
    use_cache = getattr(model.config, "use_cache", missing)
    level, bars = verbosity.get_verbosity(), verbosity.is_progress_bar_enabled()
    singletons = import_optional("accelerate.state")
    kinds = (singletons.PartialState, singletons.AcceleratorState, singletons.GradientState)
    states = [(kind._shared_state, dict(kind._shared_state)) for kind in kinds]
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            verbosity.set_verbosity_error()  # type: ignore[no-untyped-call]
            verbosity.disable_progress_bar()  # type: ignore[no-untyped-call]  # each checkpoint would show one
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        for live, saved in states:
            live.clear()
            live.update(saved)
        verbosity.set_verbosity(level)
        if bars:
            verbosity.enable_progress_bar()  # type: ignore[no-untyped-call]
        if use_cache is not missing:
            model.config.use_cache = use_cache  # type: ignore[union-attr]
        for name in wrapping:
            vars(model).pop(name, None)
        vars(model).update(own)
        for module, training in modes:
            module.training = training
        model.zero_grad(set_to_none=True)
