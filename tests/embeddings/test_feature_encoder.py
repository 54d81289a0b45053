"""Words by the features of their surface: the formula, words met later, baking, saving."""

import pytest
import torch
from toys import WORDS, toy_lexicon

import polyembed as pe
from polyembed.embeddings import FeatureEncoder, FeatureSum, PieceMean, PieceTransformer


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


def test_dropout_is_of_the_features() -> None:
    encoder = FeatureEncoder(9, 1, 1, feature_dim=4000)
    torch.nn.init.ones_(encoder.linear.weight)
    encoder(torch.tensor([[3]])).sum().backward()
    gradient = encoder.embedding.weight.grad[3]
    assert set(gradient.tolist()) == {0.0, 2.0}  # what is left counts twice
    assert 1800 < gradient.count_nonzero() < 2200
    torch.testing.assert_close(
        encoder.eval()(torch.tensor([[3]])).squeeze(), encoder.embedding.weight[3].sum()
    )


def test_more_ids_than_features() -> None:
    with pytest.raises(ValueError, match=r"^ids must be those of 2 features, got 3$"):
        FeatureEncoder(9, 2, 4)(torch.tensor([[3, 8, 1]]))


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


def test_words_met_later_share_affixes_and_are_saved_without_a_list(tmp_path) -> None:
    lexicon = toy_lexicon()
    words = pe.SpelledEmbedding.from_surface(lexicon, embedding_dim=6).eval()
    later = words.with_words(["Gustaron"])
    again = pe.SpelledEmbedding.from_surface(
        pe.Lexicon([*WORDS, "Gustaron"]), embedding_dim=6
    ).eval()
    again.encoder.load_state_dict(words.encoder.state_dict())
    vector = later(later.lexicon.encode([["Gustaron"]])[0])
    torch.testing.assert_close(vector, again(again.lexicon.encode([["Gustaron"]])[0]))
    torch.testing.assert_close(
        vector, pe.bake(words).with_words(["Gustaron"])(later.lexicon.encode([["Gustaron"]])[0])
    )
    later.save_pretrained(tmp_path)
    opened = pe.SpelledEmbedding.from_pretrained(tmp_path)
    torch.testing.assert_close(
        opened.with_words(["Gusto"])(torch.tensor([len(opened.lexicon)])),
        later.with_words(["Gusto"])(torch.tensor([len(later.lexicon)])),
    )
