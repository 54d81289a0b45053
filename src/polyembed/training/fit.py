"""A training loop for models of texts, and batches for other training loops."""

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from polyembed._batches import batches_by_length, progress_bar
from polyembed._checks import must, require, require_type
from polyembed.encoders import CharWordEncoder, PretrainedWordEncoder
from polyembed.metrics import settled
from polyembed.tagging.classifiers import Labelled
from polyembed.tagging.ensemble import VotingEnsemble
from polyembed.tagging.tagger import SequenceTagger, Tagged
from polyembed.tagging.text_model import TextModel, to_device
from polyembed.training.options import DEFAULTS, FitOptions, measure, parameters_of
from polyembed.training.state import Epoch, FitResult, TrainingState, best_epoch, sizes_of

Item = Tagged | Labelled
"""A training item: words with tags, words with a label, or a labelled pair of texts."""


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
    """Train a tagger or a classifier and keep the weights of the best epoch on `dev`.

    Batches hold texts of similar length in random order. The order and the dropout of an epoch
    follow from `seed` and the epoch's number, inside a fork of the global random state. So an
    interrupted training continues after its last finished epoch and reaches the same numbers. Its
    checkpoint is refused if options, sizes, tags or the numbers of texts differ; only
    `num_train_epochs`, `patience`, `max_decreases` and `scheme` may change. Other texts, vectors or
    words of the same number are not noticed: use another folder for them.

    Args:
        model: The model to train, on the device that it is on: a `SequenceTagger` or
            `TokenClassifier`, a `SequenceClassifier`, a `PairClassifier` or a `VotingEnsemble`.
        train: Objects with ``words`` and ``tags``; for a classifier ``words`` and ``label``, or
            ``first``, ``second`` and ``label``. Objects without any word are left out.
        dev: Objects of the same kind, by which the best epoch is chosen. Words unseen in training
            get their vectors as in `predict`.
        options: The epochs, batch size, optimiser, metric and the rest.
        seed: The seed of the batches' order and of dropout.
        checkpoint: A folder for the state after each epoch; if it holds one, training continues
            from there. The class and the numbers of a schedule are compared, but not the functions
            that it calls, as a `LambdaLR` does.
        on_epoch: A function that is called after each epoch.
        progress: Whether to show a progress bar; if None, only on a terminal.

    Returns:
        The best epoch and the history.

    Raises:
        ValueError: If `train` has no word; if `train` or `dev` has no known label; if a tag or
            label of `train` is outside the set; if a sentence has another number of tags than of
            words; if the loss, the weights or the score are not finite (the model then has the
            weights of the best epoch, if one was finished); or if a checkpoint is damaged or of
            another training.
        TypeError: If the model is wrapped, as by `DistributedDataParallel`, or is another module.

    Example:
        >>> from polyembed import Lexicon, SequenceTagger, SourceEmbedding
        >>> from polyembed.data import TaggedSentence
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> words = SourceEmbedding.from_embedding(torch.nn.Embedding(4, 8), lexicon)
        >>> tagger = SequenceTagger(words, ["X", "VERB"])
        >>> data = [TaggedSentence(("me", "gusta"), ("X", "VERB"))] * 8
        >>> fit(tagger, data, data, FitOptions(num_train_epochs=1, metric="accuracy")).best.number
        1
    """
    rule = "be a tagger or a classifier of this library, not wrapped"
    require_type(isinstance(model, TextModel), "model", rule, model)
    training = _Training(model, train, dev, options, seed, checkpoint)
    state = training.state
    devices = [training.device] if training.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        while len(state.history) < training.num_epochs and not _is_stale(state.history, options):
            try:
                epoch = training.epoch(len(state.history) + 1, progress)
            except ValueError:
                state.restore_best()
                raise
            state.add(epoch)
            state.save()
            if on_epoch is not None:
                on_epoch(epoch)
    state.restore_best()
    return state.result


class _Training:
    """The epochs of one training; all arguments are checked before the first step."""

    def __init__(
        self,
        model: TextModel,
        train: Sequence[Item],
        dev: Sequence[Item],
        options: FitOptions,
        seed: int,
        checkpoint: str | os.PathLike[str] | None,
    ) -> None:
        self.model = model
        self.seed = int(seed) % 2**43  # each epoch multiplies it, and generators take 64 bits
        train, dev = list(train), list(dev)
        self.train = [item for item in train if any(map(len, self._sentences(item)))]
        self.options = options = options.for_training(model, len(self.train))
        self.num_epochs, self.batch_size = options.num_train_epochs or 1, options.batch_size or 1
        self.dev = dev
        require(bool(self.train), "train", "hold at least one sentence with a word", "none")
        for name, items in (("train", train), ("dev", dev)):
            self.gold = []  # in the end, the labels of dev
            for i, item in enumerate(items):
                try:
                    self.gold.append(model.labels_of(item))
                    model.words_of([model.text_of(item)], i)  # raises if they cannot be prepared
                except ValueError as error:
                    raise ValueError(f"{name}[{i}]: {error}") from error
            known = any(label is not None for labels in self.gold for label in labels)
            require(known, name, "hold a label that is known", "none")
        model.check_items(train)
        if isinstance(options.metric, str):
            try:
                plain = [list(map(settled, labels)) for labels in self.gold]
                measure(options, plain, plain)
            except ValueError as error:
                rule = "be one for these labels, as FitOptions(metric='accuracy')"
                raise ValueError(must("metric", rule, f"{options.metric}: {error}")) from error
        self.optimizer = options.make_optimizer(model)
        rates = repr(self.optimizer)  # a schedule changes them
        steps = self.num_epochs * -(-len(self.train) // self.batch_size)
        self.scheduler = options.make_scheduler(self.optimizer, steps)
        self.lengths = self._lengths()
        self.device = model.device
        self.scaler = torch.amp.GradScaler(
            self.device.type, enabled=options.amp_dtype == torch.float16
        )
        about = {
            "batch_size": options.batch_size,
            "scheduler_interval": options.scheduler_interval,
            "max_grad_norm": options.max_grad_norm,
            "amp_dtype": str(options.amp_dtype),
            "metric": options.metric_name,
            "seed": self.seed,
            "model": sizes_of(model),
            "optimizer": rates,
            # the default schedule follows from the optimizer and the number of epochs
            "scheduler": repr(options.scheduler and self.scheduler and self.scheduler.state_dict()),
            "tags": getattr(model, "tags", None) or getattr(model, "labels", None),
            "train": len(self.train),
            "dev": len(self.dev),
        }
        others = self.optimizer, self.scheduler, self.scaler
        self.state = TrainingState(model, others, checkpoint=checkpoint, about=about)

    def epoch(self, number: int, progress: bool | None) -> Epoch:
        """Train for one epoch, and evaluate."""
        start = time.perf_counter()
        self.state.begin()
        torch.manual_seed(self.seed * 1_000_003 + number)
        self.model.train()
        total, batches = torch.zeros((), device=self.device), list(self._batches(number))
        history = self.state.history
        last = f", {self.options.metric_name} {history[-1].score:.4f}" if history else ""
        for batch in progress_bar(batches, progress=progress, desc=f"epoch {number}{last}"):
            total = total + self._step(batch)
        loss = float(total) / len(batches)
        require(math.isfinite(loss), "loss", "stay finite", f"{loss} in epoch {number}")
        values = (value for value in self.model.parameters() if value.requires_grad)
        finite = all(bool(value.isfinite().all()) for value in values)
        found = f"NaN or infinities in epoch {number}: the training has diverged"
        require(finite, "weights", "stay finite", found)
        with self._autocast():
            predicted = self.model.predict([self.model.text_of(item) for item in self.dev])
        score = measure(self.options, self.gold, predicted)
        require(math.isfinite(score), "metric", "give a finite score", f"{score} in epoch {number}")
        if self.options.scheduler_interval == "epoch" and self.scheduler is not None:
            plateau = isinstance(self.scheduler, ReduceLROnPlateau)
            self.scheduler.step(*([score] if plateau else []))  # type: ignore[arg-type]
        return Epoch(number, loss, score, time.perf_counter() - start)

    def _step(self, batch: list[Item]) -> Tensor:
        arguments = to_device(self.model.collate(batch), self.device)
        with self._autocast():
            loss: Tensor = self.model(**arguments)
        self.model.zero_grad(set_to_none=True)  # the optimiser may hold a part of the model
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if self.options.max_grad_norm is not None:
            self.scaler.unscale_(self.optimizer)
            held = parameters_of(self.optimizer)
            values = [value for value in self.model.parameters() if value in held]
            torch.nn.utils.clip_grad_norm_(values, self.options.max_grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.options.scheduler_interval == "step" and self.scheduler is not None:
            self.scheduler.step()
        return loss.detach()

    def _autocast(self) -> torch.autocast:
        dtype = self.options.amp_dtype
        return torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None)

    def _batches(self, epoch: int) -> Iterator[list[Item]]:
        """Yield batches of texts of similar length, in random order.

        Texts are shuffled, then sorted inside pools of batches, then batches are shuffled.
        """
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        order = torch.randperm(len(self.lengths), generator=generator).tolist()
        batches = list(batches_by_length(order, self.batch_size, self.lengths.__getitem__))
        for i in torch.randperm(len(batches), generator=generator).tolist():
            yield [self.train[k] for k in batches[i]]

    def _sentences(self, item: Item) -> Sequence[Sequence[str]]:
        return self.model.sentences_of(self.model.text_of(item))

    def _lengths(self) -> list[int]:
        """Return the length of each training text, in what an encoder reads, if there is one."""
        texts = map(self._sentences, self.train)
        encoder: Any = next(filter(_reads_texts, self.model.modules()), None)
        if encoder is None:
            return [sum(map(len, text)) for text in texts]
        prepared = getattr(self.model, "prepared", list)  # as the encoder reads the words
        return [int(encoder.pieces(prepared(text)).piece_mask.sum()) for text in texts]


def _reads_texts(part: nn.Module) -> bool:
    if isinstance(part, CharWordEncoder):  # before its encoder, which then reads no pieces
        return part.unit == "word"
    return isinstance(part, PretrainedWordEncoder) and part.tokenizer is not None


def _is_stale(history: Sequence[Epoch], options: FitOptions) -> bool:
    patience, decreases = options.patience, options.max_decreases
    if patience and history and len(history) - best_epoch(history).number >= patience:
        return True
    if decreases is None or len(history) <= decreases:
        return False
    return all(after.score < before.score for before, after in pairwise(history[-1 - decreases :]))


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
    build: Callable[[int], SequenceTagger],
    train: Sequence[Tagged],
    dev: Sequence[Tagged],
    options: FitOptions = DEFAULTS,
    *,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    vote: Literal["hard", "soft", "entity"] = "hard",
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> EnsembleResult:
    """Train a member per seed, and let the members vote (HME-Ensemble of Winata 2021).

    Each member is the result of ``fit(build(seed), train, dev, options, seed=seed)``. With a
    `folder`, the same call continues where an interrupted call stopped, and reads finished members.
    Several processes can share the work by training different ``seeds`` in one folder; a last call
    with all seeds reads the members.

    Args:
        build: A function from a seed to an untrained tagger; it is called with torch's random state
            seeded. Members may share frozen parts, such as word vectors or a frozen encoder.
        train: Objects with ``words`` and ``tags``.
        dev: Objects of the same kind, by which each member's best epoch is chosen.
        options: The options of `fit`.
        seeds: A seed per member, for its initial weights, its batches and its dropout.
        vote: How the ensemble votes; see `VotingEnsemble`.
        folder: The folder of the members' checkpoints, in ``member-<seed>``; not written if None.
        progress: Whether to show a progress bar; if None, only on a terminal.

    Returns:
        The ensemble and the history of each member.

    Raises:
        ValueError: If `fit` or `VotingEnsemble` raises one, or two members share parameters that
            are trained.

    Example:
        >>> from polyembed import Lexicon, SourceEmbedding
        >>> from polyembed.data import TaggedSentence
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> def build(seed):
        ...     words = SourceEmbedding.from_embedding(torch.nn.Embedding(4, 8), lexicon)
        ...     return SequenceTagger(words, ["X", "VERB"])
        >>> data = [TaggedSentence(("me", "gusta"), ("X", "VERB"))] * 8
        >>> options = FitOptions(num_train_epochs=1, metric="accuracy")
        >>> len(fit_ensemble(build, data, data, options, seeds=[0, 1]).ensemble.members)
        2
    """
    train, dev, seeds = list(train), list(dev), list(seeds)
    require(len(set(seeds)) == len(seeds), "seeds", "be different", seeds)
    members, results, trained = [], [], set[Tensor]()
    for seed in seeds:
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            torch.manual_seed(seed)
            member = build(seed)
        VotingEnsemble([member], vote=vote)  # refuses a vote before it trains
        rule = "build new parameters for each seed (copy.deepcopy a trained encoder)"
        require(trained.isdisjoint(member.parameters()), "build", rule, "those of another member")
        trained |= {value for value in member.parameters() if value.requires_grad}
        place = None if folder is None else Path(folder, f"member-{seed}")
        result = fit(member, train, dev, options, seed=seed, checkpoint=place, progress=progress)
        members.append(member)
        results.append(result)
    return EnsembleResult(VotingEnsemble(members, vote=vote).eval(), tuple(results))


class DataCollatorForWords:
    """Batches for any training loop: the arguments of a tagger's or classifier's `forward`.

    ``model(**batch)`` is the mean loss. Rows are objects as `fit` takes them, or mappings with the
    same keys, as `datasets` gives them. Words that the model's lexicon lacks are unknown here,
    while `predict` gives them vectors of their own; the model ``model.with_words(words)`` knows
    them.

    Args:
        model: The tagger or classifier.

    Example:
        >>> from torch import nn
        >>> from polyembed import Lexicon, SequenceTagger, SourceEmbedding
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> words = SourceEmbedding.from_embedding(nn.Embedding(4, 8), lexicon)
        >>> tagger = SequenceTagger(words, ["X", "VERB"])
        >>> batch = DataCollatorForWords(tagger)([{"words": ["me"], "tags": ["VERB"]}])
        >>> batch["tags"], tagger(**batch).shape
        (tensor([[1]]), torch.Size([]))
    """

    def __init__(self, model: TextModel) -> None:
        self.model = model

    def __call__(self, rows: Sequence[Any]) -> dict[str, Any]:
        """Build a batch.

        Args:
            rows: Labelled texts: objects, or mappings.

        Returns:
            The arguments of the model's `forward`.
        """
        items = [SimpleNamespace(**row) if isinstance(row, Mapping) else row for row in rows]
        return self.model.collate(items)
