"""Training several systems with several seeds on equal terms; every outcome is kept on disk."""

import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import torch
from torch.nn import Parameter

from polyembed._checks import class_name, is_count, must, require
from polyembed.tagging.tagger import Tagger
from polyembed.tagging.text_model import TextModel
from polyembed.training.fit import Item, Training, count_words
from polyembed.training.options import FitOptions
from polyembed.training.runs import Run
from polyembed.training.scoring import Metric, measure
from polyembed.training.state import FitResult, read_result

Build = Callable[[Sequence[Any], int], TextModel]
"""A system: returns a new, untrained model of texts for the training sentences and the seed of a run."""


class Corpus(NamedTuple):
    """The sentences, texts or pairs of one language, or of one mix of languages.

    Attributes:
        language: Its name, a column of the table.
        train: To train on; empty for a language that is only tested.
        dev: To choose the epoch by; empty for a language that is only tested.
        test: To test on.
    """

    language: str
    train: Sequence[Item] = ()
    dev: Sequence[Item] = ()
    test: Sequence[Item] = ()


class SystemRun(NamedTuple):
    """One system, trained once.

    Attributes:
        system: Its name.
        seed: Of its initial weights, its dropout and the order of its batches.
        trained_on: The languages trained on.
        training: What `fit` returned.
        scores: The metric on the test sentences of each language.
        predictions: The labels predicted for the test sentences of each language: a list for each
            sentence, of one label where the model is a classifier.
    """

    system: str
    seed: int
    trained_on: tuple[str, ...]
    training: FitResult
    scores: dict[str, float]
    predictions: dict[str, list[list[str]]]


class Trial(NamedTuple):
    """One training set and the corpora that are tested after training on it.

    Attributes:
        name: Of its folder.
        trained_on: The languages that `train` and `dev` are of.
        train: To train on.
        dev: To choose the epoch by.
        tests: Whose test sentences to tag.
    """

    name: str
    trained_on: tuple[str, ...]
    train: Sequence[Item]
    dev: Sequence[Item]
    tests: Sequence[Corpus]


def run_all(
    systems: Mapping[str, Build],
    trials: Sequence[Trial],
    options: FitOptions,
    *,
    seeds: Sequence[int],
    folder: str | os.PathLike[str] | None,
    progress: bool | None = None,
) -> tuple[list[SystemRun], dict[str, list[list[str]]], str | Metric]:
    """Train and test every system in every trial with every seed.

    Args:
        systems: By name.
        trials: What to train and test on.
        options: As in `fit`.
        seeds: One run each.
        folder: Keeps the runs.
        progress: As in `fit`.

    Returns:
        The runs, by trial, then by seed; the right labels of each language's test sentences; and
        the metric.
    """
    seeds = _check_seeds(seeds)
    _check_all(systems, trials, seeds, options)
    fresh = _Fresh()
    gold: dict[str, list[list[str]]] = {}
    kinds: dict[str, type[TextModel]] = {}
    for trial in trials:  # errors now, not after hours of training
        for name, build in systems.items():
            model = _build(name, build, trial.train, seeds[0], fresh)
            kinds[name] = type(model)
            gold.update(_check_labels(name, model, trial))
    metric = _check_metric(kinds, gold, options)
    runs = []
    for trial in trials:
        for seed in seeds:  # every system's first run before the second
            for name, build in systems.items():
                model = _build(name, build, trial.train, seed, fresh)
                training = Training(model, trial.train, trial.dev, options, seed=seed)
                path = None
                if folder is not None:
                    path = (
                        Path(folder)
                        / quote(trial.name, safe=" ")
                        / f"{quote(name, safe=' ')}.{seed}"
                    )
                runs.append(_run(name, training, trial, gold, path, progress))
    return runs, gold, metric


def _run(
    name: str,
    training: Training,
    trial: Trial,
    gold: Mapping[str, list[list[str]]],
    folder: Path | None,
    progress: bool | None,
) -> SystemRun:
    """Train and test one system once, or read the outcome of an earlier call."""
    fingerprint = {}
    if folder is not None:
        tests = {corpus.language: training.content(corpus.test) for corpus in trial.tests}
        fingerprint = {**training.fingerprint(outcome=True), "tests": tests}
    with Run(folder, fingerprint) as run:
        outcome = run.load()
        if outcome is None or not run.finished:
            result = training.run(run, progress=progress)
            predictions, scores, model = {}, {}, training.model
            for corpus in trial.tests:
                found = model.predict([model.text_of(item) for item in corpus.test])
                predictions[corpus.language] = [
                    [label] if isinstance(label, str) else label for label in found
                ]
                scores[corpus.language] = measure(training.metric, gold[corpus.language], found)
            history = [tuple(epoch) for epoch in result.history]
            outcome = {"history": history, "scores": scores, "predictions": predictions}
            run.finish(outcome)
    result = read_result(outcome["history"])
    return SystemRun(
        name, training.seed, trial.trained_on, result, outcome["scores"], outcome["predictions"]
    )


class _Fresh:
    """Every trainable parameter of the systems so far: none may be trained twice."""

    def __init__(self) -> None:
        self.given: dict[int, weakref.ref[Parameter]] = {}

    def check(self, name: str, model: TextModel) -> None:
        for parameter_name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            earlier = self.given.get(id(parameter), lambda: None)()
            rule = "build new parameters at each call"
            require(
                earlier is not parameter,
                f"systems[{name!r}]",
                rule,
                f"{parameter_name} of an earlier call",
            )
            self.given[id(parameter)] = weakref.ref(parameter)


def _build(name: str, build: Build, train: Sequence[Item], seed: int, fresh: _Fresh) -> TextModel:
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        model = build(train, seed)
    if not isinstance(model, TextModel):
        raise TypeError(
            must(f"systems[{name!r}]", "build a tagger or a classifier", class_name(model))
        )
    fresh.check(name, model)
    return model


def _check_all(
    systems: Mapping[str, Build], trials: Sequence[Trial], seeds: Sequence[int], options: FitOptions
) -> None:
    if not isinstance(systems, Mapping):
        raise TypeError(must("systems", "be a mapping of names to functions", class_name(systems)))
    require(len(systems) > 0, "systems", "hold at least one system", "none")
    for name, build in systems.items():
        if not callable(build):
            raise TypeError(
                must(f"systems[{name!r}]", "be a function of train and seed", class_name(build))
            )
    if not isinstance(options, FitOptions):
        raise TypeError(must("options", "be FitOptions", class_name(options)))
    require(len(seeds) > 0, "seeds", "hold at least one seed", "none")
    require(len(set(seeds)) == len(seeds), "seeds", "be different", seeds)
    check_languages([corpus for trial in trials for corpus in trial.tests])
    for trial in trials:
        for corpus in trial.tests:
            check_sentences(
                corpus, *(("train", "dev") if corpus.language in trial.trained_on else ()), "test"
            )


def _check_metric(
    kinds: Mapping[str, type[TextModel]], gold: Mapping[str, list[list[str]]], options: FitOptions
) -> str | Metric:
    """Return the metric of the tests, which is also that of the development set; it must read all labels."""
    fields = {name: kind.item_fields for name, kind in kinds.items()}
    first, *_ = fields
    other = [name for name in fields if fields[name] != fields[first]]
    if other:
        rule = f"read {' and '.join(fields[first])} as {first!r} does"
        raise TypeError(must(f"systems[{other[0]!r}]", rule, " and ".join(fields[other[0]])))
    metric = kinds[first].default_metric if options.metric is None else options.metric
    if isinstance(metric, str):
        for labels in gold.values():
            measure(metric, labels, labels)
    return metric


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
            raise TypeError(
                must(
                    name if name == "source" else f"{name}[{i}]", "be a Corpus", class_name(corpus)
                )
            )
    return corpora


def check_languages(corpora: Sequence[Corpus]) -> None:
    """Require different names."""
    names = [corpus.language for corpus in corpora]
    for name in names:
        require(names.count(name) == 1, "languages", "be named once each", f"{name!r} twice")


def check_sentences(corpus: Corpus, *parts: str) -> None:
    """Require sentences with words in the parts named, and read no others."""
    for part in parts:
        items: Sequence[Any] = getattr(corpus, part)
        words = (
            getattr(item, field, ()) for item in items for field in ("words", "first", "second")
        )
        rule = "hold at least one sentence with a word"
        require(
            any(len(sentence) for sentence in words), f"{part} of {corpus.language!r}", rule, "none"
        )


def _check_labels(name: str, model: TextModel, trial: Trial) -> dict[str, list[list[str]]]:
    """Return the labels of the test sentences of each language; the model must know the labels of all parts."""
    known = set(getattr(model, "tags", None) or model.labels)  # type: ignore[arg-type]
    parts = {"training": trial.train, "development": trial.dev}
    tests = {f"{corpus.language!r} test": corpus.test for corpus in trial.tests}
    found: dict[str, list[list[str]]] = {}
    for part, items in {**parts, **tests}.items():
        counts = [
            count_words(model, item) for item in items
        ]  # raises for a text of another kind than the model's
        found[part] = [[str(label) for label in model.labels_of(item)] for item in items]
        if isinstance(model, Tagger):
            for words, tags in zip(counts, map(len, found[part]), strict=True):
                rule = "have one tag a word"
                require(
                    words == tags, f"the {part} sentences", rule, f"{tags} tags for {words} words"
                )
        unknown = sorted({label for labels in found[part] for label in labels} - known)
        got = f"none for {', '.join(map(repr, unknown))} of the {part} sentences"
        which = "tags" if isinstance(model, Tagger) else "labels"
        require(
            not unknown, f"systems[{name!r}].{which}", f"hold every {which[:-1]} of the data", got
        )
    return {corpus.language: found[part] for part, corpus in zip(tests, trial.tests, strict=True)}
