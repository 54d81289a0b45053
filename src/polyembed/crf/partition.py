"""The log-partition with its gradient written down: the marginals of tags and of pairs of
neighbours.

``d log Z / d e[t, j] = p(y_t = j)`` and ``d log Z / d A[i, j] = sum_t p(y_t = i, y_{t+1} = j)``.
The marginals come from messages that run forwards (``alpha``) and backwards (``beta``, the emission
of its own position included):

    p(y_t = i, y_{t+1} = j)   = softmax_ij (alpha[t, i] + A[i, j] + beta[t+1, j]),

so messages need no scale, and long chains lose no precision. Second derivatives are the tangents of
the marginals: the messages' tangents obey linear recursions with the conditional probabilities as
weights. Higher derivatives are those of `by_loop`, the forward algorithm of the textbook, by
automatic differentiation. Forward mode over forward mode is
refused: torch nests it wrongly over a custom function.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from polyembed.crf.chain import BLOCK
from polyembed.crf.probabilities import in_probabilities
from polyembed.crf.recursion import chunk_length, log_sum, recur

Three = tuple[Tensor, Tensor, Tensor]


def partition_and_marginals(emissions: Tensor, mask: Tensor, transitions: Tensor) -> Three:
    """Compute log Z ``(batch,)``, ``p(y_t) (batch, word, tag)`` and
    ``sum_t p(y_t, y_{t+1}) (batch, tag, tag)``.

    The arguments are a `Chain`'s. The result is zero past a chain's end, and for an empty chain.
    """
    if torch.compiler.is_compiling():
        compiled: Three = _partition_operator(emissions, mask, transitions)
        return compiled
    found: Three = _apply(_Partition, emissions, mask, transitions)
    return found


def by_loop(emissions: Tensor, mask: Tensor, transitions: Tensor) -> Tensor:
    """Compute log Z step by step; the transitions may be ``(batch, tag, tag)``."""
    total = emissions[:, 0].logsumexp(1, keepdim=True)
    alpha = emissions[:, 0] - total
    for t in range(1, emissions.shape[1]):
        step = torch.logsumexp(alpha[:, :, None] + transitions, dim=1) + emissions[:, t]
        scale = step.logsumexp(
            1, keepdim=True
        )  # apart, so that float32 keeps the differences of long chains
        alpha = torch.where(mask[:, t, None], step - scale, alpha)
        total = total + torch.where(mask[:, t, None], scale, 0.0)
    return torch.where(mask[:, 0], total.squeeze(1), 0.0)


class _Partition(Function):
    """From a `Chain`'s emissions, mask and transitions to `partition_and_marginals`."""

    @staticmethod
    def forward(emissions: Tensor, mask: Tensor, transitions: Tensor) -> Three:
        found = in_probabilities(emissions, mask, transitions, _flip(mask)) or _in_logs(
            emissions, mask, transitions
        )
        log_z, unary, pairs = (x.to(emissions.dtype) for x in found)
        return log_z, unary, pairs

    @staticmethod
    def setup_context(ctx: Any, inputs: Three, output: Three) -> None:
        _Partition.save(ctx, inputs, output)
        ctx.save_for_forward(*inputs, *output[1:])

    @staticmethod
    def save(ctx: Any, inputs: Three, output: Three) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, *output[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, None, Tensor]:
        emissions, mask, transitions, unary, pairs = ctx.saved_tensors
        of_z, of_unary, of_pairs = grads
        by_emissions, by_transitions = torch.zeros_like(emissions), torch.zeros_like(transitions)
        if of_z is not None:
            by_emissions, by_transitions = (
                of_z[:, None, None] * unary,
                (of_z[:, None, None] * pairs).sum(0),
            )
        if of_unary is not None or of_pairs is not None:
            of_unary = torch.zeros_like(unary) if of_unary is None else of_unary
            of_pairs = torch.zeros_like(pairs) if of_pairs is None else of_pairs
            more = _tangents(emissions, mask, transitions, of_unary, of_pairs)
            by_emissions, by_transitions = by_emissions + more[0], by_transitions + more[1].sum(0)
        return by_emissions, None, by_transitions

    @staticmethod
    def jvp(
        ctx: Any, emissions_dot: Tensor | None, _: None, transitions_dot: Tensor | None
    ) -> Three:
        emissions, mask, transitions, unary, pairs = ctx.saved_tensors
        e_dot = torch.zeros_like(emissions) if emissions_dot is None else emissions_dot
        a_dot = torch.zeros_like(transitions) if transitions_dot is None else transitions_dot
        a_dot = a_dot.expand_as(pairs)
        z_dot = (unary * e_dot).sum((1, 2)) + (pairs * a_dot).sum((1, 2))
        return z_dot, *_tangents(emissions, mask, transitions, e_dot, a_dot)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Any, Any]:
        return _one_by_one(_Partition, info.batch_size, in_dims, inputs)


class _Curvature(Function):
    """The second derivatives of log Z times a direction, which has transitions
    ``(batch, tag, tag)``.

    It has no ``jvp``, so that forward mode over forward mode is an error and not a wrong number.
    """

    @staticmethod
    def forward(
        emissions: Tensor,
        mask: Tensor,
        transitions: Tensor,
        emissions_dot: Tensor,
        transitions_dot: Tensor,
    ) -> tuple[Tensor, Tensor]:
        alpha, beta, _ = _messages(emissions, mask, transitions)
        flip = _flip(mask)[..., None].expand_as(emissions)
        emissions_dot = torch.where(mask[..., None], emissions_dot, 0.0)
        both = torch.stack([alpha, beta.gather(1, flip)])  # (way, batch, word, tag)
        dots = torch.stack([emissions_dot, emissions_dot.gather(1, flip)])
        moves = torch.stack([transitions, transitions.mT])[:, None, None]
        moves_dot = torch.stack([transitions_dot, transitions_dot.mT])[:, :, None]
        origins = (both[:, :, :-1, :, None] + moves).softmax(3)  # p(where from | where)
        drive = dots[:, :, 1:] + (origins * moves_dot).sum(3)
        drive = drive - drive.mean(
            -1, keepdim=True
        )  # a message has no scale: so its tangents stay small
        x = dots[:, :, 0]
        steps = [x]
        for weight, push in zip(origins.unbind(2), drive.unbind(2), strict=True):
            x = (x[..., None] * weight).sum(2) + push
            steps.append(x)
        alpha_dot, beta_dot = torch.stack(steps, 2)
        beta_dot = beta_dot.gather(1, flip)

        first = beta[:, 0].softmax(1)
        unary_dot = [
            (first * (beta_dot[:, 0] - (first * beta_dot[:, 0]).sum(1, keepdim=True)))[:, None]
        ]
        pairs_dot = torch.zeros_like(transitions_dot)
        for words, joint in _pair_blocks(alpha, beta, mask, transitions):
            dot = (
                alpha_dot[:, words, :, None]
                + transitions_dot[:, None]
                + beta_dot[:, words + 1, None]
            )
            joint_dot = joint * (dot - (joint * dot).sum((2, 3), keepdim=True))
            unary_dot.append(joint_dot.sum(2))
            pairs_dot = pairs_dot + joint_dot.sum(1)
        return torch.where(mask[..., None], torch.cat(unary_dot, 1), 0.0), pairs_dot

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        emissions, mask, *others = ctx.saved_tensors
        pull_back = torch.func.vjp(
            lambda e, *rest: _curvature_by_loop(e, mask, *rest), emissions, *others
        )[1]
        by_emissions, *by_others = pull_back(grads)
        return by_emissions, None, *by_others

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Any, Any]:
        return _one_by_one(_Curvature, info.batch_size, in_dims, inputs)


def _apply(function: type[Function], *inputs: Tensor) -> Any:
    return function.apply(*inputs)  # type: ignore[no-untyped-call]


def _tangents(*inputs: Tensor) -> tuple[Tensor, Tensor]:
    run = _curvature_operator if torch.compiler.is_compiling() else partial(_apply, _Curvature)
    found: tuple[Tensor, Tensor] = run(*inputs)
    return found


def _one_by_one(
    function: type[Function], size: int, in_dims: tuple[int | None, ...], inputs: tuple[Tensor, ...]
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Apply a function under ``torch.vmap``, for each element of the mapped axis."""
    mapped = list(zip(inputs, in_dims, strict=True))
    rows = [
        _apply(function, *(x if dim is None else x.select(dim, i) for x, dim in mapped))
        for i in range(size)
    ]
    found = tuple(map(torch.stack, zip(*rows, strict=True)))
    return found, (0,) * len(found)


def _curvature_by_loop(
    emissions: Tensor,
    mask: Tensor,
    transitions: Tensor,
    emissions_dot: Tensor,
    transitions_dot: Tensor,
) -> tuple[Tensor, Tensor]:
    def log_z(emissions: Tensor, transitions: Tensor) -> Tensor:
        return by_loop(emissions, mask, transitions).sum()

    marginals = torch.func.grad(log_z, argnums=(0, 1))
    pull_back = torch.func.vjp(marginals, emissions, transitions.expand_as(transitions_dot))[1]
    found: tuple[Tensor, Tensor] = pull_back(
        (emissions_dot, transitions_dot)
    )  # the second derivative is symmetric
    return found


def _flip(mask: Tensor) -> Tensor:
    """Return each chain's positions in reverse, an index that is its own inverse."""
    position = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, mask.sum(1, keepdim=True) - 1 - position, position)


def _messages(emissions: Tensor, mask: Tensor, transitions: Tensor) -> Three:
    """Return alpha and beta ``(batch, word, tag)``, by the log semiring, and the scales of alpha ``(batch, word)``."""
    flip = _flip(mask)[..., None].expand_as(emissions)
    both = torch.stack([emissions, emissions.gather(1, flip)]).permute(0, 2, 3, 1).contiguous()
    states, tops = recur(
        log_sum, both, torch.stack([transitions, transitions.mT]), chunk_length(emissions)
    )
    alpha, beta = states.permute(0, 3, 1, 2)
    return alpha, beta.gather(1, flip), tops[0].T


def _pair_blocks(
    alpha: Tensor, beta: Tensor, mask: Tensor, transitions: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield indices of words t and ``p(y_t, y_{t+1}) (batch, word, tag, tag)``, zeros past a chain's end."""
    block = max(1, BLOCK // max(1, len(alpha) * transitions.numel()))
    for words in torch.split(torch.arange(alpha.shape[1] - 1, device=alpha.device), block):
        scores = alpha[:, words, :, None] + transitions + beta[:, words + 1, None]
        joint = scores.flatten(2).softmax(2).reshape(scores.shape)
        yield words, torch.where(mask[:, words + 1, None, None], joint, 0.0)


def _in_logs(emissions: Tensor, mask: Tensor, transitions: Tensor) -> Three:
    """Compute log Z and the marginals from messages in logs, which hold any scores."""
    alpha, beta, scales = _messages(emissions, mask, transitions)
    last = (mask.sum(1) - 1).clamp(min=0)
    final = (
        alpha.gather(1, last[:, None, None].expand(-1, 1, alpha.shape[2])).squeeze(1).logsumexp(1)
    )
    log_z = torch.where(mask[:, 0], torch.where(mask, scales, 0.0).sum(1) + final, 0.0)
    unary = [beta[:, :1].softmax(2)]
    pairs = torch.zeros_like(transitions).expand(len(emissions), -1, -1)
    for _, joint in _pair_blocks(alpha, beta, mask, transitions):
        unary.append(joint.sum(2))
        pairs = pairs + joint.sum(1)
    return log_z, torch.where(mask[..., None], torch.cat(unary, 1), 0.0), pairs


# One operator each for `torch.compile` and `torch.export`: a loop over words would be compiled anew
# for each length, and a `Function` with a ``jvp`` is not compiled at all.


@torch.library.custom_op("polyembed::crf_partition", mutates_args=())
def _partition_operator(
    emissions: Tensor, mask: Tensor, transitions: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return _Partition.forward(emissions, mask, transitions)


@_partition_operator.register_fake
def _(emissions: Tensor, mask: Tensor, transitions: Tensor) -> Three:
    rows, _, tags = emissions.shape
    return (
        emissions.new_empty(rows),
        torch.empty_like(emissions),
        emissions.new_empty(rows, tags, tags),
    )


@torch.library.custom_op("polyembed::crf_curvature", mutates_args=())
def _curvature_operator(
    emissions: Tensor,
    mask: Tensor,
    transitions: Tensor,
    emissions_dot: Tensor,
    transitions_dot: Tensor,
) -> tuple[Tensor, Tensor]:
    return _Curvature.forward(emissions, mask, transitions, emissions_dot, transitions_dot)


@_curvature_operator.register_fake
def _(emissions: Tensor, mask: Tensor, transitions: Tensor, *dots: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(emissions), torch.empty_like(dots[1])


_partition_operator.register_autograd(_Partition.backward, setup_context=_Partition.save)
