"""The forward algorithm, step by step: what the other two are judged by."""

import torch
from torch import Tensor


def log_partition(emissions: Tensor, mask: Tensor, transitions: Tensor) -> Tensor:
    """Sum over all paths, ``(batch,)``; the arguments are a `Chain`'s, or have transitions ``(batch, tag, tag)``."""
    alpha = emissions[:, 0]
    for t in range(1, emissions.shape[1]):
        step = torch.logsumexp(alpha[:, :, None] + transitions, dim=1) + emissions[:, t]
        alpha = torch.where(mask[:, t, None], step, alpha)
    return torch.where(mask[:, 0], torch.logsumexp(alpha, dim=1), 0.0)
