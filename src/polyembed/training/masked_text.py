"""Texts from many sources, and the examples of pieces that a masked language model reads."""

import bz2
import gzip
import lzma
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from polyembed._batches import chunked
from polyembed._checks import check_file, require, require_type
from polyembed.encoders.pretrained import most_positions
from polyembed.text.pieces import word_opener

OPENERS: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}

Texts = str | os.PathLike[str] | Iterable[Any] | Callable[[], Iterable[Any]]
"""Strings; the path of a file with a text per line, or several paths; or a function of strings."""


class Example(NamedTuple):
    """The pieces of a text, special pieces included.

    Attributes:
        ids: The ids of the pieces.
        special: 1 for a special piece, 0 for another.
        words: The number of the word of each piece; None for a special piece.
        priority: Whether each piece is masked before others; empty if no piece is.
    """

    ids: list[int]
    special: list[int]
    words: list[int | None]
    priority: Sequence[bool] = ()

    @property
    def size(self) -> int:
        """The number of pieces that are not special."""
        return len(self.ids) - sum(self.special)


class ExampleEncoder:
    """An encoder of texts as examples that fit a model; it checks the model and the tokenizer."""

    def __init__(
        self, model: Any, tokenizer: Any, *, max_length: int, truncation: bool = False
    ) -> None:
        from transformers import MODEL_FOR_CAUSAL_LM_MAPPING as CAUSAL
        from transformers import MODEL_FOR_MASKED_LM_MAPPING as MASKED
        from transformers import PreTrainedModel

        kind: Any = type(getattr(model, "config", None))
        causal: Any = {CAUSAL.get(kind, None)} - {MASKED.get(kind, None)}
        known = isinstance(model, PreTrainedModel) and type(model) not in causal
        predicts = known and model.get_output_embeddings() is not None
        rule = "be a transformers model for masked language modelling"
        require_type(predicts, "model", rule, model)
        rule = "be a fast tokenizer of transformers"
        require_type(getattr(tokenizer, "is_fast", False), "tokenizer", rule, tokenizer)
        require(tokenizer.mask_token_id is not None, "tokenizer", "have a mask piece", "none")
        side = tokenizer.truncation_side
        require(side == "right", "tokenizer", "cut texts at the right (truncation_side)", side)
        self.room = max_length - tokenizer.num_special_tokens_to_add()
        require(self.room > 0, "max_length", "leave room beside special pieces", max_length)
        limit = most_positions(model)
        rule = f"be at most the model's {limit} positions"
        require(limit is None or max_length <= limit, "max_length", rule, max_length)
        size = model.get_input_embeddings().num_embeddings
        rule = f"have at most the model's {size} pieces"
        require(len(tokenizer) <= size, "tokenizer", rule, len(tokenizer))
        self.tokenizer, self.opener = tokenizer, word_opener(tokenizer)
        self.max_length, self.truncation = max_length, truncation

    def texts(self, texts: Iterable[str]) -> Iterator[Example]:
        """Yield the examples of texts: a long text has several, a text without pieces has none."""
        for group in chunked(texts, 256):
            kept = [text for text in map(_sound, group) if text.strip()]
            if not kept:
                continue
            encoded = self.tokenizer(
                kept,
                truncation=True,
                max_length=self.max_length,
                return_overflowing_tokens=not self.truncation,
                return_special_tokens_mask=True,
                return_offsets_mapping=True,
            )
            whole = range(len(kept))
            for i, number in enumerate(encoded.get("overflow_to_sample_mapping", whole)):
                words = _words(kept[number], encoded["offset_mapping"][i], encoded.word_ids(i))
                one = Example(encoded["input_ids"][i], encoded["special_tokens_mask"][i], words)
                if one.size:
                    yield one

    def words(self, words: Sequence[str], name: str) -> Iterator[tuple[int, Example]]:
        """Yield the parts of a sentence that fit, each with the number of its first word."""
        words = list(map(_sound, words))
        counts = Counter(self._part(words).words)
        first = used = 0
        for i in range(len(words)):
            rule = f"have at most {self.room} pieces (max_length without the special ones)"
            require(counts[i] <= self.room, f"{name}.words[{i}]", rule, counts[i])
            if used + counts[i] > self.room:
                yield first, self._part(words[first:i])
                first, used = i, 0
            used += counts[i]
        yield first, self._part(words[first:])

    def _part(self, words: Sequence[str]) -> Example:
        encoded = self.tokenizer(
            [self.opener + word if word else word for word in words],
            is_split_into_words=True,
            return_special_tokens_mask=True,
            verbose=False,  # no warning of long sentences, which are cut afterwards
        )
        return Example(encoded["input_ids"], encoded["special_tokens_mask"], encoded.word_ids())


def read_texts(texts: Texts) -> list[Any]:
    """Return texts from any source, in memory.

    Args:
        texts: Strings; a path or a sequence of `Path`, of files with a text per line (``.xz``,
            ``.gz`` and ``.bz2`` are opened as such); or a function that returns an iterable.

    Returns:
        The texts.

    Raises:
        FileNotFoundError: If a file does not exist.
    """
    if callable(texts):
        texts = texts()
    held = [Path(texts)] if isinstance(texts, str | os.PathLike) else list(texts)
    if not held or not all(isinstance(part, os.PathLike) for part in held):
        return held
    found = []
    for path in map(check_file, held):
        with OPENERS.get(path.suffix, open)(path, "rt", encoding="utf-8-sig") as lines:
            found += [line.rstrip("\r\n") for line in lines]
    return found


def _words(
    text: str, offsets: Sequence[tuple[int, int]], word_ids: Sequence[int | None]
) -> list[int | None]:
    """Number the words of a text's pieces.

    A word ends where the tokenizer's pre-tokenizer says so, and at a space, because some tokenizers
    split no words. A piece that is only a space belongs to the word after it.
    """
    found: list[int | None] = []
    number, last, content_end, opened = -1, None, 0, False
    for (start, end), word in zip(offsets, word_ids, strict=True):
        if word is None:
            found.append(None)
            continue
        blank = not text[start:end].strip()
        gap = any(map(str.isspace, text[content_end:end].rstrip()))
        if not opened and (blank or gap or word != last):
            number += 1
        opened, last = blank, word
        if not blank:
            content_end = end
        found.append(number)
    return found


def _sound(text: str) -> str:
    """Return a text without lone surrogates, which no tokenizer takes."""
    require_type(isinstance(text, str), "a text", "be a string", text)
    return text.encode("utf-8", "ignore").decode()
