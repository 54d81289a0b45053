"""Sentences cut into the pieces of a sub-word model, and the word that each piece belongs to."""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from polyembed._checks import (
    check_choice,
    check_positive,
    check_sentences,
    check_shape,
    must,
    require,
    require_type,
)
from polyembed.text.spelling import mask_of, pad_rows

OVERFLOW = ("error", "truncate", "window")
UNLIMITED = 10**9  # tokenizers without a limit report 10**30
UNREADABLE = re.compile("\\A\\Z|[\ud800-\udfff]")  # the empty word, and words with a lone surrogate


class Pieces(NamedTuple):
    """A batch of sentences cut into pieces: the input of every contextual embedder.

    Attributes:
        piece_ids: The ids of the sub-word model's pieces, ``(batch, piece)`` int64.
        piece_mask: The mask of the pieces, True = a real piece, ``(batch, piece)``.
        word_index: The number of the word that a piece belongs to, counted from 0 in each sentence;
            -1 for special pieces and padding, ``(batch, piece)`` int64.
        num_words: The number of words of the longest sentence, which `align_words` fills in. If
            None, it is read from `word_index`, and the host waits for a GPU.
    """

    piece_ids: Int[Tensor, "batch piece"]
    piece_mask: Bool[Tensor, "batch piece"]
    word_index: Int[Tensor, "batch piece"]
    num_words: int | None = None

    def to(self, device: torch.device | str) -> Self:
        """Return the same pieces on another device."""
        ids, mask, index, num_words = self
        return type(self)(ids.to(device), mask.to(device), index.to(device), num_words)

    def count_words(self) -> int:
        """Return `num_words`; if it is None, one more than the largest entry of `word_index`."""
        if self.num_words is not None:
            return self.num_words
        return int(self.word_index.max()) + 1 if self.word_index.numel() else 0

    def check(self) -> None:
        """Require that words are numbered 0, 1, 2, ... in the order of their pieces; the check
        reads the values.

        Raises:
            ValueError: If the numbers have a gap, a word is out of order, a masked piece has a
                word, or shapes differ.
        """
        for name, part in (("piece_mask", self.piece_mask), ("word_index", self.word_index)):
            check_shape(name, part, self.piece_ids.shape)
        owned = self.word_index >= 0
        hidden = owned & ~self.piece_mask
        require(not hidden.any(), "word_index", "be -1 where piece_mask is off", "a word")
        before = F.pad(self.word_index, (1, 0), value=-1).cummax(1).values[:, :-1]
        steps = (self.word_index - before)[owned]
        rule = "count words 0, 1, 2, ... in the order of their pieces"
        require(bool((steps // 2 == 0).all()), "word_index", rule, "another order or a gap")


SpecialPieces = tuple[tuple[int, ...], tuple[int, ...]]
"""The ids before and after every sentence, for BERT ``[CLS]`` and ``[SEP]``."""


def align_words(
    sentences: Sequence[Sequence[str]],
    tokenizer: Any,
    *,
    max_length: int | None = None,
    overflow: Literal["error", "truncate", "window"] = "error",
) -> Pieces:
    """Cut sentences of words into pieces, each with the number of its word.

    Every word is cut by itself, as the tokenizer cuts words inside a sentence, so no piece crosses
    a word and labels never shift. A byte-level tokenizer that needs a space before a word gets this
    space. A word that the tokenizer drops (a zero-width space, the empty string, a lone surrogate)
    gets the unknown piece.

    Args:
        sentences: Lists of words; an empty sentence has its special pieces alone.
        tokenizer: A tokenizer of transformers, fast or slow, or a ``SentencePieceProcessor`` (which
            has no special pieces).
        max_length: The largest number of pieces of a sentence, special ones included; the
            tokenizer's own limit if None.
        overflow: How to treat a longer sentence. ``"error"`` raises an error. Under ``"truncate"``,
            the first word that does not fit whole and all later words have no pieces (an embedder
            gives them zeros). ``"window"`` leaves the sentence whole, for an encoder that reads
            long sentences in overlapping windows, as `PretrainedWordEncoder` does.

    Returns:
        The padded pieces, on the CPU, with the number of words of the longest sentence.

    Raises:
        ValueError: If a sentence is beyond the limit under ``"error"``, or the limit leaves no room
            for words.
        TypeError: If `tokenizer` is of another kind or puts special pieces inside a sentence, a
            string is given in place of a list of words, or a word is not a string.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import PreTrainedTokenizerFast
        >>> rules = Tokenizer(models.WordPiece({"[UNK]": 0, "me": 1, "gus": 2, "##ta": 3},
        ...     unk_token="[UNK]"))
        >>> rules.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        >>> pieces = align_words([["me", "gusta"]],
        ...     PreTrainedTokenizerFast(tokenizer_object=rules, unk_token="[UNK]"))
        >>> pieces.piece_ids.tolist(), pieces.word_index.tolist(), pieces.num_words
        ([[1, 2, 3]], [[0, 1, 1]], 2)
    """
    check_choice("overflow", overflow, OVERFLOW)
    sentences = check_sentences(sentences)
    before, after = special_pieces(tokenizer)
    around = len(before) + len(after)
    limit = room_for_pieces(tokenizer, max_length, around)
    cut = cut_words(sentences, tokenizer)
    name = tokenizer.id_to_piece if is_sentencepiece(tokenizer) else tokenizer.convert_ids_to_tokens
    firsts = {ids[0] for ids in cut.values() if len(ids) > 1}
    # pieces that are only the space before a word, as ByT5 has them
    blank = {i for i in firsts if not str(name(i)).strip("\u2581\u0120 ")}
    rows = []
    owners = []
    for words in sentences:
        ids: list[int] = []
        index: list[int] = []
        for number, found in enumerate(cut[word] for word in words):
            if limit is not None and overflow != "window" and len(ids) + len(found) > limit:
                rule = f"have at most {limit + around} pieces (overflow= takes longer ones)"
                size = sum(len(cut[word]) for word in words) + around
                # not its row, which is another one in the batches of `predict`
                require(overflow == "truncate", f"sentence {' '.join(words)[:60]!r}", rule, size)
                break
            ids += found
            opens = len(found) > 1 and found[0] in blank
            index += [-1 if opens else number, *[number] * (len(found) - 1)]
        rows.append([*before, *ids, *after])
        owners.append([*[-1] * len(before), *index, *[-1] * len(after)])
    return pad_pieces(rows, owners, padding_id(tokenizer), max(map(len, sentences), default=0))


def special_pieces(tokenizer: Any) -> SpecialPieces:
    """Return the ids that a tokenizer puts around every sentence; none for a SentencePiece model.

    Args:
        tokenizer: As in `align_words`.

    Returns:
        The ids before a sentence, and the ids after it.

    Raises:
        TypeError: If `tokenizer` is of another kind, or puts special pieces inside a sentence.
    """
    if is_sentencepiece(tokenizer):
        return (), ()
    rule = "be of transformers or a SentencePieceProcessor"
    require_type(callable(tokenizer), "tokenizer", rule, tokenizer)
    text = _known_text(tokenizer)
    (bare,), (full,) = _cut([text], tokenizer), _cut([text], tokenizer, special=True)
    for start in range(len(full) - len(bare) + 1):
        if bare and full[start : start + len(bare)] == bare:
            return tuple(full[:start]), tuple(full[start + len(bare) :])
    rule = "put special pieces before and after a sentence only"
    raise TypeError(must("tokenizer", rule, f"{bare} to {full}"))


def piece_limit(tokenizer: Any) -> int | None:
    """Return a tokenizer's own limit of pieces, special ones included; None without a limit."""
    limit = getattr(tokenizer, "model_max_length", None)
    return None if limit is None or limit > UNLIMITED else int(limit)


def room_for_pieces(tokenizer: Any, max_length: int | None, num_special: int) -> int | None:
    """Return the number of pieces that fit beside the special ones; None without any limit."""
    limit = piece_limit(tokenizer) if max_length is None else max_length
    if limit is None:
        return None
    check_positive(max_length=limit)
    require(limit > num_special, "max_length", "leave room beside the special pieces", limit)
    return limit - num_special


def pad_pieces(
    rows: Sequence[Sequence[int]],
    owners: Sequence[Sequence[int]],
    filler: int,
    num_words: int | None = None,
) -> Pieces:
    """Return one padded batch of rows of pieces and the words that they belong to."""
    return Pieces(pad_rows(rows, filler), mask_of(rows), pad_rows(owners, -1), num_words)


def cut_words(sentences: Iterable[Iterable[str]], tokenizer: Any) -> dict[str, list[int]]:
    """Cut each word by itself; a word that the tokenizer drops gets the unknown piece."""
    words = dict.fromkeys(word for sentence in sentences for word in sentence)
    sound = [word for word in words if not UNREADABLE.search(word)]
    opener = word_opener(tokenizer) if sound else ""
    found = dict(zip(sound, _cut([opener + word for word in sound], tokenizer), strict=True))
    unknown = [unknown_id(tokenizer)]
    return {word: found.get(word) or unknown for word in words}


def word_opener(tokenizer: Any) -> str:
    """Return the prefix that makes a tokenizer split a single word as it would inside a sentence.

    Args:
        tokenizer: As in `align_words`.

    Returns:
        A space if the tokenizer recognises the start of a word by the space before it and does not
        add this space itself; otherwise the empty string. The byte-level tokenizers of RoBERTa and
        ModernBERT need the space: alone, ``gusta`` would continue the word before.
    """
    text = "a" if is_sentencepiece(tokenizer) else _known_text(tokenizer)
    first, later, both = _cut([text, f" {text}", f"{text} {text}"], tokenizer)
    return " " if first != later and both == first + later else ""


def _known_text(tokenizer: Any) -> str:
    """Return a text that a tokenizer cuts into pieces; some tokenizers do not know the letter a."""
    special = set(tokenizer.all_special_ids)
    others = (tokenizer.decode([i]).strip() for i in range(len(tokenizer)) if i not in special)
    known = (t for t in itertools.chain("a", others) if t and _cut([t], tokenizer)[0])
    return next(known, "a")


def _cut(texts: list[str], tokenizer: Any, *, special: bool = False) -> list[list[int]]:
    if is_sentencepiece(tokenizer):
        return [list(ids) for ids in tokenizer.encode(texts, out_type=int)]
    if not texts:
        return []
    found = tokenizer(
        [[text] for text in texts],
        is_split_into_words=True,
        add_special_tokens=special,
        truncation=False,  # and no warning: the limit applies to whole sentences, assembled later
        verbose=False,
        return_attention_mask=False,
        return_token_type_ids=False,
    )
    return list(found["input_ids"])


def is_sentencepiece(tokenizer: Any) -> bool:
    """Return whether a tokenizer is a SentencePiece model, not one of transformers."""
    return hasattr(tokenizer, "piece_to_id") and hasattr(tokenizer, "unk_id")


def unknown_id(tokenizer: Any) -> int:
    """Return the id of the piece for words that cannot be cut."""
    if is_sentencepiece(tokenizer):
        return int(tokenizer.unk_id())
    # byte-level models have no unknown piece, and cut everything but the empty word
    ids = (tokenizer.unk_token_id, tokenizer.mask_token_id, tokenizer.eos_token_id, 0)
    return next(int(i) for i in ids if i is not None)


def padding_id(tokenizer: Any) -> int:
    """Return the id of the padding piece, 0 for a tokenizer without one."""
    found = tokenizer.pad_id() if is_sentencepiece(tokenizer) else tokenizer.pad_token_id
    return 0 if found is None or found < 0 else int(found)
