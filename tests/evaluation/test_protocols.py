"""The protocols: their training data, their test data, and the reuse of finished runs."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from checks import refused
from torch import nn
from toys import TAGS, toy_corpus

import polyembed as pe
from polyembed.data import TaggedSentence
from polyembed.evaluation import (
    Corpus,
    ProtocolResult,
    protocols,
    run_code_switched,
    run_joint,
    run_zero_shot,
)
from polyembed.tables import mean_and_deviation
from polyembed.training import Epoch, FitOptions, FitResult, default_optimizer, fit

OPTIONS = FitOptions(num_train_epochs=2, batch_size=2)
QUICK = FitOptions(num_train_epochs=1, metric="accuracy")


def system(dim: int = 5, tags: Sequence[str] = TAGS):
    """Return a system, which builds a tagger over a trainable table of the training words."""

    def build(train, seed):
        lexicon = pe.Lexicon.from_sentences(sentence.words for sentence in train)
        table = nn.Embedding(len(lexicon), dim)
        return pe.SequenceTagger(pe.SourceEmbedding.from_embedding(table, lexicon), tags)

    return build


def numbered(language: str, train: int, dev: int = 0, test: int = 3) -> Corpus:
    """Build a corpus of sentences with different first words: es-train-0, es-train-1, ..."""
    parts = [
        [TaggedSentence((f"{language}-{part}-{i}", "song"), ("B-ES", "O")) for i in range(count)]
        for part, count in (("train", train), ("dev", dev), ("test", test))
    ]
    return Corpus(language, *parts)


class Unreadable(Sequence):
    """Sentences that must not be read."""

    __len__ = __getitem__ = lambda *_: pytest.fail("read")


SENTENCES = toy_corpus(4)
ES = Corpus("es", SENTENCES, SENTENCES[:3], SENTENCES[:3])
SONG = [TaggedSentence(("that", "new", "song"), ("B-EN", "O", "O"))]
EN = Corpus("en", Unreadable(), Unreadable(), SONG)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """Replace `fit` by a stub, and return the list of its recorded calls."""
    found: list[dict] = []

    def record(model, train, dev, options, *, seed, progress):
        found.append({"model": model, "train": train, "dev": dev, "options": options, "seed": seed})
        return FitResult(Epoch(1, 0.5, 0.5, 0.1), (Epoch(1, 0.5, 0.5, 0.1),))

    monkeypatch.setattr(protocols, "fit", record)
    return found


def first_words(sentences: Sequence[TaggedSentence]) -> list[str]:
    return [sentence.words[0] for sentence in sentences]


def count_of_o(gold: list, predicted: list, tag: str = "O") -> float:
    return float(sum(tags.count(tag) for tags in predicted))


def test_zero_shot_is_what_one_would_do_by_hand():
    options = FitOptions(num_train_epochs=2, batch_size=2, metric=count_of_o)
    systems = {"five": system(5), "seven": system(7)}
    result = run_zero_shot(systems, ES, [EN], options, seeds=(3, 1))
    order = [("five", 3), ("seven", 3), ("five", 1), ("seven", 1)]
    assert [(run.system, run.seed) for run in result.runs] == order
    gold = {corpus.language: [list(s.tags) for s in corpus.test] for corpus in (ES, EN)}
    for run in result.runs:
        torch.manual_seed(run.seed)
        tagger = systems[run.system](ES.train, run.seed)
        fitted = fit(tagger, ES.train, ES.dev, options, seed=run.seed)
        assert [e[:3] for e in run.training.history] == [e[:3] for e in fitted.history]
        for corpus in (ES, EN):
            found = tagger.predict([s.words for s in corpus.test])
            assert run.predictions[corpus.language] == found
            assert run.scores[corpus.language] == count_of_o(gold[corpus.language], found)
    assert (result.metric, result.gold) == ("count_of_o", gold)
    assert result.table.columns == ("system", "es", "en")
    assert result.table.rows[1][2] == mean_and_deviation([*result.scores("seven", "en").values()])
    assert result.predictions("seven", "es")[1] == result.runs[3].predictions["es"]


@pytest.mark.parametrize("scenario", ["A", "B"])
def test_joint_trains_on_a_fraction(scenario: str, calls: list[dict]):
    es, nl, de = numbered("es", 40, 8), numbered("nl", 23, 4), numbered("de", 7, 2)
    systems, targets = {"a": system(2), "b": system(3)}, [numbered("eu", 0)]
    options = {"scenario": scenario, "seeds": (0, 1), "targets": targets}
    result = run_joint(systems, es, iter([nl, de]), QUICK, **options)
    assert result.table.columns == ("system", "es", "nl", "de", "eu")
    assert {run.trained_on for run in result.runs} == {("es", "nl", "de")}
    full = scenario == "B"
    sizes = {"train": (40 if full else 10, 6, 2), "dev": (8 if full else 2, 1, 1)}
    for part, counts in sizes.items():
        words = first_words(calls[0][part])
        assert all(first_words(call[part]) == words for call in calls)
        for corpus, size in zip((es, nl, de), counts, strict=True):
            assert len({*words} & {*first_words(getattr(corpus, part))}) == size
        assert len(words) == sum(counts)


def test_which_sentences_joint_takes(tmp_path, calls: list[dict]):
    """Scenario B has the same sentences of the other languages as A.

    A larger fraction contains a smaller one, and another seed draws other sentences.
    """
    corpora = numbered("es", 40, 8), [numbered("nl", 23, 4)]
    choices = [
        {},
        {"scenario": "B"},
        {"sample_seed": np.int64(1)},
        {"fraction": 0.1},
        {"fraction": 1.0},
    ]
    for options in choices:
        options = {"scenario": "A", "seeds": (0,), **options}
        folder = tmp_path / str(options.get("fraction"))
        run_joint({"a": system()}, *corpora, QUICK, **options, folder=folder)
    a, b, other, small, all_ = ([w for w in first_words(c["train"]) if "nl" in w] for c in calls)
    assert a == b != other
    assert set(small) < set(a) < set(all_)
    assert len(all_) == 23


def test_code_switched_trains_on_each_corpus_alone(calls: list[dict]):
    corpora = [numbered("es-en", 5, 2), numbered("tr-de", 3, 1)]
    result = run_code_switched({"a": system(2), "b": system(3)}, corpora, QUICK, seeds=(0, 1))
    assert result.table.columns == ("system", "es-en", "tr-de")
    for run, call in zip(result.runs, calls, strict=True):
        corpus = corpora[run.trained_on == ("tr-de",)]
        assert (call["train"], call["dev"], call["seed"]) == (corpus.train, corpus.dev, run.seed)
        assert call["options"] == QUICK.for_training(system(2)(corpus.train, 0), len(corpus.train))


def test_finished_runs_are_not_trained_again(tmp_path, calls: list[dict]):
    systems = {"a": system(2), "b/c: d": system(3)}
    run = partial(run_zero_shot, systems, ES, [EN], QUICK, seeds=(0, 1), folder=tmp_path)
    first = run()
    names = sorted(path.name for path in (tmp_path / "zero_shot-es").iterdir())
    assert names == ["a.0.json", "a.1.json", "b%2Fc%3A d.0.json", "b%2Fc%3A d.1.json"]
    assert len(calls) == 4
    assert run() == first
    assert len(calls) == 4
    (tmp_path / "zero_shot-es" / names[2]).unlink()
    run()
    assert len(calls) == 5
    path = tmp_path / "zero_shot-es" / "a.0.json"
    assert {*json.loads(path.read_text())} == {"about", "best", "history", "predictions", "scores"}

    def refuses(rule, source=ES, options=QUICK):
        call = (run_zero_shot, systems, source, [EN], options)
        refused(ValueError, rule, *call, seeds=[0], folder=tmp_path)

    refuses(
        "must be of this run, got .* batch_size 2 in place of 7",
        options=replace(QUICK, batch_size=7),
    )
    refuses("train sentences 12 in place of 11", ES._replace(train=ES.train[1:]))
    slow = replace(QUICK, optimizer=lambda model: default_optimizer(model, lr=0.5))
    refuses("lr: 0.5", options=slow)
    for text in ("{", "{}"):
        path.write_text(text)
        refuses(r"a\.0\.json must be a finished run as JSON")


def test_functions_of_other_values_are_other_options(tmp_path, calls: list[dict]):
    def run(tag, rate, kept):
        def scheduler(optimizer):
            return optimizer and rate in kept and scheduler(None)

        options = replace(QUICK, metric=partial(count_of_o, tag=tag), scheduler=scheduler)
        return run_code_switched({"a": system()}, [ES], options, seeds=[0], folder=tmp_path)

    assert run("O", 0.5, {1}) == run("O", 0.5, {1})
    assert len(calls) == 1
    for other in (("B-ES", 0.5, {1}), ("O", 0.25, {1}), ("O", 0.5, {2})):
        refused(ValueError, "must be of this run", run, *other)


def test_systems_share_no_trained_parameter(calls: list[dict]):
    model = system()(ES.train, 0)
    rule = r"^systems\['a'\] must build new parameters at each call, got "
    refused(ValueError, rule, run_code_switched, {"a": lambda *_: model}, [ES], QUICK, seeds=(0, 1))


BAD = {
    "systems must hold at least one system": ({}, ES),
    "train of 'eu' must hold at least one": ({"a": system()}, numbered("eu", 0)),
    r"systems\['a'\] must know every label": ({"a": system(tags=["O", "B-ES"])}, ES),
}


@pytest.mark.parametrize("rule", BAD)
def test_bad_input(rule: str, calls: list[dict]):
    refused(ValueError, rule, run_zero_shot, *BAD[rule], [EN], QUICK, seeds=[0])


def test_results_are_added_and_compared(calls: list[dict]):
    one, two = (
        run_code_switched({name: system(2)}, [numbered("es", 4, 2)], QUICK, seeds=(0, 1))
        for name in "ab"
    )
    both = one + two
    assert [row[0] for row in both.table.rows] == ["a", "b"]
    shifted = [run._replace(scores={"es": run.scores["es"] + 0.25 * run.seed}) for run in one.runs]
    better = ProtocolResult(tuple(shifted), one.gold, one.metric)
    assert better.gain_over(one).rows == [("a", mean_and_deviation([0.0, 0.25]))]
    refused(ValueError, "results must have each run once", lambda: one + one)
    refused(ValueError, "both results must have the same systems", lambda: one.gain_over(two))
    other = ProtocolResult(two.runs, {"es": [["O"]]}, two.metric)
    refused(ValueError, "results must test each language on the same", lambda: one + other)


def test_a_score_that_is_not_a_number_gives_no_mean():
    assert str(mean_and_deviation([math.nan, 1.0])) == "nan ± nan"
