"""Sentences in which some words have no tag: the loss, the metric, and training."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from cases import tagger, vector_source
from tiny_models import tiny_model, word_piece_tokenizer
from toys import SENTENCES, TAGS, toy_lexicon

import polyembed as pe
from polyembed.crf import Constraints
from polyembed.data import TaggedSentence as Sentence
from polyembed.encoders import CachedEmbedder
from polyembed.training import fit


def test_a_crf_sums_over_the_tags_that_are_not_known():
    model = tagger()().eval()
    words = SENTENCES[0]
    partial = [TAGS[1], None, "_", *[TAGS[0]] * (len(words) - 3)]
    batch = model.collate([Sentence(words, partial), Sentence(words[:2], TAGS[:2])])
    assert batch["tags"][0].eq(-100).tolist() == [tag in (None, "_") for tag in partial]
    total = torch.zeros(())
    for guess in itertools.product(TAGS, repeat=2):
        full = model.collate([Sentence(words, [partial[0], *guess, *partial[3:]])])
        total = total + (-model(**full)).exp()
    alone = model(**model.collate([Sentence(words[:2], TAGS[:2])]))
    torch.testing.assert_close(model(**batch), (alone - total.log()) / 2)


def test_known_tags_must_be_part_of_an_allowed_sequence():
    """Otherwise the loss would be infinite."""
    grammar = Constraints.bio(["O", "B-X", "I-X"])
    tags = {0: {0}, 1: {1}, 2: {2}, -100: {0, 1, 2}} | {frozenset(x): x for x in ({0, 2}, {1, 2})}

    def possible(given):
        paths = itertools.product(*map(tags.get, given))
        return any(grammar.first_violation(path) is None for path in paths)

    for given in itertools.product(tags, repeat=3):
        places = (place for place in range(3) if not possible(given[: place + 1]))
        assert grammar.first_violation(given) == next(places, None)


def test_a_tag_set_with_the_sign_of_missing_tags_keeps_it():
    model = pe.SequenceTagger(vector_source(toy_lexicon()), ["_", "X"])
    assert model.encode_labels([["_", "X", None]]).tolist() == [[0, 1, -100]]
    assert model.labels_of(Sentence(["me"], ["_"])) == ["_"]


def test_the_metric_for_entities_asks_for_another_one():
    model = pe.SequenceTagger(vector_source(toy_lexicon()), ["NOUN", "VERB"])
    data = [Sentence(["me"], ["NOUN"])]
    with pytest.raises(ValueError, match=r"^metric must be one for these labels, as FitOptions"):
        fit(model, data, data, pe.FitOptions(metric="f1"))


def test_words_beyond_the_limit_leave_the_loss():
    encoder = pe.PretrainedWordEncoder(
        tiny_model("bert"), word_piece_tokenizer(), overflow="truncate", max_length=4
    )
    rows = [Sentence(["me", "la", "me", "la"], ["X", "VERB", "X", "VERB"])]
    batch = pe.SequenceTagger(encoder, ["X", "VERB"]).collate(rows)
    count = int(batch["inputs"].word_index.max()) + 1
    assert 0 < count < 4
    assert batch["tags"][0].tolist() == [0, 1, 0, 1][:count] + [-100] * (4 - count)
    stored = CachedEmbedder(encoder)
    for embedder in (stored, pe.MetaEmbedding.concat([encoder, encoder, stored])):
        same = pe.SequenceTagger(embedder, ["X", "VERB"])
        assert same.collate(rows)["tags"].equal(batch["tags"])
    mine = SimpleNamespace(  # a decoder without support for -100
        in_features=encoder.embedding_dim,
        tags=("X", "VERB"),
        encode_labels=lambda _: torch.ones(1, 4, 2),
    )
    batch = pe.SequenceTagger(encoder, mine.tags, decoder=mine).collate(rows)
    assert batch["tags"].eq(1).all()
    assert batch["mask"].sum() == count


def test_a_decoder_of_ones_own_is_given_none_for_a_missing_tag():
    seen = []
    embedder = vector_source(toy_lexicon())
    mine = SimpleNamespace(
        in_features=embedder.embedding_dim, tags=["X"], encode_labels=seen.extend
    )
    model = pe.SequenceTagger(embedder, ["X"], decoder=mine)
    model.check_items([Sentence(["me", "la"], ["X", "_"])])
    assert seen == [["X", None]]
