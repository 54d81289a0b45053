"""Sequence encoders: words' vectors ``(batch, word, dim)`` and a mask to vectors in context."""

from abc import abstractmethod

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from polyembed._checks import (
    check_dim,
    check_last_dim,
    check_mask,
    check_positive,
    check_probability,
)
from polyembed.embeddings.transformer import TransformerStack
from polyembed.functional.masking import select_valid, valid_first, valid_places
from polyembed.saving import PretrainedModule

Mask = Bool[Tensor, "batch word"] | None


class SequenceEncoder(PretrainedModule):
    """Words in context: ``x (batch, word, input_size)``, ``mask`` to
    ``(batch, word, embedding_dim)``.

    Neither the content of padding nor its length has an effect, masked positions of the result are
    zeros, and a hole in the mask is skipped as if it were not there.

    Attributes:
        input_size: The size of a word's vector in the input.
    """

    input_size: int

    @property
    @abstractmethod
    def embedding_dim(self) -> int:
        """The size of a word's vector in the result."""

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "batch word input"], mask: Mask = None
    ) -> Float[Tensor, "batch word embedding_dim"]:
        """Encode words in their context.

        Args:
            x: Words' vectors.
            mask: True = a word; None = all are words.

        Returns:
            Vectors in context, zeros at masked positions.
        """

    def check_inputs(self, x: Tensor, mask: Mask) -> None:
        """Require ``(batch, word, input_size)`` and a mask of its first two axes."""
        check_dim("x", x, 3, "batch, word, input_size")
        check_last_dim("x", x, self.input_size, next(self.parameters(), None))
        check_mask(mask, x.shape[:2])


class TransformerSequenceEncoder(SequenceEncoder):
    """A Transformer encoder over words (Vaswani et al. 2017), by default of Winata 2021's sizes
    (section 3.2.2).

    A linear map to `hidden_size`, sinusoidal positions, then `num_layers` of self-attention and
    feed-forward, each with a residual and a layer norm. Attention uses PyTorch's scaled dot-product
    kernels: memory is linear in the sentence's length as long as `attention_dropout` is 0.

    Args:
        input_size: The size of a word's vector in the input.
        hidden_size: The size of a word's vector in the result; a multiple of `num_heads`.
        num_layers: The number of layers.
        num_heads: The number of heads of each layer.
        feed_forward_size: The width inside each feed-forward network.
        dropout: The dropout probability of the inputs, inside the feed-forward network, and of each
            layer's updates.
        input_dropout: The probability of dropping a number of a word's vector before the linear
            map.
        attention_dropout: The probability of dropping an attention weight.
        norm_first: Whether the norm comes before each block (and once at the end) or after its
            residual.
        kernel_size: The number of neighbouring words, odd, that each map of the feed-forward
            network reads. The authors' code has convolutions of 3.

    Shape:
        ``x (batch, word, input_size)``, ``mask (batch, word)`` to ``(batch, word, hidden_size)``.

    Raises:
        ValueError: If sizes or shapes do not fit.
        TypeError: If the mask is not bool.

    Example:
        >>> TransformerSequenceEncoder(30, hidden_size=20)(torch.randn(2, 5, 30)).shape
        torch.Size([2, 5, 20])

    Deviations: the paper names layers, heads and hidden size. The authors' code has a feed-forward
    size of 128, a kernel of 3 and dropout 0.2 of inputs, attention weights and feed-forward maps
    (`winata2021` in ``examples/recipes.toml``); also attention and projection without biases, a
    ReLU after the second map too, and no dropout of attention's update.
    """

    def __init__(
        self,
        input_size: int,
        *,
        hidden_size: int = 200,
        num_layers: int = 4,
        num_heads: int = 4,
        feed_forward_size: int = 400,
        dropout: float = 0.1,
        input_dropout: float = 0.0,
        attention_dropout: float = 0.0,
        norm_first: bool = True,
        kernel_size: int = 1,
    ) -> None:
        check_positive(input_size=input_size)
        check_probability(input_dropout=input_dropout)
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        self.num_layers, self.num_heads, self.feed_forward_size = (
            num_layers,
            num_heads,
            feed_forward_size,
        )
        self.dropout, self.input_dropout, self.attention_dropout = (
            dropout,
            input_dropout,
            attention_dropout,
        )
        self.norm_first, self.kernel_size = norm_first, kernel_size
        self.drop_inputs = nn.Dropout(input_dropout)
        self.projection = nn.Linear(input_size, hidden_size)
        self.transformer = TransformerStack(
            hidden_size,
            num_layers=num_layers,
            num_heads=num_heads,
            feed_forward_size=feed_forward_size,
            dropout=dropout,
            attention_dropout=attention_dropout,
            norm_first=norm_first,
            kernel_size=kernel_size,
        )

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector in the result."""
        return self.hidden_size

    def forward(
        self, x: Float[Tensor, "batch word input"], mask: Mask = None
    ) -> Float[Tensor, "batch word embedding_dim"]:
        """Encode words in their context; see `SequenceEncoder.forward`."""
        self.check_inputs(x, mask)
        x = self.projection(self.drop_inputs(select_valid(x, mask)))
        if mask is not None and self.kernel_size > 1:
            # words side by side, so that a convolution does not see holes
            order = valid_first(mask)
            x = self.transformer(reorder(x, order), mask.gather(1, order))
            return in_place(x, mask)
        encoded: Tensor = self.transformer(x, mask)
        return encoded


class LSTMSequenceEncoder(SequenceEncoder):
    """A bidirectional LSTM over words: ``[forward(x)_t; backward(x)_t]``.

    It is the tagger's encoder of Graves and Schmidhuber (2005). Each direction is a separate
    `nn.LSTM` over unpacked sentences, the backward one over the reversed sentence: on a CPU that
    trains more than twice as fast as packing, and on a GPU the host never waits for the lengths.
    There cuDNN multiplies in TF32, with about four digits, unless
    ``torch.backends.cudnn.allow_tf32`` is False. Neither ``torch.compile(fullgraph=True)`` nor
    ``torch.export`` with a free length takes an LSTM. The kernels of cuDNN, and of oneDNN in
    float32, have no second derivatives: where those are needed, call under
    ``torch.backends.cudnn.flags(enabled=False)`` or ``torch.backends.mkldnn.flags(enabled=False)``.

    Args:
        input_size: The size of a word's vector in the input.
        hidden_size: The size of a state in each direction.
        num_layers: The number of layers.
        dropout: The dropout probability of each layer's inputs and of the outputs.

    Shape:
        ``x (batch, word, input_size)``, ``mask (batch, word)`` to
        ``(batch, word, 2 * hidden_size)``.

    Raises:
        ValueError: If sizes or shapes do not fit.
        TypeError: If the mask is not bool.

    Example:
        >>> LSTMSequenceEncoder(30, hidden_size=20)(torch.randn(2, 5, 30)).shape
        torch.Size([2, 5, 40])
    """

    def __init__(
        self, input_size: int, *, hidden_size: int = 200, num_layers: int = 1, dropout: float = 0.1
    ) -> None:
        check_positive(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        check_probability(dropout=dropout)
        super().__init__()
        self.input_size, self.hidden_size, self.num_layers, self.dropout = (
            input_size,
            hidden_size,
            num_layers,
            dropout,
        )
        self.forward_layers, self.backward_layers = (
            nn.ModuleList(
                nn.LSTM(2 * hidden_size if layer else input_size, hidden_size, batch_first=True)
                for layer in range(num_layers)
            )
            for _ in range(2)
        )
        self.drop = nn.Dropout(dropout)

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector in the result."""
        return 2 * self.hidden_size

    def forward(
        self, x: Float[Tensor, "batch word input"], mask: Mask = None
    ) -> Float[Tensor, "batch word embedding_dim"]:
        """Encode words in their context; see `SequenceEncoder.forward`."""
        self.check_inputs(x, mask)
        if x.numel() == 0:
            return x.new_zeros(*x.shape[:2], self.embedding_dim)
        if mask is None:
            mask = x.new_ones(x.shape[:2], dtype=torch.bool)
        # words to the front, so that states after the last word reach no other word
        states = reorder(select_valid(x, mask), valid_first(mask))
        reverse = reversal(mask.sum(1), x.shape[1])
        for forwards, backwards in zip(self.forward_layers, self.backward_layers, strict=True):
            both = direction_weights(forwards), direction_weights(backwards)
            states = bidirectional(self.drop(states), reverse, *both)
        dropped: Tensor = self.drop(in_place(states, mask))
        return dropped


WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def direction_weights(lstm: nn.Module, layer: int = 0, *, reverse: bool = False) -> list[Tensor]:
    """Return one direction's weights by name, so that `torch.func.functional_call` replaces them
    too.
    """
    return [getattr(lstm, f"{name}_l{layer}{'_reverse' if reverse else ''}") for name in WEIGHTS]


def reversal(lengths: Tensor, width: int) -> Tensor:
    """Return the order that reverses the first ``lengths`` positions of each row, ``(batch,
    width)``.
    """
    place = torch.arange(width, device=lengths.device)
    lengths = lengths[:, None]
    return torch.where(place < lengths, lengths - 1 - place, place)


def reorder(x: Tensor, order: Tensor) -> Tensor:
    """Return each row's positions in the given order."""
    return x.gather(1, order[..., None].expand(-1, -1, x.shape[-1]))


def in_place(x: Tensor, mask: Tensor) -> Tensor:
    """Move the vectors at the front of each row to its valid places; the others are zeros."""
    return select_valid(reorder(x, valid_places(mask)), mask)


def bidirectional(
    x: Tensor, reverse: Tensor, forwards: list[Tensor], backwards: list[Tensor]
) -> Tensor:
    """Run one layer: ``[forward(x)_t; backward(x)_t]``.

    `x` is ``(batch, seq, dim)`` with each row's vectors at the front, `reverse` is `reversal` of
    its lengths, and each direction's weights are in the order of `WEIGHTS`.
    """
    backward_states = reorder(_one_direction(reorder(x, reverse), backwards), reverse)
    return torch.cat([_one_direction(x, forwards), backward_states], dim=-1)


def _one_direction(x: Tensor, weights: list[Tensor]) -> Tensor:
    """Run one direction of one layer; in float32 on a CPU, whose oneDNN has no LSTM in half
    precision.
    """
    if x.device.type == "cpu" and (x.dtype.itemsize < 4 or torch.is_autocast_enabled("cpu")):
        with torch.autocast("cpu", enabled=False):
            return _one_direction(x.float(), [w.float() for w in weights]).to(x.dtype)
    start = x.new_zeros(1, x.shape[0], weights[1].shape[1])
    # the function under nn.LSTM; after the weights: has biases, one layer, no dropout, whether it
    # trains (otherwise cuDNN keeps no state for gradients), one direction, batch first
    trains = torch.is_grad_enabled()
    ran = torch._VF.lstm(x, (start, start), weights, True, 1, 0.0, trains, False, True)
    states: Tensor = ran[0]
    return states
