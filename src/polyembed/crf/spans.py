"""The probability that a span of words is an entity, summed over all tags of the other words."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from polyembed._checks import check_choice, check_positive, require
from polyembed.crf.chain import is_possible, make_chain
from polyembed.crf.partition import backward_messages
from polyembed.crf.scores import Emissions, Mask, TagScores, Transitions
from polyembed.metrics import SCHEMES, Scheme, split_label

IMPOSSIBLE = float("-inf")


class SpanLogProbs(NamedTuple):
    """The log-probabilities that spans are entities.

    Attributes:
        log_probs: The log-probability in nats for each first word, length (1, 2, ...) and type,
            ``(batch, word, length, type)``; -inf where the span does not exist, NaN in a row with
            scores of NaN.
        types: The names of the types.
    """

    log_probs: Float[Tensor, "batch word length type"]
    types: tuple[str, ...]


def span_log_probs(
    emissions: Emissions,
    mask: Mask,
    transitions: Transitions,
    start: TagScores,
    end: TagScores,
    tags: Sequence[str],
    *,
    scheme: Scheme = "bio",
    max_length: int = 8,
) -> SpanLogProbs:
    r"""Compute the log-probability that precisely this span is an entity, per span and type.

    In BIO, with ``q_t(a, b) = p(y_{t+1} = b | y_t = a)``, an entity of type ``x`` over the words
    ``i, ..., j`` has the probability

        p = p(y_i = B-x) q_i(B-x, I-x) ... q_{j-1}(I-x, I-x) (1 - q_j(y_j, I-x)),

    which is the sum over all paths with this entity. Paths are read strictly: an ``I-x`` that
    continues no entity is not a part of one. In BIOES and BILOU the last word has ``E-x``
    (``L-x``), a single word has ``S-x`` (``U-x``), and the last factor is left out. A tag that
    `tags` lacks has probability 0. One forward and one backward pass give all spans.

    Args:
        emissions: The scores of each tag at each word.
        mask: True = valid; a span consists of valid words only, and its length counts only these.
        transitions: ``A[i, j]``, the score of going from tag i to tag j.
        start: The score of each tag at a chain's first position.
        end: The score of each tag at a chain's last position.
        tags: The names of the tags in the order of their ids.
        scheme: The scheme of the names: ``"bio"``, ``"bioes"`` or ``"bilou"``.
        max_length: The largest number of words in a span.

    Returns:
        The log-probabilities, by the position of a span's first word, and the types.

    Raises:
        ValueError: If a name does not fit the scheme, or the number of names is not that of tags.

    Example:
        >>> zeros = torch.zeros(3)
        >>> found = span_log_probs(
        ...     torch.zeros(1, 2, 3), torch.ones(1, 2).bool(), torch.zeros(3, 3), zeros, zeros,
        ...     ["O", "B-PER", "I-PER"], max_length=2,
        ... )
        >>> found.log_probs.exp()[0, :, :, 0]  # spans of one word, of two
        tensor([[0.2222, 0.1111],
                [0.3333, 0.0000]])
    """
    check_positive(max_length=max_length)
    check_choice("scheme", scheme, ("bio", "bioes", "bilou"))
    count = emissions.shape[-1]
    require(len(tags) == count, "tags", f"be {count} names", len(tags))
    kinds = _tags_by_type(tags, scheme)
    types = tuple(kinds)
    if any(count in ids for ids in kinds.values()):  # one more tag, which is forbidden
        emissions = F.pad(emissions, (0, 1), value=IMPOSSIBLE)
        transitions = F.pad(transitions, (0, 1, 0, 1))
        start, end = (F.pad(x, (0, 1)) for x in (start, end))
        count += 1
    chain = make_chain(emissions, mask, transitions, start, end)
    width = chain.mask.shape[1]
    lengths = min(max_length, width)
    log_z, unary, beta = backward_messages(*chain[:3])
    moves, follows = chain.transitions, F.pad(chain.mask[:, 1:], (0, 1))[..., None]
    after = F.pad(beta[:, 1:], (0, 0, 0, 1))  # (batch, word, tag)
    # beta_t(a) = e_t(a) + log sum_b exp(A[a, b] + beta_{t+1}(b)) up to a factor of the word, which
    # the most probable tag gives
    ahead = beta - chain.emissions
    top = beta.argmax(-1, keepdim=True)
    factor = (moves[top.squeeze(-1)] + after).logsumexp(-1, keepdim=True) - ahead.gather(-1, top)
    ahead = torch.where(follows, ahead + factor, 0.0)
    ids = torch.tensor([*kinds.values()], dtype=torch.int64, device=moves.device).reshape(-1, 4)
    begin, inside, last, single = ids.unbind(1)

    def go(first: Tensor, second: Tensor) -> Tensor:
        """Return the log-probability of the second tag after the first, ``(batch, word, type)``."""
        found = moves[first, second] + after.index_select(2, second)
        return torch.where(follows, found - ahead.index_select(2, first), IMPOSSIBLE)

    def stop(tag: Tensor) -> Tensor:
        """Return the log-probability that the next tag is not `inside`, ``(batch, word, type)``."""
        others = torch.arange(count, device=moves.device) != inside[:, None]
        rest = torch.where(others, moves[tag], IMPOSSIBLE) + after[:, :, None]
        rest = rest.logsumexp(-1) - ahead.index_select(2, tag)
        return torch.where(follows, rest, 0.0)

    alone, path = unary.index_select(2, single), unary.index_select(2, begin)
    ends = torch.zeros_like(alone)
    if scheme == "bio":
        alone, ends = alone + stop(single), stop(last)
    spans = path.new_full((*path.shape[:2], lengths, len(types)), IMPOSSIBLE)
    spans[:, :, 0] = torch.where(chain.mask[..., None], alone, IMPOSSIBLE)
    finish, stay = go(begin, last), go(begin, inside)  # from the first word to the second
    for by in range(1, lengths):  # the number of words after the first
        found = path[:, : width - by] + finish[:, by - 1 : width - 1]
        spans[:, : width - by, by] = found + ends[:, by:]
        path = path[:, : width - by] + stay[:, by - 1 : width - 1]
        if by == 1:
            finish, stay = go(inside, last), go(inside, inside)
    # a forbidden score is a large finite number inside a chain, or has given inf - inf
    possible = is_possible(log_z)[:, None, None, None] & (spans > -1e20)
    others = torch.where(log_z.isnan(), log_z, IMPOSSIBLE)
    spans = torch.where(possible, spans, others[:, None, None, None])
    return SpanLogProbs(chain.restore(spans, IMPOSSIBLE), types)


def _tags_by_type(tags: Sequence[str], scheme: Scheme) -> dict[str, tuple[int, int, int, int]]:
    """Return the ids of each type's tags: of the first word, of later words, of the last word and
    of a single word.

    A missing tag has the id ``len(tags)``.
    """
    ids: dict[str, dict[str, int]] = {}
    for number, tag in enumerate(tags):
        letter, kind = split_label(tag, scheme)
        if letter != "O":
            ids.setdefault(kind, {})[letter] = number
    found = {}
    for kind, known in ids.items():
        begin, inside, *rest = (known.get(letter, len(tags)) for letter in SCHEMES[scheme])
        found[kind] = (begin, inside, *(rest or (inside, begin)))
    return found
