"""The papers' ways to compare systems: zero-shot, joint and code-switched training over languages
and seeds.

Every protocol trains each system once per seed by `fit` and tests it, with these rules of fairness:

- all systems see the same sentences, and for one seed in the same order (`fit` draws it from the
  seed);
- the epoch is chosen on development sentences of the languages that are trained on;
- a system is built from the training sentences of its run alone, so its lexicon has no test word
  that is not in training;
- no trained parameter is shared between two runs.
"""

import json
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from polyembed._checks import check_choice, must, require
from polyembed.evaluation.results import ProtocolResult, SystemRun
from polyembed.tagging.decoders import options_of
from polyembed.tagging.text_model import TextModel
from polyembed.training import Epoch, FitOptions, FitResult, fit
from polyembed.training.options import DEFAULTS, measure
from polyembed.training.state import differences, replaced, sizes_of

Build = Callable[[Sequence[Any], int], TextModel]
"""A system: a function that builds an untrained model from the training sentences and the seed."""


class Corpus(NamedTuple):
    """The sentences, texts or pairs of one language, or of one mix of languages.

    Attributes:
        language: The name of the language, a column of the table.
        train: The training sentences; empty for a language that is only tested.
        dev: The sentences that choose the epoch; empty for a language that is only tested.
        test: The test sentences.
    """

    language: str
    train: Sequence[Any] = ()
    dev: Sequence[Any] = ()
    test: Sequence[Any] = ()


def run_zero_shot(
    systems: Mapping[str, Build],
    source: Corpus,
    targets: Sequence[Corpus],
    options: FitOptions = DEFAULTS,
    *,
    seeds: Sequence[int],
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> ProtocolResult:
    """Train on the source language, and test on it and on all others (van der Heijden 2019,
    "Zero-shot transfer").

    Only the source's development sentences choose the epoch. Only the test sentences of a target
    are read.

    Args:
        systems: The systems by name. Each is called as ``build(train, seed)`` once per run and
            returns a new tagger, or a classifier of texts or pairs.
        source: The language to train on; the first column of the table.
        targets: The languages to transfer to.
        options: The settings of `fit`. The metric that chooses the epoch also scores the tests.
        seeds: The seeds; every system is trained once per seed.
        folder: The folder of finished runs, one JSON file per system and seed. A later call with
            the same arguments reads these runs and trains only the missing ones. Two functions
            among the options count as the same if their names, constants, defaults and closed-over
            values are the same.
        progress: Whether `fit` shows a progress bar; if None, only on a terminal.

    Returns:
        The runs and their table.

    Raises:
        ValueError: If systems, seeds or sentences are missing; if a language or a seed is named
            twice; if a test sentence has a label that a system does not know; if two runs share a
            trained parameter; or if a file is damaged, or of a run with other options, sizes or
            numbers of sentences.

    Example:
        >>> from polyembed import Lexicon, SequenceTagger, SourceEmbedding
        >>> from polyembed.data import TaggedSentence
        >>> def build(train, seed):
        ...     lexicon = Lexicon.from_sentences(sentence.words for sentence in train)
        ...     words = SourceEmbedding.from_embedding(torch.nn.Embedding(len(lexicon), 8), lexicon)
        ...     return SequenceTagger(words, ["X", "V"])
        >>> es = [TaggedSentence(("me", "gusta"), ("X", "V"))] * 4
        >>> en = [TaggedSentence(("songs",), ("X",))]
        >>> options = FitOptions(metric="accuracy", num_train_epochs=1)
        >>> corpora = Corpus("es", es, es, es), [Corpus("en", test=en)]
        >>> result = run_zero_shot({"table": build}, *corpora, options, seeds=(0, 1))
        >>> result.table.columns, len(result.runs), result.gold["en"]
        (('system', 'es', 'en'), 2, [['X']])

    Deviations: the paper trains on English; here the source is an argument. The paper does not say
    how many runs a score is the mean of, nor which development set it monitors.
    """
    trial = _Trial(f"zero_shot-{source.language}", [source], [source, *targets])
    return _run_all(systems, [trial], options, seeds, folder, progress)


def run_joint(
    systems: Mapping[str, Build],
    source: Corpus,
    others: Sequence[Corpus],
    options: FitOptions = DEFAULTS,
    *,
    scenario: Literal["A", "B"],
    seeds: Sequence[int],
    targets: Sequence[Corpus] = (),
    fraction: float = 0.25,
    sample_seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> ProtocolResult:
    """Train on several languages at once, and test on each (van der Heijden 2019, "Joint training"
    and table 3).

    - Scenario A: a fraction of the training sentences of every language.
    - Scenario B: all training sentences of the source, and the same fraction of the others.

    The development set is made in the same way. The sentences of the other languages are the same
    in both scenarios, so a system's gain on these languages from A to B
    (`ProtocolResult.gain_over`) shows how well it shares knowledge.

    Args:
        systems: The systems by name, as in `run_zero_shot`.
        source: The language that scenario B has in full (the paper's is English); the first column
            of the table.
        others: The other languages to train on.
        options: The settings of `fit`.
        scenario: ``"A"`` or ``"B"``.
        seeds: The seeds; every system is trained once per seed.
        targets: Languages that are only tested (the paper's are Basque and Hungarian).
        fraction: The share of each language's sentences, in (0, 1]. A quarter of four languages is
            as large as the training set of one.
        sample_seed: The seed of the draw of the fraction, which is the same for all systems, seeds
            and scenarios.
        folder: The folder of finished runs, as in `run_zero_shot`.
        progress: Whether `fit` shows a progress bar; if None, only on a terminal.

    Returns:
        The runs and their table.

    Raises:
        ValueError: If the scenario is unknown; if the fraction is outside (0, 1]; or if one of the
            conditions of `run_zero_shot` holds.

    Example:
        >>> from polyembed import Lexicon, SequenceTagger, SourceEmbedding
        >>> from polyembed.data import TaggedSentence
        >>> def build(train, seed):
        ...     lexicon = Lexicon.from_sentences(sentence.words for sentence in train)
        ...     words = SourceEmbedding.from_embedding(torch.nn.Embedding(len(lexicon), 8), lexicon)
        ...     return SequenceTagger(words, ["X", "V"])
        >>> es, en = ([TaggedSentence((word, "x"), ("X", "V"))] * 4 for word in ("me", "I"))
        >>> corpora = Corpus("en", en, en, en), [Corpus("es", es, es, es)]
        >>> options = FitOptions(metric="accuracy", num_train_epochs=1)
        >>> a, b = (
        ...     run_joint({"table": build}, *corpora, options, scenario=scenario, seeds=[0])
        ...     for scenario in ("A", "B")
        ... )
        >>> b.gain_over(a).columns
        ('system', 'en', 'es')

    Deviations: the paper does not say how its quarter is drawn (here at random, without
    replacement, at least one sentence) nor what scenario B's development set is (here made as its
    training set is).
    """
    check_choice("scenario", scenario, ("A", "B"))
    require(0 < fraction <= 1, "fraction", "be in (0, 1]", fraction)

    def sample(corpus: Corpus) -> Corpus:
        """Draw a fraction of the sentences, in order; a larger fraction contains a smaller one."""
        parts = []
        for sentences in (corpus.train, corpus.dev):
            generator = torch.Generator().manual_seed(int(sample_seed))
            order = torch.randperm(len(sentences), generator=generator).tolist()
            count = max(1, round(fraction * len(sentences)))
            parts.append([sentences[i] for i in sorted(order[:count])])
        return Corpus(corpus.language, *parts)

    others = tuple(others)
    trained = [source if scenario == "B" else sample(source), *map(sample, others)]
    drawn = f"-{sample_seed}" if sample_seed else ""  # runs of each draw have their own folder
    trial = _Trial(f"joint-{scenario}{drawn}", trained, [source, *others, *targets])
    return _run_all(systems, [trial], options, seeds, folder, progress)


def run_code_switched(
    systems: Mapping[str, Build],
    corpora: Sequence[Corpus],
    options: FitOptions = DEFAULTS,
    *,
    seeds: Sequence[int],
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> ProtocolResult:
    """Train and test on each corpus by itself (Winata 2021, section 3 and table 4).

    On corpora of single languages, this protocol gives the monolingual scores that zero-shot scores
    are compared with.

    Args:
        systems: The systems by name, as in `run_zero_shot`; built anew for each corpus.
        corpora: One or more corpora, each a column of the table.
        options: The settings of `fit`.
        seeds: The seeds; every system is trained once per corpus and seed.
        folder: The folder of finished runs, as in `run_zero_shot`.
        progress: Whether `fit` shows a progress bar; if None, only on a terminal.

    Returns:
        The runs and their table.

    Raises:
        ValueError: If one of the conditions of `run_zero_shot` holds.

    Example:
        >>> from polyembed import Lexicon, SequenceTagger, SourceEmbedding
        >>> from polyembed.data import TaggedSentence
        >>> def build(train, seed):
        ...     lexicon = Lexicon.from_sentences(sentence.words for sentence in train)
        ...     words = SourceEmbedding.from_embedding(torch.nn.Embedding(len(lexicon), 8), lexicon)
        ...     return SequenceTagger(words, ["X", "V"])
        >>> mix = Corpus("es-en", *[[TaggedSentence(("me", "gusta", "music"), ("X", "V",
        ...     "X"))] * 4] * 3)
        >>> options = FitOptions(metric="accuracy", num_train_epochs=1)
        >>> result = run_code_switched({"table": build}, [mix], options, seeds=(0, 1))
        >>> sorted(result.scores("table", "es-en"))
        [0, 1]

    Deviations: the paper's table 4 has scores on the development set, which also stops the
    training; here the table is of the test set.
    """
    trials = [_Trial(f"alone-{corpus.language}", [corpus], [corpus]) for corpus in corpora]
    return _run_all(systems, trials, options, seeds, folder, progress)


class _Trial(NamedTuple):
    """The corpora of one training run, and the corpora that are tested after the run."""

    name: str
    trained: Sequence[Corpus]
    tested: Sequence[Corpus]

    def items(self, part: str) -> list[Any]:
        """Return the training or development sentences of all languages that are trained on."""
        return [item for corpus in self.trained for item in getattr(corpus, part)]


def _run_all(
    systems: Mapping[str, Build],
    trials: Sequence[_Trial],
    options: FitOptions,
    seeds: Sequence[int],
    folder: str | os.PathLike[str] | None,
    progress: bool | None,
) -> ProtocolResult:
    """Train and test every system in every trial with every seed."""
    require(len(systems) > 0, "systems", "hold at least one system", "none")
    require(0 < len(set(seeds)) == len(seeds), "seeds", "be different, one or more", list(seeds))
    names = [corpus.language for trial in trials for corpus in trial.tested]
    require(len(set(names)) == len(names), "languages", "be named once each", names)
    for trial in trials:
        parts = [(corpus, part) for corpus in trial.trained for part in ("train", "dev")]
        for corpus, part in [*parts, *((corpus, "test") for corpus in trial.tested)]:
            name = f"{part} of {corpus.language!r}"
            require(len(getattr(corpus, part)) > 0, name, "hold at least one sentence", "none")
    seen = WeakTensorKeyDictionary()
    results = []
    for trial in trials:
        train = trial.items("train")
        for seed in seeds:  # all systems run with one seed before the next seed
            for name, build in systems.items():
                with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
                    torch.manual_seed(seed)
                    model = build(train, seed)
                for parameter_name, parameter in model.named_parameters():
                    if parameter.requires_grad:
                        rule = "build new parameters at each call"
                        found = f"{parameter_name} of an earlier call"
                        require(parameter not in seen, f"systems[{name!r}]", rule, found)
                        seen[parameter] = name
                path = None
                if folder is not None:
                    path = Path(folder) / quote(trial.name, safe=" ")
                    path /= f"{quote(name, safe=' ')}.{seed}.json"
                results.append(_run(name, seed, model, trial, options, path, progress))
    return reduce(operator.add, results)


def _run(
    name: str,
    seed: int,
    model: TextModel,
    trial: _Trial,
    options: FitOptions,
    path: Path | None,
    progress: bool | None,
) -> ProtocolResult:
    """Train and test one system once, or read the outcome of an earlier call."""
    trained_on = tuple(corpus.language for corpus in trial.trained)
    train, dev = trial.items("train"), trial.items("dev")
    options = options.for_training(model, len(train))
    gold: dict[str, Any] = {
        corpus.language: [list(model.labels_of(item)) for item in corpus.test]
        for corpus in trial.tested
    }
    given = (label for rows in gold.values() for row in rows for label in row)
    labels = set().union(*map(options_of, given)) - {None}
    unknown = sorted(map(repr, labels.difference(getattr(model, "tags", None) or model.labels)))  # type: ignore[arg-type]
    rule = "know every label of the test sentences"
    require(not unknown, f"systems[{name!r}]", rule, f"{', '.join(unknown)}, which it lacks")
    about = {
        **{key: _plain(value) for key, value in vars(options).items()},
        "model": sizes_of(model),
        "optimizer": repr(options.make_optimizer(model)),
        "trained on": list(trained_on),
        "train sentences": len(train),
        "dev sentences": len(dev),
        **{f"{corpus.language} test sentences": len(corpus.test) for corpus in trial.tested},
    }
    saved = None if path is None else _load(path, about)
    if saved is None:
        fitted = fit(model, train, dev, options, seed=seed, progress=progress)
        saved = {"best": fitted.best, "history": fitted.history, "scores": {}, "predictions": {}}
        for corpus in trial.tested:
            found = model.predict([model.text_of(item) for item in corpus.test])
            found = [[label] if isinstance(label, str) else label for label in found]
            saved["scores"][corpus.language] = measure(options, gold[corpus.language], found)
            saved["predictions"][corpus.language] = found
        if path is not None:
            with replaced(path) as draft:
                draft.write_text(json.dumps({"about": about, **saved}), "utf-8")
    fitted = FitResult(Epoch(*saved["best"]), tuple(Epoch(*epoch) for epoch in saved["history"]))
    run = SystemRun(name, seed, trained_on, fitted, saved["scores"], saved["predictions"])
    return ProtocolResult((run,), gold, options.metric_name)


def _plain(value: object) -> Any:
    """Return a value in a form that JSON can hold.

    A function becomes its name, its constants, the names that it uses, its defaults and the values
    that it closes over; a function among these becomes its name.
    """
    if isinstance(value, int | float | str | None):
        return value
    if hasattr(value, "tolist"):  # a number, an array or a tensor
        return value.tolist()
    if isinstance(value, list | tuple):
        return [*map(_plain, value)]
    if isinstance(value, dict):
        return _plain([*value.items()])
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, partial):
        return _plain([value.func, value.args, value.keywords])
    if isinstance(value, CodeType):
        return _plain([value.co_consts, value.co_names])
    if isinstance(value, torch.dtype):
        return str(value)
    name = getattr(value, "__name__", type(value).__name__)
    if not isinstance(value, FunctionType):
        return name
    held = [cell.cell_contents for cell in value.__closure__ or ()]
    # by name, because a recursive function closes over itself
    held = [x.__name__ if isinstance(x, FunctionType) else x for x in held]
    return _plain([name, value.__code__, value.__defaults__, value.__kwdefaults__, held])


def _load(path: Path, about: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a finished run of these options, sizes and numbers of sentences, if there is one."""
    if not path.exists():
        return None
    try:
        saved: dict[str, Any] = json.loads(path.read_text("utf-8"))
        theirs = saved["about"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(must(str(path), "be a finished run as JSON", repr(error))) from error
    found = differences(theirs, about)
    require(not found, str(path), "be of this run", f"another one: {found}")
    return saved
