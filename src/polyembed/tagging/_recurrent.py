"""A bidirectional LSTM as one operator, which exports with a free length: `torch.export` unrolls torch's own."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from polyembed.encoders import LSTMSequenceEncoder
from polyembed.encoders._bilstm import reorder
from polyembed.functional.masking import select_valid, valid_first, valid_places

WEIGHTS = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
TO_ONNX = (0, 3, 1, 2)  # torch: input, forget, cell, output; ONNX: input, output, forget, cell
TO_TORCH = (0, 2, 3, 1)
INT32 = 6  # of ONNX


@torch.library.custom_op("polyembed::bidirectional_lstm", mutates_args=())
def bidirectional_lstm(
    x: Tensor, lengths: Tensor, weight: Tensor, recurrence: Tensor, bias: Tensor, hidden_size: int
) -> Tensor:
    """Run both directions over rows of ``lengths`` words; the weights are in ONNX's order and axes."""
    if not x.numel():  # torch packs no empty tensor
        return x.new_zeros(x.shape[0], x.shape[1], 2 * hidden_size)
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    weights = []
    for w, r, b in zip(weight, recurrence, bias, strict=True):
        inputs, states = b.chunk(2)
        weights += [_gates(part, TO_TORCH) for part in (w, r, inputs, states)]
    start = x.new_zeros(2, x.shape[0], hidden_size)
    states = torch._VF.lstm(
        packed.data, packed.batch_sizes, (start, start), weights, True, 1, 0.0, False, True
    )[0]
    whole = PackedSequence(
        states, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
    )
    return pad_packed_sequence(whole, batch_first=True, total_length=x.shape[1])[0]


@bidirectional_lstm.register_fake
def _(
    x: Tensor, lengths: Tensor, weight: Tensor, recurrence: Tensor, bias: Tensor, hidden_size: int
) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[1], 2 * hidden_size)


class RecurrentGraph(nn.Module):
    """An `LSTMSequenceEncoder` in evaluation mode, to be exported."""

    def __init__(self, encoder: LSTMSequenceEncoder) -> None:
        super().__init__()
        self.hidden_size = encoder.hidden_size
        self.layers = nn.ModuleList(
            _Layer(both)
            for both in zip(encoder.forward_layers, encoder.backward_layers, strict=True)
        )

    def forward(
        self, x: Float[Tensor, "batch word input"], mask: Bool[Tensor, "batch word"]
    ) -> Float[Tensor, "batch word embedding_dim"]:
        """Encode words in their context, as the encoder does."""
        states = reorder(select_valid(x, mask), valid_first(mask))
        lengths = mask.sum(1).clamp(min=1)
        for layer in self.layers:
            states = bidirectional_lstm(
                states, lengths, layer.weight, layer.recurrence, layer.bias, self.hidden_size
            )
        return select_valid(reorder(states, valid_places(mask)), mask)


class _Layer(nn.Module):
    """The weights of one layer in ONNX's order: ``(direction, 4 * hidden, ...)``."""

    def __init__(self, directions: Any) -> None:
        super().__init__()
        found = [
            [_gates(getattr(lstm, name).detach(), TO_ONNX) for name in WEIGHTS]
            for lstm in directions
        ]
        weight, recurrence, *biases = (torch.stack(parts) for parts in zip(*found, strict=True))
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.recurrence = nn.Parameter(recurrence, requires_grad=False)
        self.bias = nn.Parameter(torch.cat(biases, 1), requires_grad=False)


def translations() -> dict[Any, Any]:
    """Return how ``torch.onnx.export`` writes the operator."""
    from onnxscript import opset18

    op: Any = opset18

    def translate(
        x: Any, lengths: Any, weight: Any, recurrence: Any, bias: Any, hidden_size: int
    ) -> Any:
        rows = op.Transpose(x, perm=[1, 0, 2])
        sizes = op.Cast(lengths, to=INT32)
        states, *_ = op.LSTM(
            rows,
            weight,
            recurrence,
            bias,
            sizes,
            direction="bidirectional",
            hidden_size=hidden_size,
        )  # (word, direction, batch, hidden)
        return op.Reshape(
            op.Transpose(states, perm=[2, 0, 1, 3]), op.Constant(value_ints=[0, 0, -1])
        )

    return {torch.ops.polyembed.bidirectional_lstm.default: translate}


def _gates(x: Tensor, order: tuple[int, ...]) -> Tensor:
    parts = x.chunk(4)
    return torch.cat([parts[i] for i in order])
