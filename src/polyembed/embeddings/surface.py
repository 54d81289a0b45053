"""A word's vector, or its scores of tags, from the features of its surface."""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyembed._checks import check_positive, check_probability, require
from polyembed.embeddings._table import check_units, look_up_units
from polyembed.saving import PretrainedModule


class FeatureEncoder(PretrainedModule):
    """A vector for each of a word's features, side by side, and a linear map:
    ``y = W dropout([E[f_1]; ...; E[f_n]])``.

    Args:
        num_embeddings: How many feature ids there are, the padding's 0 among them.
        num_features: How many features each word has.
        embedding_dim: The size of a word's vector.
        feature_dim: The size of a feature's vector.
        dropout: Of the features' vectors, in training.

    Shape:
        ids ``(*batch, feature)``, 0 = padding, to ``(*batch, embedding_dim)``; a word of padding
        alone gives zeros.

    Raises:
        ValueError: Sizes that are not positive, more ids than features, or ids outside the table.
        TypeError: Ids that are not integers.

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
        self.num_embeddings, self.num_features, self.embedding_dim = (
            num_embeddings,
            num_features,
            embedding_dim,
        )
        self.feature_dim, self.dropout = feature_dim, dropout
        self.embedding = nn.Embedding(num_embeddings, feature_dim, padding_idx=0)
        self.linear = nn.Linear(num_features * feature_dim, embedding_dim, bias=False)

    def forward(self, ids: Int[Tensor, "*batch feature"]) -> Float[Tensor, "*batch embedding_dim"]:
        """Compute words' vectors from the ids of their features."""
        check_units(ids)
        missing = self.num_features - ids.shape[-1]
        require(missing >= 0, "ids", f"be those of {self.num_features} features", ids.shape[-1])
        ids = F.pad(ids, (0, missing))
        x = look_up_units(ids, self.embedding.weight).where(ids.ne(0)[..., None], 0.0).flatten(-2)
        y: Tensor = self.linear(F.dropout(x, self.dropout, self.training))
        return y


class FeatureSum(PretrainedModule):
    """The sum of a word's features: ``y = sum of E[f] over its features f``, of zeros before
    training.

    With a number for each tag it is the linear model of a hand-featured tagger: each feature has a
    score for each tag.

    Args:
        num_embeddings: How many feature ids there are, the padding's 0 among them.
        embedding_dim: The size of a word's vector.
        dropout: The probability of leaving a feature of a word out, in training; the others count
            for more.

    Shape:
        ids ``(*batch, feature)``, 0 = padding, to ``(*batch, embedding_dim)``.

    Raises:
        ValueError: Sizes that are not positive, or ids outside the table.
        TypeError: Ids that are not integers.

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
        self.num_embeddings, self.embedding_dim, self.dropout = (
            num_embeddings,
            embedding_dim,
            dropout,
        )
        self.embedding = nn.Embedding(num_embeddings, embedding_dim, padding_idx=0)
        nn.init.zeros_(self.embedding.weight)

    def forward(self, ids: Int[Tensor, "*batch feature"]) -> Float[Tensor, "*batch embedding_dim"]:
        """Add the vectors of words' features."""
        check_units(ids)
        kept = F.dropout(ids.ne(0).to(self.embedding.weight.dtype), self.dropout, self.training)
        total: Tensor = (look_up_units(ids, self.embedding.weight) * kept[..., None]).sum(-2)
        return total
