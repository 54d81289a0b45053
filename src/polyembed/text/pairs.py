"""Two sentences in one row of pieces: ``[CLS] first [SEP] second [SEP]``."""

from collections.abc import Iterable, Sequence
from itertools import chain, count
from typing import Any, Literal, NamedTuple, Self

import torch
from jaxtyping import Int
from torch import Tensor

from polyembed._checks import check_choice, check_sentences, require, require_type
from polyembed.text.pieces import Pieces, is_sentencepiece, pad_pieces, padding_id, room_for_pieces
from polyembed.text.spelling import pad_rows


class PairedPieces(NamedTuple):
    """A batch of pairs of sentences, each pair one row of pieces.

    Attributes:
        pieces: The rows; every piece that is not special counts as a word.
        token_types: The number of each piece's sentence, as the model counts the two sentences,
            ``(batch, piece)`` int64; None for a model whose tokenizer gives no token types.
    """

    pieces: Pieces
    token_types: Int[Tensor, "batch piece"] | None

    def to(self, device: torch.device | str) -> Self:
        """Return the same pairs on another device."""
        types = None if self.token_types is None else self.token_types.to(device)
        return self._replace(pieces=self.pieces.to(device), token_types=types)


def align_pairs(
    pairs: Iterable[tuple[Sequence[str], Sequence[str]]],
    tokenizer: Any,
    *,
    max_length: int | None = None,
    overflow: Literal["error", "truncate"] = "error",
) -> PairedPieces:
    """Cut pairs of sentences into pieces and join them, as a tokenizer of transformers does.

    Args:
        pairs: The pairs of sentences, two lists of words each; either list may be empty. The words
            are joined by spaces; lone surrogates are left out.
        tokenizer: A tokenizer of transformers, fast or slow.
        max_length: The largest number of pieces of a pair, special ones included; the tokenizer's
            own limit if None.
        overflow: How to treat a longer pair. ``"error"`` raises an error. Under ``"truncate"``, the
            longer sentence loses its last pieces, then both in turn, as under the tokenizers'
            ``longest_first``.

    Returns:
        Rows of pieces on the CPU, padded on the right, with their token types.

    Raises:
        ValueError: If a pair is beyond the limit under ``"error"``, an item has not exactly two
            sentences, or the limit leaves no room beside the special pieces.
        TypeError: If the tokenizer is not one of transformers, or a string is in place of a list of
            words.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers, processors
        >>> from transformers import PreTrainedTokenizerFast
        >>> vocabulary = {"[UNK]": 0, "[SEP]": 1, "me": 2, "a": 3}
        >>> rules = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        >>> rules.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        >>> rules.post_processor = processors.TemplateProcessing(
        ...     single="$A [SEP]", pair="$A [SEP] $B [SEP]", special_tokens=[("[SEP]", 1)]
        ... )
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=rules, unk_token="[UNK]")
        >>> align_pairs([(["me"], ["a", "me"])], tokenizer).pieces.piece_ids.tolist()
        [[2, 1, 3, 2, 1]]
    """
    check_choice("overflow", overflow, ("error", "truncate"))
    theirs = callable(tokenizer) and not is_sentencepiece(tokenizer)
    require_type(theirs, "tokenizer", "be one of transformers", tokenizer)
    room = room_for_pieces(tokenizer, max_length, tokenizer.num_special_tokens_to_add(pair=True))
    texts = [
        [" ".join(words).encode(errors="ignore").decode() for words in pair]
        for pair in check_pairs(pairs)
    ]
    # as lists, since a tokenizer takes an empty string for no second sentence
    firsts, seconds = [first for first, _ in texts], [second for _, second in texts]
    # the tokenizer's own truncation is a state, and other threads would see it
    whole = {"truncation": False, "verbose": False}
    none: Any = {"input_ids": [], "token_type_ids": [], "special_tokens_mask": []}
    encoded = (
        tokenizer(firsts, seconds, return_special_tokens_mask=True, **whole) if texts else none
    )
    kept, owners = [], []
    for row, special in enumerate(encoded["special_tokens_mask"]):
        own = [i for i, apart in enumerate(special) if not apart]
        beyond: set[int] = set()
        if room is not None and len(own) > room:
            most = len(special) - len(own) + room
            rule = f"have at most {most} pieces (overflow='truncate' takes longer ones)"
            require(overflow == "truncate", f"pair {firsts[row][:60]!r}", rule, len(special))
            size = len(tokenizer(firsts[row], add_special_tokens=False, **whole)["input_ids"])
            short = min(size, len(own) - size, room // 2)
            first = short if 2 * size <= len(own) else room - short
            if not tokenizer.is_fast:  # these give the odd piece to the first sentence
                first = min(size, max(room - (len(own) - size), (room + 1) // 2))
            beyond = {*own[first:size], *own[size + room - first :]}
        kept.append([i for i in range(len(special)) if i not in beyond])
        numbers = count()
        owners.append([-1 if special[i] else next(numbers) for i in kept[-1]])
    num_words = max(chain(*owners), default=-1) + 1
    ids = _chosen(encoded["input_ids"], kept)
    pieces = pad_pieces(ids, owners, padding_id(tokenizer), num_words)
    typed = "token_type_ids" in tokenizer.model_input_names
    types = pad_rows(_chosen(encoded["token_type_ids"], kept)) if typed else None
    return PairedPieces(pieces, types)


def _chosen(rows: Sequence[Sequence[int]], kept: Sequence[Sequence[int]]) -> list[list[int]]:
    return [[row[i] for i in places] for row, places in zip(rows, kept, strict=True)]


def check_pairs(
    pairs: Iterable[Any], *, name: str = "pairs", start: int = 0
) -> list[tuple[list[str], list[str]]]:
    """Require two lists of words each, and return the pairs as tuples of lists."""
    found = []
    for row, pair in enumerate(pairs, start):
        apart = isinstance(pair, list | tuple) and len(pair) == 2
        require(apart, f"{name}[{row}]", "be two lists of words", repr(pair))
        first, second = check_sentences(pair, name=f"{name}[{row}]")
        found.append((first, second))
    return found
