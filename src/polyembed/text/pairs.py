"""Two sentences in one row of pieces, as encoders of transformers read pairs: ``[CLS] first [SEP] second [SEP]``."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Self

import torch
from jaxtyping import Int
from torch import Tensor

from polyembed._checks import check_choice, class_name, must, require
from polyembed.text.pieces import (
    OVERFLOW,
    Pieces,
    check_words,
    cut_words,
    is_sentencepiece,
    no_words,
    pad_pieces,
    padding_id,
    room_for_pieces,
)

PROBE = "a"


class PairedPieces(NamedTuple):
    """A batch of pairs of sentences, each pair one row of pieces.

    Attributes:
        pieces: The rows; the second sentence's words are numbered after the first's.
        token_types: Which sentence of its row a piece belongs to, as the model counts them,
            ``(batch, piece)`` int64; None for a model whose tokenizer gives no token types.
    """

    pieces: Pieces
    token_types: Int[Tensor, "batch piece"] | None

    def to(self, device: torch.device | str) -> Self:
        """Return the same pairs on another device."""
        types = None if self.token_types is None else self.token_types.to(device)
        return self._replace(pieces=self.pieces.to(device), token_types=types)


class PairFrame(NamedTuple):
    """The special pieces that a tokenizer puts around a pair, and its token types.

    Attributes:
        ids: The special pieces before the first sentence, between the two, and after the second.
        types: The token types of the five parts of a row, special pieces and sentences in turn; for
            a sentence the type of one piece. None without token types.
    """

    ids: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    types: tuple[tuple[int, ...], ...] | None


def align_pairs(
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]],
    tokenizer: Any,
    *,
    max_length: int | None = None,
    overflow: Literal["error", "truncate"] = "error",
) -> PairedPieces:
    """Cut pairs of sentences into pieces, as a tokenizer of transformers joins them.

    Every word is cut by itself, as in `align_words`; special pieces and token types are the
    tokenizer's own.

    Args:
        pairs: Two lists of words each; either may be empty.
        tokenizer: Of transformers, fast or slow.
        max_length: The most pieces of a pair, special ones included; the tokenizer's own limit if
            None.
        overflow: How to treat a longer pair: ``"error"``; ``"truncate"``: the longer of the two
            loses its last pieces, then both in turn (``longest_first`` of fast tokenizers).

    Returns:
        Rows of pieces on the CPU, padded, with their token types.

    Raises:
        ValueError: A pair beyond the limit under ``"error"``, a limit that leaves no room, or an
            item without exactly two sentences.
        TypeError: A tokenizer that takes no pairs, a string in place of a list of words, or words
            that are not strings.

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
    num_special = sum(map(len, frame.ids))
    room = room_for_pieces(tokenizer, max_length, num_special)
    cut = cut_words((words for pair in read for words in pair), tokenizer)
    rows: list[list[int]] = []
    owners: list[list[int]] = []
    types: list[list[int]] = []
    for row, pair in enumerate(read):
        ids = [[piece for word in words for piece in cut[word]] for words in pair]
        index = [[number for number, word in enumerate(words) for _ in cut[word]] for words in pair]
        if room is not None:
            count = sum(map(len, ids))
            rule = (
                f"have at most {room + num_special} pieces (overflow='truncate' takes longer ones)"
            )
            require(
                count <= room or overflow != "error", f"pairs[{row}]", rule, count + num_special
            )
            keep = _share(room, len(ids[0]), len(ids[1]))
            ids, index = (
                [part[:k] for part, k in zip(both, keep, strict=True)] for both in (ids, index)
            )
        # after the words that are left of the first sentence
        shift = index[0][-1] + 1 if index[0] else 0
        index[1] = [shift + number for number in index[1]]
        before, between, after = frame.ids
        rows.append([*before, *ids[0], *between, *ids[1], *after])
        owners.append(
            [*no_words(before), *index[0], *no_words(between), *index[1], *no_words(after)]
        )
        if frame.types is not None:
            parts = [
                part * n
                for part, n in zip(frame.types, (1, len(ids[0]), 1, len(ids[1]), 1), strict=True)
            ]
            types.append([number for part in parts for number in part])
    pieces = pad_pieces(
        rows, owners, padding_id(tokenizer), max((max(row) + 1 for row in owners if row), default=0)
    )
    return PairedPieces(
        pieces, None if frame.types is None else pad_pieces(types, types, 0).piece_ids
    )


def check_pairs(
    pairs: Iterable[Any], *, name: str = "pairs", start: int = 0
) -> list[tuple[list[str], list[str]]]:
    """Require two lists of words each, and return the pairs as tuples of lists.

    Args:
        pairs: The pairs.
        name: Their name in errors.
        start: The number of the first.

    Returns:
        The pairs.

    Raises:
        ValueError: More or fewer than two sentences.
        TypeError: A string in place of a pair or of a list of words, or words that are not strings.
    """
    found = []
    for row, pair in enumerate(pairs, start):
        if isinstance(pair, str) or not isinstance(pair, Sequence):
            raise TypeError(
                must(f"{name}[{row}]", "be two lists of words", f"{class_name(pair)} {pair!r}")
            )
        require(len(pair) == 2, f"{name}[{row}]", "be two lists of words", f"{len(pair)} things")
        found.append((pair[0], pair[1]))
    first, second = (
        check_words([pair[i] for pair in found], name=name, place=f"[{i}]", start=start)
        for i in (0, 1)
    )
    return list(zip(first, second, strict=True))


def pair_frame(tokenizer: Any) -> PairFrame:
    """Return the special pieces that a tokenizer puts around a pair, and its token types.

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
    return PairFrame(
        ids, tuple(part[:1] if number in (1, 3) else part for number, part in enumerate(types))
    )


def _share(room: int, first: int, second: int) -> tuple[int, int]:
    """Return how many pieces of each sentence are kept."""
    if first + second <= room:
        return first, second
    half = room // 2
    short = min(first, second, half)
    return (short, room - short) if first <= second else (room - short, short)
