"""A training loop for models of texts."""

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from polyembed._checks import class_name, must, require
from polyembed._fingerprint import describe_model
from polyembed._progress import progress_bar
from polyembed.tagging.classifiers import Labelled, LabelledPair
from polyembed.tagging.tagger import Tagged, Tagger
from polyembed.tagging.text_model import TextModel, count_words_of, to_device
from polyembed.training.options import DEFAULTS, FitOptions
from polyembed.training.runs import Run
from polyembed.training.scoring import Metric, measure
from polyembed.training.state import Epoch, FitResult, TrainingState

Item = Tagged | Labelled | LabelledPair
"""What a model is trained on: words with tags, words with a label, or a pair of texts with a label."""

POOL = 32
"""How many batches are sorted by length together."""


def fit(
    model: TextModel,
    train: Sequence[Item],
    dev: Sequence[Item],
    options: FitOptions = DEFAULTS,
    *,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    on_epoch: Callable[[Epoch], object] | None = None,
    progress: bool | None = None,
) -> FitResult:
    """Train a tagger or a classifier, keep the epoch that is best on the development set, or the
    mean of several.

    Batches hold texts of like length in random order. Every epoch draws its order and its dropout
    from `seed` and its own number, inside a fork of the global random state. So a run that was
    killed continues after its last finished epoch and reaches the same numbers. The checkpoint is
    of one run: options, data and initial weights must be the same (seed torch before the model is
    built); only `num_train_epochs`, `patience` and `max_decreases` may change.

    Args:
        model: What to train, on the device that it is on: a `SequenceTagger` or `TokenClassifier`,
            a `SequenceClassifier` or a `PairClassifier`.
        train: Objects with ``words`` and ``tags``; for a classifier ``words`` and ``label``, or
            ``first``, ``second`` and ``label``. Those without any word are left out.
        dev: The same, to choose the epoch by; words unseen in training get their vectors as in
            `predict`.
        options: Epochs, batch size, optimiser, metric and the rest.
        seed: Of the batches' order and of dropout.
        checkpoint: A folder for the state after each epoch; if it holds one, training continues
            from there.
        on_epoch: Called after each epoch.
        progress: Whether to show a progress bar; if None, only on a terminal.

    Returns:
        The best epoch and the history.

    Raises:
        ValueError: Nothing to train on or to measure, a tag or label outside the set, another
            number of tags than of words, a loss or weights that are not finite (the model then has
            the best epoch's weights), or a checkpoint that is damaged or of another run.
        TypeError: A wrapped model, as by `DistributedDataParallel`, or another module.
        RuntimeError: Another process uses the checkpoint's folder.
        OSError: The checkpoint's folder cannot be written to.

    Example:
        >>> from polyembed import Lexicon, SequenceTagger, SourceEmbedding
        >>> from polyembed.data import TaggedSentence
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> tagger = SequenceTagger(SourceEmbedding.from_embedding(torch.nn.Embedding(4, 8), lexicon), ["X", "VERB"])
        >>> data = [TaggedSentence(("me", "gusta"), ("X", "VERB"))] * 8
        >>> fit(tagger, data, data, FitOptions(num_train_epochs=1, metric="accuracy")).best.number
        1
    """
    training = Training(model, train, dev, options, seed=seed)
    with Run(checkpoint, {} if checkpoint is None else training.fingerprint()) as run:
        return training.run(run, on_epoch=on_epoch, progress=progress)


class Training:
    """One training of one model, checked before its first step; `fit`, ensembles and protocols run
    it.

    Args:
        model: See `fit`.
        train: See `fit`.
        dev: See `fit`.
        options: See `fit`.
        seed: See `fit`.
    """

    def __init__(
        self,
        model: TextModel,
        train: Sequence[Item],
        dev: Sequence[Item],
        options: FitOptions,
        *,
        seed: int,
    ) -> None:
        if not isinstance(model, TextModel):
            rule = "be a tagger or a classifier of this library, not wrapped (a loop of your own may wrap it)"
            raise TypeError(must("model", rule, class_name(model)))
        if not isinstance(options, FitOptions):
            raise TypeError(must("options", "be FitOptions", class_name(options)))
        self.model = model
        self.options = options
        self.seed = seed
        self.metric: str | Metric = (
            model.default_metric if options.metric is None else options.metric
        )
        numbered = [(i, item) for i, item in enumerate(train) if count_words(self.model, item)]
        self.train = [item for _, item in numbered]
        self.dev = list(dev)
        for item in self.dev:
            count_words(self.model, item)  # raises for another kind of item
        require(bool(self.train), "train", "hold at least one sentence with a word", "none")
        require(bool(self.dev), "dev", "hold at least one sentence", "none")
        optimizer = options.make_optimizer(model)
        model.check_items(self.train)
        for items in (self.train, self.dev):
            model.words_of(
                [model.text_of(item) for item in items]
            )  # raises where the words cannot be prepared
        self._check_labels("train", numbered)
        self._check_labels("dev", list(enumerate(self.dev)))
        self.gold = [model.labels_of(item) for item in self.dev]
        self.labels: Sequence[str] = getattr(model, "tags", None) or model.labels  # type: ignore[assignment]
        names = set(self.labels)
        for i, row in enumerate(self.gold):
            strange = next(
                (label for label in row if label is not None and label not in names), None
            )
            require(
                strange is None,
                f"dev[{i}]",
                f"have labels among {', '.join(sorted(names))}",
                repr(strange),
            )
        if isinstance(self.metric, str):
            try:
                measure(self.metric, self.gold, self.gold)  # type: ignore[arg-type]
            except ValueError as error:
                rule = "be one for these labels, as FitOptions(metric='accuracy')"
                raise ValueError(
                    must("metric", rule, f"{self.metric!r}, for which {error}")
                ) from error
        self.device = next(value.device for value in model.parameters() if value.requires_grad)
        scaler = torch.amp.GradScaler(self.device.type, enabled=options.amp_dtype == torch.float16)
        self.optimizer, self.scheduler = optimizer, options.make_scheduler(optimizer)
        self.state = TrainingState(
            model, [optimizer], [self.scheduler], scaler, average=options.average
        )

    def fingerprint(self, *, outcome: bool = False) -> dict[str, Any]:
        """Return all that changes the numbers of this training; with `outcome`, where it ends too."""
        ends = ("num_train_epochs", "patience", "max_decreases") if outcome else ()
        return {
            "kind": "outcome" if outcome else "fit",
            **{name: getattr(self.options, name) for name in ends},
            "seed": self.seed,
            "train": self.content(self.train),
            "dev": self.content(self.dev),
            **describe_model(self.model),
            "labels": list(self.labels),
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "metric": self.metric,
            **{
                name: getattr(self.options, name)
                for name in ("batch_size", "scheduler_interval", "max_grad_norm", "average")
            },
            "amp_dtype": str(self.options.amp_dtype),
        }

    def content(self, items: Sequence[Any]) -> list[Any]:
        """Return the words and labels of items."""
        model = self.model
        return [[*model.sentences_of(model.text_of(item)), model.labels_of(item)] for item in items]

    def run(
        self,
        run: Run,
        *,
        on_epoch: Callable[[Epoch], object] | None = None,
        progress: bool | None = None,
    ) -> FitResult:
        """Train from the run's last saved epoch to the end; leave the best epoch's weights in the model."""
        state, history, wanted = run.load(), self.state.history, self.options.num_train_epochs
        if state is not None:
            self.state.load_state_dict(state)
            history = self.state.history
            require(
                len(history) <= wanted,
                "num_train_epochs",
                f"be at least the {len(history)} of {run.path}",
                wanted,
            )
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            while len(history) < wanted and not self._is_stale():
                try:
                    epoch = self._epoch(len(history) + 1, progress)
                except ValueError:
                    self.state.restore_best()
                    raise
                self.state.add(epoch)
                run.save(self.state.state_dict())
                if on_epoch is not None:
                    on_epoch(epoch)
        self.state.restore_best()
        return self.state.result

    def _epoch(self, number: int, progress: bool | None) -> Epoch:
        start = time.perf_counter()
        torch.manual_seed(self.seed * 1_000_003 + number)
        self.model.train()
        total, batches = torch.zeros((), device=self.device), list(self._batches(number))
        for batch in progress_bar(batches, progress=progress, desc=f"epoch {number}"):
            total = total + self._step(batch)
        loss = float(total) / len(batches)
        require(math.isfinite(loss), "loss", "stay finite", f"{loss} in epoch {number}")
        try:
            with self._autocast():
                predicted = self.model.predict([self.model.text_of(item) for item in self.dev])
        except ValueError as error:
            if all(
                bool(value.isfinite().all())
                for value in self.model.parameters()
                if value.requires_grad
            ):
                raise
            found = f"NaN or infinities in epoch {number}: the training has diverged"
            raise ValueError(must("weights", "stay finite", found)) from error
        score = measure(self.metric, self.gold, predicted)
        require(math.isfinite(score), "metric", "give a finite score", f"{score} in epoch {number}")
        if self.options.scheduler_interval == "epoch" and self.scheduler is not None:
            self.scheduler.step(*([score] if isinstance(self.scheduler, ReduceLROnPlateau) else []))  # type: ignore[arg-type]
        return Epoch(number, loss, score, time.perf_counter() - start)

    def _step(self, batch: list[Item]) -> Tensor:
        arguments = to_device(self.model.collate(batch), self.device)
        with self._autocast():
            loss: Tensor = self.model(**arguments)
        optimizer, scaler = self.optimizer, self.state.scaler
        assert scaler is not None
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if self.options.max_grad_norm is not None:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.options.max_grad_norm)
        scaler.step(optimizer)
        scaler.update()
        if self.options.scheduler_interval == "step" and self.scheduler is not None:
            self.scheduler.step()
        return loss.detach()

    def _autocast(self) -> AbstractContextManager[Any]:
        dtype = self.options.amp_dtype
        return nullcontext() if dtype is None else torch.autocast(self.device.type, dtype=dtype)

    def _is_stale(self) -> bool:
        history, patience, decreases = (
            self.state.history,
            self.options.patience,
            self.options.max_decreases,
        )
        if patience is not None and history and len(history) - self.state.best.number >= patience:
            return True
        if decreases is None or len(history) <= decreases:
            return False
        return all(
            after.score < before.score for before, after in pairwise(history[-1 - decreases :])
        )

    def _batches(self, epoch: int) -> Iterator[list[Item]]:
        """Yield batches of like length in random order: shuffle, sort inside pools of batches, shuffle batches."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        lengths = [count_words(self.model, item) for item in self.train]
        order = torch.randperm(len(lengths), generator=generator).tolist()
        size = self.options.batch_size
        pools = [
            sorted(order[i : i + POOL * size], key=lengths.__getitem__)
            for i in range(0, len(order), POOL * size)
        ]
        batches = [chunk[i : i + size] for chunk in pools for i in range(0, len(chunk), size)]
        for i in torch.randperm(len(batches), generator=generator).tolist():
            yield [self.train[k] for k in batches[i]]

    def _check_labels(self, name: str, items: Sequence[tuple[int, Item]]) -> None:
        """Require a tag for each word, and at least one label that is known."""
        known = False
        for i, item in items:
            labels = self.model.labels_of(item)
            known = known or any(label is not None for label in labels)
            if isinstance(self.model, Tagger):
                count = count_words(self.model, item)
                require(
                    len(labels) == count,
                    f"{name}[{i}].tags",
                    f"be as many as the words, {count}",
                    len(labels),
                )
        require(known, name, "hold at least one known label", "none")


def count_words(model: TextModel, item: Any) -> int:
    """Return the number of words of a labelled text; raise a `TypeError` for one that the model cannot train on."""
    fields = model.item_fields
    missing = [name for name in fields if not hasattr(item, name)]
    if missing:
        rule = f"have {' and '.join(fields)} for a {class_name(model)}"
        raise TypeError(
            must("a labelled text", rule, f"{class_name(item)} without {' and '.join(missing)}")
        )
    return count_words_of(model.sentences_of(model.text_of(item)))
