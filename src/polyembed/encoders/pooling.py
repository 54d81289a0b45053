"""Pooling of pieces' hidden states into one vector for each word or sentence."""

from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from polyembed._checks import (
    check_choice,
    check_dim,
    check_float,
    check_ids,
    check_mask,
    check_shape,
)
from polyembed.functional.masking import masked_max, masked_mean, widened

WordPooling = Literal["first", "last", "mean", "max", "sum"]
SequencePooling = Literal["cls", "mean", "max"]
WORD_POOLINGS = get_args(WordPooling)
SEQUENCE_POOLINGS = get_args(SequencePooling)


def pool_words(
    hidden: Float[Tensor, "batch piece dim"],
    word_index: Int[Tensor, "batch piece"],
    num_words: int,
    *,
    pooling: WordPooling = "first",
) -> Float[Tensor, "batch word dim"]:
    """Reduce the vectors of each word's pieces to one:
    ``out[b, w] = pool(hidden[b, p] : word_index[b, p] = w)``.

    A word without pieces gets zeros. The pieces of a word need not be adjacent, and pieces of no
    word (index -1, or `num_words` and above) are ignored, also if they hold NaN. Sums accumulate in
    at least float32. Pieces that share a maximum share its gradient.

    Args:
        hidden: Vectors of pieces, ``(batch, piece, dim)``.
        word_index: The word that each piece belongs to; -1 for special pieces and padding.
        num_words: The number of words in the result.
        pooling: ``"first"`` and ``"last"`` piece, ``"mean"``, ``"max"`` or ``"sum"`` over all
            pieces of a word.

    Returns:
        ``(batch, num_words, dim)`` in the dtype of `hidden`.

    Raises:
        ValueError: If shapes do not fit, or the pooling is unknown.
        TypeError: If the index is not of integers, or vectors are not floating point.

    Example:
        >>> hidden = torch.tensor([[[9.0], [1.0], [2.0], [5.0]]])
        >>> index = torch.tensor([[-1, 0, 0, 2]])
        >>> pool_words(hidden, index, 3, pooling="sum").flatten()
        tensor([3., 0., 5.])
    """
    check_dim("hidden", hidden, 3, "batch, piece, dim")
    check_float(hidden=hidden)
    check_ids("word_index", word_index)
    check_shape("word_index", word_index, hidden.shape[:2])
    check_choice("pooling", pooling, WORD_POOLINGS)
    batch, num_pieces, dim = hidden.shape
    if batch * num_pieces * num_words == 0:
        return hidden.new_zeros(batch, num_words, dim)
    inside = (word_index >= 0) & (word_index < num_words)
    index = torch.where(inside, word_index, num_words).long()  # one more, for pieces of no word
    # the words of all rows in one list, so that whole vectors are added, not single numbers
    starts = torch.arange(batch, device=index.device)[:, None] * (num_words + 1)
    words, count = (index + starts).flatten(), batch * (num_words + 1)
    rows = widened(hidden.flatten(0, 1))
    if pooling == "max":
        rows = torch.where(inside.flatten()[:, None], rows, 0.0)
        lowest = rows.new_full((count, dim), -torch.inf)
        top = lowest.scatter_reduce(0, words[:, None].expand_as(rows), rows, "amax")
        total = torch.where(top == lowest, 0.0, top)
    elif pooling in ("first", "last"):
        places = torch.arange(len(words), device=words.device)
        end = "amin" if pooling == "first" else "amax"
        chosen = places.new_zeros(count).scatter_reduce(0, words, places, end, include_self=False)
        there = words[chosen] == torch.arange(count, device=words.device)
        total = torch.where(there[:, None], rows.index_select(0, chosen), 0.0)
    else:
        total = _sums(rows, words, count)
        if pooling == "mean":
            total = total / _sums(rows.new_ones(len(words), 1), words, count).clamp(min=1)
    return total.view(batch, num_words + 1, dim)[:, :num_words].to(hidden.dtype)


def pool_sequence(
    hidden: Float[Tensor, "batch seq dim"],
    mask: Bool[Tensor, "batch seq"] | None = None,
    *,
    pooling: SequencePooling = "cls",
) -> Float[Tensor, "batch dim"]:
    """Reduce a sequence to one vector.

    Args:
        hidden: Vectors, ``(batch, seq, dim)``.
        mask: True = valid, ``(batch, seq)``; None = all valid.
        pooling: ``"cls"``: the first valid vector, for BERT the vector of ``[CLS]``; ``"mean"`` or
            ``"max"`` over all valid ones.

    Returns:
        ``(batch, dim)``; zeros for a row without a valid vector.

    Raises:
        ValueError: If shapes do not fit, or the pooling is unknown.
        TypeError: If the mask is not bool, or vectors are not floating point.

    Example:
        >>> pool_sequence(torch.tensor([[[1.0], [3.0]]]), pooling="mean")
        tensor([[2.]])
    """
    check_dim("hidden", hidden, 3, "batch, seq, dim")
    check_float(hidden=hidden)
    check_mask(mask, hidden.shape[:2])
    check_choice("pooling", pooling, SEQUENCE_POOLINGS)
    if pooling == "mean":
        return masked_mean(hidden, mask)
    if pooling == "max":
        return masked_max(hidden, mask)
    if hidden.shape[1] == 0:
        return hidden.new_zeros(hidden.shape[0], hidden.shape[2])
    if mask is None:
        return hidden[:, 0]
    first = mask.int().argmax(1)[:, None, None].expand(-1, 1, hidden.shape[2])
    return torch.where(mask.any(1, keepdim=True), hidden.gather(1, first)[:, 0], 0.0)


def _sums(rows: Tensor, words: Tensor, count: int) -> Tensor:
    """Add up the rows of each word; a NaN in one word does not reach another, nor its gradient."""
    return rows.new_zeros(count, rows.shape[1]).index_add(0, words, rows)
