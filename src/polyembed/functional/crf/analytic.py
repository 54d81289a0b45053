"""The partition whose gradient is written down: the marginals of tags and of pairs of neighbours.

``d log Z / d e[t, j] = p(y_t = j)`` and ``d log Z / d A[i, j] = sum_t p(y_t = i, y_{t+1} = j)``. Marginals come from
messages that run forwards (``alpha``) and backwards (``beta``, the emission of its own position included), in one loop:

    p(y_t = j)                = softmax_j (log sum_i exp(alpha[t-1, i] + A[i, j]) + beta[t, j])
    p(y_t = i, y_{t+1} = j)   = softmax_ij (alpha[t, i] + A[i, j] + beta[t+1, j])

so messages need no scale, and long chains lose no precision. Second derivatives, backwards and forwards, are those of
the marginals: the messages' tangents obey linear recursions with the conditional probabilities as weights. Third ones
go through `loop.py`. Forward mode over forward mode is not here (torch nests it wrongly over a custom function: it is
an error, not a wrong number): forward over reverse gives the same.

All functions take a leading axis `group`, one of each set of transitions: 1, or the size of a ``vmap``.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from polyembed.functional.crf import loop, scaled
from polyembed.functional.crf.chain import BLOCK, last_position
from polyembed.functional.crf.semiring import chunk_length, log_sum, recur


def partition_and_marginals(emissions: Tensor, mask: Tensor, transitions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute log Z ``(batch,)``, ``p(y_t) (batch, word, tag)`` and ``sum_t p(y_t, y_{t+1}) (batch, tag, tag)``.

    The arguments are a `Chain`'s. What stands past a chain's end is zero, and everything of an empty chain.
    """
    log_z, unary, pairs = _apply(_Marginals, emissions[None], mask[None], transitions[None])
    return log_z[0], unary[0], pairs[0]


def messages(emissions: Tensor, mask: Tensor, transitions: Tensor) -> tuple[Tensor, Tensor]:
    """Compute alpha and beta, ``(batch, word, tag)``; the largest entry of each is 0."""
    alpha, beta = _messages(emissions[None], mask[None], transitions[None])
    return alpha[0], beta[0]


class _Marginals(Function):
    """From ``emissions (group, batch, word, tag)``, ``mask`` and ``transitions (group, tag, tag)`` to the three."""

    @staticmethod
    def forward(emissions: Tensor, mask: Tensor, transitions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = scaled.run(emissions, mask, transitions, _flip(mask))
        if found is not None:
            outputs = (found.log_z, *found.marginals())
            return tuple(x.to(emissions.dtype) for x in outputs)  # type: ignore[return-value]
        alpha, beta = _messages(emissions, mask, transitions)
        predicted = _predict(alpha, transitions)
        tops = torch.cat([emissions[:, :, :1], predicted[:, :, 1:] + emissions[:, :, 1:]], 2).amax(-1)
        last = last_position(mask)[..., None, None].expand(-1, -1, 1, alpha.shape[-1])
        log_z = torch.where(mask, tops, 0.0).sum(2) + alpha.gather(2, last).squeeze(2).logsumexp(-1)
        pairs = torch.zeros_like(transitions[:, None].expand(-1, emissions.shape[1], -1, -1))
        for _, probability in _pair_blocks(alpha, beta, mask, transitions):
            pairs = pairs + probability.sum(2)
        return torch.where(mask[:, :, 0], log_z, 0.0), _unary(predicted, beta, mask), pairs

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, *output[1:])
        ctx.save_for_forward(*inputs, *output[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        emissions, mask, transitions, unary, pairs = ctx.saved_tensors
        of_z, of_unary, of_pairs = grads
        by_emissions, by_transitions = torch.zeros_like(emissions), torch.zeros_like(transitions)
        if of_z is not None:
            weight = of_z[..., None, None]
            by_emissions, by_transitions = weight * unary, (weight * pairs).sum(1)
        if of_unary is not None or of_pairs is not None:
            of_unary = torch.zeros_like(unary) if of_unary is None else of_unary
            of_pairs = torch.zeros_like(pairs) if of_pairs is None else of_pairs
            unary_dot, pairs_dot = _apply(_Curvature, emissions, mask, transitions, of_unary, of_pairs)
            by_emissions, by_transitions = by_emissions + unary_dot, by_transitions + pairs_dot.sum(1)
        return by_emissions, None, by_transitions

    @staticmethod
    def jvp(ctx: Any, emissions_dot: Tensor | None, _: None, transitions_dot: Tensor | None) -> tuple[Tensor, ...]:
        emissions, mask, transitions, unary, pairs = ctx.saved_tensors
        emissions_dot = torch.zeros_like(emissions) if emissions_dot is None else emissions_dot
        transitions_dot = torch.zeros_like(transitions) if transitions_dot is None else transitions_dot
        by_chain = transitions_dot[:, None].expand_as(pairs)
        z_dot = (unary * emissions_dot).sum((2, 3)) + (pairs * by_chain).sum((2, 3))
        return z_dot, *_apply(_Curvature, emissions, mask, transitions, emissions_dot, by_chain)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Any, Any]:
        return _fold(_Marginals, info.batch_size, in_dims, inputs)


class _Curvature(Function):
    """The second derivatives of log Z times a direction: tangents of the marginals.

    The direction is ``(group, batch, word, tag)`` and, for each chain of its own, ``(group, batch, tag, tag)``.
    """

    @staticmethod
    def forward(
        emissions: Tensor, mask: Tensor, transitions: Tensor, emissions_dot: Tensor, transitions_dot: Tensor
    ) -> tuple[Tensor, Tensor]:
        flip = _flip(mask)
        emissions_dot = torch.where(mask[..., None], emissions_dot, 0.0)
        found = scaled.run(emissions, mask, transitions, flip)
        if found is None:
            alpha, beta = _messages(emissions, mask, transitions)
        else:
            alpha, beta = (x.to(emissions.dtype) for x in found.log_messages())

        def reverse(x: Tensor) -> Tensor:
            return x.gather(2, flip[..., None].expand_as(x))

        messages, dots = torch.cat([alpha, reverse(beta)]), torch.cat([emissions_dot, reverse(emissions_dot)])
        moves, moves_dot = torch.cat([transitions, transitions.mT]), torch.cat([transitions_dot, transitions_dot.mT])
        origins = (messages[:, :, :-1, :, None] + moves[:, None, None]).softmax(3)  # p(where from | where)
        drive = dots[:, :, 1:] + (origins * moves_dot[:, :, None]).sum(3)
        drive = drive - drive.mean(-1, keepdim=True)  # a message has no scale: without it the tangents stay small
        x = dots[:, :, 0]
        steps = [x]
        for weight, push in zip(origins.unbind(2), drive.unbind(2), strict=True):
            x = (x[..., None] * weight).sum(2) + push
            steps.append(x)
        alpha_dot, beta_dot = torch.stack(steps, 2).chunk(2)
        beta_dot = reverse(beta_dot)

        unary = _unary(_predict(alpha, transitions), beta, mask)
        joint_dot = alpha_dot - emissions_dot + beta_dot
        unary_dot = unary * (joint_dot - (unary * joint_dot).sum(-1, keepdim=True))
        pairs_dot = torch.zeros_like(transitions_dot)
        for words, probability in _pair_blocks(alpha, beta, mask, transitions):
            left, right = alpha_dot[:, :, :-1][:, :, words], beta_dot[:, :, 1:][:, :, words]
            dot = left[..., None] + transitions_dot[:, :, None] + right[..., None, :]
            pairs_dot = pairs_dot + (probability * (dot - (probability * dot).sum((3, 4), keepdim=True))).sum(2)
        return unary_dot, pairs_dot

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        emissions, mask, *others = ctx.saved_tensors

        def tangents(e: Tensor, a: Tensor, e_dot: Tensor, a_dot: Tensor) -> tuple[Tensor, Tensor]:
            def log_z(e: Tensor, a: Tensor) -> Tensor:
                return loop.log_partition(e.flatten(0, 1), mask.flatten(0, 1), a.flatten(0, 1)).sum()

            # clones: a dual number must own its memory
            point = e.clone(), a[:, None].expand_as(a_dot).clone()
            direction = torch.where(mask[..., None], e_dot, 0.0).clone(), a_dot.clone()
            found: tuple[Tensor, Tensor] = torch.func.jvp(torch.func.grad(log_z, argnums=(0, 1)), point, direction)[1]
            return found

        pull_back = torch.func.vjp(tangents, emissions, *others)[1]
        by_emissions, *by_others = pull_back(grads)
        return by_emissions, None, *by_others

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Any, Any]:
        return _fold(_Curvature, info.batch_size, in_dims, inputs)


def _apply(function: type[Function], *inputs: Tensor) -> tuple[Tensor, ...]:
    found: tuple[Tensor, ...] = function.apply(*inputs)  # type: ignore[no-untyped-call]
    return found


def _fold(
    function: type[Function], size: int, in_dims: Sequence[int | None], inputs: Sequence[Tensor]
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Make groups of what ``vmap`` runs over."""
    whole = [
        x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0) for x, dim in zip(inputs, in_dims, strict=True)
    ]
    found = _apply(function, *(x.flatten(0, 1) for x in whole))
    return tuple(x.reshape(size, -1, *x.shape[1:]) for x in found), (0,) * len(found)


def _flip(mask: Tensor) -> Tensor:
    """Index each chain's positions in reverse; its own inverse."""
    position = torch.arange(mask.shape[-1], device=mask.device)
    return torch.where(mask, mask.sum(-1, keepdim=True) - 1 - position, position)


def _messages(emissions: Tensor, mask: Tensor, transitions: Tensor) -> tuple[Tensor, Tensor]:
    """Run forwards and backwards in the log semiring."""
    flip = _flip(mask)[..., None].expand_as(emissions)
    both = torch.cat([emissions, emissions.gather(2, flip)]).permute(0, 2, 3, 1).contiguous()
    moves = torch.cat([transitions, transitions.mT])
    found = recur(log_sum, both, moves, normalize=True, chunk=chunk_length(emissions[0])).permute(0, 3, 1, 2)
    alpha, beta = found.chunk(2)
    return alpha, beta.gather(2, flip)


def _predict(alpha: Tensor, transitions: Tensor) -> Tensor:
    """Take each message one step on; nothing is known before the first word."""
    moved = [
        torch.logsumexp(block[..., None] + transitions[:, None, None], 3)
        for block in torch.split(alpha[:, :, :-1], _block_length(alpha), 2)
    ]
    return torch.cat([torch.zeros_like(alpha[:, :, :1]), *moved], 2)


def _unary(predicted: Tensor, beta: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask[..., None], (predicted + beta).softmax(-1), 0.0)


def _pair_blocks(alpha: Tensor, beta: Tensor, mask: Tensor, transitions: Tensor) -> Any:
    """Yield blocks of words and ``p(y_t, y_{t+1})``, ``(group, batch, word, tag, tag)``, zeros past a chain's end."""
    for words in torch.split(torch.arange(alpha.shape[2] - 1, device=alpha.device), _block_length(alpha)):
        left, right = alpha[:, :, :-1][:, :, words], beta[:, :, 1:][:, :, words]
        scores = left[..., None] + transitions[:, None, None] + right[..., None, :]
        probability = scores.flatten(3).softmax(3).reshape(scores.shape)
        yield words, torch.where(mask[:, :, 1:][:, :, words][..., None, None], probability, 0.0)


def _block_length(alpha: Tensor) -> int:
    groups, batch, _, tags = alpha.shape
    return max(1, BLOCK // max(1, groups * batch * tags * tags))
