"""Meta-embeddings: the combiner over embedders of both kinds, and parts with names."""

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


def test_combines_what_the_embedders_give(embedders):
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
def test_contributions_are_shares_of_the_lengths_in_equation_4(embedders, attention: str):
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


def test_parts_of_hme_are_submodules_of_their_names():
    characters, words = toy_table(5, 11), toy_table(2, 11)
    hme = pe.HierarchicalMetaEmbedding(characters=characters, words=words)
    assert (hme.words, hme.subwords, hme.characters) == (words, None, characters)
    assert list(hme.state_dict()) == ["words.table.weight", "characters.table.weight"]
    assert repr(hme).index("(words): SourceEmbedding") < repr(hme).index("(characters): Source")
    assert torch.equal(hme(IDS), torch.cat([words(IDS), characters(IDS)], dim=-1))
    twice = pe.HierarchicalMetaEmbedding(words=words, subwords=words).with_words(["new"])
    assert twice(IDS).shape == (2, 3, 4)


def mixed(lexicon: pe.Lexicon) -> pe.MetaEmbedding:
    members = [hierarchical(lexicon), ToyWordEncoder(5)]
    return pe.MetaEmbedding.self_attention(members, embedding_dim=7)


def test_a_mixed_meta_embedding_combines_both_kinds():
    lexicon = toy_lexicon()
    embedder = mixed(lexicon)
    assert (embedder.lexicon, embedder.num_embeddings) == (None, 0)
    (ids, pieces), mask = embedder.encode(iter(SENTENCES))
    assert torch.equal(ids, lexicon.encode(SENTENCES)[0])
    assert torch.equal(mask, lexicon.encode(SENTENCES)[1])
    words, contextual = embedder.embedders
    expected = embedder.combiner([words(ids), contextual(pieces)])
    torch.testing.assert_close(embedder((ids, pieces)), expected)
    assert embedder.attention_weights((ids, pieces)).shape == (2, *ids.shape, 7)


def test_a_tagger_over_a_mixed_embedder_trains_predicts_and_is_saved(tmp_path):
    embedder = pe.HierarchicalMetaEmbedding(
        words=mixed(toy_lexicon()), characters=characters(toy_lexicon())
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


def fit_together(*lexicons: list[str]) -> None:
    pe.MetaEmbedding.concat(
        [ToyWordEncoder(3), *(vector_source(pe.Lexicon(words)) for words in lexicons)]
    )


@own_words
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda inputs: mixed(toy_lexicon())(inputs[0]), TypeError, "inputs must be a tuple of 2"),
        (lambda inputs: toy_table(3, 11)(inputs), TypeError, "ids must be a tensor, got"),
        (lambda _: pe.MetaEmbedding.concat([]), ValueError, "embedders must hold at least one"),
        (lambda _: pe.HierarchicalMetaEmbedding(), ValueError, "embedders must hold at least one"),
        (
            lambda _: pe.HierarchicalMetaEmbedding(words="me", characters=toy_table(3)),
            TypeError,
            r"embedders\[0\] must ",
        ),
        (
            lambda _: pe.MetaEmbedding([toy_table(3)], ConcatCombiner([5])),
            ValueError,
            r"combiner must take vectors of sizes \[3\], got \[5\]$",
        ),
        (
            lambda _: fit_together(["me"], ["un", "deux"]),
            ValueError,
            r"embedders\[2\] must have the words of the type embedders before it .*, got Lexicon\(2",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, error: type[Exception], message: str):
    refused(error, f"^{message}", call, mixed(toy_lexicon()).encode(SENTENCES)[0])
    fit_together(["me"], ["me"])
