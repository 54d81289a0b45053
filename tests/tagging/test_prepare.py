"""`prepare`: a tagger prepares words itself, so that training and prediction do it alike."""

import copy
import json
import pickle
from pathlib import Path

import pytest
import torch
from checks import refused
from torch import nn
from toys import SENTENCES, TAGS, ToyVectors, ToyWordEncoder, toy_corpus, toy_lexicon

import polyembed as pe
from polyembed.data import TaggedSentence
from polyembed.tagging import export_onnx, export_program
from polyembed.text import DictionaryTransliterator
from polyembed.training import FitOptions, fit

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
def test_every_way_in_prepares(prepare: object) -> None:
    plain, made = tagger(), tagger(prepare)
    assert plain.predict(UPPER) != plain.predict(SENTENCES)
    assert made.predict(UPPER) == plain.predict(SENTENCES)
    assert list(made.predict_stream(UPPER, batch_size=1)) == plain.predict(SENTENCES)
    found = zip(
        made.predict_probabilities(UPPER), plain.predict_probabilities(SENTENCES), strict=True
    )
    assert all(torch.equal(one, other) for one, other in found)
    assert made.predict_n_best(UPPER, 2) == plain.predict_n_best(SENTENCES, 2)
    assert torch.equal(made.encode(UPPER)[0], plain.encode(SENTENCES)[0])
    items = [TaggedSentence(tuple(words), ("O",) * len(words)) for words in UPPER]
    assert torch.equal(made.collate(items)["inputs"], plain.encode(SENTENCES)[0])
    assert made.predict([[], ["ME"]]) == plain.predict([[], ["me"]])


def test_unseen_words_are_covered_as_prepared() -> None:
    made, plain = tagger(LOWER), tagger()
    assert made.predict([["SONGS", "ME"]]) == plain.predict([["songs", "me"]])
    assert made.words_of([["SONGS", "@me"]]) == {"songs", "<USR>"}
    covering = made.with_words(made.words_of([["SONGS"]]))
    assert int(covering.encode([["SONGS"]])[0]) == len(toy_lexicon())


def test_contextual_embedders_and_token_classifiers_prepare() -> None:
    torch.manual_seed(0)
    encoder = ToyWordEncoder(5)
    plain = pe.TokenClassifier(encoder, TAGS).eval()
    made = pe.TokenClassifier(encoder, TAGS, prepare=LOWER).eval()
    made.load_state_dict(plain.state_dict())
    assert made.predict(UPPER) == plain.predict(SENTENCES)


def test_fit_prepares_training_and_development_sentences() -> None:
    corpus = [TaggedSentence(tuple(word.upper() for word in s.words), s.tags) for s in toy_corpus()]
    options = FitOptions(num_train_epochs=2, metric="accuracy")
    one, other = tagger(LOWER), tagger()
    first, second = (
        fit(one, corpus, corpus, options),
        fit(other, toy_corpus(), toy_corpus(), options),
    )
    assert [epoch[:3] for epoch in first.history] == [epoch[:3] for epoch in second.history]
    assert all(torch.equal(x, y) for x, y in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("vote", ["hard", "soft", "entity"])
def test_ensembles_vote_on_prepared_words(vote: str) -> None:
    alike = pe.VotingEnsemble(
        [tagger(LOWER), tagger(pe.Normalizer(lowercase=True))], vote=vote
    ).eval()
    assert isinstance(alike.encode(UPPER)[0], torch.Tensor)
    plain = pe.VotingEnsemble([tagger(), tagger()], vote=vote)
    assert alike.predict(UPPER) == plain.predict(SENTENCES) != plain.predict(UPPER)
    mixed = pe.VotingEnsemble([tagger(LOWER), tagger(), tagger(lower)], vote=vote).eval()
    inputs, _ = mixed.encode(UPPER)
    assert torch.equal(inputs[0], tagger().encode(SENTENCES)[0])
    assert torch.equal(inputs[1], tagger().encode(UPPER)[0])
    assert mixed.words_of([["SONGS"]]) == {"SONGS", "songs"}
    assert pe.VotingEnsemble([tagger(LOWER), tagger(lower), tagger()]).predict(
        UPPER
    ) == tagger().predict(SENTENCES)


@pytest.mark.parametrize(
    "prepare",
    [
        LOWER,
        [LOWER, DictionaryTransliterator({"class": "क", "same": "स"}, keep=["me"])],
    ],
)
def test_what_the_library_prepares_with_is_saved(prepare: object, tmp_path: Path) -> None:
    made = tagger(prepare)
    assert not any(
        name.startswith("prepare") for name, value in made.named_parameters() if value.requires_grad
    )
    texts = [["ME"], ["class", "me"]]
    wanted, tags = made.prepared(texts), made.predict(texts)
    made.save_pretrained(tmp_path / "one")
    again = pe.SequenceTagger.from_pretrained(tmp_path / "one")
    assert again.predict(texts) == tags
    for twin in (again, pickle.loads(pickle.dumps(copy.deepcopy(made)))):
        assert twin.prepared(texts) == wanted
    pe.VotingEnsemble([made, again]).save_pretrained(tmp_path / "two")
    assert pe.VotingEnsemble.from_pretrained(tmp_path / "two").members[1].prepared(texts) == wanted


def test_no_prepare_leaves_no_trace(tmp_path: Path) -> None:
    """A folder of before has no such argument, and opens."""
    made = tagger()
    assert not any("prepare" in name for name, _ in made.named_modules())
    made.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path = path if path.exists() else next(tmp_path.rglob("config.json"))
    config = json.loads(path.read_text("utf-8"))
    assert config["config"].pop("prepare", 0) is None
    path.write_text(json.dumps(config), "utf-8")
    assert pe.SequenceTagger.from_pretrained(tmp_path).predict(SENTENCES) == made.predict(SENTENCES)


def test_what_cannot_be_prepared_is_refused(tmp_path: Path) -> None:
    refused(
        TypeError,
        "prepare",
        tagger(lower).save_pretrained,
        tmp_path,
    )
    shorter = tagger(lambda words: words[1:] if words[0] == "naïve" else words)
    message = r"prepare must keep the 1 words of sentences\[2\], got 0"
    refused(ValueError, message, shorter.predict, SENTENCES)
    refused(ValueError, message, shorter.encode, SENTENCES)
    refused(
        TypeError,
        r"what prepare returns must be a list of words, got the string",
        tagger(" ".join).predict,
        SENTENCES,
    )


def test_fit_checks_before_it_trains() -> None:
    seen = []
    broken = tagger(lambda words: words[:1])
    refused(
        ValueError,
        r"prepare must keep the 4 words of sentences\[0\]",
        fit,
        broken,
        [TaggedSentence(("me",), ("O",))],
        toy_corpus(),
        FitOptions(num_train_epochs=1),
        on_epoch=seen.append,
    )
    weights = tagger().state_dict()
    assert not seen
    assert all(torch.equal(value, weights[name]) for name, value in broken.state_dict().items())


def test_exports(tmp_path: Path) -> None:
    refused(
        TypeError,
        r"tagger\.prepare must be None, since OnnxTagger .* got Normalizer",
        export_onnx,
        tagger(LOWER),
        tmp_path,
    )
    program = export_program(tagger(LOWER))  # its inputs are ids
    ids, mask = tagger(LOWER).encode(UPPER)
    scores = program.module()(ids, mask)[0]
    assert torch.allclose(
        scores[mask], tagger().emissions(*tagger().encode(SENTENCES))[mask], atol=1e-5
    )
