"""The protocols: who is trained on what, tested on what, with which seeds; and what a lost run costs."""

import math
import shutil
from collections.abc import Sequence

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LinearLR
from toys import TAGS, own_words, toy_corpus, toy_table

import polyembed as pe
from polyembed.data import TaggedSentence
from polyembed.experiments import protocols
from polyembed.experiments.compare import Corpus
from polyembed.experiments.results import ProtocolResult, gain_table, merge_results
from polyembed.metrics import accuracy, entity_f1
from polyembed.tables import MeanAndDeviation, mean_and_deviation
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


zero_shot, joint, code_switched, fit = map(
    with_options, (protocols.zero_shot, protocols.joint, protocols.code_switched, fit_with)
)


def system(dim: int = 5, tags: Sequence[str] = TAGS):
    """Make a system: a trained table of the training words."""

    def build(train: Sequence[TaggedSentence], seed: int) -> pe.SequenceTagger:
        lexicon = pe.Lexicon.from_sentences(sentence.words for sentence in train)
        return pe.SequenceTagger(pe.SourceEmbedding.from_embedding(nn.Embedding(len(lexicon), dim), lexicon), tags)

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
EN = Corpus("en", Unreadable(), Unreadable(), [TaggedSentence(("that", "new", "song"), ("B-EN", "O", "O"))])
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
    monkeypatch.setattr(Training, "run", lambda self, run, **options: recorder(self, run, **options))
    return recorder


def first_words(sentences: Sequence[TaggedSentence]) -> list[str]:
    return [sentence.words[0] for sentence in sentences]


def by_hand(dim: int, seed: int, metric: str) -> tuple[list, dict[str, float], dict[str, list]]:
    """Do one run of `zero_shot` in plain steps."""
    torch.manual_seed(seed)
    tagger = system(dim)(ES.train, seed)
    result = fit(tagger, ES.train, ES.dev, metric=metric, seed=seed, **OPTIONS)
    predicted = {corpus.language: tagger.predict([s.words for s in corpus.test]) for corpus in (ES, EN)}
    gold = {corpus.language: [list(s.tags) for s in corpus.test] for corpus in (ES, EN)}
    score = {"f1": lambda g, p: entity_f1(g, p).f1, "accuracy": accuracy}[metric]
    return [e[:3] for e in result.history], {name: score(gold[name], predicted[name]) for name in gold}, predicted


@pytest.mark.parametrize("metric", ["f1", "accuracy"])
def test_zero_shot_is_what_one_would_do_by_hand(metric: str) -> None:
    result = zero_shot({"five": system(5), "seven": system(7)}, ES, [EN], seeds=(3, 1), metric=metric, **OPTIONS)
    assert [(run.system, run.seed) for run in result.runs] == [("five", 3), ("seven", 3), ("five", 1), ("seven", 1)]
    for run in result.runs:
        history, scores, predicted = by_hand(5 if run.system == "five" else 7, run.seed, metric)
        assert [epoch[:3] for epoch in run.training.history] == history
        assert (run.scores, run.predictions, run.trained_on) == (scores, predicted, ("es",))
    assert result.metric == metric
    assert result.table.columns == ("system", "es", "en")
    for name, *cells in result.table.rows:
        for language, cell in zip(("es", "en"), cells, strict=True):
            assert cell == mean_and_deviation([run.scores[language] for run in result.runs if run.system == name])
    assert result.gold == {"es": [list(s.tags) for s in ES.test], "en": [["B-EN", "O", "O"]]}
    assert result.scores("five", "en") == {run.seed: run.scores["en"] for run in result.runs if run.system == "five"}
    assert result.predictions("seven", "es")[1] == result.runs[3].predictions["es"]


def test_zero_shot_learns_the_source() -> None:
    def adam(tagger: pe.SequenceTagger) -> torch.optim.Optimizer:
        return torch.optim.Adam(tagger.parameters(), lr=0.1)

    options = {"optimizer": adam, "num_train_epochs": 8, "batch_size": 2}
    result = zero_shot({"five": system()}, ES, [EN], seeds=(0,), **options)
    assert result.table.rows[0][1] == MeanAndDeviation(1.0, None)


def test_a_function_as_metric() -> None:
    def count_of_o(gold: list, predicted: list) -> float:
        return float(sum(tags.count("O") for tags in predicted))

    result = zero_shot({"five": system()}, ES, [EN], seeds=(0,), metric=count_of_o, **OPTIONS)
    assert result.metric == "count_of_o"
    assert result.scores("five", "en") == {0: result.predictions("five", "en")[0][0].count("O")}


@pytest.mark.parametrize("scenario", ["A", "B"])
def test_joint_trains_on_a_fraction(scenario: str, recorder: Recorder) -> None:
    es, nl, de, eu = numbered("es", 40, 8), numbered("nl", 23, 4), numbered("de", 7, 2), numbered("eu", 0)
    result = joint({"a": system(2), "b": system(3)}, es, [nl, de], scenario=scenario, seeds=(0, 1), targets=[eu])
    assert result.table.columns == ("system", "es", "nl", "de", "eu")
    assert all(
        run.trained_on == ("es", "nl", "de") and set(run.scores) == {"es", "nl", "de", "eu"} for run in result.runs
    )
    assert len(recorder.calls) == 4
    for part, sizes in (("train", (40 if scenario == "B" else 10, 6, 2)), ("dev", (8 if scenario == "B" else 2, 1, 1))):
        words = first_words(recorder.calls[0][part])
        for corpus, size in zip((es, nl, de), sizes, strict=True):
            chosen = [word for word in words if word.startswith(corpus.language)]
            assert len(set(chosen)) == len(chosen) == size
            assert set(chosen) <= set(first_words(getattr(corpus, part)))
        for call in recorder.calls:  # of all systems and seeds
            assert first_words(call[part]) == words


def test_scenario_b_keeps_the_others_of_a(recorder: Recorder) -> None:
    corpora = numbered("es", 40, 8), [numbered("nl", 23, 4)]
    for scenario in ("A", "B"):
        joint({"a": system()}, *corpora, scenario=scenario, seeds=(0,))
    joint({"a": system()}, *corpora, scenario="A", seeds=(0,), sample_seed=1)
    a, b, other = ({*first_words(call["train"])} for call in recorder.calls)
    assert {word for word in a if word.startswith("nl")} == {word for word in b if word.startswith("nl")}
    assert a < b
    assert a != other
    assert len(a) == len(other)


def test_a_larger_fraction_holds_a_smaller_one(recorder: Recorder) -> None:
    corpora = numbered("es", 40, 8), [numbered("nl", 23, 4)]
    for fraction in (0.1, 0.5, 1.0):
        joint({"a": system()}, *corpora, scenario="A", seeds=(0,), fraction=fraction)
    few, half, all_of_them = ({*first_words(call["train"])} for call in recorder.calls)
    assert few < half < all_of_them == {*first_words(corpora[0].train), *first_words(corpora[1][0].train)}


def test_code_switched_trains_on_each_corpus_alone(recorder: Recorder) -> None:
    corpora = [numbered("es-en", 5, 2), numbered("tr-de", 3, 1)]
    result = code_switched({"a": system(2), "b": system(3)}, corpora, seeds=(0, 1))
    assert result.table.columns == ("system", "es-en", "tr-de")
    seen = [(run.system, run.seed, run.trained_on, *run.scores) for run in result.runs]
    expected = [(c, n, s) for c in ("es-en", "tr-de") for s in (0, 1) for n in ("a", "b")]
    assert seen == [(n, s, (c,), c) for c, n, s in expected]
    for run, call in zip(result.runs, recorder.calls, strict=True):
        corpus = corpora[0] if run.trained_on == ("es-en",) else corpora[1]
        assert (call["train"], call["dev"], call["seed"]) == (corpus.train, corpus.dev, run.seed)


def test_systems_are_built_of_the_training_sentences(recorder: Recorder) -> None:
    given = []

    def build(train: Sequence[TaggedSentence], seed: int) -> pe.SequenceTagger:
        given.append((first_words(train), seed))
        return system()(train, seed)

    es, nl = numbered("es", 8, 1), numbered("nl", 4, 1)
    joint({"a": build}, es, [nl], scenario="A", seeds=(5, 6), fraction=0.5)
    words = first_words(recorder.calls[0]["train"])
    assert len(words) == 6
    assert given == [(words, 5), (words, 5), (words, 6)]  # the first to check the tags


def test_one_seed_is_one_order_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[list[tuple[str, ...]]] = []
    collate = pe.SequenceTagger.collate

    def note(self, sentences):
        batches.append([sentence.words for sentence in sentences])
        return collate(self, sentences)

    monkeypatch.setattr(pe.SequenceTagger, "collate", note)
    es = numbered("es", 11, 2)
    code_switched({"a": system(2), "b": system(3)}, [es], seeds=(0, 1), **OPTIONS)
    steps = len(batches) // 4
    first, second, third, fourth = (batches[i * steps : (i + 1) * steps] for i in range(4))
    assert first == second
    assert third == fourth
    assert first != third


def test_the_seed_decides_the_first_weights(recorder: Recorder) -> None:
    before = torch.get_rng_state()
    zero_shot({"a": system(), "b": system()}, ES, [EN], seeds=(0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    first, same, other, _ = (call["tagger"].embedder.table.weight for call in recorder.calls)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_training_options_reach_fit(recorder: Recorder) -> None:
    def sgd(tagger: pe.SequenceTagger) -> torch.optim.Optimizer:
        return torch.optim.SGD(tagger.parameters(), lr=0.3)

    options = {"patience": 2, "max_grad_norm": None, "scheduler_interval": "step", "amp_dtype": torch.bfloat16}
    zero_shot({"a": system()}, ES, [EN], seeds=(4,), optimizer=sgd, scheduler=LinearLR, metric="accuracy", **options)
    (call,) = recorder.calls
    assert {key: getattr(call["options"], key) for key in options} == options
    assert (call["seed"], call["metric"], call["run"].folder) == (4, "accuracy", None)
    assert isinstance(call["optimizer"], torch.optim.SGD)
    assert call["scheduler"].optimizer is call["optimizer"]


def test_the_default_optimizer_is_that_of_fit() -> None:
    with_default, with_none = [], []

    def note(found: list):
        def schedule(optimizer: torch.optim.Optimizer) -> LinearLR:
            found.append((type(optimizer), optimizer.defaults))
            return LinearLR(optimizer)

        return schedule

    zero_shot({"a": system()}, ES, [EN], seeds=(0,), scheduler=note(with_default), num_train_epochs=1)
    tagger = system()(ES.train, 0)
    step = torch.optim.Adam.step

    def remember(self, *arguments):
        with_none.append((type(self), self.defaults))
        return step(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.Adam, "step", remember)
        fit(tagger, ES.train, ES.dev, num_train_epochs=1)
    assert with_default[0] == with_none[0]


SYSTEMS = {"a": system(2), "b/c: d": system(3)}


def run_in(folder, **options) -> ProtocolResult:
    systems = options.pop("systems", SYSTEMS)
    source = options.pop("source", ES)
    return zero_shot(systems, source, [EN], seeds=(0, 1), metric="accuracy", folder=folder, **{**OPTIONS, **options})


def without_seconds(result: ProtocolResult) -> list:
    def timeless(training: FitResult) -> list:
        return [training.best[:3], [epoch[:3] for epoch in training.history]]

    return [result.table, result.gold, [(*run[:3], timeless(run.training), *run[4:]) for run in result.runs]]


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


def test_a_lost_run_costs_itself_only(tmp_path, monkeypatch) -> None:
    expected = run_in(tmp_path)
    shutil.rmtree(tmp_path / "zero_shot-es" / "a.1")
    trained = []

    train = Training.run

    def note(training: Training, run: Run, **options) -> FitResult:
        trained.append((training.model.embedder.table.weight.shape[1], training.seed))
        return train(training, run, **options)

    monkeypatch.setattr(Training, "run", note)
    again = run_in(tmp_path)
    assert trained == [(2, 1)]
    assert without_seconds(again) == without_seconds(expected)


def test_a_run_that_was_cut_off_goes_on_from_its_last_epoch(tmp_path, monkeypatch) -> None:
    expected = run_in(None)
    collate, steps = pe.SequenceTagger.collate, []

    def stop(self, sentences):
        steps.append(len(sentences))
        if len(steps) == 12 + 9:  # 6 steps an epoch, 2 epochs a run: in the second epoch of the second run
            raise KeyboardInterrupt
        return collate(self, sentences)

    monkeypatch.setattr(pe.SequenceTagger, "collate", stop)
    with pytest.raises(KeyboardInterrupt):
        run_in(tmp_path)
    finished = {path.parent.name: read_checkpoint(path)["finished"] for path in tmp_path.rglob("checkpoint.pt")}
    assert finished == {"a.0": True, "b%2Fc%3A d.0": False}
    again = run_in(tmp_path)
    assert len(steps) == 12 + 9 + 6 + 2 * 12
    assert without_seconds(again) == without_seconds(expected)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"systems": {**SYSTEMS, "a": system(7)}}, "other initial weights"),
        ({"systems": {**SYSTEMS, "a": system(2, TAGS[::-1])}}, "other labels"),
        ({"source": ES._replace(train=CORPUS[:9])}, "other train"),
        ({"source": ES._replace(dev=CORPUS[:2])}, "other dev"),
        ({"source": ES._replace(test=CORPUS[:2])}, "other tests"),
        ({"num_train_epochs": 3}, "num_train_epochs 2 in place of 3"),
        ({"patience": 3}, "patience None in place of 3"),
        ({"optimizer": lambda tagger: torch.optim.Adam(tagger.parameters(), lr=0.5)}, "other optimizer"),
        ({"scheduler": lambda optimizer: LinearLR(optimizer, 1.0, 0.1)}, "other optimizer, other scheduler"),
    ],
)
def test_records_of_other_runs_are_refused(changes, names, tmp_path, recorder) -> None:
    run_in(tmp_path)
    with pytest.raises(ValueError, match=rf"a\.0/checkpoint\.pt must come from this run, got another one: .*{names}"):
        run_in(tmp_path, **changes)


def test_schedules_differ_by_their_numbers(tmp_path, recorder) -> None:
    run_in(tmp_path, scheduler=lambda optimizer: LinearLR(optimizer, 1.0, 0.1, total_iters=4))
    run_in(tmp_path, scheduler=lambda optimizer: LinearLR(optimizer, 1.0, 0.1, total_iters=4))
    with pytest.raises(ValueError, match=r"another one: other scheduler \("):
        run_in(tmp_path, scheduler=lambda optimizer: LinearLR(optimizer, 1.0, 0.1, total_iters=5))


def test_frozen_vectors_are_part_of_a_run(tmp_path, recorder) -> None:
    def frozen(value: float):
        def build(train, seed):
            tagger = system(2)(train, seed)
            tagger.embedder.table.weight.requires_grad_(False).fill_(value)
            return tagger

        return build

    run_in(tmp_path, systems={"a": frozen(0.5)})
    run_in(tmp_path, systems={"a": frozen(0.5)})
    with pytest.raises(ValueError, match=r"another one: other frozen tensors \("):
        run_in(tmp_path, systems={"a": frozen(0.25)})


def test_damaged_outcomes_are_refused(tmp_path, recorder) -> None:
    run_in(tmp_path)
    path = tmp_path / "zero_shot-es" / "a.0" / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"a\.0/checkpoint\.pt must be a whole checkpoint"):
        run_in(tmp_path)


def test_merge() -> None:
    one = zero_shot({"a": system(2)}, ES, [EN], seeds=(0,), **OPTIONS)
    two = zero_shot({"b": system(3)}, ES, [EN], seeds=(0,), **OPTIONS)
    assert without_seconds(merge_results(one, two)) == without_seconds(
        zero_shot({"a": system(2), "b": system(3)}, ES, [EN], seeds=(0,), **OPTIONS)
    )
    other = code_switched({"b": system(3)}, [numbered("es-en", 4, 1)], seeds=(0,), **OPTIONS)
    merged = merge_results(one, other)
    assert merged.table.columns == ("system", "es", "en", "es-en")
    assert [row[0] for row in merged.table.rows] == ["a", "b"]
    assert merged.table.rows[0][3] is None
    assert merged.table.rows[1][1:3] == (None, None)
    assert list(merged.gold) == ["es", "en", "es-en"]


def test_what_does_not_merge() -> None:
    one = zero_shot({"a": system(2)}, ES, [EN], seeds=(0,), **OPTIONS)
    with pytest.raises(ValueError, match=r"^results must hold at least one result, got none$"):
        merge_results()
    with pytest.raises(ValueError, match=r"^results must hold each run once, got \('a', 'es', 0\) twice$"):
        merge_results(one, one)
    with pytest.raises(ValueError, match=r"^results must have one metric, got \['accuracy', 'f1'\]$"):
        merge_results(one, one._replace(metric="accuracy"))
    with pytest.raises(
        ValueError, match=r"^results must test each language on the same sentences, got others of 'en'$"
    ):
        merge_results(one, one._replace(gold={"en": [["O"]]}))


def rescored(result: ProtocolResult, scores: dict[tuple[str, int], float]) -> ProtocolResult:
    changed = [run._replace(scores={"es": scores[run.system, run.seed]}) for run in result.runs]
    return result._replace(runs=tuple(changed))


def test_gain(recorder: Recorder) -> None:
    result = code_switched({"a": system(2), "b": system(3)}, [numbered("es", 4, 1)], seeds=(0, 1))
    before = rescored(result, {("a", 0): 0.5, ("a", 1): 0.25, ("b", 0): 0.75, ("b", 1): 0.5})
    after = rescored(result, {("a", 0): 1.0, ("a", 1): 0.5, ("b", 0): 0.5, ("b", 1): 0.5})
    table = gain_table(before, after)
    assert table.columns == ("system", "es")
    assert table.rows == [("a", mean_and_deviation([0.5, 0.25])), ("b", mean_and_deviation([-0.25, 0.0]))]
    fewer = after._replace(runs=after.runs[:-1])
    with pytest.raises(
        ValueError, match=r"^after must hold the systems, .* of before, got only one has \[\('b', 'es', 1\)\]$"
    ):
        gain_table(before, fewer)
    with pytest.raises(ValueError, match=r"^after must have the metric 'f1', got 'accuracy'$"):
        gain_table(before, after._replace(metric="accuracy"))


@own_words
def test_wrong_arguments() -> None:
    def run(systems=None, source=ES, targets=(EN,), **options):
        zero_shot({"a": system()} if systems is None else systems, source, targets, **{"seeds": (0,), **options})

    for changes, message in (
        ({"systems": {}}, r"systems must hold at least one system, got none"),
        ({"targets": ()}, r"targets must hold at least one language, got none"),
        ({"seeds": ()}, r"seeds must hold at least one seed, got none"),
        ({"seeds": (1, 2, 1)}, r"seeds must be different, got \[1, 2, 1\]"),
        ({"targets": [ES]}, r"languages must be named once each, got 'es' twice"),
        ({"targets": [EN, EN]}, r"languages must be named once each, got 'en' twice"),
        ({"metric": "recall"}, r"metric must be one of 'f1', 'accuracy', 'macro_f1', got 'recall'"),
        ({"source": ES._replace(train=[])}, r"train of 'es' must hold at least one sentence with a word, got none"),
        ({"source": ES._replace(dev=[TaggedSentence((), ())])}, r"dev of 'es' must hold .* a word, got none"),
        ({"source": ES._replace(test=())}, r"test of 'es' must hold at least one sentence with a word, got none"),
        ({"targets": [Corpus("en")]}, r"test of 'en' must hold at least one sentence with a word, got none"),
    ):
        with pytest.raises(ValueError, match=f"^{message}$"):
            run(**changes)
    with pytest.raises(TypeError, match=r"^systems\['a'\] must be a function of train and seed, got str$"):
        run(systems={"a": "MME"})
    with pytest.raises(TypeError, match=r"^systems\['a'\] must build a SequenceTagger, got Linear$"):
        run(systems={"a": lambda train, seed: nn.Linear(2, 3)})
    with pytest.raises(TypeError, match=r"^options must be FitOptions, got dict$"):
        protocols.zero_shot({"a": system()}, ES, [EN], {"batch_size": 3}, seeds=(0,))


@own_words
def test_wrong_kinds_of_arguments_are_named(recorder: Recorder) -> None:
    systems, made = {"a": system()}, torch.optim.SGD([nn.Parameter(torch.ones(1))])
    nl = numbered("nl", 4, 1)
    for call, message in (
        (lambda **o: zero_shot(systems, ES, EN, **o), r"targets must be a sequence of corpora, got Corpus"),
        (lambda **o: zero_shot(systems, ES, [EN.test], **o), r"targets\[0\] must be a Corpus, got list"),
        (lambda **o: zero_shot(systems, [ES], [EN], **o), r"source must be a Corpus, got list"),
        (lambda **o: joint(systems, ES, nl, scenario="A", **o), r"others must be a sequence of corpora, got Corpus"),
        (
            lambda **o: joint(systems, ES, [nl], scenario="A", targets=EN, **o),
            r"targets must be a sequence of corpora, got Corpus",
        ),
        (lambda **o: code_switched(systems, ES, **o), r"corpora must be a sequence of corpora, got Corpus"),
        (lambda **o: code_switched(systems, None, **o), r"corpora must be a sequence of corpora, got NoneType"),
        (lambda **o: code_switched([system()], [ES], **o), r"systems must be a mapping of names .*, got list"),
        (lambda **o: code_switched(systems, [ES], seeds=3), r"seeds must be a sequence of integers, got 3"),
        (lambda **o: code_switched(systems, [ES], seeds="01"), r"seeds must be a sequence of integers, got '01'"),
        (lambda **o: code_switched(systems, [ES], seeds=(0, 0.7)), r"seeds\[1\] must be an integer, got 0.7"),
        (lambda **o: code_switched(systems, [ES], seeds=(True,)), r"seeds\[0\] must be an integer, got True"),
        (
            lambda **o: code_switched(systems, [ES], optimizer=made, **o),
            r"optimizer must be a function of the model that returns one, got SGD",
        ),
        (
            lambda **o: code_switched(systems, [ES], scheduler=LinearLR(made), **o),
            r"scheduler must be a function of the optimizer that returns one, got LinearLR",
        ),
    ):
        with pytest.raises(TypeError, match=f"^{message}$"):
            call(**({} if "seeds" in message else {"seeds": (0,)}))
    assert recorder.calls == []


def test_tags_must_fit_before_anything_is_trained(recorder: Recorder) -> None:
    systems = {"a": system(), "b": system(tags=["O", "B-ES", "I-ES"])}
    with pytest.raises(
        ValueError,
        match=r"^systems\['b'\].tags must hold every tag of the data, got none for 'B-EN' of the training sen",
    ):
        zero_shot(systems, ES, [EN], seeds=(0,))
    new = EN._replace(test=[TaggedSentence(("x", "y"), ("B-LOC", "I-LOC"))])
    with pytest.raises(
        ValueError, match=r"^systems\['a'\].* got none for 'B-LOC', 'I-LOC' of the 'en' test sentences$"
    ):
        zero_shot({"a": system()}, ES, [new], seeds=(0,))
    with pytest.raises(ValueError, match=r"^labels must be O, B-<type> or I-<type>, got 'NOUN'$"):
        zero_shot({"a": system()}, ES, [EN._replace(test=[TaggedSentence(("x",), ("NOUN",))])], seeds=(0,))
    assert recorder.calls == []


def test_each_word_has_a_tag(recorder: Recorder) -> None:
    class Loose:
        words, tags = ("me", "gusta"), ("O",)

    with pytest.raises(ValueError, match=r"^test of 'en' must have one tag a word, got 1 tags for 2 words$"):
        zero_shot({"a": system()}, ES, [Corpus("en", test=[Loose()])], seeds=(0,))


def test_no_parameter_is_trained_twice(recorder: Recorder) -> None:
    tagger = system()(ES.train, 0)
    with pytest.raises(
        ValueError, match=r"^systems\['a'\] must build new parameters at each call, got .* earlier call$"
    ):
        zero_shot({"a": lambda train, seed: tagger}, ES, [EN], seeds=(0,))
    shared = toy_table(3)

    def build(train: Sequence[TaggedSentence], seed: int) -> pe.SequenceTagger:
        return pe.SequenceTagger(shared, TAGS)

    with pytest.raises(ValueError, match=r"^systems\['b'\] must build new parameters at each call"):
        zero_shot({"a": system(), "b": build}, ES, [EN], seeds=(0,))
    shared.requires_grad_(False)
    zero_shot({"a": system(), "b": build}, ES, [EN], seeds=(0,))


def test_wrong_arguments_of_joint() -> None:
    es, nl = numbered("es", 4, 1), numbered("nl", 4, 1)

    def run(source=es, others=(nl,), scenario="A", **options):
        joint({"a": system()}, source, others, scenario=scenario, seeds=(0,), **options)

    for changes, message in (
        ({"others": ()}, r"others must hold at least one language, got none"),
        ({"targets": [nl]}, r"languages must be named once each, got 'nl' twice"),
        ({"others": [nl._replace(dev=())]}, r"dev of 'nl' must hold at least one sentence with a word, got none"),
        ({"fraction": 0.0}, r"fraction must lie in \(0, 1\], got 0.0"),
        ({"fraction": 1.5}, r"fraction must lie in \(0, 1\], got 1.5"),
        ({"fraction": math.nan}, r"fraction must lie in \(0, 1\], got nan"),
    ):
        with pytest.raises(ValueError, match=f"^{message}$"):
            run(**changes)
    with pytest.raises(ValueError, match=r"^corpora must hold at least one corpus, got none$"):
        code_switched({"a": system()}, [], seeds=(0,))


@own_words
def test_there_are_two_scenarios() -> None:
    with pytest.raises(ValueError, match=r"^scenario must be one of 'A', 'B', got 'C'$"):
        joint({"a": system()}, numbered("es", 4, 1), [numbered("nl", 4, 1)], scenario="C", seeds=(0,))


def test_results_know_their_systems_and_languages(recorder: Recorder) -> None:
    result = zero_shot({"a": system()}, ES, [EN], seeds=(0,))
    with pytest.raises(ValueError, match=r"^system must be a system that was tested on 'en', got 'b'$"):
        result.scores("b", "en")
    with pytest.raises(ValueError, match=r"^system must be a system that was tested on 'de', got 'a'$"):
        result.predictions("a", "de")
