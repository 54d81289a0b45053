"""Pooling of the pieces of a word."""

import oracles
import pytest
import torch
from toys import toy_lexicon

import polyembed as pe
from polyembed.embeddings.piece_pooling import PieceMean

IDS = torch.tensor([[3, 4, 5], [6, 0, 0], [0, 0, 0]])


def test_mean_equals_the_loop():
    table = torch.randn(11, 4, dtype=torch.float64)
    expected = [oracles.masked_mean(table[row].tolist(), row.ne(0).tolist()) for row in IDS]
    torch.testing.assert_close(PieceMean(table)(IDS), torch.tensor(expected, dtype=torch.float64))


def test_transformer_adds_up_its_pieces():
    table = torch.randn(11, 4, dtype=torch.float64)
    options = {"hidden_size": 6, "num_heads": 2, "feed_forward_size": 7, "kernel_size": 3}
    encoder = pe.embeddings.PieceTransformer(table, **options).double().eval()
    assert encoder.embedding_dim == 6
    for ids, row in zip(IDS[:2], encoder(IDS), strict=False):
        pieces = encoder.projection(table[ids[ids.ne(0)]])[None]
        torch.testing.assert_close(row, encoder.transformer(pieces, None)[0].sum(0))
    assert encoder(IDS)[2].eq(0).all()


def test_one_table_for_several_parts(tmp_path):
    lexicon = toy_lexicon()
    table = torch.randn(lexicon.num_characters, 4)
    frozen, other, trained = (PieceMean(table, freeze=i < 2) for i in range(3))
    torch.nn.init.zeros_(trained.weight)
    assert frozen.weight.any()
    parts = [pe.SpelledEmbedding.from_characters(lexicon, part) for part in (frozen, other)]
    both = pe.MetaEmbedding.concat(parts)
    both.save_pretrained(tmp_path)
    ids = torch.arange(9)
    assert torch.equal(pe.MetaEmbedding.from_pretrained(tmp_path)(ids), both(ids))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 3}, r"^hidden_size must be a multiple of num_heads=3, got 4$"),
        ({"kernel_size": 2}, r"^kernel_size must be odd, got 2$"),
    ],
)
def test_wrong_sizes(options, message):
    with pytest.raises(ValueError, match=message):
        pe.embeddings.PieceTransformer(torch.randn(11, 4), **options)
