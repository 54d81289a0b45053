"""Each word type computed once for all."""

from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyembed._checks import check_ids, check_positive
from polyembed._views import evaluation_view, shallow_copy
from polyembed.embeddings._table import RowTable
from polyembed.embeddings.embedder import WordEmbedder, require_lexicon
from polyembed.text.lexicon import Lexicon

CHUNK = 4096  # words that are computed at once


class BakedEmbedding(WordEmbedder):
    """The table of an embedder's vectors in evaluation mode; made by `bake`.

    It behaves as an `nn.Embedding` whose ``weight`` is frozen. The embedder stays inside, so that
    `extended` can compute rows for new words.

    Args:
        embedder: The type embedder that was baked.
        weight: Its vectors, one row an id.

    Shape:
        ids ``(*batch)`` to ``(*batch, embedder.embedding_dim)``.
    """

    def __init__(self, embedder: WordEmbedder, weight: Float[Tensor, "word dim"]) -> None:
        super().__init__()
        self.embedder = embedder
        self.table = RowTable(weight)

    @property
    def lexicon(self) -> Lexicon:
        """The words."""
        return require_lexicon(self.embedder)

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector."""
        return self.table.dim

    @property
    def weight(self) -> nn.Parameter:
        """The rows of the lexicon that was baked."""
        return self.table.weight

    def forward(self, ids: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch embedding_dim"]:
        """Return the rows of the ids."""
        check_ids("ids", ids)
        vectors: Tensor = self.table(ids)
        return vectors

    def _with_lexicon(self, lexicon: Lexicon) -> Self:
        embedder = self.embedder.with_lexicon(lexicon)
        rows = _vectors(embedder, len(self.lexicon), len(lexicon))
        return shallow_copy(self, embedder=embedder, table=self.table.extended(rows))

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the table empty."""
        return {"embedder": self.embedder, "shapes": self.table.shapes()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the table with its rows still to be loaded."""
        baked = cls(config["embedder"], torch.empty(0, 0))
        baked.table = RowTable.empty(config["shapes"], len(baked.lexicon), dtype=torch.float32)
        return baked


def bake(embedder: WordEmbedder, *, chunk_size: int = CHUNK) -> BakedEmbedding:
    """Compute the vector of every word type once: ``table[id] = embedder(id)`` in evaluation mode.

    A hierarchical meta-embedding then costs a look-up, with the same numbers. The table does not
    follow the embedder's later training: bake again.

    Args:
        embedder: A type embedder.
        chunk_size: How many words are computed at once.

    Returns:
        A type embedder that looks up.

    Raises:
        TypeError: A contextual embedder.

    Example:
        >>> from polyembed import CharCNN, SpelledEmbedding
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> characters = SpelledEmbedding.from_characters(lexicon, CharCNN(lexicon.num_characters, 8))
        >>> ids = torch.tensor([[2, 3]])
        >>> torch.allclose(bake(characters)(ids), characters(ids))
        True
    """
    lexicon = require_lexicon(embedder)
    check_positive(chunk_size=chunk_size)
    return BakedEmbedding(embedder, _vectors(embedder, 0, len(lexicon), chunk_size=chunk_size))


@torch.no_grad()
def _vectors(embedder: WordEmbedder, start: int, stop: int, *, chunk_size: int = CHUNK) -> Tensor:
    """Compute the vectors of the ids from `start` to `stop` in evaluation mode."""
    embedder = evaluation_view(embedder)
    ids = torch.arange(start, stop, device=next(embedder.parameters()).device)
    return torch.cat([embedder(chunk) for chunk in torch.split(ids, chunk_size)])
