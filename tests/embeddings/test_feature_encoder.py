"""Words by the features of their surface: the formula."""

import pytest
import torch

from polyembed.embeddings import FeatureEncoder


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
