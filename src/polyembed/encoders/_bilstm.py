"""Bidirectional LSTM layers over rows of different lengths, without packing.

Each direction runs by itself over whole rows, the backward one over reversed rows: states after a
row's last vector are not used. On a CPU that is faster than packing in training and as fast as one
bare `nn.LSTM` without gradients; on a GPU the host never waits for the lengths.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def direction_weights(lstm: nn.Module, layer: int = 0, *, reverse: bool = False) -> list[Tensor]:
    """Return one direction's weights by name, so that `torch.func.functional_call` replaces them too."""
    return [getattr(lstm, f"{name}_l{layer}{'_reverse' if reverse else ''}") for name in WEIGHTS]


def reversal(lengths: Tensor, width: int) -> Tensor:
    """Return the order that reverses the first ``lengths`` positions of each row, ``(batch, width)``."""
    place = torch.arange(width, device=lengths.device)
    lengths = lengths[:, None]
    return torch.where(place < lengths, lengths - 1 - place, place)


def reorder(x: Tensor, order: Tensor) -> Tensor:
    """Return each row's positions in the given order."""
    return x.gather(1, order[..., None].expand(-1, -1, x.shape[-1]))


def bidirectional(
    x: Tensor, reverse: Tensor, forwards: Sequence[Tensor], backwards: Sequence[Tensor]
) -> Tensor:
    """Run one layer: ``[forward(x)_t; backward(x)_t]``.

    `x` is ``(batch, seq, dim)`` with each row's vectors at the front, `reverse` is `reversal` of
    its lengths, and each direction's weights are in the order of `WEIGHTS`.
    """
    backward_states = reorder(_one_direction(reorder(x, reverse), backwards), reverse)
    return torch.cat([_one_direction(x, forwards), backward_states], dim=-1)


def _one_direction(x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Run one direction of one layer; in float32 on a CPU, whose oneDNN has no LSTM in half precision."""
    if x.device.type == "cpu" and (x.dtype.itemsize < 4 or torch.is_autocast_enabled("cpu")):
        with torch.autocast("cpu", enabled=False):
            return _run(x.float(), [weight.float() for weight in weights]).to(x.dtype)
    return _run(x, weights)


def _run(x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    start = x.new_zeros(1, x.shape[0], weights[1].shape[1])
    # the function under nn.LSTM: has biases, one layer, no dropout, not training, one direction,
    # batch first
    states: Tensor = torch._VF.lstm(
        x, (start, start), list(weights), True, 1, 0.0, False, False, True
    )[0]
    return states
