"""A convolution over a word's characters."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyembed._checks import check_positive, check_probability, require
from polyembed.embeddings.table import embed_units
from polyembed.saving import PretrainedModule


class CharCNN(PretrainedModule):
    """Convolutions of several widths over a word's characters, and their maximum (Kim et al. 2016).

    ``y_k = tanh(max_t (W_k [c_t; ...; c_{t+k-1}] + b_k))``, and
    ``y = [y_k for k in kernel_sizes]``. The word has ``k - 1`` zero vectors on each side, so that
    filters see its edges and a word may be shorter than a kernel. Windows without a character do
    not count, so more padding has no effect. A word without characters gives zeros.

    Args:
        num_characters: The number of character ids, the padding's 0 included
            (``lexicon.num_characters``).
        embedding_dim: The size of a word's vector: the number of filters of all widths together.
        character_dim: The size of a character's vector.
        kernel_sizes: The widths of the filters, in characters.
        dropout: The probability of dropping a component of a character's vector.

    Shape:
        ids ``(*batch, character)``, 0 = padding after the word, to ``(*batch, embedding_dim)``.

    Raises:
        ValueError: If a size is not positive, there are fewer filters than widths, or an id is
            outside the characters.
        TypeError: If ids are not integers.

    Example:
        >>> CharCNN(50, 8)(torch.tensor([[3, 4, 5], [6, 0, 0]])).shape
        torch.Size([2, 8])

    Deviations: HME (Winata 2019b) and the authors' code encode characters by a Transformer
    (`PieceTransformer`); a CNN is this library's choice.
    """

    def __init__(
        self,
        num_characters: int,
        embedding_dim: int = 100,
        *,
        character_dim: int = 32,
        kernel_sizes: Sequence[int] = (2, 3, 4),
        dropout: float = 0.0,
    ) -> None:
        check_positive(
            num_characters=num_characters,
            embedding_dim=embedding_dim,
            character_dim=character_dim,
            **{f"kernel_sizes[{i}]": size for i, size in enumerate(kernel_sizes)},
        )
        check_probability(dropout=dropout)
        widths, rule = len(kernel_sizes), f"name 1 to {embedding_dim} widths"
        require(0 < widths <= embedding_dim, "kernel_sizes", rule, widths)
        super().__init__()
        self.num_characters = self.num_embeddings = num_characters
        self.embedding_dim, self.character_dim = embedding_dim, character_dim
        self.kernel_sizes, self.dropout = tuple(kernel_sizes), dropout
        self.embedding = nn.Embedding(num_characters, character_dim, padding_idx=0)
        filters = [embedding_dim // widths + (i < embedding_dim % widths) for i in range(widths)]
        self.convolutions = nn.ModuleList(
            nn.Conv1d(character_dim, count, size, padding=size - 1)
            for count, size in zip(filters, kernel_sizes, strict=True)
        )

    def forward(
        self, ids: Int[Tensor, "*batch character"]
    ) -> Float[Tensor, "*batch embedding_dim"]:
        """Compute words' vectors from their character ids, padded with 0."""
        x, is_character = embed_units(ids, self.embedding.weight)
        *batch, length, dim = x.shape
        x = F.dropout(x, self.dropout, self.training).reshape(-1, length, dim)
        is_character = is_character.reshape(-1, length, 1)
        # Masked before the transpose: convolutions are slower over the other layout.
        x = x.where(is_character, 0.0).transpose(1, 2)  # (word, character_dim, character)
        is_character = is_character.transpose(1, 2)
        features = []
        for size, convolution in zip(self.kernel_sizes, self.convolutions, strict=True):
            windows = convolution(x)  # (word, filter, window)
            padded = F.pad(is_character.to(x.dtype), (size - 1, size - 1))
            counts = F.max_pool1d(padded, size, 1).bool()  # has a character: (word, 1, window)
            windows = windows.masked_fill(~counts, torch.finfo(windows.dtype).min)
            features.append(windows.max(-1).values)  # keeps places for the backward pass
        # tanh is monotone: after the maximum, it is computed once per filter, not per window.
        y = torch.cat(features, dim=-1).tanh()  # (word, embedding_dim)
        return y.where(is_character.any(-1), 0.0).reshape(*batch, self.embedding_dim)
