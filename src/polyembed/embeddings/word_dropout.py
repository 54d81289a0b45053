"""Words that are forgotten in training."""

from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyembed._checks import check_ids, check_probability
from polyembed._views import shallow_copy
from polyembed.embeddings.embedder import WordEmbedder, require_lexicon
from polyembed.text.lexicon import NUM_SPECIAL, UNKNOWN_ID, Lexicon


class WordDropout(WordEmbedder):
    """In training, replace a word by the unknown word with probability `dropout`; its other embedders still see it.

    As one part of a `HierarchicalMetaEmbedding` it makes a tagger learn from sub-words, characters and surface what it
    would otherwise learn by heart.

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
        require_lexicon(embedder)
        check_probability(dropout=dropout)
        super().__init__()
        self.embedder = embedder
        self.dropout = dropout

    @property
    def lexicon(self) -> Lexicon:
        """The words."""
        return require_lexicon(self.embedder)

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector."""
        return self.embedder.embedding_dim

    def forward(self, ids: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch embedding_dim"]:
        """Embed the words that are left, and the unknown word for the others."""
        check_ids("ids", ids)
        if self.training and self.dropout:
            dropped = torch.rand(ids.shape, device=ids.device) < self.dropout
            ids = ids.masked_fill(dropped & (ids >= NUM_SPECIAL), UNKNOWN_ID)
        vectors: Tensor = self.embedder(ids)
        return vectors

    def _extended(self, lexicon: Lexicon) -> Self:
        return shallow_copy(self, embedder=self.embedder.extended(lexicon))
