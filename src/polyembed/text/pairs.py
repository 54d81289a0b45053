"""Two sentences in one row of pieces, as encoders of transformers read pairs: ``[CLS] first [SEP] second [SEP]``."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from polyembed._checks import check_choice, check_positive, class_name, must, require
from polyembed.text.pieces import (
    OVERFLOW,
    Pieces,
    check_words,
    cut_words,
    is_sentencepiece,
    pad_pieces,
    padding_id,
    piece_limit,
    unknown_id,
)

PROBE = "a"


class PairedPieces(NamedTuple):
    """A batch of pairs of sentences, each pair one row of pieces.

    Attributes:
        pieces: The rows; the words of the second sentence are counted on from those of the first.
        token_types: What tells the sentences of a row apart for the model, ``(batch, piece)`` int64; None for a model
            whose tokenizer gives no token types.
    """

    pieces: Pieces
    token_types: Int[Tensor, "batch piece"] | None


class PairFrame(NamedTuple):
    """What a tokenizer puts around a pair.

    Attributes:
        ids: The special pieces before the first sentence, between the two, and after the second.
        types: The token types of the five parts of a row, special pieces and sentences in turn; of a sentence the type
            of a piece. None without token types.
    """

    ids: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    types: tuple[tuple[int, ...], ...] | None

    @property
    def size(self) -> int:
        """Count the special pieces."""
        return sum(map(len, self.ids))


def align_pairs(
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]],
    tokenizer: Any,
    *,
    max_length: int | None = None,
    overflow: Literal["error", "truncate"] = "error",
) -> PairedPieces:
    """Cut pairs of sentences into pieces, as a tokenizer of transformers joins them.

    Every word is cut by itself, as in `align_words`; special pieces and token types are the tokenizer's own.

    Args:
        pairs: Two lists of words each; either may be empty.
        tokenizer: Of transformers, fast or slow.
        max_length: The most pieces of a pair, special ones included; the tokenizer's own limit if None.
        overflow: What to do with a longer pair: ``"error"``; ``"truncate"``: the longer of the two loses its last
            pieces, then both in turn (``longest_first`` of fast tokenizers).

    Returns:
        Rows of pieces on the CPU, padded, with their token types.

    Raises:
        ValueError: A pair beyond the limit under ``"error"``, a limit that leaves no room, or no two sentences.
        TypeError: A tokenizer that takes no pairs, a string in the place of a list of words, words that are no strings.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers, processors
        >>> from transformers import PreTrainedTokenizerFast
        >>> rules = Tokenizer(models.WordPiece({"[UNK]": 0, "[SEP]": 1, "me": 2, "a": 3}, unk_token="[UNK]"))
        >>> rules.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        >>> rules.post_processor = processors.TemplateProcessing(
        ...     single="$A [SEP]", pair="$A [SEP] $B [SEP]", special_tokens=[("[SEP]", 1)]
        ... )
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=rules, unk_token="[UNK]")
        >>> align_pairs([(["me"], ["a", "me"])], tokenizer).pieces.piece_ids.tolist()
        [[2, 1, 3, 2, 1]]
    """
    check_choice("overflow", overflow, OVERFLOW[:2])
    read = check_pairs(pairs)
    frame = pair_frame(tokenizer)
    limit = piece_limit(tokenizer) if max_length is None else max_length
    if limit is not None:
        check_positive(max_length=limit)
        require(limit > frame.size, "max_length", "leave room beside the special pieces", limit)
    cut = cut_words(dict.fromkeys(word for pair in read for words in pair for word in words), tokenizer)
    unknown = unknown_id(tokenizer)
    rows: list[list[int]] = []
    owners: list[list[int]] = []
    types: list[list[int]] = []
    for row, pair in enumerate(read):
        ids, index = [], []
        for words, start in zip(pair, (0, len(pair[0])), strict=True):
            spelled = [cut[word] or [unknown] for word in words]
            ids.append([piece for pieces in spelled for piece in pieces])
            index.append([start + number for number, pieces in enumerate(spelled) for _ in pieces])
        if limit is not None:
            room = limit - frame.size
            if overflow == "error":
                rule = f"have at most {limit} pieces (overflow='truncate' takes longer ones)"
                count = sum(map(len, ids)) + frame.size
                require(count <= limit, f"pairs[{row}]", rule, count)
            keep = _share(room, len(ids[0]), len(ids[1]))
            ids, index = ([part[:k] for part, k in zip(both, keep, strict=True)] for both in (ids, index))
            # the words of the second sentence follow those that are left of the first
            gap = len(pair[0]) - (index[0][-1] + 1 if index[0] else 0)
            index[1] = [number - gap for number in index[1]]
        before, between, after = frame.ids
        rows.append([*before, *ids[0], *between, *ids[1], *after])
        owners.append([*_none(before), *index[0], *_none(between), *index[1], *_none(after)])
        if frame.types is not None:
            parts = [part * n for part, n in zip(frame.types, (1, len(ids[0]), 1, len(ids[1]), 1), strict=True)]
            types.append([number for part in parts for number in part])
    pieces = pad_pieces(rows, owners, padding_id(tokenizer))
    if frame.types is None:
        return PairedPieces(pieces, None)
    width = pieces.piece_ids.shape[1]
    filled = [[*row, *[0] * (width - len(row))] for row in types]
    return PairedPieces(pieces, torch.tensor(filled, dtype=torch.int64).reshape(len(types), width))


def check_pairs(pairs: Iterable[Any], *, name: str = "pairs", start: int = 0) -> list[tuple[list[str], list[str]]]:
    """Require two lists of words each.

    Args:
        pairs: The pairs.
        name: What the error calls them.
        start: The number of the first.

    Returns:
        The pairs as tuples.

    Raises:
        ValueError: Other than two sentences.
        TypeError: A string in the place of a pair or of a list of words, or words that are no strings.
    """
    found = []
    for row, pair in enumerate(pairs, start):
        if isinstance(pair, str) or not isinstance(pair, Sequence):
            raise TypeError(must(f"{name}[{row}]", "be two lists of words", f"{class_name(pair)} {pair!r}"))
        require(len(pair) == 2, f"{name}[{row}]", "be two lists of words", f"{len(pair)} things")
        found.append((pair[0], pair[1]))
    first, second = (check_words([pair[i] for pair in found], name=name, place=f"[{i}]", start=start) for i in (0, 1))
    return list(zip(first, second, strict=True))


def pair_frame(tokenizer: Any) -> PairFrame:
    """Find what a tokenizer puts around a pair, and its token types.

    Args:
        tokenizer: Of transformers, fast or slow.

    Returns:
        The special pieces and the types.

    Raises:
        TypeError: No tokenizer, or one that does not join pairs.
    """
    rule = "be of transformers and join pairs"
    if is_sentencepiece(tokenizer) or not callable(tokenizer):
        raise TypeError(must("tokenizer", rule, class_name(tokenizer)))
    options = {"is_split_into_words": True, "truncation": False, "padding": False, "verbose": False}
    bare = list(tokenizer([[PROBE]], add_special_tokens=False, **options)["input_ids"][0])
    encoded = tokenizer([[PROBE]], [[PROBE]], **options)
    full, size = list(encoded["input_ids"][0]), len(bare)
    starts = [i for i in range(len(full) - size + 1) if size and full[i : i + size] == bare]
    seconds = [i for i in starts[1:] if i >= starts[0] + size]
    if not seconds:
        raise TypeError(must("tokenizer", rule, f"{bare} twice to {full}"))
    ends = (0, starts[0], starts[0] + size, seconds[0], seconds[0] + size, len(full))
    ids = (tuple(full[: ends[1]]), tuple(full[ends[2] : ends[3]]), tuple(full[ends[4] :]))
    if "token_type_ids" not in encoded:
        return PairFrame(ids, None)
    given = encoded["token_type_ids"][0]
    types = [tuple(given[start:end]) for start, end in pairwise(ends)]
    return PairFrame(ids, tuple(part[:1] if number in (1, 3) else part for number, part in enumerate(types)))


def _share(room: int, first: int, second: int) -> tuple[int, int]:
    """Say how many pieces of each sentence stay."""
    if first + second <= room:
        return first, second
    half = room // 2
    short = min(first, second, half)
    return (short, room - short) if first <= second else (room - short, short)


def _none(special: tuple[int, ...]) -> list[int]:
    return [-1] * len(special)
