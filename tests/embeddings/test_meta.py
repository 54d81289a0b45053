"""Meta-embeddings: their combiner over their embedders, of both kinds; and parts with names."""

import pytest
import torch
from cases import characters, hierarchical, vector_source
from checks import refused
from toys import SENTENCES, TAGS, ToyWordEncoder, own_words, toy_corpus, toy_lexicon, toy_table

import polyembed as pe
from polyembed.embeddings import ConcatCombiner

IDS = torch.tensor([[2, 3, 0], [10, 1, 2]])


@pytest.fixture
def embedders() -> list[pe.SourceEmbedding]:
    return [toy_table(3, 11), toy_table(5, 11)]


def test_combines_what_the_embedders_give(embedders) -> None:
    for meta in (
        pe.MetaEmbedding.concat(embedders),
        pe.MetaEmbedding.linear(embedders, embedding_dim=7, bias=True),
        pe.MetaEmbedding.self_attention(embedders, embedding_dim=7, attention="source"),
    ):
        assert meta.num_embeddings == 11
        assert meta(IDS).shape == (2, 3, meta.embedding_dim)
        expected = meta.combiner([embedder(IDS) for embedder in embedders])
        torch.testing.assert_close(meta(IDS), expected)


@pytest.mark.parametrize("attention", ["dimension", "source"])
def test_contributions_are_shares_of_the_lengths_in_equation_4(embedders, attention: str) -> None:
    meta = pe.MetaEmbedding.self_attention(
        embedders, embedding_dim=7, attention=attention
    ).requires_grad_(False)
    ids = IDS[0]
    parts = list(zip(meta.combiner.projections, embedders, strict=True))
    lengths = [
        [float((meta.attention_weights(i)[j] * project(embedder(i))).norm()) for i in ids]
        for j, (project, embedder) in enumerate(parts)
    ]
    for i in range(len(ids)):
        total = sum(row[i] for row in lengths)
        for j, row in enumerate(lengths):
            expected = row[i] / total if total else 1 / 2
            assert float(meta.contributions(ids)[j, i]) == pytest.approx(expected, abs=1e-6)
    for project in meta.combiner.projections:
        project.weight.zero_()
    assert torch.equal(meta.contributions(IDS), torch.full((2, *IDS.shape), 0.5))


def test_an_embedder_in_two_places_is_one(embedders, tmp_path) -> None:
    meta = pe.MetaEmbedding.concat([embedders[0], embedders[0]])
    assert len(list(meta.parameters())) == 1
    meta.save_pretrained(tmp_path)
    loaded = pe.MetaEmbedding.from_pretrained(tmp_path)
    assert torch.equal(loaded(IDS), meta(IDS))


def test_parts_of_hme_are_submodules_of_their_names(tmp_path) -> None:
    characters, words = toy_table(5, 11), toy_table(2, 11)
    hme = pe.HierarchicalMetaEmbedding(characters=characters, words=words)
    assert (hme.words, hme.subwords, hme.characters) == (words, None, characters)
    assert list(hme.state_dict()) == ["words.table.weight", "characters.table.weight"]
    assert repr(hme).index("(words): SourceEmbedding") < repr(hme).index("(characters): Source")
    assert torch.equal(hme(IDS), torch.cat([words(IDS), characters(IDS)], dim=-1))
    more = hme.with_words(["new"])
    assert torch.equal(more.characters(torch.tensor(11)), characters.weight[1])
    hme.save_pretrained(tmp_path)
    loaded = pe.HierarchicalMetaEmbedding.from_pretrained(tmp_path)
    assert loaded.subwords is None
    assert torch.equal(loaded(IDS), hme(IDS))
    twice = pe.HierarchicalMetaEmbedding(words=words, subwords=words).with_words(["new"])
    assert twice(IDS).shape == (2, 3, 4)


def mixed(lexicon: pe.Lexicon) -> pe.MetaEmbedding:
    members = [hierarchical(lexicon), ToyWordEncoder(5)]
    return pe.MetaEmbedding.self_attention(members, embedding_dim=7)


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
        embedder = pe.HierarchicalMetaEmbedding(
            words=embedder, characters=characters(toy_lexicon())
        )
    encoder = pe.LSTMSequenceEncoder(embedder.embedding_dim, hidden_size=3)
    tagger = pe.SequenceTagger(embedder, TAGS, encoder=encoder)
    tagger(**tagger.collate(toy_corpus(1))).backward()
    trained = [parameter for parameter in tagger.parameters() if parameter.requires_grad]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in trained)
    unseen = [["songs", "me"], ["y", "nunca"]]
    tagger.save_pretrained(tmp_path)
    assert pe.SequenceTagger.from_pretrained(tmp_path).predict(unseen) == tagger.predict(unseen)
    covered = tagger.with_words(["songs", "nunca"])
    found = covered.embedder(covered.encode(unseen)[0])
    before = tagger.embedder(tagger.encode(unseen)[0])
    assert not any(torch.equal(found[i], before[i]) for i in (0, 1))
    assert [len(tags) for tags in covered.predict(unseen)] == [2, 2]


@own_words
def test_inputs_of_another_embedder_are_refused() -> None:
    lexicon = toy_lexicon()
    embedder, words = mixed(lexicon), hierarchical(lexicon)
    inputs, _ = embedder.encode(SENTENCES)
    rule = r"^inputs must be a tuple of 2 members' inputs, as encode makes it, got"
    for wrong in (inputs[0], inputs[:1], inputs[1], None):
        refused(TypeError, rf"{rule} {type(wrong).__name__}$", embedder, wrong)
    for wrong in (inputs[1], inputs, [2, 3]):
        refused(TypeError, r"^ids must be a tensor of ids, got", words, wrong)


def test_members_must_fit_together(embedders) -> None:
    concat = pe.MetaEmbedding.concat
    rule = r"^embedders must hold at least one embedder, got none$"
    refused(ValueError, rule, concat, [])
    refused(ValueError, rule, pe.HierarchicalMetaEmbedding)
    rule = r"^combiner must take vectors of sizes \[3, 5\], got \[5, 3\]$"
    refused(ValueError, rule, pe.MetaEmbedding, embedders, ConcatCombiner([5, 3]))
    one, other = toy_lexicon(), pe.Lexicon(["un", "deux"])
    rule = (
        r"must have the words of the type embedders before it \(Lexicon\(7 .*\)\), got Lexicon\(2"
    )
    both = [vector_source(one), vector_source(other)]
    refused(ValueError, rf"^embedders\[1\] {rule}", concat, both)
    refused(ValueError, rf"^embedders\[2\] {rule}", concat, [both[0], ToyWordEncoder(3), both[1]])
    assert concat([vector_source(one), vector_source(toy_lexicon())]).lexicon is one
