"""`prepare`: a tagger prepares words itself, in the same way for training and prediction."""

import copy
import pickle

import pytest
import torch
from checks import refused
from torch import nn
from toys import SENTENCES, TAGS, ToyVectors, toy_lexicon

import polyembed as pe
from polyembed.data import TaggedSentence
from polyembed.tagging import export_onnx
from polyembed.text import DictionaryTransliterator

UPPER = [[word.upper() for word in words] for words in SENTENCES]
LOWER = pe.Normalizer(lowercase=True)


def tagger(prepare: object = None) -> pe.SequenceTagger:
    torch.manual_seed(0)
    made = pe.SequenceTagger(
        pe.SourceEmbedding(ToyVectors(8), toy_lexicon()), TAGS, prepare=prepare
    )
    nn.init.normal_(made.decoder.linear.weight, std=9)  # so that tags depend on words
    return made.eval()


def lower(words: list[str]) -> list[str]:
    return [word.lower() for word in words]


@pytest.mark.parametrize("prepare", [LOWER, lower, [lower], [LOWER, LOWER]])
def test_every_way_in_prepares(prepare):
    plain, made = tagger(), tagger(prepare)
    assert plain.predict(UPPER) != plain.predict(SENTENCES)
    assert made.predict(UPPER) == plain.predict(SENTENCES)
    pair = made.predict_probabilities(UPPER), plain.predict_probabilities(SENTENCES)
    torch.testing.assert_close(*pair, rtol=0, atol=0)
    assert made.predict_n_best(UPPER, 2) == plain.predict_n_best(SENTENCES, 2)
    assert torch.equal(made.encode(UPPER)[0], plain.encode(SENTENCES)[0])
    items = [TaggedSentence(tuple(words), ("O",) * len(words)) for words in UPPER]
    assert torch.equal(made.collate(items)["inputs"], plain.encode(SENTENCES)[0])


def test_unseen_words_are_covered_as_prepared():
    made, plain = tagger(LOWER), tagger()
    assert made.predict([["SONGS", "ME"]]) == plain.predict([["songs", "me"]])
    assert made.words_of([["SONGS", "@me"]]) == {"songs", "<USR>"}


def test_ensembles_vote_on_prepared_words():
    alike = pe.VotingEnsemble([tagger(LOWER), tagger(pe.Normalizer(lowercase=True))])
    assert isinstance(alike.encode(UPPER)[0], torch.Tensor)
    assert alike.predict(UPPER) == tagger().predict(SENTENCES)
    mixed = pe.VotingEnsemble([tagger(LOWER), tagger(), tagger(lower)])
    inputs, _ = mixed.encode(UPPER)
    assert torch.equal(inputs[0], tagger().encode(SENTENCES)[0])
    assert torch.equal(inputs[1], tagger().encode(UPPER)[0])
    assert mixed.words_of([["SONGS"]]) == {"SONGS", "songs"}


@pytest.mark.parametrize(
    "prepare",
    [
        LOWER,
        [LOWER, DictionaryTransliterator({"class": "क", "same": "स"}, keep=["me"])],
    ],
)
def test_what_the_library_prepares_with_is_saved(prepare, tmp_path):
    made = tagger(prepare)
    texts = [["ME"], ["class", "me"]]
    wanted, tags = made.prepared(texts), made.predict(texts)
    made.save_pretrained(tmp_path / "one")
    again = pe.SequenceTagger.from_pretrained(tmp_path / "one")
    assert again.predict(texts) == tags
    for twin in (again, pickle.loads(pickle.dumps(copy.deepcopy(made)))):
        assert twin.prepared(texts) == wanted
    pe.VotingEnsemble([made, again]).save_pretrained(tmp_path / "two")
    assert pe.VotingEnsemble.from_pretrained(tmp_path / "two").members[1].prepared(texts) == wanted


def test_what_cannot_be_prepared_is_refused(tmp_path):
    refused(TypeError, "prepare", tagger(lower).save_pretrained, tmp_path)
    shorter = tagger(lambda words: words[1:] if words[0] == "naïve" else words)
    message = r"prepare must keep the 1 words of sentences\[2\], got 0"
    refused(ValueError, message, shorter.predict, SENTENCES)
    message = "what prepare returns must be a list of words, got the string"
    refused(TypeError, message, tagger(" ".join).predict, SENTENCES)


def test_a_tagger_that_prepares_has_no_onnx_file(tmp_path):
    message = r"tagger\.prepare must be None, since OnnxTagger .* got Normalizer"
    refused(TypeError, message, export_onnx, tagger(LOWER), tmp_path)
