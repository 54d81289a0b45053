"""Meta-embeddings: their combiner over their embedders."""

import pytest
import torch
from checks import refused
from toys import toy_table

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
        torch.testing.assert_close(
            meta(IDS), meta.combiner([embedder(IDS) for embedder in embedders])
        )


@pytest.mark.parametrize("attention", ["dimension", "source"])
def test_contributions_are_shares_of_the_lengths_in_equation_4(embedders, attention: str) -> None:
    meta = pe.MetaEmbedding.self_attention(
        embedders, embedding_dim=7, attention=attention
    ).requires_grad_(False)
    ids = IDS[0]
    lengths = [
        [float((meta.attention_weights(i)[j] * project(embedder(i))).norm()) for i in ids]
        for j, (project, embedder) in enumerate(
            zip(meta.combiner.projections, embedders, strict=True)
        )
    ]
    for i in range(len(ids)):
        total = sum(row[i] for row in lengths)
        for j, row in enumerate(lengths):
            assert float(meta.contributions(ids)[j, i]) == pytest.approx(
                row[i] / total if total else 1 / 2, abs=1e-6
            )
    for project in meta.combiner.projections:
        project.weight.zero_()
    assert torch.equal(meta.contributions(IDS), torch.full((2, *IDS.shape), 0.5))


def test_an_embedder_in_two_places_is_one(embedders, tmp_path) -> None:
    meta = pe.MetaEmbedding.concat([embedders[0], embedders[0]])
    assert len(list(meta.parameters())) == 1
    meta.save_pretrained(tmp_path)
    loaded = pe.MetaEmbedding.from_pretrained(tmp_path)
    assert torch.equal(loaded(IDS), meta(IDS))


def test_embedders_must_belong_together(embedders) -> None:
    refused(
        ValueError,
        r"^embedders must hold at least one embedder, got none$",
        pe.MetaEmbedding.concat,
        [],
    )
    with pytest.raises(
        TypeError,
        match=r"^combiner must be an AttentionCombiner to have weights, got ConcatCombiner$",
    ):
        pe.MetaEmbedding.concat(embedders).attention_weights(IDS)
    with pytest.raises(
        ValueError, match=r"^combiner must take vectors of sizes \[3, 5\], got \[5, 3\]$"
    ):
        pe.MetaEmbedding(embedders, ConcatCombiner([5, 3]))
