"""Training several systems with several seeds on equal terms; every outcome is kept on disk."""

import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import torch
from torch.nn import Parameter

from polyembed._checks import class_name, is_count, must, require
from polyembed.tagging.tagger import SequenceTagger, Tagged
from polyembed.training.fit import Training
from polyembed.training.options import FitOptions
from polyembed.training.runs import Run
from polyembed.training.scoring import Metric, measure
from polyembed.training.state import FitResult, read_result

Build = Callable[[Sequence[Tagged], int], SequenceTagger]
"""A system: returns a new, untrained tagger for the training sentences and the seed of a run."""


class Corpus(NamedTuple):
    """The sentences of one language, or of one mix of languages.

    Attributes:
        language: Its name, a column of the table.
        train: To train on; empty for a language that is only tested.
        dev: To choose the epoch by; empty for a language that is only tested.
        test: To test on.
    """

    language: str
    train: Sequence[Tagged] = ()
    dev: Sequence[Tagged] = ()
    test: Sequence[Tagged] = ()


class SystemRun(NamedTuple):
    """One system, trained once.

    Attributes:
        system: Its name.
        seed: Of its initial weights, its dropout and the order of its batches.
        trained_on: The languages trained on.
        training: What `fit` returned.
        scores: The metric on the test sentences of each language.
        predictions: The tags predicted for the test sentences of each language.
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
    train: Sequence[Tagged]
    dev: Sequence[Tagged]
    tests: Sequence[Corpus]


def run_all(
    systems: Mapping[str, Build],
    trials: Sequence[Trial],
    options: FitOptions,
    *,
    seeds: Sequence[int],
    folder: str | os.PathLike[str] | None,
    progress: bool | None = None,
) -> list[SystemRun]:
    """Train and test every system in every trial with every seed.

    Args:
        systems: By name.
        trials: What to train and test on.
        options: As in `fit`.
        seeds: One run each.
        folder: Keeps the runs.
        progress: As in `fit`.

    Returns:
        The runs: by trial, then by seed.
    """
    seeds = _check_seeds(seeds)
    _check_all(systems, trials, seeds, options)
    fresh = _Fresh()
    for trial in trials:  # errors now, not after hours of training
        for name, build in systems.items():
            _check_tags(name, _build(name, build, trial.train, seeds[0], fresh), trial)
    runs = []
    for trial in trials:
        for seed in seeds:  # every system's first run before the second
            for name, build in systems.items():
                tagger = _build(name, build, trial.train, seed, fresh)
                training = Training(tagger, trial.train, trial.dev, options, seed=seed)
                path = None
                if folder is not None:
                    path = Path(folder) / quote(trial.name, safe=" ") / f"{quote(name, safe=' ')}.{seed}"
                runs.append(_run(name, training, trial, path, progress))
    return runs


def _run(name: str, training: Training, trial: Trial, folder: Path | None, progress: bool | None) -> SystemRun:
    """Train and test one system once, or read the outcome of an earlier call."""
    fingerprint = {}
    if folder is not None:
        tests = {corpus.language: training.content(corpus.test) for corpus in trial.tests}
        fingerprint = {**training.fingerprint(outcome=True), "tests": tests}
    with Run(folder, fingerprint) as run:
        outcome = run.load()
        if outcome is None or not run.finished:
            result = training.run(run, progress=progress)
            predictions, scores = {}, {}
            for corpus in trial.tests:
                predicted = training.model.predict([sentence.words for sentence in corpus.test])
                predictions[corpus.language] = predicted
                scores[corpus.language] = measure(training.metric, gold_tags(corpus.test), predicted)
            history = [tuple(epoch) for epoch in result.history]
            outcome = {"history": history, "scores": scores, "predictions": predictions}
            run.finish(outcome)
    result = read_result(outcome["history"])
    return SystemRun(name, training.seed, trial.trained_on, result, outcome["scores"], outcome["predictions"])


class _Fresh:
    """Every trainable parameter of the systems so far: none may be trained twice."""

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


def gold_tags(sentences: Sequence[Tagged]) -> list[list[str]]:
    """Return the tags of each sentence."""
    return [[str(tag) for tag in sentence.tags] for sentence in sentences]


def _check_all(
    systems: Mapping[str, Build], trials: Sequence[Trial], seeds: Sequence[int], options: FitOptions
) -> None:
    if not isinstance(systems, Mapping):
        raise TypeError(must("systems", "be a mapping of names to functions", class_name(systems)))
    require(len(systems) > 0, "systems", "hold at least one system", "none")
    for name, build in systems.items():
        if not callable(build):
            raise TypeError(must(f"systems[{name!r}]", "be a function of train and seed", class_name(build)))
    if not isinstance(options, FitOptions):
        raise TypeError(must("options", "be FitOptions", class_name(options)))
    require(len(seeds) > 0, "seeds", "hold at least one seed", "none")
    require(len(set(seeds)) == len(seeds), "seeds", "be different", seeds)
    metric = metric_of(options)
    check_languages([corpus for trial in trials for corpus in trial.tests])
    for trial in trials:
        for corpus in trial.tests:
            check_sentences(corpus, *(("train", "dev") if corpus.language in trial.trained_on else ()), "test")
            if isinstance(metric, str):
                measure(metric, gold_tags(corpus.test), gold_tags(corpus.test))  # labels that it cannot read


def metric_of(options: FitOptions) -> str | Metric:
    """Return the metric of the tests, which is also that of the development set."""
    return SequenceTagger.default_metric if options.metric is None else options.metric


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


def _check_tags(name: str, tagger: SequenceTagger, trial: Trial) -> None:
    known = set(tagger.tags)
    parts = [("training", trial.train), ("development", trial.dev)]
    parts += [(f"{corpus.language!r} test", corpus.test) for corpus in trial.tests]
    for part, sentences in parts:
        unknown = sorted({str(tag) for sentence in sentences for tag in sentence.tags} - known)
        found = f"none for {', '.join(map(repr, unknown))} of the {part} sentences"
        require(not unknown, f"systems[{name!r}].tags", "hold every tag of the data", found)
