"""Texts from many sources, and the examples of pieces that a masked language model is given of them."""

import bz2
import gzip
import hashlib
import itertools
import logging
import lzma
import math
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from torch import nn

from polyembed._checks import check_file, class_name, must, require
from polyembed.text.pieces import word_opener

POOL = 32  # batches whose examples are sorted by length together
_OPENERS: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}

T = TypeVar("T")
Texts = (
    str
    | os.PathLike[str]
    | Iterable[str]
    | Sequence[os.PathLike[str]]
    | Callable[[], Iterator[str]]
)


class TextCorpus:
    """Texts that can be opened, again and again unless they are an iterator."""

    def __init__(self, texts: Texts | Iterable[Any]) -> None:
        self.sequence: Sequence[str] | None = None
        self.repeatable = True
        self.paths: list[Path] = []
        if isinstance(texts, str | os.PathLike):
            texts = [Path(texts)]
        if (
            isinstance(texts, Sequence)
            and len(texts)
            and all(isinstance(part, os.PathLike) for part in texts)
        ):
            self.paths = paths = [check_file(path, name="texts") for path in texts]
            self.open: Callable[[], Iterator[str]] = lambda: itertools.chain.from_iterable(
                map(_read_lines, paths)
            )
        elif isinstance(texts, Sequence):
            held: Sequence[Any] = texts
            self.sequence = held
            self.open = lambda: iter(held)
        elif callable(texts):
            source = texts
            self.open = lambda: iter(source())
        elif isinstance(texts, Iterable):
            stream: Iterable[Any] = texts
            self.repeatable = not isinstance(stream, Iterator)
            self.open = lambda: iter(stream)
        else:
            rule = "be strings, files or a function that gives an iterator"
            raise TypeError(must("texts", rule, class_name(texts)))

    def content(self) -> list[Any] | None:
        """Return the texts, or digests of the files; None for a function or another iterable."""
        if self.sequence is not None:
            return [_content(text) for text in self.sequence]
        digests = []
        for path in self.paths:
            with path.open("rb") as file:
                digests.append(hashlib.file_digest(file, "sha256").hexdigest())
        return digests or None

    def shuffled(self, rng: random.Random, buffer_size: int) -> Iterator[str]:
        """Yield the texts of an epoch in random order."""
        if self.sequence is not None:
            order = list(range(len(self.sequence)))
            rng.shuffle(order)
            for i in order:
                yield self.sequence[i]
            return
        buffer: list[str] = []
        for text in self.open():
            if len(buffer) < buffer_size:
                buffer.append(text)
                continue
            i = rng.randrange(buffer_size)
            yield buffer[i]
            buffer[i] = text
        rng.shuffle(buffer)
        yield from buffer


class Example(NamedTuple):
    """Ids of pieces with the special ones; of each whether it is special, its word (None =
    special), and its priority.

    Pieces with priority are masked before others; without them `priority` is empty.
    """

    ids: list[int]
    special: list[int]
    word_ids: list[int | None]
    priority: Sequence[bool] = ()

    @property
    def size(self) -> int:
        """How many pieces are not special."""
        return len(self.ids) - sum(self.special)


class ExampleEncoder:
    """Turns texts into examples that fit the model."""

    def __init__(
        self, model: nn.Module, tokenizer: Any, *, max_length: int, truncation: bool
    ) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise TypeError(
                must("tokenizer", "be a fast transformers tokenizer", class_name(tokenizer))
            )
        for kind in ("mask", "pad"):
            found = getattr(tokenizer, f"{kind}_token_id")
            require(found is not None, "tokenizer", f"have a {kind} piece", "none")
        special = tokenizer.num_special_tokens_to_add()
        require(
            max_length > special,
            "max_length",
            f"leave room beside {special} special pieces",
            max_length,
        )
        limit = _position_limit(model)
        require(
            max_length <= limit,
            "max_length",
            f"be at most the model's {limit} positions",
            max_length,
        )
        size = model.get_input_embeddings().num_embeddings  # type: ignore[operator]
        require(
            len(tokenizer) <= size,
            "tokenizer",
            f"have at most the model's {size} pieces",
            len(tokenizer),
        )
        self.tokenizer = tokenizer
        self.opener = word_opener(tokenizer)
        self.max_length = max_length
        self.truncation = truncation

    def __call__(self, texts: Iterable[str], name: str = "texts") -> Iterator[Example]:
        for group in chunked(texts, 256):
            kept = [
                text for text in (_sound(_check_text(text, name)) for text in group) if text.strip()
            ]
            if not kept:
                continue
            for example in self._encode(kept, return_overflowing_tokens=not self.truncation):
                if example.size:
                    yield example

    def words(self, words: Sequence[str], name: str) -> Iterator[tuple[int, Example]]:
        """Yield the parts of a sentence that fit, each with the number of its first word."""
        if not words:
            return
        words = [_sound(_check_text(word, f"{name}.words")) for word in words]
        words = [self.opener + word if word else word for word in words]
        room = self.max_length - self.tokenizer.num_special_tokens_to_add()
        lengths = [0] * len(words)
        (whole,) = self._encode([list(words)], is_split_into_words=True, truncation=False)
        for word in whole.word_ids:
            if word is not None:
                lengths[word] += 1
        first, used = 0, 0
        for i, length in enumerate(lengths):
            rule = f"have at most {room} pieces (max_length without the special ones)"
            require(length <= room, f"{name}.words[{i}]", rule, length)
            if used + length > room:
                yield first, self._part(words[first:i])
                first, used = i, 0
            used += length
        yield first, self._part(words[first:]) if first else whole

    def _part(self, words: Sequence[str]) -> Example:
        (part,) = self._encode([list(words)], is_split_into_words=True, truncation=False)
        return part

    def _encode(self, texts: list[Any], **options: Any) -> list[Example]:
        options = {"truncation": True, "max_length": self.max_length, **options}
        if not options["truncation"]:
            del options["max_length"]
        with _silenced_length_warning():
            encoded = self.tokenizer(
                texts, return_special_tokens_mask=True, return_attention_mask=False, **options
            )
        pairs = zip(encoded["input_ids"], encoded["special_tokens_mask"], strict=True)
        return [
            Example(ids, special, encoded.word_ids(i)) for i, (ids, special) in enumerate(pairs)
        ]


def check_masked_lm(model: object) -> None:
    """Require a transformers model with a masked-LM head."""
    from transformers import PreTrainedModel

    head = getattr(model, "get_output_embeddings", lambda: None)()
    if not isinstance(model, PreTrainedModel) or head is None:
        raise TypeError(
            must(
                "model", "be a transformers model for masked language modelling", class_name(model)
            )
        )


def check_masking(mlm_probability: float) -> None:
    """Require a probability between 0 and 1."""
    require(0.0 < mlm_probability < 1.0, "mlm_probability", "lie between 0 and 1", mlm_probability)


def chunked(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of so many values; the last may be shorter."""
    rest = iter(values)
    while chunk := list(itertools.islice(rest, size)):
        yield chunk


def _read_lines(path: Path) -> Iterator[str]:
    opener = _OPENERS.get(path.suffix, open)
    with opener(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield line.rstrip("\r\n")


def _check_text(text: object, name: str) -> str:
    if not isinstance(text, str):
        raise TypeError(must(name, "hold strings", class_name(text)))
    return text


def _content(text: Any) -> Any:
    return (
        [*text.words, *(text.languages or ())]
        if hasattr(text, "languages")
        else _check_text(text, "texts")
    )


def _sound(text: str) -> str:
    """Leave out lone surrogates, which no tokenizer takes."""
    return text.encode("utf-8", "ignore").decode()


def _position_limit(model: nn.Module) -> float:
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            # RoBERTa and its likes count positions from after the padding's
            return module.num_embeddings - (
                0 if module.padding_idx is None else module.padding_idx + 1
            )
    return math.inf


@contextmanager
def _silenced_length_warning() -> Iterator[None]:
    """Silence the tokenizer's warning of a sentence longer than the model, which is cut here."""
    logger = logging.getLogger("transformers.tokenization_utils_base")
    disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = disabled
