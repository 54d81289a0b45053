"""Probabilities and the n best sequences of tags, from raw words."""

import itertools
import math

import pytest
import torch
from cases import tagger, vector_source
from toys import TAGS, toy_lexicon

import polyembed as pe

UNSEEN = [["songs", "me", "cuando"], ["मुझे"], [], ["y", "songs"]]


def test_probabilities_are_those_of_a_lexicon_with_the_words() -> None:
    model = tagger()()
    known = model.with_words(["songs", "cuando", "मुझे"]).eval()
    found = model.predict_probabilities(UNSEEN, batch_size=2)
    assert [tuple(rows.shape) for rows in found] == [(len(words), len(TAGS)) for words in UNSEEN]
    for words, rows in zip(UNSEEN, found, strict=True):
        if words:
            torch.testing.assert_close(rows, known.probabilities(*known.encode([words]))[0])
    assert model.training  # predict writes to nothing
    torch.testing.assert_close(model.predict_probabilities([[]])[0], torch.zeros(0, len(TAGS)))


def test_an_ensemble_and_a_classifier_too() -> None:
    members = [tagger()(), tagger()()]
    ensemble = pe.VotingEnsemble(members, vote="soft")
    expected = [
        torch.stack(rows).mean(0)
        for rows in zip(*(m.predict_probabilities(UNSEEN) for m in members), strict=True)
    ]
    for rows, right in zip(ensemble.predict_probabilities(UNSEEN), expected, strict=True):
        torch.testing.assert_close(rows, right)
    classifier = pe.SequenceClassifier(
        vector_source(toy_lexicon()), ["bad", "good"], pooling="mean"
    )
    found = classifier.predict_probabilities(UNSEEN)
    assert all(
        rows.shape == (2,) and math.isclose(float(rows.sum()), 1.0, abs_tol=1e-6) for rows in found
    )
    assert [("bad", "good")[int(rows.argmax())] for rows in found] == classifier.predict(UNSEEN)


def test_n_best_are_the_most_likely_of_all_sequences() -> None:
    model = tagger()()
    known = model.with_words(["songs", "cuando", "मुझे"]).eval()
    found = model.predict_n_best(UNSEEN, 20)
    assert [tags for tags, _ in (paths[0] for paths in found)] == model.predict(UNSEEN)
    for words, paths in zip(UNSEEN, found, strict=True):
        everything = {}
        for tags in itertools.product(TAGS, repeat=len(words)):
            loss = (
                known(*known.encode([words])[:1], tags=known.encode_labels([tags]))
                if words
                else torch.zeros(())
            )
            everything[tags] = -float(loss.detach())
        best = sorted(everything.values(), reverse=True)[:20]
        assert [score for _, score in paths] == pytest.approx(best, abs=1e-4)
        assert [everything[tuple(tags)] for tags, _ in paths] == pytest.approx(best, abs=1e-4)


def test_n_best_of_short_sentences_takes_memory_for_the_sequences_that_exist(monkeypatch) -> None:
    model, asked = tagger()(), []
    search = pe.CRF.n_best
    monkeypatch.setattr(
        pe.CRF, "n_best", lambda crf, x, k, mask: asked.append(k) or search(crf, x, k, mask)
    )
    found = model.predict_n_best([["me", "y"], ["me"], []], 1_000_000, batch_size=1)
    assert [len(paths) for paths in found] == [len(TAGS) ** 2, len(TAGS), 1]
    assert asked == [1, len(TAGS), len(TAGS) ** 2]
    for k, rule in (
        (1.5, "be a positive integer"),
        ("3", "be a positive integer"),
    ):
        with pytest.raises(ValueError, match=rf"^k must {rule}, got {k!r}$"):
            model.predict_n_best([["me"]], k)


@pytest.mark.parametrize("call", ["predict", "predict_probabilities", "predict_n_best"])
def test_scores_of_nan_give_no_answer(call: str) -> None:
    model = tagger()()
    torch.nn.init.constant_(model.decoder.linear.bias, torch.nan)
    arguments = (2,) if call == "predict_n_best" else ()
    with pytest.raises(
        ValueError, match=r"sentences\[1\].* a tag for each word, got |^the scores must allow a seq"
    ):
        getattr(model, call)([[], ["me"]], *arguments)


def test_a_classifier_of_nan_gives_no_answer() -> None:
    model = pe.SequenceClassifier(vector_source(toy_lexicon()), ["bad", "good"], pooling="mean")
    torch.nn.init.constant_(model.linear.bias, torch.nan)
    message = r"^texts\[0\] must have a finite score for a label, and no NaN, got \[nan, nan\]$"
    for call in (model.predict, model.predict_probabilities):
        with pytest.raises(ValueError, match=message):
            call([["me"]])


def test_a_softmax_has_no_sequences() -> None:
    model = pe.TokenClassifier(vector_source(toy_lexicon()), TAGS)
    with pytest.raises(TypeError, match=r"^decoder must be a CRFDecoder, got SoftmaxDecoder$"):
        model.predict_n_best(UNSEEN, 2)
