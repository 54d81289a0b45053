"""The contract of word embedders: both kinds, and extension."""

import pytest
from cases import hierarchical, vector_source
from checks import refused
from torch import nn
from toys import TAGS, ToyWordEncoder, toy_lexicon

import polyembed as pe


def test_only_an_extension_extends():
    lexicon = toy_lexicon()
    embedder = hierarchical(lexicon)
    assert embedder.with_lexicon(toy_lexicon()) is embedder
    assert embedder.with_words(["me"]) is embedder
    for other in (
        pe.Lexicon(["un"]),
        pe.Lexicon(lexicon.words()[::-1]),
        pe.Lexicon(lexicon, lowercase_fallback=True),
        pe.Lexicon([*lexicon, "zzz"]),  # it has another inventory of characters
    ):
        rule = r"^lexicon must extend the embedder's, of 9 ids, got another one of"
        refused(ValueError, rule, embedder.with_lexicon, other)
    rule = r"^embedder must be a type embedder: .*, got ToyWordEncoder$"
    refused(TypeError, rule, ToyWordEncoder(5).with_lexicon, lexicon)
    assert ToyWordEncoder(5).with_words(["me"]).lexicon is None


@pytest.mark.parametrize(
    "wrong", [pe.LSTMSequenceEncoder(3), pe.CharCNN(11, 5), nn.Embedding(9, 5), "word"]
)
def test_what_is_not_a_word_embedder_is_refused(wrong):
    rule = rf"must be a word embedder \(.* nn.Embedding, Source.*\), got {type(wrong).__name__}$"
    for build in (
        lambda: pe.MetaEmbedding.concat([vector_source(toy_lexicon()), wrong]),
        lambda: pe.UniqueWords(wrong),
        lambda: pe.bake(wrong),
        lambda: pe.SequenceTagger(wrong, TAGS),
    ):
        refused(TypeError, rule, build)


@pytest.mark.parametrize("wrap", [pe.UniqueWords, pe.bake])
def test_a_contextual_embedder_cannot_be_computed_by_type(wrap):
    mixed = pe.MetaEmbedding.concat([hierarchical(toy_lexicon()), ToyWordEncoder(5)])
    rule = r"^embedder must be a type embedder: a word's vector must not depend on"
    for embedder in (ToyWordEncoder(5), mixed):
        refused(TypeError, rule, wrap, embedder)
