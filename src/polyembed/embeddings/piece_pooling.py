"""A word's vector from the vectors of its sub-word pieces."""

from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyembed._checks import require
from polyembed._pretrained import PretrainedModule
from polyembed._transformer import TransformerStack
from polyembed.embeddings._table import check_units, look_up_units
from polyembed.functional.masking import masked_mean


class PieceMean(PretrainedModule):
    """The mean of a word's piece vectors: ``y = 1/n sum_i E[p_i]``.

    Args:
        table: Piece vectors, row 0 for padding; or ``(num_pieces, dim)`` for an empty table.
        freeze: Whether the table does not train, as in HME (Winata 2021, section 3.2.5).

    Shape:
        ids ``(*batch, piece)``, 0 = padding, to ``(*batch, embedding_dim)``; a word without pieces gives zeros.

    Example:
        >>> PieceMean(torch.tensor([[0.0], [2.0], [4.0]]))(torch.tensor([[1, 2], [2, 0]]))
        tensor([[3.],
                [4.]])
    """

    def __init__(self, table: Float[Tensor, "piece dim"] | tuple[int, int], *, freeze: bool = True) -> None:
        super().__init__()
        rows = table if isinstance(table, Tensor) else torch.zeros(*table)
        self.weight = nn.Parameter(rows, requires_grad=not freeze)

    @property
    def num_embeddings(self) -> int:
        """The number of piece ids, the padding's 0 included."""
        return self.weight.shape[0]

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector."""
        return self.weight.shape[1]

    def look_up(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the piece vectors and the mask of pieces."""
        check_units(ids)
        if ids.shape[-1] == 0:
            ids = ids.new_zeros(*ids.shape[:-1], 1)
        return look_up_units(ids, self.weight), ids.ne(0)

    def forward(self, ids: Int[Tensor, "*batch piece"]) -> Float[Tensor, "*batch embedding_dim"]:
        """Average the vectors of each word's pieces."""
        return masked_mean(*self.look_up(ids))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, the table by its shape."""
        return {"table": list(self.weight.shape), "freeze": not self.weight.requires_grad}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the encoder with its table still to be loaded."""
        return cls(**{**config, "table": tuple(config["table"])})


class PieceTransformer(PieceMean):
    """The mean of a word's piece vectors after a small Transformer over them, as in HME (Winata 2019b).

    Args:
        table: Piece vectors, row 0 for padding; or ``(num_pieces, dim)`` for an empty table.
        freeze: Whether the table does not train; the Transformer trains in any case.
        num_layers: Layers of the Transformer.
        num_heads: Heads of each layer; must divide the vectors' size.
        dropout: The probability of dropping, inside the Transformer.

    Shape:
        ids ``(*batch, piece)``, 0 = padding, to ``(*batch, embedding_dim)``; a word without pieces gives zeros.

    Raises:
        ValueError: `num_heads` does not divide the vectors' size.

    Example:
        >>> PieceTransformer(torch.randn(9, 4), num_heads=2)(torch.tensor([[1, 2], [2, 0]])).shape
        torch.Size([2, 4])

    Deviations: the paper's text names no sizes; feed-forward is twice as wide, and pieces are averaged over.
    """

    def __init__(
        self,
        table: Float[Tensor, "piece dim"] | tuple[int, int],
        *,
        freeze: bool = True,
        num_layers: int = 1,
        num_heads: int = 4,
        dropout: float = 0.1,
    ) -> None:
        super().__init__(table, freeze=freeze)
        dim = self.embedding_dim
        require(dim % num_heads == 0, "num_heads", f"divide the vectors' size {dim}", num_heads)
        self.options = {"num_layers": num_layers, "num_heads": num_heads, "dropout": dropout}
        self.transformer = TransformerStack(
            dim, num_layers=num_layers, num_heads=num_heads, feed_forward_size=2 * dim, dropout=dropout
        )

    def forward(self, ids: Int[Tensor, "*batch piece"]) -> Float[Tensor, "*batch embedding_dim"]:
        """Transform each word's pieces and average them."""
        x, mask = self.look_up(ids)
        batch = x.shape[:-2]
        words = batch.numel(), x.shape[-2]
        x, mask = x.reshape(*words, self.embedding_dim), mask.reshape(words)
        return masked_mean(self.transformer(x, mask), mask).reshape(*batch, self.embedding_dim)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, the table by its shape."""
        return {**super().get_config(), **self.options}
