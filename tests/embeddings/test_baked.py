"""Each word type once for all."""

import pytest
import torch
from cases import hierarchical
from checks import refused
from contracts import Operations
from torch import nn
from toys import toy_lexicon, toy_table

import polyembed as pe

IDS = torch.tensor([[2, 3, 2, 0], [8, 2, 3, 1]])


@pytest.mark.parametrize("chunk_size", [1, 4096])
def test_numbers_are_the_embedders_in_evaluation_mode(chunk_size: int) -> None:
    lexicon = toy_lexicon()
    cnn = pe.CharCNN(lexicon.num_characters, 5, dropout=0.5)
    embedder = pe.MetaEmbedding.concat(
        [pe.SpelledEmbedding.from_characters(lexicon, cnn), hierarchical(lexicon)]
    )
    embedder.train()
    embedder.combiner.eval()
    baked = pe.bake(embedder, chunk_size=chunk_size)
    assert embedder.training
    assert cnn.training
    assert not embedder.combiner.training
    torch.testing.assert_close(baked(IDS), embedder.eval()(IDS), rtol=1e-6, atol=1e-6)
    plain = torch.nn.Embedding.from_pretrained(baked.weight)
    for ids in (IDS.int(), IDS[:0], torch.tensor(3)):
        assert torch.equal(baked(ids), plain(ids))
    assert not baked(IDS).requires_grad


def test_a_word_costs_one_row_whatever_was_baked() -> None:
    """As many kernels for ten sources, pieces and characters as for one table."""

    def operations(embedder: nn.Module) -> int:
        with Operations() as counted:
            embedder(IDS)
        return counted.count

    lexicon = toy_lexicon()
    sources = [hierarchical(lexicon) for _ in range(5)]
    many = pe.MetaEmbedding.self_attention(sources, embedding_dim=7)
    assert operations(many) > 5 * operations(sources[0].embedders[0])
    assert operations(pe.bake(many)) == operations(toy_table(7)) == 1


def test_baking_again_and_inside_others() -> None:
    embedder = hierarchical(toy_lexicon()).eval()
    twice = pe.bake(pe.UniqueWords(pe.bake(embedder)))
    torch.testing.assert_close(twice(IDS), embedder(IDS), rtol=1e-6, atol=1e-6)


def test_chunk_size_is_positive() -> None:
    refused(
        ValueError,
        r"^chunk_size must be a positive integer, got 0$",
        pe.bake,
        toy_table(3, 11),
        chunk_size=0,
    )
