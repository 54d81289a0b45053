"""Attentional information fusion, which weights every number of a vector, with batch statistics of valid positions."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from polyembed._checks import (
    check_choice,
    check_dim,
    check_last_dim,
    check_mask,
    check_positive,
    require,
)
from polyembed.functional.masking import masked_mean, select_valid
from polyembed.saving import PretrainedModule

Hidden = Float[Tensor, "batch seq hidden"]
BRANCHES = {
    "both": ("global", "local"),
    "global": ("global", "global"),
    "local": ("local", "local"),
}


class AIF(PretrainedModule):
    """Attentional information fusion: a weight in (0, 1) for each number of a vector (Chen & Guo
    2022, eq. 1-3).

    ``W_G = B(C(ReLU(B(C(Pool(W))))))`` reads the mean over the sentence (equation 1), ``W_L``, the
    same without the mean, each position (equation 2); ``weight(W) = sigmoid(W_G + W_L)``, and
    calling the module computes ``W * weight(W)`` (equation 3). ``C`` are 1x1 convolutions, down by
    `reduction_ratio` and up again, ``B`` batch normalisations, whose statistics are of valid
    positions (local) and of sentences that have one (global) only.

    In training, a batch with a single such position or sentence has no variance: then the running
    statistics normalise, as in evaluation, and do not change. In evaluation a row does not depend
    on others.

    Args:
        hidden_size: ``E``, the size of a vector.
        reduction_ratio: ``r``.
        branches: ``"both"``; ``"global"`` or ``"local"`` for the ablations, where a second copy of
            the branch, with its own parameters, replaces the other (section V.A).

    Shape:
        ``(batch, seq, hidden_size)``, mask ``(batch, seq)`` to the same.

    Raises:
        ValueError: A size that the ratio does not divide, another shape.
        TypeError: A mask that is not bool.

    Example:
        >>> aif = AIF(8).eval()
        >>> x = torch.randn(2, 3, 8)
        >>> torch.equal(aif(x), x * aif.weight(x))
        True

    Deviations: padding takes no part; the paper does not mention it. Under DDP each process has the
    statistics of its own batch: convert_sync_batchnorm does not change these norms.
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        reduction_ratio: int = 4,
        branches: Literal["both", "global", "local"] = "both",
    ) -> None:
        super().__init__()
        check_positive(hidden_size=hidden_size, reduction_ratio=reduction_ratio)
        check_choice("branches", branches, BRANCHES)
        divides = hidden_size % reduction_ratio == 0
        require(
            divides,
            "hidden_size",
            f"be a multiple of reduction_ratio {reduction_ratio}",
            hidden_size,
        )
        self.hidden_size, self.reduction_ratio, self.branches = (
            hidden_size,
            reduction_ratio,
            branches,
        )
        self.first = _Branch(hidden_size, hidden_size // reduction_ratio)
        self.second = _Branch(hidden_size, hidden_size // reduction_ratio)

    def forward(self, x: Hidden, mask: Bool[Tensor, "batch seq"] | None = None) -> Hidden:
        """Scale each number by its weight.

        Args:
            x: Vectors.
            mask: True = valid; None = all valid.

        Returns:
            ``x * weight(x)``, zeros at masked positions.
        """
        weight = self.weight(x, mask)
        return select_valid(x, mask) * weight

    def weight(self, x: Hidden, mask: Bool[Tensor, "batch seq"] | None = None) -> Hidden:
        """Compute the weight of each number.

        Args:
            x: Vectors.
            mask: True = valid; None = all valid.

        Returns:
            Numbers between 0 and 1; undefined at masked positions.
        """
        check_dim("x", x, 3, "batch, seq, hidden_size")
        check_last_dim("x", x, self.hidden_size)
        check_mask(mask, x.shape[:2])
        x = select_valid(x, mask)
        valid = x.new_ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
        total = torch.zeros_like(x)
        for branch, kind in zip((self.first, self.second), BRANCHES[self.branches], strict=True):
            if kind == "local":
                total = total + branch(x, valid)
            else:
                total = total + branch(masked_mean(x, valid)[:, None], valid.any(1, keepdim=True))
        return torch.sigmoid(total)


class MaskedBatchNorm(nn.Module):
    """Batch normalisation over valid positions: ``(x - mean) / sqrt(var + eps) * weight + bias``.

    Equal to `nn.BatchNorm1d` over the vectors at valid positions (parameters, buffers, momentum
    0.1, eps 1e-5, the unbiased variance in the running one), in at least float32. If fewer than two
    positions are valid, the running statistics normalise and do not change.

    Args:
        num_features: The size of a vector.
    """

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.eps, self.momentum = 1e-5, 0.1
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.running_mean: Tensor
        self.running_var: Tensor
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))

    def forward(self, x: Hidden, valid: Bool[Tensor, "batch seq"]) -> Hidden:
        """Normalise; `x` must be finite at positions that are not valid."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        mean, var = self.running_mean.to(wide), self.running_var.to(wide)
        if self.training:
            mean, var = self._batch_statistics(wide, valid, mean, var)
        scale = torch.rsqrt(var + self.eps) * self.weight.to(wide)
        return ((wide - mean) * scale + self.bias.to(wide)).to(x.dtype)

    def _batch_statistics(
        self, x: Tensor, valid: Tensor, old_mean: Tensor, old_var: Tensor
    ) -> tuple[Tensor, Tensor]:
        count = valid.sum().to(x.dtype)
        some = valid[..., None]
        mean = torch.where(some, x, 0.0).sum((0, 1)) / count.clamp(min=1)
        var = torch.where(some, (x - mean).square(), 0.0).sum((0, 1)) / count.clamp(min=1)
        enough = count > 1
        with torch.no_grad():
            unbiased = var * count / (count - 1).clamp(min=1)
            for running, new in ((self.running_mean, mean), (self.running_var, unbiased)):
                running.copy_(
                    torch.where(enough, running.lerp(new.to(running), self.momentum), running)
                )
        return torch.where(enough, mean, old_mean), torch.where(enough, var, old_var)


class _Branch(nn.Module):
    """``B(C(ReLU(B(C(x)))))``: 1x1 convolutions down and up, each normalised."""

    def __init__(self, hidden_size: int, bottleneck: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(hidden_size, bottleneck), nn.Linear(bottleneck, hidden_size)
        self.down_norm, self.up_norm = MaskedBatchNorm(bottleneck), MaskedBatchNorm(hidden_size)
        for convolution in (self.down, self.up):
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            nn.init.zeros_(convolution.bias)

    def forward(self, x: Hidden, valid: Bool[Tensor, "batch seq"]) -> Hidden:
        """Apply the branch to each vector."""
        narrow = F.relu(self.down_norm(self.down(x), valid))
        wide: Tensor = self.up_norm(self.up(narrow), valid)
        return wide
