import pytest
import torch
from checks import refused
from torch import nn

from polyembed.encoders import LSTMSequenceEncoder, WideAndDeepEncoder

TAGS, WINDOW = 3, 2


def scores_in_plain_python(x: list[list[float]], edges: list[list[float]]) -> list[list[float]]:
    """Add up, for each word, its own scores and what each neighbour, or the edge, gives to it."""
    offsets = [k for k in range(-WINDOW, WINDOW + 1) if k]
    found = []
    for t, word in enumerate(x):
        row = word[:TAGS]
        for i, offset in enumerate(offsets):
            inside = 0 <= t + offset < len(x)
            given = x[t + offset][TAGS * (i + 1) : TAGS * (i + 2)] if inside else edges[i]
            row = [a + b for a, b in zip(row, given, strict=True)]
        found.append(row)
    return found


def random_encoder(encoder: nn.Module | None = None) -> WideAndDeepEncoder:
    wide = WideAndDeepEncoder(encoder, TAGS, window=WINDOW).double()
    nn.init.normal_(wide.edges)
    return wide.eval()


@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_scores_are_those_of_a_window(length: int) -> None:
    wide = random_encoder()
    x = torch.randn(1, length, 15, dtype=torch.float64)
    expected = torch.tensor(
        [scores_in_plain_python(x[0].tolist(), wide.edges.tolist())], dtype=torch.float64
    )
    torch.testing.assert_close(wide(x), expected, rtol=0, atol=1e-12)


def test_a_hole_is_skipped() -> None:
    wide = random_encoder()
    x = torch.randn(1, 6, 15, dtype=torch.float64)
    mask = torch.tensor([[True, False, True, True, False, True]])
    found = wide(x, mask)
    torch.testing.assert_close(found[mask][None], wide(x[:, mask[0]]), rtol=0, atol=1e-12)
    assert (found[~mask] == 0).all()


def test_the_encoder_reads_its_part_alone() -> None:
    encoder = LSTMSequenceEncoder(4, hidden_size=8).double()
    wide = random_encoder(encoder)
    x = torch.randn(2, 5, 19, dtype=torch.float64)
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    deep, scores = wide(x, mask).split([encoder.embedding_dim, 3], -1)
    assert torch.equal(deep, encoder(x[..., :4], mask))
    alone = random_encoder()
    alone.load_state_dict({"edges": wide.edges})
    assert torch.equal(scores, alone(x[..., 4:], mask))


def test_wrong_arguments() -> None:
    for size, options in (("window", {"num_tags": 3, "window": 0}), ("num_tags", {"num_tags": 0})):
        refused(ValueError, f"^{size} must be a positive", WideAndDeepEncoder, None, **options)
