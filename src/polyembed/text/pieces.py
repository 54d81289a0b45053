"""Sentences cut into the pieces of a sub-word model, and the word that each piece belongs to."""

import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal, NamedTuple, Self

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from polyembed._checks import (
    check_choice,
    check_positive,
    check_sentences,
    class_name,
    must,
    require,
)

OVERFLOW = ("error", "truncate", "window")
UNLIMITED = 10**9  # tokenizers without a limit report 10**30


class Pieces(NamedTuple):
    """A batch of sentences cut into pieces: the input of every contextual embedder.

    Attributes:
        piece_ids: Ids of the sub-word model's pieces, ``(batch, piece)`` int64.
        piece_mask: True = a real piece, ``(batch, piece)``.
        word_index: The word that a piece belongs to, counted from 0 in each sentence; -1 for
            special pieces and padding, ``(batch, piece)`` int64.
        num_words: The number of words of the longest sentence, which `encode` fills in. If None, it
            is read from `word_index`, which makes a GPU's host wait.
    """

    piece_ids: Int[Tensor, "batch piece"]
    piece_mask: Bool[Tensor, "batch piece"]
    word_index: Int[Tensor, "batch piece"]
    num_words: int | None = None

    def to(self, device: torch.device | str) -> Self:
        """Return the same pieces on another device."""
        return self._replace(
            piece_ids=self.piece_ids.to(device),
            piece_mask=self.piece_mask.to(device),
            word_index=self.word_index.to(device),
        )

    def count_words(self) -> int:
        """Return `num_words`, or if it is None one more than the largest index."""
        if self.num_words is not None:
            return self.num_words
        return int(self.word_index.max()) + 1 if self.word_index.numel() else 0

    def check(self) -> None:
        """Require that words are numbered 0, 1, 2, ... in the order of their pieces; reads the
        values.

        Raises:
            ValueError: If there is a gap, a word is out of order, a masked piece has a word, or
                shapes differ.
        """
        shape = tuple(self.piece_ids.shape)
        for name, part in (("piece_mask", self.piece_mask), ("word_index", self.word_index)):
            require(tuple(part.shape) == shape, name, f"have shape {shape}", tuple(part.shape))
        owned = self.word_index >= 0
        hidden = bool((owned & ~self.piece_mask).any())
        require(not hidden, "word_index", "be -1 where piece_mask is off", "a word")
        top = self.word_index.cummax(1).values if self.word_index.numel() else self.word_index
        before = torch.cat([top.new_full((len(top), 1), -1), top[:, :-1]], 1)
        steps = (self.word_index - before)[owned]
        ordered = bool(((steps == 0) | (steps == 1)).all())
        rule = "count words 0, 1, 2, ... in the order of their pieces"
        require(ordered, "word_index", rule, "another order or a gap")


class SpecialPieces(NamedTuple):
    """The ids that a tokenizer puts around every sentence, for BERT ``[CLS]`` and ``[SEP]``."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def align_words(
    sentences: Sequence[Sequence[str]],
    tokenizer: Any,
    *,
    max_length: int | None = None,
    overflow: Literal["error", "truncate", "window"] = "error",
) -> Pieces:
    """Cut sentences of words into pieces, each with the number of its word.

    Every word is cut by itself, as the tokenizer cuts words inside a sentence, so no piece crosses
    a word and labels
    never shift: a byte-level tokenizer that needs a space before a word is given one. A word that
    the tokenizer drops (a zero-width space, the empty string, a lone surrogate) gets the unknown
    piece.

    Args:
        sentences: Lists of words; an empty one has its special pieces alone.
        tokenizer: A tokenizer of transformers, fast or slow, or a ``SentencePieceProcessor`` (which
            has no special pieces).
        max_length: The most pieces of a sentence, special ones included; the tokenizer's own limit
            if None.
        overflow: How to treat a longer sentence: ``"error"``; ``"truncate"``: words that do not fit
            whole have no pieces (an embedder gives them zeros); ``"window"``: leave it whole, for
            an encoder that reads long sentences in overlapping windows, as `PretrainedWordEncoder`
            does.

    Returns:
        Pieces on the CPU, padded, with the number of words of the longest sentence.

    Raises:
        ValueError: If a sentence is beyond the limit under ``"error"``, or the limit leaves no room
            for words.
        TypeError: If there is no tokenizer, a string is given in place of a list of words, or words
            are not strings.

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
    special = special_pieces(tokenizer)
    limit = room_for_pieces(tokenizer, max_length, sum(map(len, special)))
    cut = cut_words(sentences, tokenizer)
    around = sum(map(len, special))
    blank = _blank_pieces({ids[0] for ids in cut.values() if len(ids) > 1}, tokenizer)
    rows: list[list[int]] = []
    owners: list[list[int]] = []
    for row, words in enumerate(sentences):
        ids: list[int] = []
        index: list[int] = []
        for number, word in enumerate(words):
            if limit is not None and overflow != "window" and len(ids) + len(cut[word]) > limit:
                rule = f"have at most {limit + around} pieces (overflow= takes longer ones)"
                found = sum(len(cut[word]) for word in words) + around
                require(overflow == "truncate", f"sentences[{row}]", rule, found)
                break
            ids += cut[word]
            opens = len(cut[word]) > 1 and cut[word][0] in blank
            index += [-1 if opens else number, *[number] * (len(cut[word]) - 1)]
        rows.append([*special.before, *ids, *special.after])
        owners.append([*no_words(special.before), *index, *no_words(special.after)])
    return pad_pieces(rows, owners, padding_id(tokenizer), max(map(len, sentences), default=0))


def _blank_pieces(ids: Collection[int], tokenizer: Any) -> set[int]:
    """Return the pieces that are only the space before a word, as ByT5 has them."""
    name = tokenizer.id_to_piece if is_sentencepiece(tokenizer) else tokenizer.convert_ids_to_tokens
    return {i for i in ids if not str(name(i)).strip("\u2581\u0120 ")}


def special_pieces(tokenizer: Any) -> SpecialPieces:
    """Return the ids that a tokenizer puts around every sentence; none for a SentencePiece model.

    Args:
        tokenizer: As in `align_words`.

    Returns:
        The ids before and after.

    Raises:
        TypeError: If there is no tokenizer.
    """
    if is_sentencepiece(tokenizer):
        return SpecialPieces((), ())
    rule = "be of transformers or a SentencePieceProcessor"
    if not callable(tokenizer):
        raise TypeError(must("tokenizer", rule, class_name(tokenizer)))
    text = _known_text(tokenizer)
    bare = _encode([[text]], tokenizer, special=False)[0]
    full = _encode([[text]], tokenizer, special=True)[0]
    for start in range(len(full) - len(bare) + 1):
        if bare and full[start : start + len(bare)] == bare:
            return SpecialPieces(tuple(full[:start]), tuple(full[start + len(bare) :]))
    rule = "put special pieces before and after a sentence only"
    raise TypeError(must("tokenizer", rule, f"{bare} to {full}"))


def piece_limit(tokenizer: Any) -> int | None:
    """Return a tokenizer's own limit of pieces, special ones included; None without a limit."""
    limit = getattr(tokenizer, "model_max_length", None)
    return None if limit is None or limit > UNLIMITED else int(limit)


def room_for_pieces(tokenizer: Any, max_length: int | None, num_special: int) -> int | None:
    """Return the room beside special pieces, of `max_length` or else of the tokenizer's limit."""
    limit = piece_limit(tokenizer) if max_length is None else max_length
    if limit is None:
        return None
    check_positive(max_length=limit)
    require(limit > num_special, "max_length", "leave room beside the special pieces", limit)
    return limit - num_special


def no_words(special: Sequence[int]) -> list[int]:
    """Return the word index of special pieces."""
    return [-1] * len(special)


def pad_pieces(
    rows: Sequence[Sequence[int]],
    owners: Sequence[Sequence[int]],
    filler: int,
    num_words: int | None = None,
) -> Pieces:
    """Return one padded batch of rows of pieces and the words that they belong to."""
    width = max(map(len, rows), default=0)

    def padded(lists: Sequence[Sequence[int]], filler: int) -> Tensor:
        filled = [[*items, *[filler] * (width - len(items))] for items in lists]
        return torch.tensor(filled, dtype=torch.int64).reshape(len(lists), width)

    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    return Pieces(
        padded(rows, filler), torch.arange(width) < lengths[:, None], padded(owners, -1), num_words
    )


def cut_words(sentences: Iterable[Iterable[str]], tokenizer: Any) -> dict[str, list[int]]:
    """Cut each word by itself; a word that the tokenizer drops gets the unknown piece."""
    words = dict.fromkeys(word for sentence in sentences for word in sentence)
    sound = [word for word in words if word and _is_text(word)]
    opener = word_opener(tokenizer) if sound else ""
    found = dict(zip(sound, _cut([opener + word for word in sound], tokenizer), strict=True))
    unknown = [unknown_id(tokenizer)]
    return {word: found.get(word) or unknown for word in words}


def word_opener(tokenizer: Any) -> str:
    """Return the prefix that makes a tokenizer split a single word as it would inside a sentence.

    Args:
        tokenizer: As in `align_words`.

    Returns:
        A space for tokenizers that recognise the start of a word by the space before it and do not
        add one (byte-level ones, as those of RoBERTa and ModernBERT: alone, ``gusta`` would
        continue the word before); otherwise the empty string.
    """
    text = "a" if is_sentencepiece(tokenizer) else _known_text(tokenizer)
    first, later, both = _cut([text, f" {text}", f"{text} {text}"], tokenizer)
    return " " if first != later and both == first + later else ""


def _known_text(tokenizer: Any) -> str:
    """Return a text that a tokenizer cuts into pieces: some do not know the letter a."""
    special = set(tokenizer.all_special_ids)
    others: Iterable[str] = (
        tokenizer.decode([i]).strip() for i in range(len(tokenizer)) if i not in special
    )
    for text in itertools.chain(["a"], others):
        if text and _encode([[text]], tokenizer, special=False)[0]:
            return text
    return "a"


def _cut(texts: list[str], tokenizer: Any) -> list[list[int]]:
    if is_sentencepiece(tokenizer):
        return [list(ids) for ids in tokenizer.encode(texts, out_type=int)]
    return _encode([[text] for text in texts], tokenizer, special=False) if texts else []


def _encode(sentences: list[list[str]], tokenizer: Any, *, special: bool) -> list[list[int]]:
    # no truncation and no warning: the limit applies to whole sentences, assembled later
    options = {"truncation": False, "padding": False, "verbose": False}
    found = tokenizer(sentences, is_split_into_words=True, add_special_tokens=special, **options)
    ids: list[list[int]] = found["input_ids"]
    return ids


def _is_text(word: str) -> bool:
    """Return whether a string can be encoded: a lone surrogate cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in word)


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
