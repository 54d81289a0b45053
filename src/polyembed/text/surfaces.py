"""The text of a sub-word model's pieces, without the tokenizer's marks."""

import re
from typing import Any, NamedTuple

from tokenizers.decoders import ByteLevel

from polyembed._checks import require
from polyembed.text.pieces import UNREADABLE, is_sentencepiece

CONTINUES, SPACE, ENDS, BYTE_SPACE = "##", "\u2581", "</w>", "\u0120"
NO_TEXT = re.compile(r"<0x[0-9A-F]{2}>|\[unused\d+\]")


class PieceSurface(NamedTuple):
    """A piece as text.

    Attributes:
        text: The characters of the piece, without the tokenizer's marks.
        edge: Whether the piece is at the edge of its word: the start, or the end where the
            tokenizer marks ends.
    """

    text: str
    edge: bool


def piece_surfaces(tokenizer: Any) -> list[PieceSurface | None]:
    """Return the text of each piece of a vocabulary.

    Tokenizers mark the edges of words in one of four ways, which is read from the vocabulary:
    ``##ta`` continues a word (WordPiece), ``▁ta`` starts one (SentencePiece), ``ta</w>`` ends one,
    ``Ġta`` starts one and characters encode bytes (byte-level).

    Args:
        tokenizer: A tokenizer of transformers, fast or slow, or a ``SentencePieceProcessor``.

    Returns:
        One surface for each id, in order; None for ids without text: added and special pieces,
        bytes (``<0xE2>``, and byte-level pieces that end inside a character), ``[unused1]``, and
        ids without a piece.

    Raises:
        ValueError: If the vocabulary marks no edges.

    Example:
        >>> from tokenizers import Tokenizer, models
        >>> from transformers import PreTrainedTokenizerFast
        >>> vocabulary = {"[UNK]": 0, "gus": 1, "##ta": 2}
        >>> rules = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        >>> piece_surfaces(PreTrainedTokenizerFast(tokenizer_object=rules, unk_token="[UNK]"))
        [None, PieceSurface(text='gus', edge=True), PieceSurface(text='ta', edge=False)]
    """
    if is_sentencepiece(tokenizer):
        count = tokenizer.get_piece_size()
        tests = tokenizer.is_control, tokenizer.is_unknown, tokenizer.is_byte, tokenizer.is_unused
        ids = (i for i in range(count) if not any(test(i) for test in tests))
        vocabulary = {i: tokenizer.id_to_piece(i) for i in ids}
    else:
        known = tokenizer.get_vocab()
        count = max(known.values(), default=-1) + 1
        apart = {*tokenizer.all_special_ids, *getattr(tokenizer, "added_tokens_decoder", {})}
        vocabulary = {i: piece for piece, i in known.items() if i not in apart}
    vocabulary = {i: piece for i, piece in vocabulary.items() if not NO_TEXT.fullmatch(piece)}
    counts = {
        mark: sum(mark in piece and piece != CONTINUES for piece in vocabulary.values())
        for mark in (CONTINUES, SPACE, ENDS, BYTE_SPACE)
    }
    mark = max(counts, key=counts.__getitem__)
    rule = "mark the edges of words by ##, \u2581, </w> or \u0120"
    require(counts[mark] > 0, "tokenizer", rule, "none of them")
    return [_surface(vocabulary[i], mark) if i in vocabulary else None for i in range(count)]


def word_text(word: str, tokenizer: Any) -> str:
    """Return a word as a fast tokenizer normalises it; unchanged if it cannot be encoded."""
    core = getattr(tokenizer, "backend_tokenizer", None)
    normalizer = getattr(core, "normalizer", None)
    if normalizer is None or UNREADABLE.search(word):
        return word
    return str(normalizer.normalize_str(word)).replace(SPACE, " ").strip(" ")


def _surface(piece: str, mark: str) -> PieceSurface | None:
    if mark == BYTE_SPACE:  # each character is a byte of the text
        piece, mark = ByteLevel().decode([piece]), " "
        if "\ufffd" in piece:  # it ends inside a character
            return None
    if mark == ENDS:
        return PieceSurface(piece.removesuffix(ENDS), piece.endswith(ENDS))
    marked = piece.startswith(mark) and piece != CONTINUES
    text = piece.removeprefix(mark) if marked else piece
    return PieceSurface(text, marked != (mark == CONTINUES))
