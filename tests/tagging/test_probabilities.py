"""Probabilities and the n best sequences of tags, from raw words."""

import itertools

import pytest
import torch
from cases import tagger, vector_source
from checks import refused
from toys import TAGS, toy_lexicon

import polyembed as pe

UNSEEN = [["songs", "me", "cuando"], ["मुझे"], [], ["y", "songs"]]


def test_probabilities_are_those_of_a_lexicon_with_the_words():
    model = tagger()()
    known = model.with_words(["songs", "cuando", "मुझे"]).eval()
    found = model.predict_probabilities(UNSEEN, batch_size=2)
    assert [tuple(rows.shape) for rows in found] == [(len(words), len(TAGS)) for words in UNSEEN]
    for words, rows in zip(UNSEEN, found, strict=True):
        if words:
            torch.testing.assert_close(rows, known.probabilities(*known.encode([words]))[0])
    assert model.training  # prediction does not change the model
    torch.testing.assert_close(model.predict_probabilities([[]])[0], torch.zeros(0, len(TAGS)))


def test_n_best_are_the_most_likely_of_all_sequences():
    model = tagger()()
    known = model.with_words(["songs", "cuando", "मुझे"]).eval()
    found = model.predict_n_best(UNSEEN, 20)
    assert [tags for tags, _ in (paths[0] for paths in found)] == model.predict(UNSEEN)
    for words, paths in zip(UNSEEN, found, strict=True):
        everything = {}
        for tags in itertools.product(TAGS, repeat=len(words)):
            inputs, mask = known.encode([words])
            loss = known(inputs, tags=known.encode_labels([tags]), mask=mask)
            everything[tags] = -float(loss.detach())
        best = sorted(everything.values(), reverse=True)[:20]
        assert [score for _, score in paths] == pytest.approx(best, abs=1e-4)
        assert [everything[tuple(tags)] for tags, _ in paths] == pytest.approx(best, abs=1e-4)


@pytest.mark.parametrize("call", ["", "_probabilities", "_entities", "_n_best"])
def test_scores_of_nan_give_no_answer(call):
    model = tagger()()
    torch.nn.init.constant_(model.decoder.linear.bias, torch.nan)
    arguments = (2,) if call == "_n_best" else ()
    rule = r"texts\[1\].* (a tag for each word|be numbers), got |^the scores must allow a seq"
    refused(ValueError, rule, getattr(model, f"predict{call}"), [[], ["me"]], *arguments)


def test_a_softmax_has_no_sequences():
    model = pe.TokenClassifier(vector_source(toy_lexicon()), TAGS)
    refused(TypeError, "^decoder must be a CRFDecoder, got S", model.predict_n_best, UNSEEN, 2)
    refused(
        ValueError, "^k must be a positive integer, got 0$", tagger()().predict_n_best, UNSEEN, 0
    )
