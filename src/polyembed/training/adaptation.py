"""Masked language modelling: adapting an encoder to text, and what it then makes of held-out and of mixed text."""

import bz2
import gzip
import itertools
import json
import logging
import lzma
import math
import os
import random
import shutil
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, overload

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from polyembed._checks import (
    check_choice,
    check_device,
    check_file,
    check_positive,
    class_name,
    import_optional,
    must,
    require,
)
from polyembed._pretrained import usual_mode
from polyembed.text.pieces import word_opener

RECORD_NAME = "adaptation.json"
WEIGHTS_NAME = "weights.safetensors"
COMPLETE_NAME = "complete"
NO_LANGUAGE = frozenset({"_", "OTHER", "other", "ne", "ambiguous", "unk"})
"""Tags of words that have no language: SAGT's ``CSID`` and LinCE's; `switch_points` looks through such words."""
_POOL = 32  # batches whose examples are sorted by length together
_OPENERS: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}

T = TypeVar("T")
Texts = str | os.PathLike[str] | Iterable[str] | Sequence[os.PathLike[str]] | Callable[[], Iterator[str]]


class Spoken(Protocol):
    """A sentence with one language a word, such as `polyembed.data.TaggedSentence`."""

    @property
    def words(self) -> Sequence[str]:
        """The words, in order."""

    @property
    def languages(self) -> Sequence[str] | None:
        """One language a word."""


class AdaptationResult(NamedTuple):
    """What an adaptation came to; the model holds the last step's weights.

    Attributes:
        losses: The mean masked-LM loss, in nats, of each `logging_steps` steps; the last one of those left over.
        steps: Steps of the optimiser, over all calls that went on from one another.
        tokens: Pieces seen, special ones and padding left out; a piece counts again in each epoch.
    """

    losses: tuple[float, ...]
    steps: int
    tokens: int


class MaskedScore(NamedTuple):
    """How well masked pieces were predicted.

    Attributes:
        accuracy: The share of pieces whose most probable prediction is right; NaN if there are none.
        loss: Their mean cross-entropy, in nats; NaN if there are none.
        pieces: How many pieces.
        words: How many words they belong to.
    """

    accuracy: float
    loss: float
    pieces: int
    words: int


class SwitchPoints(NamedTuple):
    """Scores at code-switch points apart from the rest.

    Attributes:
        switch: Words whose language differs from that of the last word before them that has one.
        rest: The other words with a language, the first of each sentence among them.
        no_language: Words without a language, such as punctuation.
    """

    switch: MaskedScore
    rest: MaskedScore
    no_language: MaskedScore


def adapt_masked_lm(
    model: nn.Module,
    tokenizer: Any,
    texts: Texts,
    *,
    num_train_epochs: int = 3,
    max_steps: int | None = None,
    mlm_probability: float = 0.15,
    whole_word_mask: bool = False,
    max_length: int = 128,
    truncation: bool = False,
    batch_size: int = 8,
    learning_rate: float = 5e-5,
    lr_scheduler_type: Literal["linear", "cosine", "constant", "constant_with_warmup"] = "linear",
    warmup_steps: int = 0,
    weight_decay: float = 0.0,
    max_grad_norm: float = 1.0,
    bf16: bool = False,
    device: str | torch.device | None = None,
    seed: int = 0,
    shuffle_buffer: int = 10_000,
    logging_steps: int = 50,
    folder: str | os.PathLike[str] | None = None,
    save_steps: int = 500,
    progress: bool | None = None,
) -> AdaptationResult:
    r"""Go on training a masked language model on `texts`, by transformers' own `Trainer` and data collator.

    .. math:: L = -\frac{1}{|M|} \sum_{i \in M} \log p(x_i \mid \tilde{x})

    over a batch, where each piece is in M with probability `mlm_probability` and x~ has, in the places of M,
    80 % mask pieces, 10 % random pieces and 10 % the pieces themselves (2503.07990, section "Method").

    **Masks** are dynamic: drawn anew for each batch of each epoch. A batch in which chance chose no piece gets one.
    With `whole_word_mask` words are drawn, as the tokenizer's pre-tokenizer splits them, and all their pieces replaced
    by mask pieces (the collator has no 80/10/10 there).

    **Examples**: one a text, never two texts in one. A text longer than `max_length` becomes several examples, so that
    nothing is lost; with `truncation` its tail is. Texts without a piece are left out, as are lone surrogates.

    **Order**: a sequence is shuffled as a whole each epoch. A stream, that is any other source, goes through a buffer
    of `shuffle_buffer` texts: each text that comes out is drawn from those in the buffer, so a file that is sorted by
    language stays roughly sorted unless the buffer is as large as its parts. Then `32 * batch_size` examples at a time
    are sorted by length, cut into batches, and the batches shuffled: little padding.

    **Memory**: texts are tokenised as they are needed and forgotten. Of a stream at most `shuffle_buffer` texts and
    the pieces of 32 batches are held. Without `max_steps` the texts are tokenised once beforehand, to count the steps.

    **Resuming**: with `folder`, every `save_steps` steps the Trainer's state goes to a checkpoint. After a kill the
    same call goes on from the last one to the very weights and losses that it would have reached: each step draws its
    masks and dropout from `seed` and its own number. A stream is read again up to that point. When finished, the
    folder holds the last weights and the result, and the same call returns at once.

    The caller's random state, the model's device and its modes are as before afterwards. Nothing is reported anywhere
    and nothing is written outside `folder`.

    Deviations: the paper truncates texts at 128 pieces; here the rest becomes further examples. It does not name the
    learning rate, the schedule, the order of texts, nor the shares of mask, random and kept pieces (the collator's
    defaults).

    Args:
        model: A transformers model for masked language modelling.
        tokenizer: Its tokenizer, a fast one, with a mask piece.
        texts: A sequence of strings; one path or a sequence of `Path`, of files with one text a line (``.xz``,
            ``.gz`` and ``.bz2`` are opened as such); a function that gives a new iterator at each call; or any
            iterable, one that can only be read once with `max_steps` and without `folder`. A bare string is a path.
        num_train_epochs: Passes over the texts.
        max_steps: So many steps instead, over as many epochs as that takes.
        mlm_probability: The probability with which a piece, or a word, is masked.
        whole_word_mask: Whether all pieces of a word are masked together.
        max_length: The most pieces of an example, special ones included.
        truncation: Whether the rest of a longer text is dropped.
        batch_size: Examples a step.
        learning_rate: The highest learning rate, of AdamW.
        lr_scheduler_type: The learning rate after the warm-up, down to 0 at the last step or constant.
        warmup_steps: Steps in which the learning rate grows from 0.
        weight_decay: AdamW's, on weights that are neither biases nor of layer norms.
        max_grad_norm: Clip the gradient's norm to this; 0 = never.
        bf16: Autocast to bfloat16; the weights stay as they are.
        device: Where to train: ``"cpu"``, or ``"cuda"`` for the first visible GPU; where the model is if None.
        seed: Of the order, the masks and dropout.
        shuffle_buffer: Texts of a stream held for shuffling.
        logging_steps: Steps that each loss is the mean of.
        folder: Where to keep checkpoints and the result; None: nowhere.
        save_steps: Steps from one checkpoint to the next, a multiple of `logging_steps`.
        progress: Whether to show a progress bar (on stderr); if None, only on a terminal.

    Returns:
        The losses, steps and tokens.

    Raises:
        ImportError: accelerate, which the Trainer needs, is missing.
        ValueError: Nothing to train on, options out of range, a loss that is not finite, a folder of another run, or
            several processes.
        TypeError: A model without a masked-LM head, a slow tokenizer, or texts that are not strings.
        FileNotFoundError: A file that is not there.

    Example:
        >>> from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> words = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[MASK]", "me", "gusta", "that", "song"])}
        >>> core = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
        >>> core.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, **special)
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
        >>> model = BertForMaskedLM(BertConfig(vocab_size=7, **sizes))
        >>> texts = ["me gusta that song"] * 16
        >>> before = perplexity(model, tokenizer, texts)
        >>> result = adapt_masked_lm(model, tokenizer, texts, num_train_epochs=2, learning_rate=0.01)
        >>> result.steps, result.tokens, perplexity(model, tokenizer, texts) < before
        (4, 128, True)
    """
    import_optional("accelerate", pip='"polyembed[train]"', feature="adapt_masked_lm")
    check_positive(
        num_train_epochs=num_train_epochs,
        max_steps=1 if max_steps is None else max_steps,
        max_length=max_length,
        batch_size=batch_size,
        shuffle_buffer=shuffle_buffer,
        logging_steps=logging_steps,
        save_steps=save_steps,
    )
    _check_masking(mlm_probability)
    rule = "be a multiple of logging_steps"
    require(folder is None or save_steps % logging_steps == 0, "save_steps", f"{rule}, {logging_steps}", save_steps)
    check_choice("lr_scheduler_type", lr_scheduler_type, ("linear", "cosine", "constant", "constant_with_warmup"))
    rates = {"learning_rate": learning_rate, "weight_decay": weight_decay, "max_grad_norm": max_grad_norm}
    for name, value in {**rates, "warmup_steps": warmup_steps}.items():
        require(value >= 0, name, "not be negative", value)
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    require(alone, "adapt_masked_lm", "run in one process", "a launcher's several")
    _check_model(model)
    encoder = _Encoder(model, tokenizer, max_length=max_length, truncation=truncation)
    home = next(model.parameters()).device
    where = _check_device(device, home)
    corpus = _Corpus(texts)
    rule = "be readable again and again (give a function, files or a sequence)"
    if max_steps is None or folder is not None:
        reason = "without max_steps" if max_steps is None else "with folder"
        require(corpus.repeatable, "texts", rule, f"an iterator that can be read once, {reason}")
    options = {
        "num_train_epochs": num_train_epochs if max_steps is None else None,
        "max_steps": max_steps,
        "mlm_probability": mlm_probability,
        "whole_word_mask": whole_word_mask,
        "max_length": max_length,
        "truncation": truncation,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "lr_scheduler_type": lr_scheduler_type,
        "warmup_steps": warmup_steps,
        "weight_decay": weight_decay,
        "max_grad_norm": max_grad_norm,
        "bf16": bf16,
        "seed": seed,
        "shuffle_buffer": None if corpus.sequence is not None else shuffle_buffer,
        "logging_steps": logging_steps,
        "save_steps": save_steps,
    }
    batches = _Batches(corpus, encoder, batch_size=batch_size, shuffle_buffer=shuffle_buffer, seed=seed)
    record = None if folder is None else _Record(Path(folder), _fingerprint(model, tokenizer, corpus, options))
    if record is not None and record.result is not None:
        record.load_weights(model)
        return record.result
    if max_steps is None:
        size = (record and record.size) or batches.measure()
        require(size[0] > 0, "texts", "hold at least one text with a piece", "none")
        max_steps = num_train_epochs * size[0]
        batches.size = size
    if record is not None:
        record.size = batches.size
        record.save()

    collate = _collator(tokenizer, mlm_probability, whole_word_mask=whole_word_mask, seed=seed)
    checkpoint = None if record is None else record.last_checkpoint()
    start = 0 if checkpoint is None else int(checkpoint.name.rpartition("-")[2])
    stream = _Stream(batches, collate, start=start, stop=max_steps)
    with tempfile.TemporaryDirectory() as scratch, _untouched(model):
        losses = _train(
            model,
            stream,
            checkpoint,
            seed=seed,
            progress=progress,
            output_dir=str(scratch if record is None else record.checkpoints),
            use_cpu=where.type == "cpu",
            per_device_train_batch_size=batch_size,
            max_steps=max_steps,
            learning_rate=learning_rate,
            lr_scheduler_type=lr_scheduler_type,
            warmup_steps=warmup_steps,
            weight_decay=weight_decay,
            max_grad_norm=max_grad_norm,
            bf16=bf16,
            logging_steps=logging_steps,
            save_strategy="no" if record is None else "steps",
            save_steps=save_steps,
        )
    model.to(home)
    result = AdaptationResult(losses, max_steps, stream.tokens)
    if record is not None:
        record.finish(model, result)
    return result


@overload
def perplexity(
    model: nn.Module,
    tokenizer: Any,
    texts: Mapping[str, Texts],
    *,
    mlm_probability: float = ...,
    max_length: int = ...,
    truncation: bool = ...,
    batch_size: int = ...,
    seed: int = ...,
) -> dict[str, float]: ...
@overload
def perplexity(
    model: nn.Module,
    tokenizer: Any,
    texts: Texts,
    *,
    mlm_probability: float = ...,
    max_length: int = ...,
    truncation: bool = ...,
    batch_size: int = ...,
    seed: int = ...,
) -> float: ...
def perplexity(
    model: nn.Module,
    tokenizer: Any,
    texts: Texts | Mapping[str, Texts],
    *,
    mlm_probability: float = 0.15,
    max_length: int = 128,
    truncation: bool = False,
    batch_size: int = 16,
    seed: int = 0,
) -> float | dict[str, float]:
    r"""Measure a masked language model's pseudo-perplexity on held-out text, under fixed masks.

    .. math:: \exp\Bigl(-\frac{1}{|M|} \sum_{i \in M} \log p(x_i \mid x_{\setminus M})\Bigr)

    In each example of n pieces, `mlm_probability` of them, rounded, at least one, are replaced by the mask piece. Which
    ones depends on `seed` and the example alone: the same before and after an adaptation, in whatever order and
    batch. The mean runs over the masked pieces of all texts. Figures of tokenizers that differ are not comparable.

    Deviations: none of the papers defines it; pseudo-perplexity is also the name of the product over all pieces,
    each masked alone, which costs one pass a piece.

    Args:
        model: A transformers model for masked language modelling; in evaluation mode for the while.
        tokenizer: Its tokenizer, a fast one, with a mask piece.
        texts: As in `adapt_masked_lm`; or a mapping from languages to such, each measured apart.
        mlm_probability: The share of pieces masked.
        max_length: The most pieces of an example, special ones included; a longer text becomes several.
        truncation: Whether the rest of a longer text is dropped.
        batch_size: Examples a pass.
        seed: Of the masks.

    Returns:
        The perplexity, or one for each language.

    Raises:
        ValueError: No text with a piece, or options out of range.
        TypeError: A model without a masked-LM head, a slow tokenizer, or texts that are not strings.
        FileNotFoundError: A file that is not there.

    Example:
        ``perplexity(model, tokenizer, {"es": ["me gusta"], "en": ["that song"]})`` gives a dict of two figures; see
        `adapt_masked_lm` for a model and a tokenizer.
    """
    _check_masking(mlm_probability)
    check_positive(max_length=max_length, batch_size=batch_size)
    _check_model(model)
    encoder = _Encoder(model, tokenizer, max_length=max_length, truncation=truncation)

    def measure(name: str, texts: Texts) -> float:
        rows = (
            _Row(example.ids, _fixed_mask(example, mlm_probability, seed))
            for example in encoder(_Corpus(texts).open(), name)
        )
        total, count = 0.0, 0
        for _, losses, _ in _score(model, tokenizer, rows, batch_size):
            total, count = total + math.fsum(losses), count + len(losses)
        require(count > 0, name, "hold at least one text with a piece", "none")
        return float(torch.tensor(total / count, dtype=torch.float64).exp())

    if isinstance(texts, Mapping):
        return {language: measure(f"texts[{language!r}]", part) for language, part in texts.items()}
    return measure("texts", texts)


def switch_points(
    model: nn.Module,
    tokenizer: Any,
    sentences: Iterable[Spoken],
    *,
    folds: int | None = None,
    no_language: Collection[str] = NO_LANGUAGE,
    max_length: int = 128,
    batch_size: int = 16,
) -> SwitchPoints:
    """Score a masked language model at code-switch points apart from the rest.

    A word is a switch point if its language differs from that of the last word before it, in the same sentence, that
    has a language. Words whose tag is in `no_language` have none: a switch across a comma counts. A tag for words of
    mixed language (``MIXED``) is a language like others, unless it is in `no_language`.

    Every word is masked once, all its pieces together, each piece by one mask piece, so the number of pieces is given
    away. By default each in a pass of its own, with the whole rest of the sentence in sight: one row a word. With
    `folds` = k the words i, i + k, i + 2k, ... are masked in one row: k rows a sentence, faster, less in sight.

    A sentence of more than `max_length` pieces is cut between words into parts that fit; no word is lost, and a part's
    first word may be a switch point by the part before. A word of which the tokenizer leaves nothing is not counted.
    Words stand as `polyembed.text.align_words` has them, after a space where the tokenizer needs one.

    Deviations: 2503.07990 claims that adaptation helps at language boundaries (section "Why this works") and does not
    measure it.

    Args:
        model: A transformers model for masked language modelling; in evaluation mode for the while.
        tokenizer: Its tokenizer, a fast one, with a mask piece, that takes words (``is_split_into_words``).
        sentences: Objects with ``words`` and ``languages``, as `polyembed.data.read_conllu` gives them with
            ``language="misc:CSID"``.
        folds: How many rows a sentence; None = one a word.
        no_language: Tags that are no language.
        max_length: The most pieces of a row, special ones included.
        batch_size: Rows a pass.

    Returns:
        Accuracy and mean loss over pieces at switch points, at the other words, and at words without a language.

    Raises:
        ValueError: A sentence without languages, a word longer than `max_length`, or nothing to score.
        TypeError: A model without a masked-LM head, or a slow tokenizer.

    Example:
        ``switch_points(model, tokenizer, read_conllu(path, language="misc:CSID")).switch.accuracy``; see
        `adapt_masked_lm` for a model and a tokenizer.
    """
    check_positive(max_length=max_length, batch_size=batch_size, folds=1 if folds is None else folds)
    _check_model(model)
    encoder = _Encoder(model, tokenizer, max_length=max_length, truncation=False)
    kinds = ("switch", "rest", "no_language")
    losses: dict[str, list[float]] = {kind: [] for kind in kinds}
    hits = dict.fromkeys(kinds, 0)
    words = dict.fromkeys(kinds, 0)

    def rows() -> Iterator[_Row]:
        for number, sentence in enumerate(sentences):
            found = _kinds(sentence, no_language, f"sentences[{number}]")
            for first, part in encoder.words(sentence.words, f"sentences[{number}]"):
                yield from _word_rows(part, found[first:], folds)

    for row, row_losses, row_hits in _score(model, tokenizer, rows(), batch_size):
        for kind, loss, hit in zip(row.kinds, row_losses, row_hits, strict=True):
            losses[kind].append(loss)
            hits[kind] += hit
        for kind in row.words:
            words[kind] += 1
    require(any(words.values()), "sentences", "hold at least one word with a piece", "none")
    scores = []
    for kind in kinds:
        count = len(losses[kind])
        mean = math.fsum(losses[kind]) / count if count else math.nan
        scores.append(MaskedScore(hits[kind] / count if count else math.nan, mean, count, words[kind]))
    return SwitchPoints(*scores)


# Texts -> examples -> batches


class _Corpus:
    """Texts that can be opened, again and again unless they are an iterator."""

    def __init__(self, texts: Texts) -> None:
        self.sequence: Sequence[str] | None = None
        self.repeatable = True
        self.mark: object = None  # what tells this source from others, as far as that is cheap
        if isinstance(texts, str | os.PathLike):
            texts = [Path(texts)]
        if isinstance(texts, Sequence) and len(texts) and all(isinstance(part, os.PathLike) for part in texts):
            paths = [check_file(path, name="texts") for path in texts]
            self.mark = [[path.name, path.stat().st_size] for path in paths]
            self.open: Callable[[], Iterator[str]] = lambda: itertools.chain.from_iterable(map(_read_lines, paths))
        elif isinstance(texts, Sequence):
            held: Sequence[Any] = texts
            self.sequence = held
            self.mark = [len(held), _checksum(held)]
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

    def shuffled(self, rng: random.Random, buffer_size: int) -> Iterator[str]:
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


class _Example(NamedTuple):
    """Ids of pieces with the special ones, which of them are special, and each piece's word (None = special)."""

    ids: list[int]
    special: list[int]
    word_ids: list[int | None]

    @property
    def size(self) -> int:
        """How many pieces are not special."""
        return len(self.ids) - sum(self.special)


class _Encoder:
    """Turns texts into examples that fit the model."""

    def __init__(self, model: nn.Module, tokenizer: Any, *, max_length: int, truncation: bool) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise TypeError(must("tokenizer", "be a fast transformers tokenizer", class_name(tokenizer)))
        for kind in ("mask", "pad"):
            found = getattr(tokenizer, f"{kind}_token_id")
            require(found is not None, "tokenizer", f"have a {kind} piece", "none")
        special = tokenizer.num_special_tokens_to_add()
        require(max_length > special, "max_length", f"leave room beside {special} special pieces", max_length)
        limit = _position_limit(model)
        require(max_length <= limit, "max_length", f"be at most the model's {limit} positions", max_length)
        size = model.get_input_embeddings().num_embeddings  # type: ignore[operator]
        require(len(tokenizer) <= size, "tokenizer", f"have at most the model's {size} pieces", len(tokenizer))
        self.tokenizer = tokenizer
        self.opener = word_opener(tokenizer)
        self.max_length = max_length
        self.truncation = truncation

    def __call__(self, texts: Iterable[str], name: str = "texts") -> Iterator[_Example]:
        for group in _chunked(texts, 256):
            kept = [text for text in (_sound(_check_text(text, name)) for text in group) if text.strip()]
            if not kept:
                continue
            for example in self._encode(kept, return_overflowing_tokens=not self.truncation):
                if example.size:
                    yield example

    def words(self, words: Sequence[str], name: str) -> Iterator[tuple[int, _Example]]:
        """Give the parts of a sentence that fit, each with the number of its first word."""
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

    def _part(self, words: Sequence[str]) -> _Example:
        (part,) = self._encode([list(words)], is_split_into_words=True, truncation=False)
        return part

    def _encode(self, texts: list[Any], **options: Any) -> list[_Example]:
        options = {"truncation": True, "max_length": self.max_length, **options}
        if not options["truncation"]:
            del options["max_length"]
        with _silenced_length_warning():
            encoded = self.tokenizer(texts, return_special_tokens_mask=True, return_attention_mask=False, **options)
        pairs = zip(encoded["input_ids"], encoded["special_tokens_mask"], strict=True)
        return [_Example(ids, special, encoded.word_ids(i)) for i, (ids, special) in enumerate(pairs)]


class _Batches:
    """Gives the batches of an epoch, the same for the same seed and epoch."""

    def __init__(self, corpus: _Corpus, encoder: _Encoder, *, batch_size: int, shuffle_buffer: int, seed: int) -> None:
        self.corpus = corpus
        self.encoder = encoder
        self.batch_size = batch_size
        self.shuffle_buffer = shuffle_buffer
        self.seed = seed
        self.size: tuple[int, int] | None = None  # batches and pieces of an epoch, where they were counted

    def measure(self) -> tuple[int, int]:
        examples, pieces = 0, 0
        for example in self.encoder(self.corpus.open()):
            examples, pieces = examples + 1, pieces + example.size
        return -(-examples // self.batch_size), pieces

    def __call__(self, epoch: int) -> Iterator[list[_Example]]:
        rng = random.Random(f"texts {self.seed} {epoch}")
        examples = self.encoder(self.corpus.shuffled(rng, self.shuffle_buffer))
        order = random.Random(f"batches {self.seed} {epoch}")  # of its own: `rng` is drawn from lazily
        for pool in _chunked(examples, _POOL * self.batch_size):
            pool.sort(key=lambda example: len(example.ids))
            batches = list(_chunked(pool, self.batch_size))
            order.shuffle(batches)
            yield from batches


class _Stream(IterableDataset[dict[str, Tensor]]):
    """The batches of steps `start` to `stop`, over as many epochs as that takes."""

    def __init__(
        self,
        batches: _Batches,
        collate: Callable[[list[_Example], int], dict[str, Tensor]],
        *,
        start: int,
        stop: int,
    ) -> None:
        self.batches = batches
        self.collate = collate
        self.start = start
        self.stop = stop
        self.tokens = 0

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        step, epoch, self.tokens = 0, 0, 0
        if self.batches.size is not None:  # whole epochs need not be read again
            count, pieces = self.batches.size
            epoch = self.start // count
            step, self.tokens = epoch * count, epoch * pieces
        while step < self.stop:
            begun = step
            for batch in self.batches(epoch):
                if step == self.stop:
                    return
                self.tokens += sum(example.size for example in batch)
                if step >= self.start:
                    yield self.collate(batch, step)
                step += 1
            rule = f"hold text for {self.stop} steps"
            require(step > begun, "texts", rule, f"an end after {step}")
            epoch += 1


def _collator(
    tokenizer: Any, mlm_probability: float, *, whole_word_mask: bool, seed: int
) -> Callable[[list[_Example], int], dict[str, Tensor]]:
    from transformers import DataCollatorForLanguageModeling

    # whole words are always replaced by mask pieces; saying so keeps the collator from warning of it
    shares: dict[str, Any] = {"mask_replace_prob": 1.0, "random_replace_prob": 0.0} if whole_word_mask else {}
    collator = DataCollatorForLanguageModeling(
        tokenizer, mlm_probability=mlm_probability, whole_word_mask=whole_word_mask, seed=seed, **shares
    )

    def collate(batch: list[_Example], step: int) -> dict[str, Tensor]:
        collator.generator = torch.Generator().manual_seed(_step_seed("mask", seed, step))
        longest = max(len(example.ids) for example in batch)
        features = []
        for ids, special, word_ids in batch:
            feature: dict[str, Any] = {"input_ids": ids, "special_tokens_mask": special}
            if whole_word_mask:
                offsets = _word_offsets(word_ids)
                feature["offset_mapping"] = offsets + [(0, 0)] * (longest - len(ids))
            features.append(feature)
        real = torch.tensor([[not s for s in special] + [False] * (longest - len(ids)) for ids, special, _ in batch])
        found = dict(collator(features))
        if not (found["labels"] != -100).any():  # the mean over no piece would be NaN
            candidates = real.nonzero()
            row, column = candidates[
                torch.randint(len(candidates), (), generator=collator.generator)
            ].tolist()  # fmt: skip
            found["labels"][row, column] = found["input_ids"][row, column]
            found["input_ids"][row, column] = tokenizer.mask_token_id
        return found

    return collate


def _word_offsets(word_ids: list[int | None]) -> list[tuple[int, int]]:
    """Restate words as the collator tells them: pieces that touch are one word's.

    Real offsets join words in scripts without spaces, and wherever the space belongs to a piece.
    """
    offsets, last, place = [], None, 0
    for word in word_ids:
        place += word is None or word != last
        offsets.append((place, place + 1))
        place, last = place + 1, word
    return offsets


# Training


def _train(
    model: nn.Module, stream: _Stream, checkpoint: Path | None, *, seed: int, progress: bool | None, **options: Any
) -> tuple[float, ...]:
    from tqdm import tqdm
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    class Follow(TrainerCallback):
        """Seeds each step, logs the last one, marks whole checkpoints, stops at a loss that is not finite."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            disable = None if progress is None else not progress  # tqdm's None: off where there is no terminal
            done, total = state.global_step, state.max_steps
            self.bar = tqdm(total=total, initial=done, desc="steps", leave=False, disable=disable)

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            torch.manual_seed(_step_seed("dropout", seed, state.global_step))

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.bar.update()
            control.should_log = control.should_log or state.global_step == state.max_steps
            if state.global_step == state.max_steps:
                control.should_save = False  # the last weights are saved with the result

        def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            loss = kwargs["logs"].get("loss", 0.0)
            if not math.isfinite(loss):
                raise ValueError(must("loss", "stay finite", f"{loss} up to step {state.global_step}"))

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            Path(args.output_dir, f"checkpoint-{state.global_step}", COMPLETE_NAME).touch()

    class Streaming(Trainer):
        """Takes batches as they come."""

        def get_train_dataloader(self) -> Any:
            return DataLoader(stream, batch_size=None)

    arguments = TrainingArguments(
        **options,
        seed=seed % 2**32,
        report_to="none",
        disable_tqdm=True,
        logging_nan_inf_filter=False,
        save_total_limit=2,  # the one before is whole when the last one is cut short
        ignore_data_skip=True,  # the stream starts where it must
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # several visible GPUs would otherwise share a batch
    follow = Follow()
    trainer = Streaming(model=model, args=arguments, train_dataset=stream, callbacks=[follow])
    trainer.remove_callback(PrinterCallback)  # it writes to stdout
    try:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    finally:
        if hasattr(follow, "bar"):
            follow.bar.close()
    return tuple(entry["loss"] for entry in trainer.state.log_history if "loss" in entry)


@contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    """Put back what a Trainer sets and forgets: modes, random states, verbosity, accelerate's state."""
    import numpy as np
    from transformers.utils import logging as verbosity

    modes = [(module, module.training) for module in model.modules()]
    wrapping = ("forward", "_original_forward", "_is_accelerate_prepared")  # accelerate's, for autocast
    own = {name: value for name, value in vars(model).items() if name in wrapping}
    missing = object()
    use_cache = getattr(model.config, "use_cache", missing)
    level, bars = verbosity.get_verbosity(), verbosity.is_progress_bar_enabled()
    singletons = import_optional("accelerate.state")
    kinds = (singletons.PartialState, singletons.AcceleratorState, singletons.GradientState)
    states = [(kind._shared_state, dict(kind._shared_state)) for kind in kinds]
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            verbosity.set_verbosity_error()  # type: ignore[no-untyped-call]
            verbosity.disable_progress_bar()  # type: ignore[no-untyped-call]  # each checkpoint would show one
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        for live, saved in states:
            live.clear()
            live.update(saved)
        verbosity.set_verbosity(level)
        if bars:
            verbosity.enable_progress_bar()  # type: ignore[no-untyped-call]
        if use_cache is not missing:
            model.config.use_cache = use_cache  # type: ignore[union-attr]
        for name in wrapping:
            vars(model).pop(name, None)
        vars(model).update(own)
        for module, training in modes:
            module.training = training
        model.zero_grad(set_to_none=True)


class _Record:
    """A folder with the checkpoints of an adaptation or its result, and what run they are of."""

    def __init__(self, folder: Path, fingerprint: dict[str, Any]) -> None:
        self.folder = folder
        self.checkpoints = folder / "checkpoints"
        self.fingerprint = fingerprint
        self.size: tuple[int, int] | None = None
        self.result: AdaptationResult | None = None
        path = folder / RECORD_NAME
        if not path.exists():
            return
        try:
            data = json.loads(path.read_text("utf-8"))
            theirs, size, result = dict(data["fingerprint"]), data["size"], data["result"]
            self.size = None if size is None else (size[0], size[1])
            if result is not None:
                self.result = AdaptationResult(tuple(result["losses"]), result["steps"], result["tokens"])
        except (ValueError, TypeError, KeyError, IndexError) as error:
            rule = "be a record of an adaptation"
            raise ValueError(must(str(path), rule, f"{class_name(error)}: {error}")) from error
        differs = [key for key, value in fingerprint.items() if theirs.get(key) != value]
        rule = "be of this run (choose another folder or remove it)"
        require(not differs, str(path), rule, f"other {differs}")

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        result = None if self.result is None else self.result._asdict()
        text = json.dumps({"fingerprint": self.fingerprint, "size": self.size, "result": result})
        draft = self.folder / f"{RECORD_NAME}.draft"
        draft.write_text(text, "utf-8")
        draft.replace(self.folder / RECORD_NAME)

    def last_checkpoint(self) -> Path | None:
        """Give the last checkpoint that is whole; those that a kill cut short go."""
        whole: list[tuple[int, Path]] = []
        for path in self.checkpoints.glob("checkpoint-*"):
            if (path / COMPLETE_NAME).exists():
                whole.append((int(path.name.rpartition("-")[2]), path))
            else:
                shutil.rmtree(path)
        return max(whole)[1] if whole else None

    def finish(self, model: nn.Module, result: AdaptationResult) -> None:
        from safetensors.torch import save_model

        with usual_mode(self.folder / f"{WEIGHTS_NAME}.draft") as draft:
            save_model(model, str(draft))
        draft.replace(self.folder / WEIGHTS_NAME)
        self.result = result
        self.save()
        shutil.rmtree(self.checkpoints, ignore_errors=True)

    def load_weights(self, model: nn.Module) -> None:
        from safetensors.torch import load_model

        path = check_file(self.folder / WEIGHTS_NAME, name="folder", where="Remove the folder to start anew.")
        load_model(model, str(path), device=str(next(model.parameters()).device))


# Scoring


class _Row(NamedTuple):
    """Ids of pieces, the places to mask, and for `switch_points` the kind of each such place and of each word."""

    ids: list[int]
    masked: list[int]
    kinds: list[str] = []  # noqa: RUF012
    words: list[str] = []  # noqa: RUF012


def _fixed_mask(example: _Example, mlm_probability: float, seed: int) -> list[int]:
    places = [i for i, special in enumerate(example.special) if not special]
    count = max(1, round(mlm_probability * len(places)))
    rng = random.Random(f"{seed} {example.ids}")  # hashed, not truncated, and the same in every process
    return sorted(rng.sample(places, count))


def _kinds(sentence: Spoken, no_language: Collection[str], name: str) -> list[str]:
    languages = sentence.languages
    if languages is None:
        raise ValueError(must(f"{name}.languages", "be one language a word", "none"))
    count = len(sentence.words)
    require(len(languages) == count, f"{name}.languages", f"be as many as the words, {count}", len(languages))
    kinds: list[str] = []
    last: str | None = None
    for language in languages:
        if language in no_language:
            kinds.append("no_language")
            continue
        kinds.append("rest" if last is None or language == last else "switch")
        last = language
    return kinds


def _word_rows(part: _Example, kinds: Sequence[str], folds: int | None) -> Iterator[_Row]:
    places: dict[int, list[int]] = {}
    for i, word in enumerate(part.word_ids):
        if word is not None:
            places.setdefault(word, []).append(i)
    words = list(places)
    step = len(words) if folds is None else folds
    for fold in range(min(step, len(words))):
        chosen = words[fold::step]
        masked = [(i, kinds[word]) for word in chosen for i in places[word]]
        yield _Row(part.ids, [i for i, _ in masked], [kind for _, kind in masked], [kinds[word] for word in chosen])


def _score(
    model: nn.Module, tokenizer: Any, rows: Iterable[_Row], batch_size: int
) -> Iterator[tuple[_Row, list[float], list[bool]]]:
    """Give each row with the losses of its masked places and whether they were guessed."""
    device = next(model.parameters()).device
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        for pool in _chunked(rows, _POOL * batch_size):
            pool.sort(key=lambda row: len(row.ids))
            for batch in _chunked(pool, batch_size):
                yield from zip(batch, *_score_batch(model, tokenizer, batch, device), strict=True)
    finally:
        for module, training in modes:
            module.training = training


@torch.no_grad()
def _score_batch(
    model: nn.Module, tokenizer: Any, batch: list[_Row], device: torch.device
) -> tuple[list[list[float]], list[list[bool]]]:
    longest = max(len(row.ids) for row in batch)
    ids = torch.full((len(batch), longest), tokenizer.pad_token_id)
    mask = torch.zeros((len(batch), longest), dtype=torch.int64)
    for i, row in enumerate(batch):
        ids[i, : len(row.ids)] = torch.tensor(row.ids)
        mask[i, : len(row.ids)] = 1
    where = torch.tensor([[i, place] for i, row in enumerate(batch) for place in row.masked]).T
    gold = ids[where[0], where[1]]
    ids[where[0], where[1]] = tokenizer.mask_token_id
    logits = model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits
    chosen = logits[where[0].to(device), where[1].to(device)].float().cpu()
    losses = nn.functional.cross_entropy(chosen, gold, reduction="none").tolist()
    hits = (chosen.argmax(-1) == gold).tolist()
    counts = [len(row.masked) for row in batch]
    return _split(losses, counts), _split(hits, counts)


def _split(values: list[T], counts: list[int]) -> list[list[T]]:
    rest = iter(values)
    return [list(itertools.islice(rest, count)) for count in counts]


# Small parts


def _step_seed(purpose: str, seed: int, step: int) -> int:
    """Hash: generators that are seeded with small neighbouring numbers begin alike."""
    return random.Random(f"{purpose} {seed} {step}").getrandbits(63)


def _chunked(values: Iterable[T], size: int) -> Iterator[list[T]]:
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


def _sound(text: str) -> str:
    """Leave out lone surrogates, which no tokenizer takes."""
    return text.encode("utf-8", "ignore").decode()


def _checksum(texts: Sequence[Any]) -> int:
    checksum = 0
    for text in texts:
        checksum = zlib.crc32(_check_text(text, "texts").encode("utf-8", "surrogatepass") + b"\0", checksum)
    return checksum


def _check_masking(mlm_probability: float) -> None:
    require(0.0 < mlm_probability < 1.0, "mlm_probability", "lie between 0 and 1", mlm_probability)


def _check_model(model: object) -> None:
    from transformers import PreTrainedModel

    head = getattr(model, "get_output_embeddings", lambda: None)()
    if not isinstance(model, PreTrainedModel) or head is None:
        raise TypeError(must("model", "be a transformers model for masked language modelling", class_name(model)))


def _check_device(device: str | torch.device | None, home: torch.device) -> torch.device:
    where = home if device is None else check_device("device", device)
    first = where.type == "cpu" or (where.type == "cuda" and where.index in (None, 0))
    rule = "be the CPU or the first visible GPU (choose by CUDA_VISIBLE_DEVICES)"
    require(first, "device", rule, where)
    return where


def _position_limit(model: nn.Module) -> float:
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            # RoBERTa and its likes count positions from after the padding's
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    return math.inf


def _fingerprint(model: nn.Module, tokenizer: Any, corpus: _Corpus, options: dict[str, Any]) -> dict[str, Any]:
    shapes = sorted((name, list(value.shape)) for name, value in model.named_parameters())
    core = json.loads(tokenizer.backend_tokenizer.to_str())
    for name in ("truncation", "padding"):  # of its last call
        core.pop(name, None)
    return {
        **options,
        "texts": corpus.mark,
        "tokenizer": zlib.crc32(json.dumps(core, sort_keys=True).encode()),
        "parameters": zlib.crc32(json.dumps(shapes).encode()),
    }


@contextmanager
def _silenced_length_warning() -> Iterator[None]:
    """Keep the tokenizer from warning of a sentence that is longer than the model: it is cut here."""
    logger = logging.getLogger("transformers.tokenization_utils_base")
    disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = disabled
