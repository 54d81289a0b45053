"""`build_tagger`: the measured system, from any combination of sources."""

from dataclasses import replace

import pytest
import torch
from checks import refused
from tiny_models import tiny_model, word_piece_tokenizer
from toys import ToyPieces, ToyVectors, toy_corpus

import polyembed as pe
from polyembed.data import TaggedSentence
from polyembed.encoders import WideAndDeepEncoder

CORPUS = toy_corpus(2)


def encoder(freeze: str = "embeddings") -> pe.PretrainedWordEncoder:
    return pe.PretrainedWordEncoder(tiny_model("bert"), word_piece_tokenizer(), freeze=freeze)


def parts_of(tagger: pe.SequenceTagger) -> list[str]:
    hme = tagger.embedder.embedders[0].embedder
    names = ("words", "subwords", "characters", "surface")
    return [name for name in names if getattr(hme, name, None) is not None]


def test_what_is_not_given_is_not_built():
    alone = pe.build_tagger(CORPUS)
    assert parts_of(alone) == ["characters", "surface"]
    whole = pe.build_tagger(CORPUS, words=[ToyVectors(3), ToyVectors(5)], subwords=[ToyPieces(4)])
    assert parts_of(whole) == ["words", "subwords", "characters", "surface"]
    assert whole.embedder.embedders[0].embedder.words.embedding_dim == 10
    assert isinstance(whole.encoder, WideAndDeepEncoder)
    assert whole.tags == tuple(sorted({tag for one in CORPUS for tag in one.tags}))


@pytest.mark.parametrize("freeze", ["embeddings", "all"])
def test_a_frozen_encoder_is_mapped_and_a_trained_one_is_not(freeze):
    contextual = encoder(freeze)
    tagger = pe.build_tagger(CORPUS, contextual=contextual)
    beside = tagger.embedder.embedders[1]
    assert beside.embedding_dim == (200 if freeze == "all" else contextual.embedding_dim)
    assert (beside is contextual) == (freeze != "all")


def test_a_frozen_encoder_of_half_precision_stays_so():
    contextual = encoder("all").bfloat16()
    tagger = pe.build_tagger(CORPUS, contextual=contextual)
    pe.fit(tagger, CORPUS, CORPUS, pe.FitOptions(num_train_epochs=1), progress=False)
    assert {value.dtype for value in contextual.parameters()} == {torch.bfloat16}


def test_it_learns_saves_and_opens(tmp_path):
    torch.manual_seed(0)
    tagger = pe.build_tagger(CORPUS, contextual=encoder())
    result = pe.fit(tagger, CORPUS * 4, CORPUS, progress=False)
    assert result.best.score == 1.0
    tagger.save_pretrained(tmp_path)
    texts = [one.words for one in CORPUS] + [("canción", "nueva")]
    assert pe.SequenceTagger.from_pretrained(tmp_path).predict(texts) == tagger.predict(texts)


def test_words_are_prepared_before_they_enter_the_lexicon():
    upper = [replace(one, words=tuple(word.upper() for word in one.words)) for one in CORPUS]
    made = pe.build_tagger(upper, prepare=lambda words: [word.lower() for word in words])
    assert (
        made.embedder.embedders[0].lexicon == pe.build_tagger(CORPUS).embedder.embedders[0].lexicon
    )


def test_known_tags_alone_make_the_tag_set():
    partly = [TaggedSentence(("me", "gusta"), ("PRON", None)), TaggedSentence(("y",), ("_",))]
    assert pe.build_tagger(partly).tags == ("PRON",)
    assert pe.build_tagger(partly, tags=["X", "PRON"]).tags == ("X", "PRON")


class Nothing(ToyVectors):
    def vectors(self, words):
        return super().vectors(words) * 0


@pytest.mark.parametrize(
    ("train", "options", "message"),
    [
        ([], {}, "sentences must hold at least one word, got none$"),
        ([TaggedSentence(("me",), (None,))], {}, "train must hold at least one known tag"),
        (CORPUS, {"tags": "ABC"}, "tags must be a list of words, got the string 'ABC'$"),
        (CORPUS, {"tags": {"A"}}, "tags must have an order, got set$"),
        (CORPUS, {"contextual": "xlm"}, "contextual must be a contextual embedder, got str$"),
        (
            CORPUS,
            {"words": [ToyVectors(3), Nothing(3)]},
            r"words\[1\] must have a vector of a word of train, got none$",
        ),
    ],
)
def test_wrong_calls(train, options, message):
    refused((TypeError, ValueError), f"^{message}", pe.build_tagger, train, **options)


def test_it_is_built_where_its_encoder_is():
    tagger = pe.build_tagger(CORPUS, contextual=encoder().to("meta"))
    assert {value.device.type for value in tagger.parameters()} == {"meta"}


def test_one_sentence_and_a_tag_that_dev_alone_has():
    train, dev = CORPUS[:1], [replace(CORPUS[0], tags=("B-NEW",) * len(CORPUS[0].words))]
    tagger = pe.build_tagger(train)
    assert pe.fit(tagger, train, dev, progress=False).best.score == 0.0
    assert set(tagger.predict([dev[0].words])[0]) <= set(train[0].tags)
