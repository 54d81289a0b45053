"""The Transformer encoder stack that word pieces and sentences share (Vaswani et al. 2017)."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from polyembed._checks import check_positive, check_probability, require


def sinusoidal_positions(positions: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """Compute sines and cosines of geometrically spaced wavelengths, for positions of any size.

    ``PE(p, 2i) = sin(p / 10000^(2i / dim))``, ``PE(p, 2i + 1) = cos(p / 10000^(2i / dim))``.
    """
    wide = torch.promote_types(dtype, torch.float32)
    even = torch.arange(0, dim, 2, device=positions.device, dtype=wide)
    frequency = torch.exp(even * (-math.log(10_000.0) / dim))
    angle = positions[..., None] * frequency  # (*batch, word, dim / 2)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)[..., :dim].to(dtype)


def windows(x: Tensor, mask: Tensor | None, size: int) -> Tensor:
    """Concatenate each word's vector with its neighbours'; missing neighbours are zeros.

    ``(batch, word, dim)`` to ``(batch, word, size * dim)``.
    """
    if size == 1:
        return x
    if mask is not None:
        x = torch.where(mask, x, 0.0)
    padded = F.pad(x, (0, 0, size // 2, size // 2))
    return torch.cat([padded[:, start : start + x.shape[1]] for start in range(size)], dim=-1)


class TransformerLayer(nn.Module):
    """Self-attention and a feed-forward network, each with a residual and a layer norm.

    The layer norms are before the two blocks with `norm_first`, else after their residuals. With a
    `kernel_size` above 1, both maps of the feed-forward network are convolutions over neighbouring
    words.
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        num_heads: int,
        feed_forward_size: int,
        dropout: float,
        attention_dropout: float = 0.0,
        norm_first: bool = True,
        kernel_size: int = 1,
    ) -> None:
        check_positive(hidden_size=hidden_size, num_heads=num_heads, kernel_size=kernel_size)
        check_positive(feed_forward_size=feed_forward_size)
        check_probability(dropout=dropout, attention_dropout=attention_dropout)
        require(kernel_size % 2 == 1, "kernel_size", "be odd", kernel_size)
        rule = f"be a multiple of num_heads={num_heads}"
        require(hidden_size % num_heads == 0, "hidden_size", rule, hidden_size)
        super().__init__()
        self.num_heads, self.kernel_size = num_heads, kernel_size
        self.norm_first, self.attention_dropout = norm_first, attention_dropout
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.attention_output = nn.Linear(hidden_size, hidden_size)
        self.attention_norm = nn.LayerNorm(hidden_size)
        self.feed_forward = nn.Sequential(
            nn.Linear(kernel_size * hidden_size, feed_forward_size),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(kernel_size * feed_forward_size, hidden_size),
        )
        self.feed_forward_norm = nn.LayerNorm(hidden_size)
        self.dropout = nn.Dropout(dropout)

    def attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Compute scaled dot-product attention over `num_heads` heads."""
        split = self.query_key_value(x).unflatten(-1, (3, self.num_heads, -1))
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each (batch, head, word, dim of a head)
        dropout = self.attention_dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        attended: Tensor = self.attention_output(mixed.transpose(1, 2).flatten(2))
        return attended  # (batch, word, hidden)

    def feed(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Apply the feed-forward network to each word, or to each window of `kernel_size` words."""
        words = None if mask is None else mask[:, 0, 0, :, None]
        first, relu, dropout, last = self.feed_forward
        hidden = dropout(relu(first(windows(x, words, self.kernel_size))))
        fed: Tensor = last(windows(hidden, words, self.kernel_size))
        return fed

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Transform ``(batch, word, hidden)``; `mask` is ``(batch, 1, 1, word)``."""
        if self.norm_first:
            x = x + self.dropout(self.attend(self.attention_norm(x), mask))
            x = x + self.dropout(self.feed(self.feed_forward_norm(x), mask))
        else:
            x = self.attention_norm(x + self.dropout(self.attend(x, mask)))
            x = self.feed_forward_norm(x + self.dropout(self.feed(x, mask)))
        return x


class TransformerStack(nn.Module):
    """A stack of layers over sinusoidal positions; masked positions of the result are zeros.

    Positions count the valid words, so that neither padding on any side nor holes have an effect. A
    row without a valid word gives zeros. With a `kernel_size` above 1 a mask must have no holes.

    Args:
        hidden_size: The size of the vectors.
        num_layers: The number of layers.
        dropout: The probability of dropping inputs and the layers' outputs.
        norm_first: Whether layer norms are before attention and feed-forward network.
        **options: The other arguments of `TransformerLayer`.
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        num_layers: int,
        dropout: float,
        norm_first: bool = True,
        **options: Any,
    ) -> None:
        check_positive(num_layers=num_layers)
        options |= {"dropout": dropout, "norm_first": norm_first}
        super().__init__()
        layers = (TransformerLayer(hidden_size, **options) for _ in range(num_layers))
        self.layers = nn.ModuleList(layers)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(hidden_size) if norm_first else nn.Identity()

    def forward(
        self, x: Float[Tensor, "batch word hidden"], mask: Bool[Tensor, "batch word"] | None
    ) -> Float[Tensor, "batch word hidden"]:
        """Transform vectors in their context; `x` must be finite at masked positions."""
        num_words, hidden_size = x.shape[1:]
        if mask is None:
            positions, may_attend = torch.arange(num_words, device=x.device), None
        else:
            positions = (mask.cumsum(1) - 1).clamp(min=0)
            # An empty row attends to its padding: a softmax without entries would be NaN.
            may_attend = (mask | ~mask.any(1, keepdim=True))[:, None, None, :]
        x = self.dropout(x + sinusoidal_positions(positions, hidden_size, x.dtype))
        for layer in self.layers:
            x = layer(x, may_attend)
        x = self.norm(x)
        return x if mask is None else torch.where(mask[..., None], x, 0.0)
