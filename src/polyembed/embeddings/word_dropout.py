"""Words that are forgotten in training."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyembed._checks import check_ids, check_probability
from polyembed.embeddings.embedder import WordEmbedder, WrappedEmbedder
from polyembed.text.lexicon import NUM_SPECIAL, UNKNOWN_ID


class WordDropout(WrappedEmbedder):
    """In training, replace a word by the unknown word with probability `dropout`; its other
    embedders still see it.

    As one part of a `HierarchicalMetaEmbedding` it makes a tagger learn from sub-words, characters
    and surface what it would otherwise learn by heart.

    Args:
        embedder: A type embedder.
        dropout: The probability.

    Shape:
        ids ``(*batch)`` to ``(*batch, embedder.embedding_dim)``.

    Raises:
        TypeError: A contextual embedder.
        ValueError: A probability outside [0, 1).

    Example:
        >>> from polyembed import Lexicon, SourceEmbedding
        >>> words = SourceEmbedding.from_embedding(torch.nn.Embedding(4, 3), Lexicon(["me", "gusta"]))
        >>> WordDropout(words, 0.1)(torch.tensor([[2, 3]])).shape
        torch.Size([1, 2, 3])
    """

    def __init__(self, embedder: WordEmbedder, dropout: float = 0.05) -> None:
        check_probability(dropout=dropout)
        super().__init__(embedder)
        self.dropout = dropout

    def forward(self, ids: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch embedding_dim"]:
        """Embed the words that are left, and the unknown word for the others."""
        check_ids("ids", ids)
        if self.training and self.dropout:
            dropped = torch.rand(ids.shape, device=ids.device) < self.dropout
            ids = ids.masked_fill(dropped & (ids >= NUM_SPECIAL), UNKNOWN_ID)
        vectors: Tensor = self.embedder(ids)
        return vectors
