"""A convolution over a word's characters."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyembed._checks import check_positive, check_probability, require
from polyembed.embeddings._table import check_units, look_up_units
from polyembed.saving import PretrainedModule


class CharCNN(PretrainedModule):
    """Convolutions of several widths over a word's characters, and their maximum over time (Kim et
    al. 2016).

    ``y_k = tanh(max_t (W_k [c_t; ...; c_{t+k-1}] + b_k))``, and
    ``y = [y_k for k in kernel_sizes]``. The word has ``k - 1`` zero vectors on each side, so that
    it may be shorter than a kernel and that filters see its edges. Windows without a character do
    not count, so more padding has no effect. A word without characters gives zeros.

    Args:
        num_characters: How many character ids there are, the padding's 0 among them
            (``lexicon.num_characters``).
        embedding_dim: The size of a word's vector: the number of filters of all widths together.
        character_dim: The size of a character's vector.
        kernel_sizes: The widths, in characters.
        dropout: The probability of dropping a component of a character's vector.

    Shape:
        ids ``(*batch, character)``, 0 = padding after the word, to ``(*batch, embedding_dim)``.

    Raises:
        ValueError: Sizes that are not positive, fewer filters than widths, or ids outside the
            characters.
        TypeError: Ids that are not integers.

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
            num_characters=num_characters, embedding_dim=embedding_dim, character_dim=character_dim
        )
        check_positive(**{f"kernel_sizes[{i}]": size for i, size in enumerate(kernel_sizes)})
        check_probability(dropout=dropout)
        widths = len(kernel_sizes)
        require(
            0 < widths <= embedding_dim, "kernel_sizes", f"name 1 to {embedding_dim} widths", widths
        )
        super().__init__()
        self.num_characters, self.character_dim, self.dropout = (
            num_characters,
            character_dim,
            dropout,
        )
        self.kernel_sizes = tuple(kernel_sizes)
        self.embedding = nn.Embedding(num_characters, character_dim, padding_idx=0)
        filters = [embedding_dim // widths + (i < embedding_dim % widths) for i in range(widths)]
        self.convolutions = nn.ModuleList(
            nn.Conv1d(character_dim, count, size, padding=size - 1)
            for count, size in zip(filters, kernel_sizes, strict=True)
        )

    @property
    def num_embeddings(self) -> int:
        """The number of character ids."""
        return self.embedding.num_embeddings

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector."""
        return sum(convolution.out_channels for convolution in self._convolutions())

    def forward(
        self, ids: Int[Tensor, "*batch character"]
    ) -> Float[Tensor, "*batch embedding_dim"]:
        """Compute words' vectors from their character ids, padded with 0."""
        check_units(ids)
        batch, length = ids.shape[:-1], ids.shape[-1]
        ids = ids.reshape(-1, length) if length else ids.new_zeros(batch.numel(), 1)
        has_character = ids.ne(0)
        x = (
            F.dropout(look_up_units(ids, self.embedding.weight), self.dropout, self.training)
            .where(has_character[..., None], 0.0)
            .transpose(1, 2)
        )
        features = []
        for size, convolution in zip(self.kernel_sizes, self._convolutions(), strict=True):
            windows = convolution(x)
            beyond = F.pad(has_character, (0, size - 1)) if size > 1 else has_character
            counts = beyond.clone()
            for shift in range(1, size):  # a window counts if any of its characters is real
                counts[:, shift:] |= beyond[:, :-shift]
            lowest = torch.finfo(windows.dtype).min
            windows = windows.masked_fill(~counts[:, None], lowest)
            features.append(
                windows.max(-1).values
            )  # keeps places, not windows, for the backward pass
        # tanh is monotone: after the maximum, it is computed once a filter instead of once a window
        y = torch.cat(features, dim=-1).tanh()
        return y.where(has_character.any(-1, keepdim=True), 0.0).reshape(*batch, self.embedding_dim)

    def _convolutions(self) -> list[nn.Conv1d]:
        return [
            convolution for convolution in self.convolutions if isinstance(convolution, nn.Conv1d)
        ]
