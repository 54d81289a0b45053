import torch
from torch import nn

from polyembed.encoders import LSTMSequenceEncoder, WideAndDeepEncoder

TAGS, WINDOW = 3, 2


def scores_in_plain_python(x: list[list[float]], edges: list[list[float]]) -> list[list[float]]:
    """Return each word's own scores plus the scores from its neighbours, or from the edges."""
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


def test_scores_are_those_of_a_window_over_the_words_of_a_mask():
    wide = random_encoder()
    x = torch.randn(4, 7, 15, dtype=torch.float64)
    mask = (
        torch.tensor([[1] * 7, [1, 0, 1, 1, 0, 1, 0], [0, 0, 1, 0, 0, 0, 0], [1, 1] + [0] * 5]) > 0
    )
    found = wide(x, mask)
    assert (found[~mask] == 0).all()
    for row, real, words in zip(found, mask, x, strict=True):
        expected = scores_in_plain_python(words[real].tolist(), wide.edges.tolist())
        torch.testing.assert_close(row[real].tolist(), expected, rtol=0, atol=1e-12)


def test_the_encoder_reads_its_part_alone():
    encoder = LSTMSequenceEncoder(4, hidden_size=8).double()
    wide = random_encoder(encoder)
    x = torch.randn(2, 5, 19, dtype=torch.float64)
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    deep, scores = wide(x, mask).split([encoder.embedding_dim, 3], -1)
    assert torch.equal(deep, encoder(x[..., :4], mask))
    alone = random_encoder()
    alone.load_state_dict({"edges": wide.edges})
    assert torch.equal(scores, alone(x[..., 4:], mask))
