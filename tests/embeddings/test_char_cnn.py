"""The character CNN against loops over windows."""

import oracles
import pytest
import torch

import polyembed as pe


@pytest.fixture
def cnn() -> pe.CharCNN:
    return pe.CharCNN(13, 7, character_dim=3, kernel_sizes=(1, 2, 5)).double()


def expected(cnn: pe.CharCNN, characters: list[int]) -> list[float]:
    vectors = [cnn.embedding.weight[i].tolist() for i in characters]
    parts = [
        oracles.char_cnn(vectors, convolution.weight.tolist(), convolution.bias.tolist())
        for convolution in cnn.convolutions
    ]
    return [value for part in parts for value in part] if characters else [0.0] * cnn.embedding_dim


@torch.no_grad()
def test_words_of_all_lengths_side_by_side(cnn: pe.CharCNN):
    """The words are shorter than a kernel, as long as a kernel, and longer."""
    words = [[3, 4, 5, 6, 7], [8], [], [9, 10], [3, 8, 8, 5, 12, 11, 2, 1, 7]]
    ids = torch.tensor([[*word, *[0] * (9 - len(word))] for word in words])
    cnn.embedding.weight.data[0] = float("nan")  # the padding's row is not used
    rows = torch.tensor([expected(cnn, word) for word in words], dtype=torch.float64)
    torch.testing.assert_close(cnn(ids), rows)
    assert [convolution.out_channels for convolution in cnn.convolutions] == [3, 2, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_characters": 0}, r"^num_characters must be a positive integer, got 0$"),
        ({"kernel_sizes": ()}, r"^kernel_sizes must name 1 to 2 widths, got 0$"),
    ],
)
def test_wrong_constructions(options, message):
    with pytest.raises(ValueError, match=message):
        pe.CharCNN(**{"num_characters": 5, "embedding_dim": 2, **options})
