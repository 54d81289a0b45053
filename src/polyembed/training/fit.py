"""A training loop for those who have none of their own."""

import itertools
import math
import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from polyembed._checks import check_choice, check_positive, class_name, must, require
from polyembed.metrics import MetricName, accuracy, entity_f1, macro_f1
from polyembed.tagging.classifiers import Labelled, LabelledPair
from polyembed.tagging.tagger import Tagged
from polyembed.tagging.text_model import TextModel, count_words_of, to_device
from polyembed.training._checkpoint import check_tensors, read, write

CHECKPOINT_NAME = "checkpoint.pt"
Item = Tagged | Labelled | LabelledPair
"""What a model is trained on: words with tags, words with a label, or a pair of texts with a label."""
Metric = Callable[[Sequence[Sequence[str]], Sequence[Sequence[str]]], float]


class Epoch(NamedTuple):
    """What one epoch came to.

    Attributes:
        number: Counted from 1.
        loss: The mean training loss, in nats.
        score: The metric on the development set.
        seconds: Training and evaluation together.
    """

    number: int
    loss: float
    score: float
    seconds: float


class FitResult(NamedTuple):
    """What a training came to; the model holds the best epoch's weights.

    Attributes:
        best: The best epoch.
        history: All epochs.
    """

    best: Epoch
    history: tuple[Epoch, ...]


def fit(
    model: TextModel,
    train: Sequence[Item],
    dev: Sequence[Item],
    *,
    num_train_epochs: int = 20,
    batch_size: int = 32,
    optimizer: Optimizer | None = None,
    scheduler: LRScheduler | ReduceLROnPlateau | None = None,
    scheduler_interval: Literal["epoch", "step"] = "epoch",
    metric: MetricName | Metric | None = None,
    patience: int | None = None,
    max_decreases: int | None = None,
    max_grad_norm: float | None = 1.0,
    amp_dtype: torch.dtype | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> FitResult:
    """Train a tagger or a classifier, keep the epoch that is best on the development set.

    Batches hold texts of like length in random order. Every epoch draws its order and its dropout from `seed`
    and its own number, inside a fork of the global random state: a run that was killed goes on from its last
    finished epoch to the very numbers that it would have reached.

    Args:
        model: What to train, on the device that it is on: a `SequenceTagger` or `TokenClassifier`, a
            `SequenceClassifier` or a `PairClassifier`.
        train: Objects with ``words`` and ``tags``; for a classifier ``words`` and ``label``, or ``first``, ``second``
            and ``label``. Those without any word are left out.
        dev: The same, to choose the epoch by; words unseen in training get their vectors as in `predict`.
        num_train_epochs: The most epochs.
        batch_size: Texts a step.
        optimizer: Over the model's parameters; Adam with a learning rate of 1e-3 if None.
        scheduler: Stepped after each epoch or step; a `ReduceLROnPlateau` sees the score (give it ``mode="max"``).
        scheduler_interval: When the scheduler steps.
        metric: Entity micro-F1 as conlleval counts (``"f1"``, a tagger's if None), accuracy (a classifier's if None),
            the mean F1 of the labels (``"macro_f1"``), or a function of gold and predicted labels, one list a text
            (a classifier's lists hold one label); higher is better.
        patience: Stop after so many epochs without a better score; None = never.
        max_decreases: Stop when the score has fallen so many times in a row, each time below the epoch before (Prechelt
            1998, UP); None = never.
        max_grad_norm: Clip the gradient's norm to this; None = never.
        amp_dtype: Autocast forward passes to this dtype; float16 with loss scaling.
        checkpoint: A folder for the state after each epoch; if it holds one, training goes on from there.
        seed: Of the batches' order and of dropout.
        progress: Whether to show a progress bar; if None, only on a terminal.

    Returns:
        The best epoch and the history.

    Raises:
        ValueError: Nothing to train on, a tag or label outside the set, a loss that is not finite, or a checkpoint of
            another run.
        TypeError: A wrapped model, as by `DistributedDataParallel`, or another module.

    Example:
        >>> from polyembed import Lexicon, SequenceTagger, SourceEmbedding
        >>> from polyembed.data import TaggedSentence
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> tagger = SequenceTagger(SourceEmbedding.from_embedding(torch.nn.Embedding(4, 8), lexicon), ["X", "VERB"])
        >>> data = [TaggedSentence(("me", "gusta"), ("X", "VERB"))] * 8
        >>> fit(tagger, data, data, num_train_epochs=1, metric="accuracy").best.number
        1
    """
    if not isinstance(model, TextModel):
        rule = "be a tagger or a classifier of this library, not wrapped (a loop of your own may wrap it)"
        raise TypeError(must("model", rule, class_name(model)))
    metric = model.default_metric if metric is None else metric
    train, dev = [item for item in train if _length(model, item)], list(dev)
    check_fit(
        model,
        train,
        dev,
        scheduler=scheduler,
        num_train_epochs=num_train_epochs,
        batch_size=batch_size,
        scheduler_interval=scheduler_interval,
        metric=metric,
        patience=patience,
        max_decreases=max_decreases,
    )
    trainable = {name: value for name, value in model.named_parameters() if value.requires_grad}
    optimizer = default_optimizer(model) if optimizer is None else optimizer
    held = {id(value) for group in optimizer.param_groups for value in group["params"]}
    trains = any(id(value) in held for value in trainable.values())
    require(trains, "optimizer", "hold parameters of the model", "none")
    gold = [model.labels_of(item) for item in dev]
    device = next(iter(trainable.values())).device
    run = _Run(model, optimizer, scheduler, torch.amp.GradScaler(device.type, enabled=amp_dtype == torch.float16))
    fingerprint = {
        "seed": seed,
        "batch_size": batch_size,
        "train": checksum(model, train),
        "dev": checksum(model, dev),
        **model.signature(),
        "parameters": {name: list(value.shape) for name, value in trainable.items()},
        "optimizer": f"{class_name(optimizer)} {optimizer.defaults}",
        "scheduler": class_name(scheduler),
        "metric": metric if isinstance(metric, str) else getattr(metric, "__name__", class_name(metric)),
    }
    path = None if checkpoint is None else Path(checkpoint) / CHECKPOINT_NAME
    if path is not None and path.exists():
        run.load(path, fingerprint, device)

    def autocast() -> AbstractContextManager[Any]:
        return nullcontext() if amp_dtype is None else torch.autocast(device.type, dtype=amp_dtype)

    def train_epoch(number: int) -> float:
        model.train()
        total, steps = torch.zeros((), device=device), 0
        batches = list(_bucketed(model, train, batch_size, seed=seed, epoch=number))
        for batch in _progress(batches, progress, f"epoch {number}"):
            arguments = {name: to_device(value, device) for name, value in model.collate(batch).items()}
            with autocast():
                loss = model(**arguments)
            run.step(loss, max_grad_norm, step_scheduler=scheduler_interval == "step")
            total, steps = total + loss.detach(), steps + 1
        return float(total) / steps

    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        while len(run.history) < num_train_epochs and not run.is_stale(patience, max_decreases):
            number = len(run.history) + 1
            start = time.perf_counter()
            torch.manual_seed(seed * 1_000_003 + number)
            loss = train_epoch(number)
            if not math.isfinite(loss):
                run.restore_best()
                raise ValueError(must("loss", "stay finite", f"{loss} in epoch {number}"))
            with autocast():
                predicted = model.predict([model.text_of(item) for item in dev])
            score = measure(metric, gold, predicted)
            require(math.isfinite(score), "metric", "give a finite score", f"{score} in epoch {number}")
            if scheduler_interval == "epoch":
                run.step_scheduler(score)
            run.finish(Epoch(number, loss, score, time.perf_counter() - start))
            if path is not None:
                run.save(path, fingerprint)
    run.restore_best()
    return FitResult(run.best, tuple(run.history))


def check_fit(
    model: TextModel,
    train: Sequence[Item],
    dev: Sequence[Item],
    *,
    scheduler: LRScheduler | ReduceLROnPlateau | None,
    num_train_epochs: int,
    batch_size: int,
    scheduler_interval: str,
    metric: str | Metric,
    patience: int | None,
    max_decreases: int | None = None,
) -> None:
    """Raise what would make `fit` fail before its first step, rather than in the middle of an epoch."""
    stops = {"patience": patience, "max_decreases": max_decreases}
    given = {name: value for name, value in stops.items() if value is not None}
    check_positive(num_train_epochs=num_train_epochs, batch_size=batch_size, **given)
    check_choice("scheduler_interval", scheduler_interval, ("epoch", "step"))
    if scheduler_interval == "step" and isinstance(scheduler, ReduceLROnPlateau):
        raise ValueError(must("scheduler_interval", "be 'epoch' for a ReduceLROnPlateau", "'step'"))
    if isinstance(metric, str):
        check_choice("metric", metric, METRICS)
    require(any(_length(model, item) for item in train), "train", "hold at least one sentence with a word", "none")
    require(len(dev) > 0, "dev", "hold at least one sentence", "none")
    trains = any(value.requires_grad for value in model.parameters())
    require(trains, "model", "have a parameter that requires a gradient", "none")
    model.check_items(train)
    if isinstance(metric, str):
        gold = [model.labels_of(item) for item in dev]
        measure(metric, gold, gold)


def default_optimizer(model: TextModel) -> Optimizer:
    """Make the optimiser of a caller who gives none."""
    return Adam([value for value in model.parameters() if value.requires_grad], lr=1e-3)


def trained_state(model: TextModel) -> dict[str, Tensor]:
    """Return what training changes, by name: a tied parameter once, frozen tables never."""
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    trained |= {name for name, _ in model.named_buffers()}
    return {name: value for name, value in model.state_dict().items() if name in trained}


class _Run:
    """Everything that a killed training needs to go on; frozen tables never change and stay out of it."""

    def __init__(
        self,
        model: TextModel,
        optimizer: Optimizer,
        scheduler: LRScheduler | ReduceLROnPlateau | None,
        scaler: torch.amp.GradScaler,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.scaler = scaler
        self.history: list[Epoch] = []
        self.best_state: dict[str, Tensor] = {}

    @property
    def best(self) -> Epoch:
        return max(self.history, key=lambda epoch: epoch.score)  # the first of equals

    def is_stale(self, patience: int | None, max_decreases: int | None) -> bool:
        if patience is not None and self.history and len(self.history) - self.best.number >= patience:
            return True
        if max_decreases is None or len(self.history) <= max_decreases:
            return False
        last = [epoch.score for epoch in self.history[-1 - max_decreases :]]
        return all(after < before for before, after in itertools.pairwise(last))

    def step(self, loss: Tensor, max_grad_norm: float | None, *, step_scheduler: bool) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if max_grad_norm is not None:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if step_scheduler and self.scheduler is not None:
            self.scheduler.step()

    def step_scheduler(self, score: float) -> None:
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step(score)
        elif self.scheduler is not None:
            self.scheduler.step()

    def finish(self, epoch: Epoch) -> None:
        self.history.append(epoch)
        if self.best is epoch:
            self.best_state = {name: value.clone() for name, value in trained_state(self.model).items()}

    def restore_best(self) -> None:
        """Give the model the best epoch's weights, if there is one."""
        self.model.load_state_dict(self.best_state, strict=False)

    def save(self, path: Path, fingerprint: dict[str, Any]) -> None:
        state = {
            "history": [tuple(epoch) for epoch in self.history],
            "model": trained_state(self.model),
            "best": self.best_state,
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "scaler": self.scaler.state_dict(),
        }
        write(path, fingerprint, state)

    def load(self, path: Path, fingerprint: dict[str, Any], device: torch.device) -> None:
        def parse(data: dict[str, Any]) -> tuple[list[Epoch], list[Any]]:
            parts = [data[name] for name in ("model", "best", "optimizer", "scheduler", "scaler")]
            return [Epoch(*epoch) for epoch in data["history"]], parts

        history, (model, best, optimizer, scheduler, scaler) = read(path, fingerprint, device, parse)
        check_tensors(path, trained_state(self.model), model, best)
        self.history, self.best_state = history, best
        self.model.load_state_dict(model, strict=False)
        self.optimizer.load_state_dict(optimizer)
        if self.scheduler is not None:
            self.scheduler.load_state_dict(scheduler)
        self.scaler.load_state_dict(scaler)


def _bucketed(
    model: TextModel, items: Sequence[Item], batch_size: int, *, seed: int, epoch: int, pool: int = 32
) -> Iterator[list[Item]]:
    """Yield batches of like length in random order: shuffle, sort inside pools of batches, shuffle batches."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    lengths = [_length(model, item) for item in items]
    order = torch.randperm(len(items), generator=generator).tolist()
    size = pool * batch_size
    pools = [sorted(order[i : i + size], key=lengths.__getitem__) for i in range(0, len(order), size)]
    batches = [chunk[i : i + batch_size] for chunk in pools for i in range(0, len(chunk), batch_size)]
    for i in torch.randperm(len(batches), generator=generator).tolist():
        yield [items[k] for k in batches[i]]


def measure(metric: str | Metric, gold: list[list[str]], predicted: Sequence[Sequence[str] | str]) -> float:
    """Score predictions, one list of labels a text or one label, by a metric or its name."""
    labels = [[found] if isinstance(found, str) else found for found in predicted]
    # a number of another library would not be saved
    return float(metric(gold, labels)) if callable(metric) else METRICS[metric](gold, labels)


def _micro_f1(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    return entity_f1(gold, predicted, mode="conll").f1


METRICS: dict[str, Metric] = {"f1": _micro_f1, "accuracy": accuracy, "macro_f1": macro_f1}


def _progress(batches: list[list[Item]], progress: bool | None, description: str) -> Iterator[list[Item]]:
    from tqdm import tqdm

    disable = None if progress is None else not progress  # tqdm's None: off where there is no terminal
    yield from tqdm(batches, desc=description, leave=False, disable=disable)


def checksum(model: TextModel, items: Sequence[Item]) -> int:
    """Tell a data set from others."""
    checksum = 0
    for item in items:
        parts = [*model.sentences_of(model.text_of(item)), model.labels_of(item)]
        text = "\0".join(name for part in parts for name in (*part, ""))
        checksum = zlib.crc32(text.encode("utf-8", "surrogatepass"), checksum)
    return checksum


def _length(model: TextModel, item: Item) -> int:
    return count_words_of(model.sentences_of(model.text_of(item)))
