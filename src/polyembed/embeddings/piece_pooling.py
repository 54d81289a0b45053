"""A word's vector from the vectors of its sub-word pieces."""

from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyembed.embeddings.table import embed_units
from polyembed.embeddings.transformer import TransformerStack
from polyembed.functional.masking import masked_mean
from polyembed.saving import PretrainedModule


class PieceMean(PretrainedModule):
    """The mean of a word's piece vectors: ``y = 1/n sum_i E[p_i]``.

    Args:
        table: Piece vectors, row 0 for padding; or ``(num_pieces, dim)`` for an empty table.
        freeze: Whether the table does not train, as in HME (Winata 2021, section 3.2.5). A table
            that trains is a copy; a frozen one shares its memory with `table`.

    Shape:
        ids ``(*batch, piece)``, 0 = padding, to ``(*batch, embedding_dim)``; a word without pieces
        gives zeros.

    Example:
        >>> PieceMean(torch.tensor([[0.0], [2.0], [4.0]]))(torch.tensor([[1, 2], [2, 0]]))
        tensor([[3.],
                [4.]])
    """

    def __init__(
        self, table: Float[Tensor, "piece dim"] | tuple[int, int], *, freeze: bool = True
    ) -> None:
        super().__init__()
        rows = table if isinstance(table, Tensor) else torch.zeros(*table)
        self.weight = nn.Parameter(rows if freeze else rows.clone(), requires_grad=not freeze)
        self.num_embeddings, self.embedding_dim = rows.shape

    def forward(self, ids: Int[Tensor, "*batch piece"]) -> Float[Tensor, "*batch embedding_dim"]:
        """Average the vectors of each word's pieces."""
        return masked_mean(*embed_units(ids, self.weight))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, with the table's shape in place of the table."""
        return {"table": list(self.weight.shape), "freeze": not self.weight.requires_grad}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the encoder with its table still to be loaded."""
        return cls(**{**config, "table": tuple(config["table"])})


class PieceTransformer(PieceMean):
    """The sum of a word's piece vectors after a small Transformer, as in HME (Winata 2019b).

    Pieces may be characters: give a table that trains, such as
    ``PieceTransformer(torch.randn(lexicon.num_characters, 300), freeze=False, hidden_size=100)``.

    Args:
        table: Piece vectors, row 0 for padding; or ``(num_pieces, dim)`` for an empty table.
        freeze: Whether the table does not train, as in `PieceMean`; the Transformer trains in any
            case.
        hidden_size: The size of a word's vector, to which piece vectors are mapped first; if None,
            they are not mapped and keep their size.
        num_layers: The number of the Transformer's layers.
        num_heads: The number of heads in each layer; must divide the size of a word's vector.
        feed_forward_size: The width inside each feed-forward network; twice the word vectors' size
            if None.
        kernel_size: The number of neighbouring pieces, odd, that each map of the feed-forward
            network reads.
        dropout: The dropout probability inside the Transformer.

    Shape:
        ids ``(*batch, piece)``, 0 = padding, to ``(*batch, embedding_dim)``; a word without pieces
        gives zeros.

    Raises:
        ValueError: If a size is not positive, the size of a word's vector is not a multiple of
            `num_heads`, or `kernel_size` is even.

    Example:
        >>> PieceTransformer(torch.randn(9, 4), num_heads=2)(torch.tensor([[1, 2], [2, 0]])).shape
        torch.Size([2, 4])

    Deviations: the paper's text names no sizes; the authors' code has a hidden size of 100, a
    feed-forward size of 128, a kernel of 3 and dropout 0.2, of inputs and attention weights too,
    and sums over padding.
    """

    def __init__(
        self,
        table: Float[Tensor, "piece dim"] | tuple[int, int],
        *,
        freeze: bool = True,
        hidden_size: int | None = None,
        num_layers: int = 1,
        num_heads: int = 4,
        feed_forward_size: int | None = None,
        kernel_size: int = 1,
        dropout: float = 0.1,
    ) -> None:
        super().__init__(table, freeze=freeze)
        self.hidden_size, self.feed_forward_size = hidden_size, feed_forward_size
        self.options: dict[str, Any] = {
            "num_layers": num_layers,
            "num_heads": num_heads,
            "kernel_size": kernel_size,
            "dropout": dropout,
        }
        self.projection: nn.Module = nn.Identity()
        if hidden_size is not None:
            self.projection = nn.Linear(self.embedding_dim, hidden_size, bias=False)
            self.embedding_dim = hidden_size
        inner = 2 * self.embedding_dim if feed_forward_size is None else feed_forward_size
        self.transformer = TransformerStack(
            self.embedding_dim, feed_forward_size=inner, **self.options
        )

    def forward(self, ids: Int[Tensor, "*batch piece"]) -> Float[Tensor, "*batch embedding_dim"]:
        """Transform each word's pieces and add them up."""
        x, is_piece = embed_units(ids, self.weight)
        x = self.projection(x)
        *batch, length, dim = x.shape
        x, is_piece = x.reshape(-1, length, dim), is_piece.reshape(-1, length)
        y: Tensor = self.transformer(x, is_piece)  # (word, piece, embedding_dim), zeros at padding
        return y.sum(-2).reshape(*batch, dim)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, with the table's shape in place of the table."""
        sizes = {"hidden_size": self.hidden_size, "feed_forward_size": self.feed_forward_size}
        return {**super().get_config(), **sizes, **self.options}
