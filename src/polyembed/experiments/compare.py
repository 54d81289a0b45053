"""Training several systems with several seeds, on equal terms; what is finished is kept on disk."""

import json
import os
import weakref
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict
from urllib.parse import quote

import torch
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from polyembed._checks import check_choice, class_name, is_count, must, require
from polyembed.metrics import MetricName
from polyembed.tagging.tagger import SequenceTagger, Tagged
from polyembed.training.fit import METRICS, Epoch, FitResult, Metric, checksum, fit, measure
from polyembed.training.runs import CHECKPOINT_NAME

RECORD_NAME = "run.json"

Build = Callable[[Sequence[Tagged], int], SequenceTagger]
"""A system: gives a new, untrained tagger for the training sentences and the seed of a run."""


class Corpus(NamedTuple):
    """The sentences of one language, or of one mix of languages.

    Attributes:
        language: Its name, a column of the table.
        train: To train on; none for a language that is only tested.
        dev: To choose the epoch by; none for a language that is only tested.
        test: To test on.
    """

    language: str
    train: Sequence[Tagged] = ()
    dev: Sequence[Tagged] = ()
    test: Sequence[Tagged] = ()


class Run(NamedTuple):
    """One system, trained once.

    Attributes:
        system: Its name.
        seed: Of its initial weights, its dropout and the order of its batches.
        trained_on: The languages trained on.
        training: What `fit` gave.
        scores: The metric on the test sentences of each language.
        predictions: The tags predicted for the test sentences of each language.
    """

    system: str
    seed: int
    trained_on: tuple[str, ...]
    training: FitResult
    scores: dict[str, float]
    predictions: dict[str, list[list[str]]]


class TrainingOptions(TypedDict, total=False):
    """How every system is trained: the arguments of `fit`, with functions for what depends on the tagger.

    Attributes:
        num_train_epochs: See `fit`.
        batch_size: See `fit`.
        optimizer: Gives an optimiser over a tagger's parameters.
        scheduler: Gives a schedule for that optimiser.
        scheduler_interval: See `fit`.
        patience: See `fit`.
        max_decreases: See `fit`.
        max_grad_norm: See `fit`.
        amp_dtype: See `fit`; tests run in full precision.
        progress: See `fit`.
    """

    num_train_epochs: int
    batch_size: int
    optimizer: Callable[[SequenceTagger], Optimizer]
    scheduler: Callable[[Optimizer], LRScheduler | ReduceLROnPlateau]
    scheduler_interval: Literal["epoch", "step"]
    patience: int | None
    max_decreases: int | None
    max_grad_norm: float | None
    amp_dtype: torch.dtype | None
    progress: bool | None


class Plan(NamedTuple):
    """One training set, and what is tested after training on it.

    Attributes:
        name: Of its folder.
        trained_on: The languages that `train` and `dev` are of.
        train: To train on.
        dev: To choose the epoch by.
        tests: Whose test sentences to tag.
    """

    name: str
    trained_on: tuple[str, ...]
    train: Sequence[Tagged]
    dev: Sequence[Tagged]
    tests: Sequence[Corpus]


def run_all(
    systems: Mapping[str, Build],
    plans: Sequence[Plan],
    *,
    seeds: Sequence[int],
    metric: MetricName | Metric,
    folder: str | os.PathLike[str] | None,
    options: TrainingOptions,
) -> list[Run]:
    """Train and test every system by every plan with every seed.

    Args:
        systems: By name.
        plans: What to train and test on.
        seeds: One run each.
        metric: As in `fit`.
        folder: Keeps the runs.
        options: How to train.

    Returns:
        The runs: by plan, then by seed.
    """
    seeds = _check_seeds(seeds)
    _check_all(systems, plans, seeds, metric, options)
    fresh = _Fresh()
    for plan in plans:  # errors now, not after hours of training
        for name, build in systems.items():
            _check_tags(name, _build(name, build, plan.train, seeds[0], fresh), plan)
    runs = []
    for plan in plans:
        for seed in seeds:  # every system's first run before the second
            for name, build in systems.items():
                tagger = _build(name, build, plan.train, seed, fresh)
                path = None
                if folder is not None:
                    path = Path(folder) / quote(plan.name, safe=" ") / f"{quote(name, safe=' ')}.{seed}"
                runs.append(_run(name, tagger, plan, seed, metric, path, options))
    return runs


def _run(
    name: str,
    tagger: SequenceTagger,
    plan: Plan,
    seed: int,
    metric: MetricName | Metric,
    folder: Path | None,
    options: TrainingOptions,
) -> Run:
    """Train and test one system once, or read what came of it before."""
    rest = dict(options)
    make_optimizer, make_scheduler = rest.pop("optimizer", None), rest.pop("scheduler", None)
    optimizer = _adam(tagger) if make_optimizer is None else make_optimizer(tagger)  # type: ignore[operator]
    scheduler = None if make_scheduler is None else make_scheduler(optimizer)  # type: ignore[operator]
    fingerprint = {
        "seed": seed,
        "train": checksum(tagger, plan.train),
        "dev": checksum(tagger, plan.dev),
        "tests": {corpus.language: checksum(tagger, corpus.test) for corpus in plan.tests},
        "metric": metric_name(metric),
        "tags": list(tagger.tags),
        "weights": _weights_checksum(tagger),
        "optimizer": _describe_optimizer(optimizer),
        "scheduler": _describe_scheduler(scheduler),
        "options": {key: str(value) for key, value in sorted(rest.items()) if key != "progress"},
    }
    record = _Record(folder, fingerprint)
    run = record.read(name, plan)
    if run is not None:
        return run
    record.write()
    training = fit(
        tagger,
        plan.train,
        plan.dev,
        optimizer=optimizer,
        scheduler=scheduler,
        metric=metric,
        checkpoint=folder,
        seed=seed,
        **rest,  # type: ignore[arg-type]
    )
    predictions, scores = {}, {}
    for corpus in plan.tests:
        predicted = tagger.predict([sentence.words for sentence in corpus.test])
        predictions[corpus.language] = predicted
        scores[corpus.language] = measure(metric, gold_tags(corpus.test), predicted)
    run = Run(name, seed, plan.trained_on, training, scores, predictions)
    record.write(run)
    return run


class _Record:
    """A run on disk: what it is, and once it is finished what came of it. Without a folder, nothing."""

    def __init__(self, folder: Path | None, fingerprint: dict[str, Any]) -> None:
        self.folder = folder
        self.fingerprint = json.loads(json.dumps(fingerprint))

    def read(self, name: str, plan: Plan) -> Run | None:
        if self.folder is None or not (self.folder / RECORD_NAME).exists():
            return None
        path = self.folder / RECORD_NAME
        try:
            data = json.loads(path.read_text("utf-8"))
            theirs, result = dict(data["fingerprint"]), data["result"]
            run = None
            if result is not None:
                training = FitResult(Epoch(*result["best"]), tuple(Epoch(*epoch) for epoch in result["history"]))
                scores, predictions = dict(result["scores"]), dict(result["predictions"])
                run = Run(name, self.fingerprint["seed"], plan.trained_on, training, scores, predictions)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(must(str(path), "be a whole record", f"{class_name(error)}: {error}")) from error
        if theirs != self.fingerprint:
            differs = [key for key, value in self.fingerprint.items() if theirs.get(key) != value]
            rule = "come from this run (remove its folder to start anew)"
            raise ValueError(must(str(path), rule, f"other {differs}"))
        return run

    def write(self, run: Run | None = None) -> None:
        if self.folder is None:
            return
        result = None
        if run is not None:
            best, history = run.training
            result = {"best": best, "history": history, "scores": run.scores, "predictions": run.predictions}
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / RECORD_NAME
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps({"fingerprint": self.fingerprint, "result": result}), "utf-8")
        draft.replace(path)
        if run is not None:  # the weights have done their work
            (self.folder / CHECKPOINT_NAME).unlink(missing_ok=True)


class _Fresh:
    """Every parameter that was given out to be trained: none may be trained twice."""

    def __init__(self) -> None:
        self.given: dict[int, weakref.ref[Parameter]] = {}

    def check(self, name: str, tagger: SequenceTagger) -> None:
        for parameter_name, parameter in tagger.named_parameters():
            if not parameter.requires_grad:
                continue
            earlier = self.given.get(id(parameter), lambda: None)()
            rule = "build new parameters at each call"
            require(earlier is not parameter, f"systems[{name!r}]", rule, f"{parameter_name} of an earlier call")
            self.given[id(parameter)] = weakref.ref(parameter)


def _build(name: str, build: Build, train: Sequence[Tagged], seed: int, fresh: _Fresh) -> SequenceTagger:
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        tagger = build(train, seed)
    if not isinstance(tagger, SequenceTagger):
        raise TypeError(must(f"systems[{name!r}]", "build a SequenceTagger", class_name(tagger)))
    fresh.check(name, tagger)
    return tagger


def _adam(tagger: SequenceTagger) -> Optimizer:
    """Give the optimiser that `fit` would make, since a schedule must be made for it."""
    return torch.optim.Adam([value for value in tagger.parameters() if value.requires_grad], lr=1e-3)


def gold_tags(sentences: Sequence[Tagged]) -> list[list[str]]:
    """Give the tags of each sentence."""
    return [list(sentence.tags) for sentence in sentences]


def metric_name(metric: str | Metric) -> str:
    """Name a metric, a function by its own name."""
    return metric if isinstance(metric, str) else str(getattr(metric, "__name__", class_name(metric)))


def _describe_optimizer(optimizer: Optimizer) -> str:
    """Tell an optimiser from others: its kind and the settings of its groups, without their parameters."""
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    return f"{class_name(optimizer)} {groups}"


def _describe_scheduler(scheduler: LRScheduler | ReduceLROnPlateau | None) -> str:
    """Tell a schedule from others, as far as its numbers do."""
    state = {} if scheduler is None else scheduler.state_dict()
    numbers = {key: value for key, value in sorted(state.items()) if isinstance(value, int | float | str | list)}
    return f"{class_name(scheduler)} {numbers}"


def _weights_checksum(tagger: SequenceTagger) -> int:
    """Tell a tagger from others by all that it starts from, frozen vectors included."""
    checksum = 0
    for name, value in sorted(tagger.state_dict().items()):
        checksum = zlib.crc32(f"{name} {tuple(value.shape)} {value.dtype}".encode(), checksum)
        content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        checksum = zlib.crc32(content.numpy().tobytes(), checksum)
    return checksum


def _check_all(
    systems: Mapping[str, Build],
    plans: Sequence[Plan],
    seeds: Sequence[int],
    metric: str | Metric,
    options: TrainingOptions,
) -> None:
    if not isinstance(systems, Mapping):
        raise TypeError(must("systems", "be a mapping of names to functions", class_name(systems)))
    require(len(systems) > 0, "systems", "hold at least one system", "none")
    for name, build in systems.items():
        if not callable(build):
            raise TypeError(must(f"systems[{name!r}]", "be a function of train and seed", class_name(build)))
    require(len(seeds) > 0, "seeds", "hold at least one seed", "none")
    require(len(set(seeds)) == len(seeds), "seeds", "be different", seeds)
    if isinstance(metric, str):
        check_choice("metric", metric, METRICS)
    known = TrainingOptions.__annotations__
    for option in options:
        if option not in known:
            raise TypeError(must("options", f"be among {', '.join(known)}", repr(option)))
    for option, subject in (("optimizer", "a tagger"), ("scheduler", "an optimiser")):
        made = options.get(option)
        if not (made is None or callable(made)):
            raise TypeError(must(option, f"be a function of {subject}, called for each run", class_name(made)))
    check_languages([corpus for plan in plans for corpus in plan.tests])
    for plan in plans:
        for corpus in plan.tests:
            check_sentences(corpus, *(("train", "dev") if corpus.language in plan.trained_on else ()), "test")
            if isinstance(metric, str):
                measure(metric, gold_tags(corpus.test), gold_tags(corpus.test))  # labels that it cannot read


def _check_seeds(seeds: Sequence[int]) -> list[int]:
    """Require integers."""
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        raise TypeError(must("seeds", "be a sequence of integers", repr(seeds)))
    seeds = list(seeds)
    for i, seed in enumerate(seeds):
        if not is_count(seed):
            raise TypeError(must(f"seeds[{i}]", "be an integer", repr(seed)))
    return [int(seed) for seed in seeds]


def check_corpora(name: str, corpora: Sequence[Corpus]) -> list[Corpus]:
    """Require corpora, and not one where several are asked for."""
    if isinstance(corpora, Corpus) or not isinstance(corpora, Iterable):
        raise TypeError(must(name, "be a sequence of corpora", class_name(corpora)))
    corpora = list(corpora)
    for i, corpus in enumerate(corpora):
        if not isinstance(corpus, Corpus):
            raise TypeError(must(name if name == "source" else f"{name}[{i}]", "be a Corpus", class_name(corpus)))
    return corpora


def check_languages(corpora: Sequence[Corpus]) -> None:
    """Require different names."""
    names = [corpus.language for corpus in corpora]
    for name in names:
        require(names.count(name) == 1, "languages", "be named once each", f"{name!r} twice")


def check_sentences(corpus: Corpus, *parts: str) -> None:
    """Require sentences with words in the parts named, and read no others."""
    for part in parts:
        name = f"{part} of {corpus.language!r}"
        sentences = getattr(corpus, part)
        require(any(len(s.words) for s in sentences), name, "hold at least one sentence with a word", "none")
        for sentence in sentences:
            words, tags = len(sentence.words), len(sentence.tags)
            require(words == tags, name, "have one tag a word", f"{tags} tags for {words} words")


def _check_tags(name: str, tagger: SequenceTagger, plan: Plan) -> None:
    known = set(tagger.tags)
    parts = [("training", plan.train), ("development", plan.dev)]
    parts += [(f"{corpus.language!r} test", corpus.test) for corpus in plan.tests]
    for part, sentences in parts:
        unknown = sorted({tag for sentence in sentences for tag in sentence.tags} - known)
        found = f"none for {', '.join(map(repr, unknown))} of the {part} sentences"
        require(not unknown, f"systems[{name!r}].tags", "hold every tag of the data", found)
