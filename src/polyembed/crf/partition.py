"""The log-partition, and the marginals as its gradient.

``d log Z / d e[t, j] = p(y_t = j)`` and ``d log Z / d A[i, j] = sum_t p(y_t = i, y_{t+1} = j)``.
The marginals come from messages that run forwards (``alpha``) and backwards (``beta``, which
includes the emission of its position):

    p(y_t = i, y_{t+1} = j)   = softmax_ij (alpha[t, i] + A[i, j] + beta[t+1, j]),

so messages need no scale, and long chains lose no precision. `by_loop` is the forward algorithm of
the textbook. All functions take a `Chain`'s emissions, mask and transitions.

On a CPU the messages are probabilities instead of logs (Rabiner's scaling), which is several times
faster: a step is a matrix product in float64. Probabilities below 1e-308 of the best would be lost,
so `in_probabilities` proves that none was lost. Without the proof it returns None, and the messages
are logs. The proof reads values, which would make the host wait for a GPU.
"""

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from polyembed.crf.chain import BLOCK, is_possible, last_words
from polyembed.crf.recursion import chunk_length, log_sum, recur


def in_probabilities(
    emissions: Tensor, mask: Tensor, transitions: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Compute log Z, ``p(y_t)`` and ``sum_t p(y_t, y_{t+1})`` of a `Chain`, or return None without
    a proof that they are exact.

    Args:
        emissions: The emissions, ``(batch, word, tag)``.
        mask: The mask, ``(batch, word)``.
        transitions: The transitions, ``(tag, tag)``.

    Returns:
        log Z ``(batch,)``, the marginals ``(batch, word, tag)`` and ``(batch, tag, tag)``, and the
        messages that run backwards, ``(batch, word, tag)``, up to a factor per word; all float64.
    """
    if emissions.device.type != "cpu" or emissions.numel() == 0:
        return None
    top, peak = emissions.amax(-1, keepdim=True), transitions.amax()
    powers = (emissions.double() - top).exp_()
    moves = (transitions.double() - peak).exp_()
    by_word = powers.transpose(0, 1)
    flip = _flip(mask).T[..., None].expand_as(by_word)
    both = torch.stack([by_word, by_word.gather(0, flip)], 1)  # (word, way, batch, tag)
    both_moves = torch.stack([moves, moves.mT])
    scales = [torch.ones_like(both[0, ..., :1])]
    # in place: the powers of a word become its message
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
    last = last_words(mask)
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
    """Return whether it is proven that no message, and no product of two messages that meet, fell
    out of float64's range.

    Where no score is forbidden, a message is at least the smallest power times the smallest move.
    Otherwise a power or move may be 0 only if its score is forbidden. A message of zero is then
    right only if its predecessors are zero or forbidden. This holds if no nonzero message is below
    1e-250 and no single step multiplies by less than 1e-43, because no message then falls from
    above 1e-250 to zero in one step.
    """
    if float(powers.amin() * moves.amin()) > 1e-100:
        return True
    power, move, message = (torch.where(x > 0, x, 1.0).amin() for x in (powers, moves, messages))
    lost = ((powers == 0) & is_possible(emissions)).any()
    lost |= ((moves == 0) & is_possible(transitions)).any()
    smallest = torch.minimum(message, totals.amin())
    return bool(~lost & (power * move > 1e-43) & (smallest > 1e-250) & (scale.amin() > 0))


Three = tuple[Tensor, Tensor, Tensor]


def partition(emissions: Tensor, mask: Tensor, transitions: Tensor) -> Tensor:
    """Compute log Z ``(batch,)``; 0 for an empty chain."""
    if is_transformed(emissions) or is_transformed(transitions):
        return by_loop(emissions, mask, transitions)
    log_z: Tensor = _partition(emissions, mask, transitions)[0]
    return log_z


def partition_and_marginals(emissions: Tensor, mask: Tensor, transitions: Tensor) -> Three:
    """Compute log Z, ``p(y_t) (batch, word, tag)`` and ``sum_t p(y_t, y_{t+1}) (batch, tag, tag)``.

    The marginals are zero past a chain's end. If a gradient is needed, `by_loop` computes all
    three.
    """
    if not _is_differentiated(emissions, transitions):
        found: Three = _partition(emissions, mask, transitions)
        return found
    moves = transitions.expand(len(emissions), -1, -1)
    found_z, pull_back = torch.func.vjp(lambda e, a: by_loop(e, mask, a), emissions, moves)[:2]
    unary, pairs = pull_back(torch.ones_like(found_z))
    return found_z, unary, pairs


def _is_differentiated(*scores: Tensor) -> bool:
    """Return whether derivatives by these scores may be needed."""
    trained = torch.is_grad_enabled() and any(x.requires_grad for x in scores)
    return trained or any(map(is_transformed, scores))


def is_transformed(x: Tensor) -> bool:
    """Return whether a tensor carries a tangent, or is inside a transform of ``torch.func``."""
    if torch.compiler.is_compiling():
        return False
    unpack: Any = forward_ad.unpack_dual
    functorch: bool = torch._C._functorch.is_functorch_wrapped_tensor(x)
    return functorch or (forward_ad._current_level >= 0 and unpack(x).tangent is not None)


@torch.library.custom_op("polyembed::crf_partition", mutates_args=())
def _partition(
    emissions: Tensor, mask: Tensor, transitions: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `partition_and_marginals`, as one operator for any length under ``torch.compile``."""
    found = in_probabilities(emissions, mask, transitions)
    log_z, unary, pairs = (found or _in_logs(emissions, mask, transitions))[:3]
    dtype = emissions.dtype
    return log_z.to(dtype), unary.to(dtype), pairs.to(dtype)


@_partition.register_fake
def _(emissions: Tensor, mask: Tensor, transitions: Tensor) -> Three:
    rows, _, tags = emissions.shape
    pairs = emissions.new_empty(rows, tags, tags)
    return emissions.new_empty(rows), torch.empty_like(emissions), pairs


def _backward(ctx: Any, of_z: Tensor, *_: Tensor) -> tuple[Tensor, None, Tensor]:
    emissions, mask, transitions, unary, pairs = ctx.saved_tensors
    if torch.is_grad_enabled() and type(of_z) is Tensor:  # for a second derivative, not compiled
        pull_back = torch.func.vjp(lambda e, a: by_loop(e, mask, a), emissions, transitions)[1]
        by_emissions, by_transitions = pull_back(of_z)
        return by_emissions, None, by_transitions
    by_transitions = (of_z[:, None, None] * pairs).sum(0)
    return of_z[:, None, None] * unary, None, by_transitions


_partition.register_autograd(
    _backward,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs, *output[1:]),
)


def by_loop(emissions: Tensor, mask: Tensor, transitions: Tensor) -> Tensor:
    """Compute log Z ``(batch,)`` by the forward algorithm, step by step.

    This is the definition, and second derivatives and forward mode go through it. The scale of each
    step is summed separately, so that float32 keeps the differences of long chains.
    """
    total = emissions[:, 0].logsumexp(1, keepdim=True)
    alpha = emissions[:, 0] - total
    for t in range(1, emissions.shape[1]):
        step = torch.logsumexp(alpha[:, :, None] + transitions, dim=1) + emissions[:, t]
        scale = step.logsumexp(1, keepdim=True)
        alpha = torch.where(mask[:, t, None], step - scale, alpha)
        total = total + torch.where(mask[:, t, None], scale, 0.0)
    return torch.where(mask[:, 0], total.squeeze(1), 0.0)


def _flip(mask: Tensor) -> Tensor:
    """Return each chain's positions in reverse, an index that is its own inverse."""
    position = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, mask.sum(1, keepdim=True) - 1 - position, position)


def _messages(emissions: Tensor, mask: Tensor, transitions: Tensor) -> Three:
    """Return log Z ``(batch,)``, and alpha and beta ``(batch, word, tag)``, in the log semiring."""
    flip = _flip(mask)[..., None].expand_as(emissions)
    both = torch.stack([emissions, emissions.gather(1, flip)]).permute(0, 2, 3, 1).contiguous()
    moves = torch.stack([transitions, transitions.mT])
    states, tops = recur(log_sum, both, moves, chunk_length(emissions))
    alpha, beta = states.permute(0, 3, 1, 2)
    final = alpha[torch.arange(len(alpha), device=alpha.device), last_words(mask)].logsumexp(1)
    log_z = torch.where(mask, tops[0].T, 0.0).sum(1) + final
    return torch.where(mask[:, 0], log_z, 0.0), alpha, beta.gather(1, flip)


def backward_messages(emissions: Tensor, mask: Tensor, transitions: Tensor) -> Three:
    """Return log Z, ``log p(y_t)`` and ``log beta``, where beta is defined up to a factor per word.

    ``beta_t(y)`` sums over the tags of all words after t, and includes the emission of word t.
    """
    trained = _is_differentiated(emissions, transitions)
    found = None if trained else in_probabilities(emissions, mask, transitions)
    if found is not None:
        dtype = emissions.dtype
        return found[0].to(dtype), found[1].log().to(dtype), found[3].log().to(dtype)
    log_z, alpha, beta = _messages(emissions, mask, transitions)
    follows = F.pad(mask[:, 1:], (0, 1))[..., None]
    ahead = (transitions + F.pad(beta[:, 1:], (0, 0, 0, 1))[:, :, None]).logsumexp(-1)
    unary = (alpha + torch.where(follows, ahead, 0.0)).log_softmax(-1)
    return log_z, unary, beta


def _in_logs(emissions: Tensor, mask: Tensor, transitions: Tensor) -> Three:
    """Compute log Z and the marginals from messages in logs, which can represent any scores."""
    log_z, alpha, beta = _messages(emissions, mask, transitions)
    unary = [beta[:, :1].softmax(2)]
    pairs = torch.zeros_like(transitions).expand(len(emissions), -1, -1)
    block = max(1, BLOCK // max(1, pairs.numel()))
    parts = (torch.split(x, block, dim=1) for x in (alpha[:, :-1], beta[:, 1:], mask[:, 1:]))
    for before, after, valid in zip(*parts, strict=True):
        scores = before[..., None] + transitions + after[:, :, None]
        joint = scores.flatten(2).softmax(2).reshape(scores.shape)  # p(y_t, y_{t+1})
        joint = torch.where(valid[..., None, None], joint, 0.0)
        unary.append(joint.sum(2))
        pairs = pairs + joint.sum(1)
    return log_z, torch.where(mask[..., None], torch.cat(unary, 1), 0.0), pairs
