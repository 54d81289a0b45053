"""From pieces to a word."""

import oracles
import pytest
import torch

import polyembed as pe

IDS = torch.tensor([[3, 4, 5], [6, 0, 0], [0, 0, 0]])


def test_mean_equals_the_loop() -> None:
    table = torch.randn(11, 4, dtype=torch.float64)
    expected = [oracles.masked_mean(table[row].tolist(), row.ne(0).tolist()) for row in IDS]
    torch.testing.assert_close(pe.embeddings.PieceMean(table)(IDS), torch.tensor(expected, dtype=torch.float64))


def test_transformer_looks_at_the_order_of_pieces() -> None:
    table = torch.randn(11, 4)
    mean, transformer = pe.embeddings.PieceMean(table), pe.embeddings.PieceTransformer(table, num_heads=2).eval()
    torch.testing.assert_close(mean(IDS[:1]), mean(IDS[:1].flip(1)))
    assert not torch.allclose(transformer(IDS[:1]), transformer(IDS[:1].flip(1)))


def test_wrong_heads() -> None:
    with pytest.raises(ValueError, match=r"^num_heads must divide the vectors' size 4, got 3$"):
        pe.embeddings.PieceTransformer(torch.randn(11, 4), num_heads=3)
