"""Embedders that compute each word type once, per batch or for the whole lexicon."""

from typing import Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from polyembed._checks import check_ids
from polyembed._views import evaluation_view, shallow_copy
from polyembed.embeddings.embedder import WordEmbedder, require_lexicon
from polyembed.embeddings.table import RowTable
from polyembed.text.lexicon import Lexicon

CHUNK = 4096  # words that are computed at once


class _Wrapper(WordEmbedder):
    """A type embedder around another one of the same words and size."""

    def __init__(self, embedder: WordEmbedder) -> None:
        require_lexicon(embedder)
        super().__init__()
        self.embedder = embedder

    @property
    def lexicon(self) -> Lexicon:  # type: ignore[override]
        """The words."""
        return require_lexicon(self.embedder)

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector."""
        return self.embedder.embedding_dim

    def _with_lexicon(self, lexicon: Lexicon) -> Self:
        return shallow_copy(self, embedder=self.embedder.with_lexicon(lexicon))


class UniqueWords(_Wrapper):
    """Compute an embedder once for each word type of a batch: ``E(ids) = E(unique(ids))[inverse]``.

    The vectors and gradients are the same at less cost: in natural text, half the words of a batch
    are repetitions. In training, dropout inside the embedder is drawn once per type and shared by
    the type's occurrences. Finding the types makes the host wait for a GPU; where that costs too
    much, use the embedder itself, or `bake` it.

    Args:
        embedder: A type embedder.

    Shape:
        ids ``(*batch)`` to ``(*batch, embedder.embedding_dim)``.

    Raises:
        TypeError: If `embedder` is contextual.

    Example:
        >>> from polyembed import CharCNN, SpelledEmbedding
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> cnn = CharCNN(lexicon.num_characters, 8)
        >>> characters = SpelledEmbedding.from_characters(lexicon, cnn)
        >>> UniqueWords(characters)(torch.tensor([[2, 3, 2]])).shape
        torch.Size([1, 3, 8])
    """

    def forward(self, ids: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch embedding_dim"]:
        """Embed the types and copy their vectors to the occurrences."""
        check_ids("ids", ids)
        types, occurrences = torch.unique(ids, return_inverse=True)
        return F.embedding(occurrences, self.embedder(types))


class BakedEmbedding(_Wrapper):
    """The table of an embedder's vectors in evaluation mode; made by `bake`.

    It behaves as an `nn.Embedding` whose ``weight`` is frozen. The embedder stays inside, so that
    `with_words` can compute rows for new words.

    Args:
        embedder: The type embedder that was baked.
        table: The embedder's vectors, one row per id.

    Shape:
        ids ``(*batch)`` to ``(*batch, embedder.embedding_dim)``.
    """

    def __init__(self, embedder: WordEmbedder, table: RowTable) -> None:
        super().__init__(embedder)
        self.table = table

    @property
    def weight(self) -> Tensor:
        """The rows of the lexicon that was baked."""
        return self.table.weight

    def forward(self, ids: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch embedding_dim"]:
        """Return the rows of the ids."""
        vectors: Tensor = self.table(ids)
        return vectors

    def _with_lexicon(self, lexicon: Lexicon) -> Self:
        embedder = self.embedder.with_lexicon(lexicon)
        rows = _vectors(embedder, self.num_embeddings)
        return shallow_copy(self, embedder=embedder, table=self.table.extended(rows))


def bake(embedder: WordEmbedder) -> BakedEmbedding:
    """Compute the vector of every word type once: ``table[id] = embedder(id)`` in evaluation mode.

    A hierarchical meta-embedding then costs a look-up, with the same numbers. The table does not
    follow the embedder's later training: bake again.

    Args:
        embedder: A type embedder.

    Returns:
        A type embedder that looks the vectors up.

    Raises:
        TypeError: If `embedder` is contextual.

    Example:
        >>> from polyembed import CharCNN, SpelledEmbedding
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> cnn = CharCNN(lexicon.num_characters, 8)
        >>> characters = SpelledEmbedding.from_characters(lexicon, cnn)
        >>> ids = torch.tensor([[2, 3]])
        >>> torch.allclose(bake(characters)(ids), characters(ids))
        True
    """
    return BakedEmbedding(embedder, RowTable(_vectors(embedder, 0)))


@torch.no_grad()
def _vectors(embedder: WordEmbedder, start: int) -> Tensor:
    """Compute the vectors of the ids from `start` on in evaluation mode."""
    stop = len(require_lexicon(embedder))
    embedder = evaluation_view(embedder)
    # not "meta", the device of tables that were not saved: they must be attached first
    device = next((x.device for x in embedder.parameters() if not x.is_meta), None)
    ids = torch.arange(start, stop, device=device)
    return torch.cat([embedder(chunk) for chunk in torch.split(ids, CHUNK)])
