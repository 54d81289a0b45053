"""The contract of word embedders: both kinds, extension, and mixed meta-embeddings."""

import pytest
import torch
from cases import characters, hierarchical, vector_source
from checks import refused
from torch import nn
from toys import SENTENCES, TAGS, ToyWordEncoder, own_words, toy_corpus, toy_lexicon

import polyembed as pe


def mixed(lexicon: pe.Lexicon) -> pe.MetaEmbedding:
    return pe.MetaEmbedding.self_attention(
        [hierarchical(lexicon), ToyWordEncoder(5)], embedding_dim=7
    )


def test_a_mixed_meta_embedding_combines_both_kinds() -> None:
    lexicon = toy_lexicon()
    embedder = mixed(lexicon)
    assert (embedder.lexicon, embedder.num_embeddings) == (None, 0)
    (ids, pieces), mask = embedder.encode(SENTENCES)
    assert torch.equal(ids, lexicon.encode(SENTENCES)[0])
    assert torch.equal(mask, lexicon.encode(SENTENCES)[1])
    words, contextual = embedder.embedders
    expected = embedder.combiner([words(ids), contextual(pieces)])
    torch.testing.assert_close(embedder((ids, pieces)), expected)
    assert embedder.attention_weights((ids, pieces)).shape == (2, *ids.shape, 7)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_tagger_over_a_mixed_embedder_trains_predicts_and_is_saved(depth: int, tmp_path) -> None:
    torch.manual_seed(0)
    embedder = mixed(toy_lexicon())
    if depth == 2:
        embedder = pe.MetaEmbedding.concat([embedder, characters(toy_lexicon())])
    tagger = pe.SequenceTagger(
        embedder, TAGS, encoder=pe.LSTMSequenceEncoder(embedder.embedding_dim, hidden_size=3)
    )
    tagger(**tagger.collate(toy_corpus(1))).backward()
    assert all(
        p.grad is not None and p.grad.isfinite().all()
        for p in tagger.parameters()
        if p.requires_grad
    )
    unseen = [["songs", "me"], ["y", "nunca"]]
    tagger.save_pretrained(tmp_path)
    assert pe.SequenceTagger.from_pretrained(tmp_path).predict(unseen) == tagger.predict(unseen)
    covered = tagger.with_words(["songs", "nunca"])
    inputs, _ = covered.encode(unseen)
    assert not any(
        torch.equal(covered.embedder(inputs)[i], tagger.embedder(tagger.encode(unseen)[0])[i])
        for i in (0, 1)
    )
    assert [len(tags) for tags in covered.predict(unseen)] == [2, 2]


@own_words
def test_inputs_of_another_embedder_are_refused() -> None:
    lexicon = toy_lexicon()
    embedder, words = mixed(lexicon), hierarchical(lexicon)
    inputs, _ = embedder.encode(SENTENCES)
    rule = r"^inputs must be a tuple of 2 members' inputs, as encode makes it, got"
    for wrong, found in (
        (inputs[0], "Tensor"),
        (inputs[:1], "1 parts"),
        (inputs[1], "Pieces"),
        (None, "NoneType"),
    ):
        refused(TypeError, rf"{rule} {found}$", embedder, wrong)
    for wrong in (inputs[1], inputs, [2, 3]):
        refused(TypeError, r"^ids must be a tensor of ids, got", words, wrong)


def test_members_have_the_same_words() -> None:
    one, other = toy_lexicon(), pe.Lexicon(["un", "deux"])
    rule = r"^embedders\[1\] must have the words of the type embedders before it \(Lexicon\(7 .*\)\), got Lexicon\(2"
    refused(ValueError, rule, pe.MetaEmbedding.concat, [vector_source(one), vector_source(other)])
    with pytest.raises(ValueError, match=rule.replace(r"\[1", r"\[2")):
        pe.MetaEmbedding.concat([vector_source(one), ToyWordEncoder(3), vector_source(other)])
    with pytest.raises(ValueError, match=r"^embedders\[1\] must have the words"):
        pe.MetaEmbedding.concat([mixed(one), vector_source(other)])
    assert (
        pe.MetaEmbedding.concat([vector_source(one), vector_source(toy_lexicon())]).lexicon is one
    )
    for wrong, found in (
        (None, "NoneType"),
        (vector_source(one), "SourceEmbedding"),
        (iter([]), "list_iterator"),
    ):
        with pytest.raises(
            TypeError, match=rf"^embedders must be a sequence of word embedders, got {found}$"
        ):
            pe.MetaEmbedding.concat(wrong)


def test_only_an_extension_extends() -> None:
    lexicon = toy_lexicon()
    embedder = hierarchical(lexicon)
    assert embedder.with_lexicon(toy_lexicon()) is embedder
    assert embedder.with_words(["me"]) is embedder
    others = [
        pe.Lexicon(["un"]),
        pe.Lexicon(lexicon.words()[::-1]),
        pe.Lexicon(lexicon, lowercase_fallback=True),
    ]
    for other in [
        *others,
        pe.Lexicon([*lexicon, "zzz"]),
    ]:  # the last one has another inventory of characters
        with pytest.raises(
            ValueError, match=r"^lexicon must extend the embedder's, of 9 ids, got another one of"
        ):
            embedder.with_lexicon(other)
    with pytest.raises(
        TypeError, match=r"^embedder must be a type embedder: .*, got ToyWordEncoder$"
    ):
        ToyWordEncoder(5).with_lexicon(lexicon)
    assert ToyWordEncoder(5).with_words(["me"]).lexicon is None


@pytest.mark.parametrize(
    "wrong", [pe.LSTMSequenceEncoder(3), pe.CharCNN(11, 5), nn.Linear(3, 3), "word"]
)
def test_what_is_not_a_word_embedder_is_refused(wrong) -> None:
    rule = r"must be a word embedder \(a module with embedding_dim, encode, with_words\), got"
    for build in (
        lambda: pe.MetaEmbedding.concat([vector_source(toy_lexicon()), wrong]),
        lambda: pe.UniqueWords(wrong),
        lambda: pe.bake(wrong),
        lambda: pe.SequenceTagger(wrong, TAGS),
    ):
        refused(TypeError, rule, build)


def test_an_embedding_needs_its_words() -> None:
    with pytest.raises(
        TypeError, match=r"^embedder must know its words: SourceEmbedding.from_embedding\("
    ):
        pe.SequenceTagger(nn.Embedding(9, 5), TAGS)
    for wrong in (["me"], None):
        for build in (
            lambda wrong=wrong: pe.SourceEmbedding.from_embedding(nn.Embedding(9, 5), wrong),
            lambda wrong=wrong: vector_source(wrong),
            lambda wrong=wrong: pe.SpelledEmbedding.from_characters(wrong, pe.CharCNN(9, 5)),
            lambda wrong=wrong: vector_source(toy_lexicon()).with_lexicon(wrong),
        ):
            refused(TypeError, r"^lexicon must be a Lexicon, got (list|NoneType)$", build)
    with pytest.raises(
        ValueError, match=r"^embedding must have a row for each of the lexicon's 9 ids, got 8$"
    ):
        pe.SourceEmbedding.from_embedding(nn.Embedding(8, 5), toy_lexicon())


@pytest.mark.parametrize("wrap", [pe.UniqueWords, pe.bake])
def test_a_contextual_embedder_cannot_be_computed_by_type(wrap) -> None:
    for embedder in (ToyWordEncoder(5), mixed(toy_lexicon())):
        refused(
            TypeError,
            r"^embedder must be a type embedder: a word's vector must not depend on",
            wrap,
            embedder,
        )
