"""A word's vector, or its scores of tags, from the features of its surface."""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyembed._checks import check_positive, check_probability, require
from polyembed.embeddings.table import embed_units
from polyembed.saving import PretrainedModule


class FeatureEncoder(PretrainedModule):
    """A vector for each of a word's features and a linear map over them.

    ``y = W dropout([E[f_1]; ...; E[f_n]])``.

    Args:
        num_embeddings: The number of feature ids, the padding's 0 included.
        num_features: The number of features of each word.
        embedding_dim: The size of a word's vector.
        feature_dim: The size of a feature's vector.
        dropout: The probability of dropping a component of a feature's vector.

    Shape:
        ids ``(*batch, feature)``, 0 = padding, to ``(*batch, embedding_dim)``; a word of padding
        alone gives zeros.

    Raises:
        ValueError: If a size is not positive, a word has more than `num_features` ids, or an id is
            outside the table.
        TypeError: If ids are not integers.

    Example:
        >>> import torch
        >>> FeatureEncoder(50, 3, embedding_dim=8)(torch.tensor([[3, 4, 5], [6, 4, 7]])).shape
        torch.Size([2, 8])
    """

    def __init__(
        self,
        num_embeddings: int,
        num_features: int,
        embedding_dim: int = 100,
        *,
        feature_dim: int = 32,
        dropout: float = 0.5,
    ) -> None:
        check_positive(num_embeddings=num_embeddings, num_features=num_features)
        check_positive(embedding_dim=embedding_dim, feature_dim=feature_dim)
        check_probability(dropout=dropout)
        super().__init__()
        self.num_embeddings, self.num_features = num_embeddings, num_features
        self.embedding_dim, self.feature_dim, self.dropout = embedding_dim, feature_dim, dropout
        self.embedding = nn.Embedding(num_embeddings, feature_dim, padding_idx=0)
        self.linear = nn.Linear(num_features * feature_dim, embedding_dim, bias=False)

    def forward(self, ids: Int[Tensor, "*batch feature"]) -> Float[Tensor, "*batch embedding_dim"]:
        """Compute words' vectors from the ids of their features."""
        x, is_feature = embed_units(ids, self.embedding.weight)
        missing = self.num_features - x.shape[-2]
        require(missing >= 0, "ids", f"be those of {self.num_features} features", ids.shape[-1])
        x = F.pad(x.where(is_feature[..., None], 0.0), (0, 0, 0, missing))
        y: Tensor = self.linear(F.dropout(x.flatten(-2), self.dropout, self.training))
        return y


class FeatureSum(PretrainedModule):
    """The sum of a word's features: ``y = sum of E[f] over its features f``, at first zeros.

    With one number per tag, the sum is the linear model of a hand-featured tagger: each feature has
    a score for each tag.

    Args:
        num_embeddings: The number of feature ids, the padding's 0 included.
        embedding_dim: The size of a word's vector.
        dropout: The probability of dropping a feature of a word in training; the other features
            are scaled up.

    Shape:
        ids ``(*batch, feature)``, 0 = padding, to ``(*batch, embedding_dim)``.

    Raises:
        ValueError: If a size is not positive, or an id is outside the table.
        TypeError: If ids are not integers.

    Example:
        >>> import torch
        >>> FeatureSum(50, embedding_dim=3)(torch.tensor([[3, 4, 5], [6, 4, 0]]))
        tensor([[0., 0., 0.],
                [0., 0., 0.]], grad_fn=<SumBackward1>)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, *, dropout: float = 0.2) -> None:
        check_positive(num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        check_probability(dropout=dropout)
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.dropout = dropout
        self.embedding = nn.Embedding(num_embeddings, embedding_dim, padding_idx=0)
        nn.init.zeros_(self.embedding.weight)

    def forward(self, ids: Int[Tensor, "*batch feature"]) -> Float[Tensor, "*batch embedding_dim"]:
        """Add the vectors of words' features."""
        x, is_feature = embed_units(ids, self.embedding.weight)  # (*batch, feature, embedding_dim)
        kept = F.dropout(is_feature.to(x.dtype), self.dropout, self.training)
        return (x * kept[..., None]).sum(-2)
