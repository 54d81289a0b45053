"""The papers' ways to compare systems: zero-shot, joint and code-switched training over languages
and seeds.

Every protocol trains each system once a seed with `fit` and tests it, with these rules of fairness:

- all systems see the same sentences, and for one seed in the same order (`fit` draws it from the
  seed);
- the epoch is chosen on development sentences of the languages trained on, never of a language only
  tested;
- a system is built from the training sentences of its run and no others: a lexicon made of them
  knows no test word;
- no trained parameter is shared between two runs.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from polyembed._checks import check_choice, require
from polyembed.evaluation.compare import (
    Build,
    Corpus,
    Trial,
    check_corpora,
    check_languages,
    check_sentences,
    run_all,
)
from polyembed.evaluation.results import ProtocolResult, make_result
from polyembed.training.fit import Item
from polyembed.training.options import DEFAULTS, FitOptions
from polyembed.training.scoring import metric_name


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
    """Train on the source language, test on it and on all others (van der Heijden 2019, "Zero-shot
    transfer").

    Only the source's development sentences choose the epoch; of a target only the test sentences
    are read.

    Args:
        systems: What to compare, by name: functions that build a tagger, or a classifier of texts
            or of pairs. A system is called as ``build(train, seed)``, and once more before the
            first training, to check its labels.
        source: The language to train on; the first column.
        targets: The languages to transfer to.
        options: As in `fit`, which trains each system; its metric is that of the tests too.
        seeds: One run each, of every system.
        folder: Keeps checkpoints and outcomes: the same call again continues from there and trains
            only what is not finished. A checkpoint of another run is refused.
        progress: As in `fit`.

    Returns:
        The table, and all runs.

    Raises:
        ValueError: No systems, seeds, targets or sentences, a language or seed named twice, a label
            of the data that a system does not have, or a checkpoint of another run.
        TypeError: A system that does not build a model of texts, or one of other texts than the
            corpora have (a tagger for pairs), systems without names, one corpus where a list of
            them is expected, or seeds that are not integers.

    Example:
        >>> from polyembed import Lexicon, SequenceTagger, SourceEmbedding
        >>> from polyembed.data import TaggedSentence
        >>> def build(train, seed):
        ...     lexicon = Lexicon.from_sentences(sentence.words for sentence in train)
        ...     words = SourceEmbedding.from_embedding(torch.nn.Embedding(len(lexicon), 8), lexicon)
        ...     return SequenceTagger(words, ["X", "V"])
        >>> es = [TaggedSentence(("me", "gusta"), ("X", "V"))] * 4
        >>> en = [TaggedSentence(("songs",), ("X",))]
        >>> result = run_zero_shot({"table": build}, Corpus("es", es, es, es), [Corpus("en", test=en)],
        ...                    FitOptions(metric="accuracy", num_train_epochs=1), seeds=(0, 1))
        >>> result.table.columns, len(result.runs), result.gold["en"]
        (('system', 'es', 'en'), 2, [['X']])

    Deviations: the paper trains on English; here the source is chosen. It does not say how many
    runs a score is the mean of, nor which development set it monitors.
    """
    check_corpora("source", [source])
    targets = check_corpora("targets", targets)
    require(len(targets) > 0, "targets", "hold at least one language", "none")
    trial = Trial(
        f"zero_shot-{source.language}",
        (source.language,),
        source.train,
        source.dev,
        [source, *targets],
    )
    return _compare(systems, [trial], options, seeds=seeds, folder=folder, progress=progress)


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
    """Train on several languages at once, test on each (van der Heijden 2019, "Joint training" and
    table 3).

    - Scenario A: a fraction of the training sentences of every language.
    - Scenario B: all training sentences of the source, and the same fraction of the others.

    The development set is made in the same way. What a system gains from A to B in the other
    languages (`gain_table`)
    says how well it shares knowledge: their sentences are the same in both.

    Args:
        systems: See `run_zero_shot`.
        source: The language that scenario B has in full (the paper's is English); the first column.
        others: The other languages to train on.
        options: See `run_zero_shot`.
        scenario: ``"A"`` or ``"B"``.
        seeds: See `run_zero_shot`.
        targets: Languages that are only tested (the paper's are Basque and Hungarian).
        fraction: Of each language's sentences, in (0, 1]; a quarter of four languages makes a
            training set as large as one language's.
        sample_seed: Which sentences the fraction is; the same for all systems, seeds and both
            scenarios.
        folder: See `run_zero_shot`.
        progress: As in `fit`.

    Returns:
        The table, and all runs.

    Raises:
        ValueError: As for `run_zero_shot`; no other languages, no such scenario, a fraction outside (0,
            1].
        TypeError: As for `run_zero_shot`.

    Example:
        >>> from polyembed import Lexicon, SequenceTagger, SourceEmbedding
        >>> from polyembed.data import TaggedSentence
        >>> def build(train, seed):
        ...     lexicon = Lexicon.from_sentences(sentence.words for sentence in train)
        ...     words = SourceEmbedding.from_embedding(torch.nn.Embedding(len(lexicon), 8), lexicon)
        ...     return SequenceTagger(words, ["X", "V"])
        >>> es, en = ([TaggedSentence(words, ("X", "V"))] * 4 for words in (("me", "gusta"), ("I", "sing")))
        >>> from polyembed.evaluation import gain_table
        >>> languages = Corpus("en", en, en, en), [Corpus("es", es, es, es)]
        >>> options = FitOptions(metric="accuracy", num_train_epochs=1)
        >>> a, b = (run_joint({"table": build}, *languages, options, scenario=scenario, seeds=[0]) for scenario in "AB")
        >>> gain_table(a, b).columns
        ('system', 'en', 'es')

    Deviations: the paper does not say how its quarter is drawn (here at random, without
    replacement, at least one sentence) nor what scenario B's development set is (here made as its
    training set is).
    """
    check_corpora("source", [source])
    others, targets = check_corpora("others", others), check_corpora("targets", targets)
    check_choice("scenario", scenario, ("A", "B"))
    require(0 < fraction <= 1, "fraction", "be in (0, 1]", fraction)
    require(len(others) > 0, "others", "hold at least one language", "none")
    languages = [source, *others]
    check_languages([*languages, *targets])
    for corpus in languages:
        check_sentences(corpus, "train", "dev")

    def parts(name: str) -> list[Item]:
        chosen: list[Item] = []
        for corpus in languages:
            whole = scenario == "B" and corpus is source
            chosen += _sample(getattr(corpus, name), 1.0 if whole else fraction, sample_seed)
        return chosen

    names = tuple(corpus.language for corpus in languages)
    trial = Trial(f"joint-{scenario}", names, parts("train"), parts("dev"), [*languages, *targets])
    return _compare(systems, [trial], options, seeds=seeds, folder=folder, progress=progress)


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

    Over corpora of single languages it gives the monolingual scores to compare zero-shot ones with.

    Args:
        systems: See `run_zero_shot`; called anew for each corpus.
        corpora: One or more, each a column.
        options: See `run_zero_shot`.
        seeds: See `run_zero_shot`.
        folder: See `run_zero_shot`.
        progress: As in `fit`.

    Returns:
        The table, and all runs: one of each system on each corpus with each seed.

    Raises:
        ValueError: As for `run_zero_shot`; no corpora.
        TypeError: As for `run_zero_shot`.

    Example:
        >>> from polyembed import Lexicon, SequenceTagger, SourceEmbedding
        >>> from polyembed.data import TaggedSentence
        >>> def build(train, seed):
        ...     lexicon = Lexicon.from_sentences(sentence.words for sentence in train)
        ...     words = SourceEmbedding.from_embedding(torch.nn.Embedding(len(lexicon), 8), lexicon)
        ...     return SequenceTagger(words, ["X", "V"])
        >>> mix = [TaggedSentence(("me", "gusta", "music"), ("X", "V", "X"))] * 4
        >>> result = run_code_switched({"table": build}, [Corpus("es-en", mix, mix, mix)],
        ...                        FitOptions(metric="accuracy", num_train_epochs=1), seeds=(0, 1))
        >>> sorted(result.scores("table", "es-en"))
        [0, 1]

    Deviations: the paper's table 4 gives scores on the development set, which also stops the
    training; here the table is of the test set.
    """
    corpora = check_corpora("corpora", corpora)
    require(len(corpora) > 0, "corpora", "hold at least one corpus", "none")
    trials = [Trial(f"alone-{c.language}", (c.language,), c.train, c.dev, [c]) for c in corpora]
    return _compare(systems, trials, options, seeds=seeds, folder=folder, progress=progress)


def _compare(
    systems: Mapping[str, Build], trials: Sequence[Trial], options: FitOptions, **rest: Any
) -> ProtocolResult:
    runs, gold, metric = run_all(systems, trials, options, **rest)
    return make_result(runs, gold, metric_name(metric))


def _sample(sentences: Sequence[Item], fraction: float, seed: int) -> list[Item]:
    """Draw a fraction of the sentences, in their order; a larger fraction holds a smaller one's."""
    count = max(1, round(fraction * len(sentences)))
    order = torch.randperm(len(sentences), generator=torch.Generator().manual_seed(seed)).tolist()
    return [sentences[i] for i in sorted(order[:count])]
