"""A word's vector from the vectors of its sub-word pieces."""

from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyembed._checks import check_positive, require
from polyembed._transformer import TransformerStack
from polyembed.embeddings._table import check_units, look_up_units
from polyembed.functional.masking import masked_mean
from polyembed.saving import PretrainedModule


class PieceMean(PretrainedModule):
    """The mean of a word's piece vectors: ``y = 1/n sum_i E[p_i]``.

    Args:
        table: Piece vectors, row 0 for padding; or ``(num_pieces, dim)`` for an empty table.
        freeze: Whether the table does not train, as in HME (Winata 2021, section 3.2.5).

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
    """The sum of a word's piece vectors after a small Transformer over them, as in HME (Winata
    2019b).

    Pieces may be characters: give a table that trains, such as
    ``PieceTransformer(torch.randn(lexicon.num_characters, 300), freeze=False, hidden_size=100)``.

    Args:
        table: Piece vectors, row 0 for padding; or ``(num_pieces, dim)`` for an empty table.
        freeze: Whether the table does not train; the Transformer trains in any case.
        hidden_size: The size of a word's vector, to which piece vectors are mapped first; None =
            the piece vectors' size, without a map.
        num_layers: Layers of the Transformer.
        num_heads: Heads of each layer; must divide the size of a word's vector.
        feed_forward_size: The width inside each feed-forward network; twice the word vectors' size
            if None.
        kernel_size: How many neighbouring pieces each map of the feed-forward network reads; odd.
        dropout: The probability of dropping, inside the Transformer.

    Shape:
        ids ``(*batch, piece)``, 0 = padding, to ``(*batch, embedding_dim)``; a word without pieces
        gives zeros.

    Raises:
        ValueError: Sizes that are not positive, or that `num_heads` does not divide; an even
            `kernel_size`.

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
        dim = self.embedding_dim
        check_positive(hidden_size=dim if hidden_size is None else hidden_size, num_heads=num_heads)
        require(dim % num_heads == 0, "num_heads", f"divide the vectors' size {dim}", num_heads)
        self.options: dict[str, Any] = {
            "num_layers": num_layers,
            "num_heads": num_heads,
            "kernel_size": kernel_size,
            "dropout": dropout,
        }
        self.projection = (
            nn.Identity()
            if hidden_size is None
            else nn.Linear(self.weight.shape[1], hidden_size, bias=False)
        )
        self.transformer = TransformerStack(
            dim,
            feed_forward_size=2 * dim if feed_forward_size is None else feed_forward_size,
            **self.options,
        )

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector."""
        return self.hidden_size or self.weight.shape[1]

    def forward(self, ids: Int[Tensor, "*batch piece"]) -> Float[Tensor, "*batch embedding_dim"]:
        """Transform each word's pieces and add them up."""
        x, mask = self.look_up(ids)
        batch = x.shape[:-2]
        words = batch.numel(), x.shape[-2]
        x = self.projection(x).reshape(*words, self.embedding_dim)
        transformed: Tensor = self.transformer(x, mask.reshape(words))  # zeros at padding
        return transformed.sum(-2).reshape(*batch, self.embedding_dim)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, the table by its shape."""
        sizes = {"hidden_size": self.hidden_size, "feed_forward_size": self.feed_forward_size}
        return {**super().get_config(), **sizes, **self.options}
