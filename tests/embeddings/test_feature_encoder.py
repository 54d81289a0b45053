"""The formula for word vectors from the features of the surface."""

import torch

from polyembed.embeddings import FeatureEncoder


def test_is_a_linear_map_of_the_features_side_by_side():
    encoder = FeatureEncoder(9, 3, 4, feature_dim=2).double().eval().requires_grad_(False)
    ids = torch.tensor([[3, 8, 1], [5, 5, 2]])
    for row, vector in zip(ids, encoder(ids), strict=True):
        features = torch.cat([encoder.embedding.weight[i] for i in row])
        torch.testing.assert_close(vector, encoder.linear.weight @ features)
