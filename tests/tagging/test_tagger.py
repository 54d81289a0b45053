"""The tagger over ids and over pieces: losses, predictions, and unseen words."""

import pytest
import torch
from cases import SIZES, tagger, vector_source
from checks import refused
from torch import nn
from toys import TAGS, toy_corpus, toy_lexicon, toy_table

import polyembed as pe
from polyembed.tagging import text_model

UNSEEN = [["songs", "me", "cuando"], ["मुझे"], [], ["y", "songs"]]


@pytest.fixture
def model() -> pe.SequenceTagger:
    return tagger(encoder=lambda: pe.TransformerSequenceEncoder(7, **SIZES))()


def test_is_its_parts_in_a_row(model):
    batch = model.eval().collate(toy_corpus(1))
    inputs, tags, mask = batch.values()
    features = model.encoder(model.embedder(inputs), mask)
    torch.testing.assert_close(model(**batch), model.decoder.loss(features, tags, mask))
    torch.testing.assert_close(model.emissions(inputs, mask), model.decoder(features, mask))
    assert torch.equal(model.decode(inputs, mask), model.decoder.decode(features, mask))


def test_collate_pads_tags_with_minus_100(model):
    batch = model.collate(toy_corpus(1))
    assert batch["tags"].tolist() == [[1, 2, 3, 0], [1, 2, 0, -100], [3, -100, -100, -100]]
    assert batch["mask"].sum(1).tolist() == [4, 3, 1]
    assert batch["inputs"].eq(0).equal(~batch["mask"])


def test_a_word_is_tagged_alike_in_any_company():
    """The lower-case form is looked up among training words, not among words of earlier batches."""
    lexicon = pe.Lexicon(toy_lexicon(), lowercase_fallback=True)
    model = pe.SequenceTagger(vector_source(lexicon, 5), TAGS)
    nn.init.normal_(model.decoder.linear.weight, std=9)
    for i in range(20):
        lower, upper = f"word{i}", f"WORD{i}"
        alone = model.predict([[upper]])[0]
        # the sentence of `upper` is in the next bucket
        company = [[lower]] * text_model.BATCHES_TOGETHER + [[upper] * 2]
        assert model.predict(company, batch_size=1)[-1] == alone * 2
    assert model.predict([["Song"]]) == model.predict([["song"]])


def test_tag_names(model):
    assert model.encode_labels([]).shape == (0, 0)
    assert model.encode_labels([[], ["O"]]).tolist() == [[-100], [0]]


def test_words_and_tags_are_as_many(model):
    class Sentence:
        words, tags = ("me", "gusta"), ("O",)

    refused(
        ValueError, "^the tags of .* as many as the words, 2, got 1$", model.collate, [Sentence()]
    )
    refused(TypeError, "^a labelled text must .* with words, got dict$", model.collate, [{}])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"tags": "ABC"}, "tags must be a list of words, got the string 'ABC'$"),
        ({"tags": ["A", "A"]}, r"tags must be different names, at least one, got \['A', 'A'\]$"),
        (
            {"encoder": pe.LSTMSequenceEncoder(6)},
            "encoder must have the embedder's 8 as its .*, got 6$",
        ),
        ({"decoder": pe.SoftmaxDecoder(7, 5)}, "decoder must take features of size 8, got 7$"),
        ({"decoder": pe.SoftmaxDecoder(8, 4)}, "decoder must have the tags O, .*, got 4$"),
        ({"embedder": nn.Embedding(3, 8)}, "embedder must be a word embedder"),
    ],
)
def test_wrong_constructions(parts, message):
    parts = {"embedder": toy_table(8), "tags": TAGS, **parts}
    refused((TypeError, ValueError), f"^{message}", pe.SequenceTagger, **parts)
