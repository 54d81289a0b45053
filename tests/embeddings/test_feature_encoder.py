"""Words by the features of their surface: the formula, words met later, baking, saving."""

import pytest
import torch
from toys import WORDS, toy_lexicon

import polyembed as pe
from polyembed.embeddings import FeatureEncoder, PieceTransformer
from polyembed.embeddings.piece_pooling import PieceMean
from polyembed.embeddings.surface import FeatureSum


def test_is_a_linear_map_of_the_features_side_by_side() -> None:
    encoder = FeatureEncoder(9, 3, 4, feature_dim=2).double().eval().requires_grad_(False)
    ids = torch.tensor([[3, 8, 1], [5, 5, 2]])
    for row, vector in zip(ids.tolist(), encoder(ids), strict=True):
        values = [float(x) for i in row for x in encoder.embedding.weight[i]]
        expected = [
            sum(w * x for w, x in zip(line, values, strict=True))
            for line in encoder.linear.weight.tolist()
        ]
        assert vector.tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "encoder",
    [
        FeatureEncoder(9, 2, 4),
        FeatureSum(9, 4),
        pe.CharCNN(9, 4),
        PieceMean((9, 4)),
        PieceTransformer((9, 4)),
    ],
    ids=lambda encoder: type(encoder).__name__,
)
def test_ids_outside_the_table(encoder) -> None:
    for ids in ([[9, 1]], [[-1, 1]]):
        with pytest.raises(ValueError, match=r"^ids must be in \[0, 9\), got ids outside$"):
            encoder(torch.tensor(ids))
    if isinstance(encoder, FeatureEncoder):
        with pytest.raises(ValueError, match=r"^ids must be those of 2 features, got 3$"):
            encoder(torch.tensor([[3, 8, 1]]))


def test_words_met_later_have_the_vector_that_they_would_have_had(tmp_path) -> None:
    words = pe.SpelledEmbedding.from_surface(toy_lexicon(), embedding_dim=6).eval()
    words.save_pretrained(tmp_path)
    again = pe.SpelledEmbedding.from_surface(pe.Lexicon([*WORDS, "Gustaron"]), embedding_dim=6)
    again.encoder.load_state_dict(words.encoder.state_dict())
    expected = again.eval()(torch.tensor([9]))
    for one in (words, pe.bake(words), pe.SpelledEmbedding.from_pretrained(tmp_path)):
        torch.testing.assert_close(one.with_words(["Gustaron"])(torch.tensor([9])), expected)
