"""The tagger over ids and over pieces: losses, predictions, words never seen."""

import pytest
import torch
from cases import SIZES, tagger, vector_source
from torch import nn
from toys import NEW_WORDS, TAGS, toy_corpus, toy_lexicon, toy_table

import polyembed as pe
from polyembed.tagging import text_model

UNSEEN = [["songs", "me", "cuando"], ["मुझे"], [], ["y", "songs"]]


@pytest.fixture
def model() -> pe.SequenceTagger:
    return tagger(encoder=lambda: pe.TransformerSequenceEncoder(7, **SIZES))()


def test_is_its_parts_in_a_row(model) -> None:
    model.eval()
    batch = model.collate(toy_corpus(1))
    features = model.encoder(model.embedder(batch["inputs"]), batch["mask"])
    torch.testing.assert_close(
        model(**batch), model.decoder.loss(features, batch["tags"], batch["mask"])
    )
    torch.testing.assert_close(
        model.emissions(batch["inputs"], batch["mask"]), model.decoder(features, batch["mask"])
    )
    assert torch.equal(
        model.decode(batch["inputs"], batch["mask"]), model.decoder.decode(features, batch["mask"])
    )


def test_collate_pads_tags_with_minus_100(model) -> None:
    batch = model.collate(toy_corpus(1))
    assert batch["tags"].tolist() == [[1, 2, 3, 0], [1, 2, 0, -100], [3, -100, -100, -100]]
    assert batch["mask"].sum(1).tolist() == [4, 3, 1]
    assert batch["inputs"].eq(0).equal(~batch["mask"])


def test_unseen_words_are_tagged_as_if_in_the_lexicon() -> None:
    model = tagger()()
    knowing = pe.Lexicon([*toy_lexicon(), *NEW_WORDS])
    sources = [vector_source(knowing, dim) for dim in (5, 3, 2)]
    embedder = pe.MetaEmbedding(sources, model.embedder.combiner)
    other = pe.SequenceTagger(embedder, TAGS, decoder=model.decoder)
    nn.init.normal_(model.decoder.linear.weight, std=9)  # so that tags depend on words
    assert model.predict(UNSEEN) == other.predict(UNSEEN)
    assert len({tag for tags in model.predict([[word] for word in [*knowing]]) for tag in tags}) > 1


@pytest.mark.parametrize("cache_size", [0, 2, 50])
def test_the_cache_is_bounded(cache_size: int, monkeypatch) -> None:
    """Whatever leaves the cache between buckets, the tags are the same."""
    model = tagger()()
    nn.init.normal_(model.decoder.linear.weight, std=9)
    sentences = [[f"new{i % 7}", f"new{i}"] for i in range(40)]
    expected = [model.predict([words])[0] for words in sentences]
    sizes = []
    encode = pe.Lexicon.encode
    monkeypatch.setattr(text_model, "CACHED_WORDS", cache_size)
    monkeypatch.setattr(
        pe.Lexicon,
        "encode",
        lambda lexicon, words: (sizes.append(len(lexicon)), encode(lexicon, words))[1],
    )
    assert model.predict(sentences, batch_size=1) == expected
    bucket = 2 * text_model.BATCHES_TOGETHER
    assert len(model.lexicon) < max(sizes) <= len(model.lexicon) + max(cache_size, bucket)


def test_a_word_is_tagged_alike_in_any_company() -> None:
    """Lower case is looked up among the words of training, not among those met by chance before."""
    lexicon = pe.Lexicon(toy_lexicon(), lowercase_fallback=True)
    model = pe.SequenceTagger(vector_source(lexicon, 5), TAGS)
    nn.init.normal_(model.decoder.linear.weight, std=9)
    pairs = [(f"word{i}", f"WORD{i}") for i in range(20)]
    for lower, upper in pairs:
        alone = model.predict([[upper]])[0]
        company = [[lower]] * text_model.BATCHES_TOGETHER + [[upper] * 2]  # so in the next bucket
        assert model.predict(company, batch_size=1)[-1] == alone * 2
    assert model.predict([["Song"]]) == model.predict([["song"]])


def test_tag_names(model) -> None:
    with pytest.raises(
        ValueError, match=r"^tags\[1\]\[0\] must be one of O, B-ES, I-ES, B-EN, I-EN, got 'B-XX'$"
    ):
        model.encode_labels([["O"], ["B-XX"]])
    assert model.encode_labels([]).shape == (0, 0)
    assert model.encode_labels([[], ["O"]]).tolist() == [[-100], [0]]


def test_words_and_tags_are_as_many(model) -> None:
    class Sentence:
        words, tags = ("me", "gusta"), ("O",)

    with pytest.raises(
        ValueError, match=r"^sentences\[0\].tags must be as many as the words, 2, got 1$"
    ):
        model.collate([Sentence(), *toy_corpus(1)])


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        (
            {"tags": "ABC"},
            TypeError,
            r"tags must be a list of words, got the string 'ABC'$",
        ),
        (
            {"tags": ["A", "A"]},
            ValueError,
            r"tags must be different names, at least one, got \['A', 'A'\]$",
        ),
        ({"tags": []}, ValueError, r"tags must be different names, at least one, got \[\]$"),
        (
            {"encoder": pe.LSTMSequenceEncoder(6)},
            ValueError,
            r"encoder must have the embedder's 8 as its .*, got 6$",
        ),
        (
            {"decoder": pe.SoftmaxDecoder(7, 5)},
            ValueError,
            r"decoder must take features of size 8, got 7$",
        ),
        (
            {"decoder": pe.SoftmaxDecoder(8, 4)},
            ValueError,
            r"decoder must have the tags O, .*, got 4$",
        ),
        (
            {"embedder": nn.Linear(8, 5)},
            TypeError,
            r"embedder must be a word embedder .*, got Linear$",
        ),
        ({"embedder": nn.Embedding(3, 8)}, TypeError, r"embedder must be a word embedder"),
    ],
)
def test_wrong_constructions(parts, error, message) -> None:
    with pytest.raises(error, match=f"^{message}"):
        pe.SequenceTagger(**{"embedder": toy_table(8), "tags": TAGS, **parts})


@pytest.mark.parametrize("kind", [pe.SequenceTagger, pe.TokenClassifier])
def test_a_model_of_nan_predicts_no_tag(kind) -> None:
    tagger = kind(toy_table(8, 4), [f"T{i}" for i in range(120)])
    with torch.no_grad():
        tagger.decoder.linear.bias[7] = float("nan")
    rule = r"^sentences\[1\]: the scores must be numbers that allow a tag for each word, got NaN"
    with pytest.raises(ValueError, match=rule):
        tagger.predict([[], ["b"]])
