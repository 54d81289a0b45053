"""The messages of `analytic.py` in probabilities instead of logs: Rabiner's scaling, several times faster on a CPU.

A step is a matrix product. What a probability cannot hold, float64's 1e-308 of the best, would be lost: so the result
comes with a proof that nothing was, or not at all (`run` gives None), and the logs take over. To look at values costs
nothing on a CPU and makes the host wait on a GPU, so this is for the CPU alone.
"""

import itertools
from typing import NamedTuple

import torch
from torch import Tensor

from polyembed.functional.crf.chain import FORBIDDEN, last_position


class Scaled(NamedTuple):
    """Messages in float64, words first; each one's largest entry is 1.

    Attributes:
        alpha: ``(word, group, batch, tag)``, forwards.
        beta: ``(word, group, batch, tag)``, backwards.
        transitions: ``(group, tag, tag)``, exp of the scores, the largest 1.
        mask: ``(word, group, batch, 1)``.
        joint: ``(word, group, batch, tag)``, what is proportional to ``p(y_t)``.
        log_z: ``(group, batch)``.
    """

    alpha: Tensor
    beta: Tensor
    transitions: Tensor
    mask: Tensor
    joint: Tensor
    log_z: Tensor

    def marginals(self) -> tuple[Tensor, Tensor]:
        """Compute ``p(y_t) (group, batch, word, tag)`` and ``sum_t p(y_t, y_{t+1}) (group, batch, tag, tag)``."""
        total = self.joint.sum(-1, keepdim=True)
        unary = torch.where(self.mask, self.joint / total, 0.0).permute(1, 2, 0, 3)
        right = torch.where(self.mask, self.beta / total, 0.0)[1:]
        pairs = self.alpha[:-1].permute(1, 2, 3, 0) @ right.permute(1, 2, 0, 3)
        return unary, pairs * self.transitions[:, None]

    def log_messages(self) -> tuple[Tensor, Tensor]:
        """Give the messages as `analytic.py` computes them, ``(group, batch, word, tag)``."""
        alpha, beta = (x.log().clamp(min=FORBIDDEN).permute(1, 2, 0, 3) for x in (self.alpha, self.beta))
        return alpha, beta


def run(emissions: Tensor, mask: Tensor, transitions: Tensor, flip: Tensor) -> Scaled | None:
    """Compute the messages; None where this is no CPU, or where probabilities cannot hold them.

    Args:
        emissions: ``(group, batch, word, tag)``.
        mask: ``(group, batch, word)``.
        transitions: ``(group, tag, tag)``.
        flip: ``(group, batch, word)``, each chain's positions in reverse.

    Returns:
        The messages.
    """
    if emissions.device.type != "cpu" or emissions.numel() == 0:
        return None
    groups = emissions.shape[0]
    top = emissions.amax(-1, keepdim=True)
    powers = (emissions.double() - top).exp_()
    peak = transitions.amax((1, 2), keepdim=True)
    moves = (transitions.double() - peak).exp_()
    both = powers.new_empty(powers.shape[2], 2 * groups, powers.shape[1], powers.shape[3])
    both[:, :groups] = powers.permute(2, 0, 1, 3)
    both[:, groups:] = powers.gather(2, flip[..., None].expand_as(powers)).permute(2, 0, 1, 3)
    both_moves = torch.cat([moves, moves.mT])
    messages = both.unbind(0)
    scales = [torch.ones_like(both[0, ..., :1])]
    for before, message in itertools.pairwise(messages):  # in place: each power becomes the message that it weighs
        message.mul_(torch.bmm(before, both_moves))
        scales.append(message.amax(-1, keepdim=True))
        message.div_(scales[-1])
    scale = torch.stack(scales)[:, :groups]
    alpha, beta = both[:, :groups], both[:, groups:]
    valid = mask.permute(2, 0, 1)[..., None]
    beta = beta.gather(0, flip.permute(2, 0, 1)[..., None].expand_as(beta))
    joint = torch.cat([beta[:1], (alpha[:-1] @ moves) * beta[1:]])
    zeros = (powers == 0) & (emissions > FORBIDDEN / 2), (moves == 0) & (transitions > FORBIDDEN / 2)
    totals = torch.where(valid, joint.sum(-1, keepdim=True), 1.0)
    if not _nothing_is_lost(both, scale, powers, moves, totals, zeros):
        return None
    steps_taken = torch.where(valid, scale.log() + top.permute(2, 0, 1, 3), 0.0).sum((0, 3))
    last = last_position(mask)
    final = alpha.gather(0, last[None, ..., None].expand(1, -1, -1, alpha.shape[-1])).sum((0, 3)).log()
    log_z = torch.where(mask[..., 0], steps_taken + last * peak[..., 0].double() + final, 0.0)
    return Scaled(alpha, beta, moves, valid, joint, log_z)


def _nothing_is_lost(
    messages: Tensor, scale: Tensor, powers: Tensor, moves: Tensor, totals: Tensor, zeros: tuple[Tensor, Tensor]
) -> bool:
    """Prove that no message, and no product of two that meet, fell out of float64's range.

    Where no score is forbidden, a message is at least the smallest power times the smallest move. Else `zeros`, powers
    and moves that are 0 of scores that are not forbidden, must be nowhere; and a message of zero is right only if its
    predecessors are zero or forbidden. So it is, if no message but zero is below 1e-250 and no step alone goes below
    1e-43: no message then falls from above 1e-250 to zero at once.
    """
    if float(powers.amin() * moves.amin()) > 1e-100:
        return True
    if bool(zeros[0].any() | zeros[1].any()):
        return False

    def smallest(x: Tensor) -> Tensor:
        return torch.where(x > 0, x, 1.0).amin()

    one_step = smallest(powers) * smallest(moves)
    inside = (one_step > 1e-43) & (smallest(messages) > 1e-250) & (totals.amin() > 1e-250)
    return bool(inside & (scale.amin() > 0))
