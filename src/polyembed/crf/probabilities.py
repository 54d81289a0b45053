"""The messages of `partition.py` in probabilities instead of logs (Rabiner's scaling): several
times faster on a CPU.

A step is a matrix product in float64. Probabilities below 1e-308 of the best would be lost, so the
result comes with a proof that none was; without the proof there is no result, and the logs take
over. The proof reads values, which would make the host wait for a GPU, so this is for the CPU
alone.
"""

import itertools

import torch
from torch import Tensor

from polyembed.crf.chain import is_possible


def in_probabilities(
    emissions: Tensor, mask: Tensor, transitions: Tensor, flip: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Compute log Z, ``p(y_t)`` and ``sum_t p(y_t, y_{t+1})`` of a `Chain`, or return None without
    a proof.

    Args:
        emissions: ``(batch, word, tag)``.
        mask: ``(batch, word)``.
        transitions: ``(tag, tag)``.
        flip: ``(batch, word)``, each chain's positions in reverse.

    Returns:
        ``(batch,)``, ``(batch, word, tag)`` and ``(batch, tag, tag)`` float64.
    """
    if emissions.device.type != "cpu" or emissions.numel() == 0:
        return None
    top, peak = emissions.amax(-1, keepdim=True), transitions.amax()
    powers = (emissions.double() - top).exp_()
    moves = (transitions.double() - peak).exp_()
    by_word, flip = powers.transpose(0, 1), flip.T[..., None].expand(-1, -1, powers.shape[2])
    both = torch.stack([by_word, by_word.gather(0, flip)], 1)  # (word, way, batch, tag)
    both_moves = torch.stack([moves, moves.mT])
    scales = [torch.ones_like(both[0, ..., :1])]
    # in place: a power becomes the message that it weighs
    for before, message in itertools.pairwise(both.unbind(0)):
        message.mul_(torch.bmm(before, both_moves))
        scales.append(message.amax(-1, keepdim=True))
        message.div_(scales[-1])
    scale = torch.stack(scales)[:, 0]
    alpha, beta = both[:, 0], both[:, 1].gather(0, flip)  # the largest entry of each message is 1
    valid = mask.T[..., None]
    joint = torch.cat([beta[:1], (alpha[:-1] @ moves) * beta[1:]])  # proportional to p(y_t)
    total = torch.where(valid, joint.sum(-1, keepdim=True), 1.0)
    if not _is_exact(both, scale, powers, moves, total, emissions, transitions):
        return None
    unary = torch.where(valid, joint / total, 0.0).transpose(0, 1)
    right = torch.where(valid, beta / total, 0.0)[1:]
    pairs = alpha[:-1].permute(1, 2, 0) @ right.transpose(0, 1) * moves
    steps = torch.where(valid, scale.log() + top.transpose(0, 1), 0.0).sum((0, 2))
    last = (mask.sum(1) - 1).clamp(min=0)
    final = alpha[last, torch.arange(len(last))].sum(1).log()
    log_z = torch.where(mask[:, 0], steps + last * peak.double() + final, 0.0)
    return log_z, unary, pairs, beta.transpose(0, 1)


def _is_exact(
    messages: Tensor,
    scale: Tensor,
    powers: Tensor,
    moves: Tensor,
    totals: Tensor,
    emissions: Tensor,
    transitions: Tensor,
) -> bool:
    """Prove that no message, and no product of two that meet, fell out of float64's range.

    Where no score is forbidden, a message is at least the smallest power times the smallest move.
    Else no power or move may be 0 of a score that is not forbidden. A message of zero is then right
    only if its predecessors are zero or forbidden, which holds if no message but zero is below
    1e-250 and no step alone goes below 1e-43: no message then falls from above 1e-250 to zero at
    once.
    """
    if float(powers.amin() * moves.amin()) > 1e-100:
        return True
    power, move, message = (torch.where(x > 0, x, 1.0).amin() for x in (powers, moves, messages))
    lost = ((powers == 0) & is_possible(emissions)).any()
    lost |= ((moves == 0) & is_possible(transitions)).any()
    smallest = torch.minimum(message, totals.amin())
    return bool(~lost & (power * move > 1e-43) & (smallest > 1e-250) & (scale.amin() > 0))
