"""Each word type once a batch."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from polyembed._checks import check_ids
from polyembed.embeddings.embedder import WrappedEmbedder


class UniqueWords(WrappedEmbedder):
    """Compute an embedder once for each word type of a batch: ``E(ids) = E(unique(ids))[inverse]``.

    The vectors and gradients are the same, for less: in natural text, half the words of a batch are
    repetitions. In training, dropout inside the embedder is drawn once a type and shared by its
    occurrences. Finding the types makes the host wait for a GPU; where that costs too much, use the
    embedder itself, or `bake` it.

    Args:
        embedder: A type embedder.

    Shape:
        ids ``(*batch)`` to ``(*batch, embedder.embedding_dim)``.

    Raises:
        TypeError: A contextual embedder.

    Example:
        >>> from polyembed import CharCNN, Lexicon, SpelledEmbedding
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> characters = SpelledEmbedding.from_characters(lexicon, CharCNN(lexicon.num_characters, 8))
        >>> UniqueWords(characters)(torch.tensor([[2, 3, 2]])).shape
        torch.Size([1, 3, 8])
    """

    def forward(self, ids: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch embedding_dim"]:
        """Embed the types and copy their vectors to the occurrences."""
        check_ids("ids", ids)
        types, occurrences = torch.unique(ids, return_inverse=True)
        return F.embedding(occurrences, self.embedder(types))
