"""The protocols: who is trained on what, tested on what, with which seeds; and what a lost run costs."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LinearLR
from toys import TAGS, own_words, toy_corpus, toy_table

import polyembed as pe
from polyembed.data import SentencePair, TaggedSentence
from polyembed.evaluation import protocols
from polyembed.evaluation.compare import Corpus
from polyembed.evaluation.results import ProtocolResult, gain_table, merge_results
from polyembed.metrics import accuracy, entity_f1
from polyembed.tables import mean_and_deviation
from polyembed.training import Epoch, FitOptions, FitResult
from polyembed.training import fit as fit_with
from polyembed.training.fit import Training
from polyembed.training.runs import Run, read_checkpoint

FIELDS = FitOptions.__dataclass_fields__


def with_options(function):
    """Return a function that takes `FitOptions` by name."""

    def call(*arguments, **options):
        fields = {name: options.pop(name) for name in [*options] if name in FIELDS}
        return function(*arguments, FitOptions(**fields), **options)

    return call


run_zero_shot, run_joint, run_code_switched, fit = map(
    with_options,
    (protocols.run_zero_shot, protocols.run_joint, protocols.run_code_switched, fit_with),
)


def system(dim: int = 5, tags: Sequence[str] = TAGS):
    """Make a system: a trained table of the training words."""

    def build(train: Sequence[TaggedSentence], seed: int) -> pe.SequenceTagger:
        lexicon = pe.Lexicon.from_sentences(sentence.words for sentence in train)
        return pe.SequenceTagger(
            pe.SourceEmbedding.from_embedding(nn.Embedding(len(lexicon), dim), lexicon), tags
        )

    return build


def numbered(language: str, train: int, dev: int = 0, test: int = 3) -> Corpus:
    """Make a corpus of sentences that can be told apart: es-train-0, es-train-1, ..."""
    parts = [
        [TaggedSentence((f"{language}-{part}-{i}", "song"), ("B-ES", "O")) for i in range(count)]
        for part, count in (("train", train), ("dev", dev), ("test", test))
    ]
    return Corpus(language, *parts)


class Unreadable(Sequence):
    """Sentences that nobody may look at."""

    def __len__(self) -> int:
        pytest.fail("read")

    def __getitem__(self, index):
        pytest.fail("read")


CORPUS = toy_corpus(4)
ES = Corpus("es", CORPUS, CORPUS[:3], CORPUS[:3])
EN = Corpus(
    "en", Unreadable(), Unreadable(), [TaggedSentence(("that", "new", "song"), ("B-EN", "O", "O"))]
)
OPTIONS = {"num_train_epochs": 2, "batch_size": 2}


class Recorder:
    """A `Training.run` that records what was to be trained, and trains nothing."""

    def __init__(self) -> None:
        self.calls: list[dict] = []

    def __call__(self, training: Training, run: Run, **options) -> FitResult:
        self.calls.append({"tagger": training.model, "run": run, **vars(training)})
        epoch = Epoch(1, 0.5, 0.5, 0.1)
        return FitResult(epoch, (epoch,))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(
        Training, "run", lambda self, run, **options: recorder(self, run, **options)
    )
    return recorder


def first_words(sentences: Sequence[TaggedSentence]) -> list[str]:
    return [sentence.words[0] for sentence in sentences]


def count_of_o(gold: list, predicted: list) -> float:
    return float(sum(tags.count("O") for tags in predicted))


METRICS = {
    "f1": lambda gold, found: entity_f1(gold, found).f1,
    "accuracy": accuracy,
    "count_of_o": count_of_o,
}


def by_hand(dim: int, seed: int, metric: str) -> tuple[list, dict[str, float], dict[str, list]]:
    """Do one run of `run_zero_shot` in plain steps."""
    torch.manual_seed(seed)
    tagger = system(dim)(ES.train, seed)
    chosen = count_of_o if metric == "count_of_o" else metric
    result = fit(tagger, ES.train, ES.dev, metric=chosen, seed=seed, **OPTIONS)
    predicted = {
        corpus.language: tagger.predict([s.words for s in corpus.test]) for corpus in (ES, EN)
    }
    gold = {corpus.language: [list(s.tags) for s in corpus.test] for corpus in (ES, EN)}
    scores = {name: METRICS[metric](gold[name], predicted[name]) for name in gold}
    return [epoch[:3] for epoch in result.history], scores, predicted


@pytest.mark.parametrize("metric", ["f1", "accuracy", count_of_o])
def test_zero_shot_is_what_one_would_do_by_hand(metric) -> None:
    result = run_zero_shot(
        {"five": system(5), "seven": system(7)}, ES, [EN], seeds=(3, 1), metric=metric, **OPTIONS
    )
    name = getattr(metric, "__name__", metric)
    assert [(run.system, run.seed) for run in result.runs] == [
        ("five", 3),
        ("seven", 3),
        ("five", 1),
        ("seven", 1),
    ]
    for run in result.runs:
        history, scores, predicted = by_hand(5 if run.system == "five" else 7, run.seed, name)
        assert [epoch[:3] for epoch in run.training.history] == history
        assert (run.scores, run.predictions, run.trained_on) == (scores, predicted, ("es",))
    assert result.metric == name
    assert result.table.columns == ("system", "es", "en")
    for system_name, *cells in result.table.rows:
        for language, cell in zip(("es", "en"), cells, strict=True):
            runs = {
                run.seed: run.scores[language] for run in result.runs if run.system == system_name
            }
            assert cell == mean_and_deviation(list(runs.values()))
            assert result.scores(system_name, language) == runs
    assert result.gold == {"es": [list(s.tags) for s in ES.test], "en": [["B-EN", "O", "O"]]}
    assert result.predictions("seven", "es")[1] == result.runs[3].predictions["es"]


@pytest.mark.parametrize("scenario", ["A", "B"])
def test_joint_trains_on_a_fraction(scenario: str, recorder: Recorder) -> None:
    es, nl, de, eu = (
        numbered("es", 40, 8),
        numbered("nl", 23, 4),
        numbered("de", 7, 2),
        numbered("eu", 0),
    )
    result = run_joint(
        {"a": system(2), "b": system(3)},
        es,
        [nl, de],
        scenario=scenario,
        seeds=(0, 1),
        targets=[eu],
    )
    assert result.table.columns == ("system", "es", "nl", "de", "eu")
    assert {(run.trained_on, *run.scores) for run in result.runs} == {
        (("es", "nl", "de"), "es", "nl", "de", "eu")
    }
    assert len(recorder.calls) == 4
    for part, sizes in (
        ("train", (40 if scenario == "B" else 10, 6, 2)),
        ("dev", (8 if scenario == "B" else 2, 1, 1)),
    ):
        words = first_words(recorder.calls[0][part])
        for corpus, size in zip((es, nl, de), sizes, strict=True):
            chosen = [word for word in words if word.startswith(corpus.language)]
            assert len(set(chosen)) == len(chosen) == size
            assert set(chosen) <= set(first_words(getattr(corpus, part)))
        for call in recorder.calls:  # of all systems and seeds
            assert first_words(call[part]) == words


def test_code_switched_trains_on_each_corpus_alone(recorder: Recorder) -> None:
    corpora = [numbered("es-en", 5, 2), numbered("tr-de", 3, 1)]
    result = run_code_switched({"a": system(2), "b": system(3)}, corpora, seeds=(0, 1))
    assert result.table.columns == ("system", "es-en", "tr-de")
    seen = [(run.system, run.seed, run.trained_on, *run.scores) for run in result.runs]
    expected = [(c, n, s) for c in ("es-en", "tr-de") for s in (0, 1) for n in ("a", "b")]
    assert seen == [(n, s, (c,), c) for c, n, s in expected]
    for run, call in zip(result.runs, recorder.calls, strict=True):
        corpus = corpora[0] if run.trained_on == ("es-en",) else corpora[1]
        assert (call["train"], call["dev"], call["seed"]) == (corpus.train, corpus.dev, run.seed)


def test_one_seed_is_one_order_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[list[tuple[str, ...]]] = []
    collate = pe.SequenceTagger.collate

    def note(self, sentences):
        batches.append([sentence.words for sentence in sentences])
        return collate(self, sentences)

    monkeypatch.setattr(pe.SequenceTagger, "collate", note)
    es = numbered("es", 11, 2)
    run_code_switched({"a": system(2), "b": system(3)}, [es], seeds=(0, 1), **OPTIONS)
    steps = len(batches) // 4
    first, second, third, fourth = (batches[i * steps : (i + 1) * steps] for i in range(4))
    assert first == second
    assert third == fourth
    assert first != third


def test_training_options_reach_fit(recorder: Recorder) -> None:
    def sgd(tagger: pe.SequenceTagger) -> torch.optim.Optimizer:
        return torch.optim.SGD(tagger.parameters(), lr=0.3)

    options = {
        "patience": 2,
        "max_grad_norm": None,
        "scheduler_interval": "step",
        "amp_dtype": torch.bfloat16,
    }
    run_zero_shot(
        {"a": system()},
        ES,
        [EN],
        seeds=(4,),
        optimizer=sgd,
        scheduler=LinearLR,
        metric="accuracy",
        **options,
    )
    (call,) = recorder.calls
    assert {key: getattr(call["options"], key) for key in options} == options
    assert (call["seed"], call["metric"], call["run"].folder) == (4, "accuracy", None)
    assert isinstance(call["optimizer"], torch.optim.SGD)
    assert call["scheduler"].optimizer is call["optimizer"]


SYSTEMS = {"a": system(2), "b/c: d": system(3)}


def run_in(folder, **options) -> ProtocolResult:
    systems = options.pop("systems", SYSTEMS)
    source = options.pop("source", ES)
    return run_zero_shot(
        systems,
        source,
        [EN],
        seeds=(0, 1),
        metric="accuracy",
        folder=folder,
        **{**OPTIONS, **options},
    )


def without_seconds(result: ProtocolResult) -> list:
    def timeless(training: FitResult) -> list:
        return [training.best[:3], [epoch[:3] for epoch in training.history]]

    return [
        result.table,
        result.gold,
        [(*run[:3], timeless(run.training), *run[4:]) for run in result.runs],
    ]


def test_finished_runs_are_not_trained_again(tmp_path, monkeypatch) -> None:
    expected = run_in(tmp_path)
    assert without_seconds(expected) == without_seconds(run_in(None))
    assert sorted(path.name for path in (tmp_path / "zero_shot-es").iterdir()) == [
        "a.0", "a.1", "b%2Fc%3A d.0", "b%2Fc%3A d.1",
    ]  # fmt: skip
    kept = read_checkpoint(tmp_path / "zero_shot-es" / "a.0" / "checkpoint.pt")["state"]
    assert sorted(kept) == ["history", "predictions", "scores"]  # and no weights
    monkeypatch.setattr(Training, "run", lambda *_, **__: pytest.fail("trained"))
    assert run_in(tmp_path) == expected
    assert run_in(tmp_path, progress=False) == expected


def test_a_run_that_was_cut_off_goes_on_from_its_last_epoch(tmp_path, monkeypatch) -> None:
    expected = run_in(None)
    collate, steps = pe.SequenceTagger.collate, []

    def stop(self, sentences):
        steps.append(len(sentences))
        if (
            len(steps) == 12 + 9
        ):  # 6 steps an epoch, 2 epochs a run: in the second epoch of the second run
            raise KeyboardInterrupt
        return collate(self, sentences)

    monkeypatch.setattr(pe.SequenceTagger, "collate", stop)
    with pytest.raises(KeyboardInterrupt):
        run_in(tmp_path)
    finished = {
        path.parent.name: read_checkpoint(path)["finished"]
        for path in tmp_path.rglob("checkpoint.pt")
    }
    assert finished == {"a.0": True, "b%2Fc%3A d.0": False}
    again = run_in(tmp_path)
    assert len(steps) == 12 + 9 + 6 + 2 * 12
    assert without_seconds(again) == without_seconds(expected)


def test_which_sentences_joint_takes(recorder: Recorder) -> None:
    """B keeps the others of A; a larger fraction holds a smaller one; another seed draws others."""
    corpora = numbered("es", 40, 8), [numbered("nl", 23, 4)]
    choices = [
        {},
        {"scenario": "B"},
        {"sample_seed": 1},
        {"fraction": 0.1},
        {"fraction": 0.5},
        {"fraction": 1.0},
    ]
    for options in choices:
        run_joint({"a": system()}, *corpora, **{"scenario": "A", "seeds": (0,), **options})
    a, b, other, few, half, everything = ({*first_words(call["train"])} for call in recorder.calls)
    assert {word for word in a if word.startswith("nl")} == {
        word for word in b if word.startswith("nl")
    }
    assert a < b
    assert a != other
    assert len(a) == len(other)
    assert (
        few
        < a
        < half
        < everything
        == {*first_words(corpora[0].train), *first_words(corpora[1][0].train)}
    )


def test_systems_are_built_of_the_training_sentences_and_the_seed(recorder: Recorder) -> None:
    given, before = [], torch.get_rng_state()

    def build(train: Sequence[TaggedSentence], seed: int) -> pe.SequenceTagger:
        given.append((first_words(train), seed))
        return system()(train, seed)

    es, nl = numbered("es", 8, 1), numbered("nl", 4, 1)
    run_joint({"a": build, "b": system()}, es, [nl], scenario="A", seeds=(5, 6), fraction=0.5)
    words = first_words(recorder.calls[0]["train"])
    assert len(words) == 6
    assert given == [(words, 5), (words, 5), (words, 6)]  # the first to check the tags
    assert torch.equal(torch.get_rng_state(), before)
    first, same, other, _ = (call["tagger"].embedder.table.weight for call in recorder.calls)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def frozen(value: float) -> dict:
    def build(train, seed):
        tagger = system(2)(train, seed)
        tagger.embedder.table.weight.requires_grad_(False).fill_(value)
        return tagger

    return {"a": build}


def falling(steps: int) -> dict:
    return {"scheduler": lambda optimizer: LinearLR(optimizer, 1.0, 0.1, total_iters=steps)}


@pytest.mark.parametrize(
    ("first", "changes", "names"),
    [
        ({}, {"systems": {**SYSTEMS, "a": system(7)}}, "other initial weights"),
        ({}, {"systems": {**SYSTEMS, "a": system(2, TAGS[::-1])}}, "other labels"),
        ({}, {"source": ES._replace(train=CORPUS[:9])}, "other train"),
        ({}, {"source": ES._replace(dev=CORPUS[:2])}, "other dev"),
        ({}, {"source": ES._replace(test=CORPUS[:2])}, "other tests"),
        ({}, {"num_train_epochs": 3}, "num_train_epochs 2 in place of 3"),
        ({}, {"patience": 3}, "patience None in place of 3"),
        (
            {},
            {"optimizer": lambda tagger: torch.optim.Adam(tagger.parameters(), lr=0.5)},
            "other optimizer",
        ),
        ({}, falling(4), "other optimizer, other scheduler"),
        (falling(4), falling(5), r"other scheduler \("),
        ({"systems": frozen(0.5)}, {"systems": frozen(0.25)}, r"other frozen tensors \("),
    ],
)
def test_records_of_other_runs_are_refused(first, changes, names, tmp_path, recorder) -> None:
    run_in(tmp_path, **first)
    run_in(tmp_path, **first)
    with pytest.raises(
        ValueError,
        match=rf"a\.0/checkpoint\.pt must come from this run, got another one: .*{names}",
    ):
        run_in(tmp_path, **changes)
    path = tmp_path / "zero_shot-es" / "a.0" / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"a\.0/checkpoint\.pt must be a whole checkpoint"):
        run_in(tmp_path, **first)


def test_merge() -> None:
    one, two, both = (
        run_zero_shot(systems, ES, [EN], seeds=(0,), **OPTIONS)
        for systems in ({"a": system(2)}, {"b": system(3)}, {"a": system(2), "b": system(3)})
    )
    assert without_seconds(merge_results(one, two)) == without_seconds(both)
    other = run_code_switched({"b": system(3)}, [numbered("es-en", 4, 1)], seeds=(0,), **OPTIONS)
    merged = merge_results(one, other)
    assert merged.table.columns == ("system", "es", "en", "es-en")
    assert [row[0] for row in merged.table.rows] == ["a", "b"]
    assert merged.table.rows[0][3] is None
    assert merged.table.rows[1][1:3] == (None, None)
    assert list(merged.gold) == ["es", "en", "es-en"]
    for results, message in (
        ([], "results must hold at least one result, got none"),
        ([one, one], r"results must hold each run once, got \('a', 'es', 0\) twice"),
        (
            [one, one._replace(metric="accuracy")],
            r"results must have one metric, got \['accuracy', 'f1'\]",
        ),
        (
            [one, one._replace(gold={"en": [["O"]]})],
            "results must test each language on .*, got others of 'en'",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{message}$"):
            merge_results(*results)
    for system_name, language in (("b", "en"), ("a", "de")):
        rule = f"^system must be a system that was tested on '{language}', got '{system_name}'$"
        with pytest.raises(ValueError, match=rule):
            one.scores(system_name, language)
        with pytest.raises(ValueError, match=rule):
            one.predictions(system_name, language)


def rescored(result: ProtocolResult, scores: dict[tuple[str, int], float]) -> ProtocolResult:
    changed = [run._replace(scores={"es": scores[run.system, run.seed]}) for run in result.runs]
    return result._replace(runs=tuple(changed))


def test_gain(recorder: Recorder) -> None:
    result = run_code_switched(
        {"a": system(2), "b": system(3)}, [numbered("es", 4, 1)], seeds=(0, 1)
    )
    before = rescored(result, {("a", 0): 0.5, ("a", 1): 0.25, ("b", 0): 0.75, ("b", 1): 0.5})
    after = rescored(result, {("a", 0): 1.0, ("a", 1): 0.5, ("b", 0): 0.5, ("b", 1): 0.5})
    table = gain_table(before, after)
    assert table.columns == ("system", "es")
    assert table.rows == [
        ("a", mean_and_deviation([0.5, 0.25])),
        ("b", mean_and_deviation([-0.25, 0.0])),
    ]
    fewer = after._replace(runs=after.runs[:-1])
    with pytest.raises(
        ValueError,
        match=r"^after must hold the systems, .* of before, got only one has \[\('b', 'es', 1\)\]$",
    ):
        gain_table(before, fewer)
    with pytest.raises(ValueError, match=r"^after must have the metric 'f1', got 'accuracy'$"):
        gain_table(before, after._replace(metric="accuracy"))


def test_no_parameter_is_trained_twice(recorder: Recorder) -> None:
    tagger = system()(ES.train, 0)
    with pytest.raises(
        ValueError,
        match=r"^systems\['a'\] must build new parameters at each call, got .* earlier call$",
    ):
        run_zero_shot({"a": lambda train, seed: tagger}, ES, [EN], seeds=(0,))
    shared = toy_table(3)

    def build(train: Sequence[TaggedSentence], seed: int) -> pe.SequenceTagger:
        return pe.SequenceTagger(shared, TAGS)

    with pytest.raises(ValueError, match=r"^systems\['b'\] must build new parameters at each call"):
        run_zero_shot({"a": system(), "b": build}, ES, [EN], seeds=(0,))
    shared.requires_grad_(False)
    run_zero_shot({"a": system(), "b": build}, ES, [EN], seeds=(0,))


class Loose:
    words, tags = ("me", "gusta"), ("O",)


def zero(systems=None, source=ES, targets=(EN,), **options):
    run_zero_shot(
        {"a": system()} if systems is None else systems,
        source,
        targets,
        **{"seeds": (0,), **options},
    )


NL = numbered("nl", 4, 1)


def mixed(source=ES, others=(NL,), scenario="A", **options):
    run_joint({"a": system()}, source, others, scenario=scenario, **{"seeds": (0,), **options})


def switched(corpora=(ES,), **options):
    run_code_switched({"a": system()}, corpora, **{"seeds": (0,), **options})


def tagged(tag: str) -> Corpus:
    return Corpus("en", test=[TaggedSentence(("x",), (tag,))])


NOUNS = {"systems": {"a": system(tags=[*TAGS, "NOUN"])}, "targets": [tagged("NOUN")]}
NO_WORD = "must hold at least one sentence with a word, got none"


MADE = torch.optim.SGD([nn.Parameter(torch.ones(1))])


PAIRS = [
    SentencePair(("me", "gusta"), ("y",), "yes"),
    SentencePair(("song",), ("me", "song"), "no"),
    SentencePair(("gusta",), ("naïve",), "yes"),
]
TEXTS = [TaggedSentence(pair.first, ("O",) * len(pair.first), label=pair.label) for pair in PAIRS]


def pair_system(train, seed):
    return pe.PairClassifier(toy_table(3), ["no", "yes"], pooling="mean")


def table_system(train, seed):
    return pe.SequenceTagger(toy_table(3), TAGS)


def text_system(train, seed):
    return pe.SequenceClassifier(toy_table(3), ["no", "yes"], pooling="mean")


@pytest.mark.parametrize(("build", "items"), [(pair_system, PAIRS), (text_system, TEXTS)])
def test_texts_and_pairs(build, items, tmp_path) -> None:
    """They ended in an AttributeError: sentences with tags were read alone."""
    en, de = Corpus("en", items * 3, items, items), Corpus("de", items[:2], items[1:], items[::-1])
    result = run_zero_shot({"a": build}, en, [de], seeds=(0,), num_train_epochs=2, folder=tmp_path)
    (run,) = result.runs
    assert result.metric == "accuracy"
    assert result.gold == {"en": [["yes"], ["no"], ["yes"]], "de": [["yes"], ["no"], ["yes"]]}
    for language in ("en", "de"):
        assert run.scores[language] == accuracy(result.gold[language], run.predictions[language])
    assert run.predictions["de"] == run.predictions["en"][::-1]
    assert without_seconds(
        run_zero_shot({"a": build}, en, [de], seeds=(0,), num_train_epochs=2, folder=tmp_path)
    ) == (without_seconds(result))
    for other in (
        run_joint({"a": build}, en, [de], scenario="A", seeds=(0,)),
        run_code_switched({"a": build}, [en], seeds=(0,)),
    ):
        assert other.metric == "accuracy"


PAIR_CORPUS = Corpus("en", PAIRS, PAIRS, PAIRS)
UNKNOWN = Corpus("es", *[[TaggedSentence(("me",), ("O",), label="perhaps")]] * 3)
BOTH = {
    "systems": {"a": system(tags=["O"]), "b": text_system},
    "source": Corpus("es", TEXTS, TEXTS, TEXTS),
}


@own_words
@pytest.mark.parametrize(
    ("protocol", "changes", "message"),
    [
        (zero, {"systems": {}}, "systems must hold at least one system, got none"),
        (zero, {"targets": ()}, "targets must hold at least one language, got none"),
        (zero, {"seeds": ()}, "seeds must hold at least one seed, got none"),
        (zero, {"seeds": (1, 2, 1)}, r"seeds must be different, got \[1, 2, 1\]"),
        (zero, {"targets": [ES]}, "languages must be named once each, got 'es' twice"),
        (
            zero,
            {"metric": "recall"},
            "metric must be one of 'f1', 'accuracy', 'macro_f1', got 'recall'",
        ),
        (zero, {"source": ES._replace(train=[])}, f"train of 'es' {NO_WORD}"),
        (zero, {"source": ES._replace(dev=[TaggedSentence((), ())])}, f"dev of 'es' {NO_WORD}"),
        (zero, {"targets": [Corpus("en")]}, f"test of 'en' {NO_WORD}"),
        (
            zero,
            {"systems": {"a": "MME"}},
            r"systems\['a'\] must be a function of train and seed, got str",
        ),
        (
            zero,
            {"systems": {"a": lambda *_: nn.Linear(2, 3)}},
            r"systems\['a'\] must build a tagger or a classifier, got Linear",
        ),
        (zero, {"systems": [system()]}, "systems must be a mapping of names .*, got list"),
        (
            zero,
            {"systems": {"b": system(tags=TAGS[:3])}},
            r"systems\['b'\].tags must hold every tag .* 'B-EN' of .*",
        ),
        (
            zero,
            {"targets": [tagged("B-LOC")]},
            r"systems\['a'\].* got none for 'B-LOC' of the 'en' test sentences",
        ),
        (zero, NOUNS, "labels must be O, B-<type> or I-<type>, got 'NOUN'"),
        (
            zero,
            {"targets": [Corpus("en", test=[Loose()])]},
            "the 'en' test sentences must .*, got 1 tags for 2 words",
        ),
        (
            zero,
            {"systems": {"a": table_system}, "source": PAIR_CORPUS._replace(language="es")},
            "a labelled text must .* tags for a SequenceTagger, .*",
        ),
        (
            zero,
            {"targets": [PAIR_CORPUS]},
            "a labelled text must have .*, got SentencePair without words and tags",
        ),
        (
            zero,
            {"systems": {"a": pair_system}},
            "a labelled text must have first and second and label for a Pair.*",
        ),
        (
            zero,
            {**BOTH, "targets": [Corpus("en", test=TEXTS)]},
            r"systems\['b'\] must read words and tags as 'a' .*",
        ),
        (
            zero,
            {"systems": {"a": text_system}, "source": UNKNOWN},
            r"systems\['a'\].labels must .* 'perhaps' of the .*",
        ),
        (zero, {"targets": EN}, "targets must be a sequence of corpora, got Corpus"),
        (zero, {"targets": [EN.test]}, r"targets\[0\] must be a Corpus, got list"),
        (zero, {"source": [ES]}, "source must be a Corpus, got list"),
        (mixed, {"others": ES}, "others must be a sequence of corpora, got Corpus"),
        (mixed, {"others": ()}, "others must hold at least one language, got none"),
        (mixed, {"targets": EN}, "targets must be a sequence of corpora, got Corpus"),
        (
            mixed,
            {"targets": [numbered("nl", 4)]},
            "languages must be named once each, got 'nl' twice",
        ),
        (mixed, {"others": [numbered("nl", 4)]}, f"dev of 'nl' {NO_WORD}"),
        (mixed, {"fraction": 0.0}, r"fraction must be in \(0, 1\], got 0.0"),
        (mixed, {"fraction": math.nan}, r"fraction must be in \(0, 1\], got nan"),
        (mixed, {"scenario": "C"}, "scenario must be one of 'A', 'B', got 'C'"),
        (switched, {"corpora": ()}, "corpora must hold at least one corpus, got none"),
        (switched, {"corpora": None}, "corpora must be a sequence of corpora, got NoneType"),
        (switched, {"seeds": 3}, "seeds must be a sequence of integers, got 3"),
        (switched, {"seeds": "01"}, "seeds must be a sequence of integers, got '01'"),
        (switched, {"seeds": (0, 0.7)}, r"seeds\[1\] must be an integer, got 0.7"),
        (switched, {"seeds": (True,)}, r"seeds\[0\] must be an integer, got True"),
        (
            switched,
            {"optimizer": MADE},
            "optimizer must be a function of the model that returns one, got SGD",
        ),
        (
            switched,
            {"scheduler": LinearLR(MADE)},
            "scheduler must be a function of .*, got LinearLR",
        ),
    ],
)
def test_wrong_arguments_are_named_before_anything_is_trained(
    protocol, changes, message, recorder: Recorder
) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{message}$"):
        protocol(**changes)
    with pytest.raises(TypeError, match=r"^options must be FitOptions, got dict$"):
        protocols.run_zero_shot({"a": system()}, ES, [EN], {"batch_size": 3}, seeds=(0,))
    assert recorder.calls == []
