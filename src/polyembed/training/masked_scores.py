"""How well a masked language model knows held-out text, and the points where languages switch."""

import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from polyembed._checks import check_positive, require
from polyembed._views import evaluation_view
from polyembed.training.masked_text import (
    Example,
    ExampleEncoder,
    Texts,
    chunked,
    read_texts,
)

POOL = 32
"""The number of batches whose rows are sorted by length together."""
NO_LANGUAGE = frozenset({"_", "OTHER", "other", "rest", "eng&spa", "ne", "ambiguous", "unk"})
"""Tags of words that have no language, in SAGT's ``CSID`` and in LinCE."""


class Spoken(Protocol):
    """A sentence with a language per word, such as `polyembed.data.TaggedSentence`."""

    @property
    def words(self) -> Sequence[str]:
        """The words, in order."""

    @property
    def languages(self) -> Sequence[str] | None:
        """The language of each word."""


class MaskedScore(NamedTuple):
    """How well masked pieces were predicted.

    Attributes:
        accuracy: The share of pieces whose most probable prediction is right; NaN without any.
        loss: The mean cross-entropy of these pieces, in nats; NaN without any.
        pieces: The number of pieces.
        words: The number of words that they belong to.
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


class Row(NamedTuple):
    """Ids of pieces, places to mask, and for `switch_points` each masked word's kind and length."""

    ids: list[int]
    masked: list[int]
    words: Sequence[tuple[str, int]] = ()


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

    A word is a switch point if its language differs from that of the last word before it, in the
    same sentence, that has a language. Words whose tag is in `no_language` have none: a switch
    across a comma counts. A tag for words of mixed language (``MIXED``) is a language like others,
    unless it is in `no_language`.

    Every word is masked once, all its pieces together, each piece by one mask piece, so the number
    of pieces is given away. By default each word has its own pass, with the whole rest of the
    sentence visible: a row per word. With `folds` = k the words i, i + k, i + 2k, ... are masked in
    one row: k rows per sentence, faster, less in sight.

    A sentence of more than `max_length` pieces is cut between words into parts that fit; no word is
    lost, and a part's first word may be a switch point by the part before. A word without pieces is
    not counted. Words are tokenised as by `polyembed.text.align_words`, after a space where the
    tokenizer needs one.

    Deviations: 2503.07990 claims that adaptation helps at language boundaries (section "Why This
    Works (Mechanism)") and does not measure it.

    Args:
        model: A transformers model for masked language modelling; in evaluation mode for the while.
        tokenizer: Its tokenizer, a fast one, with a mask piece, that takes words
            (``is_split_into_words``).
        sentences: Objects with ``words`` and ``languages``, as `polyembed.data.read_conllu` gives
            them with ``language="misc:CSID"``.
        folds: The number of rows per sentence; None = one per word.
        no_language: The tags that are not languages.
        max_length: The largest number of pieces of a row, special ones included.
        batch_size: The number of rows per pass.

    Returns:
        Accuracy and mean loss over pieces at switch points, at the other words, and at words
        without a language.

    Raises:
        ValueError: If a sentence has no languages, a word is longer than `max_length`, or there is
            no word to score.
        TypeError: If the model has no masked-LM head, or the tokenizer is slow.

    Example:
        ``switch_points(model, tokenizer, read_conllu(path,
        language="misc:CSID")).switch.accuracy``; see `adapt_masked_lm` for a model and a tokenizer.
    """
    check_positive(batch_size=batch_size, folds=1 if folds is None else folds)
    encoder = ExampleEncoder(model, tokenizer, max_length=max_length)

    def rows() -> Iterator[Row]:
        for number, sentence in enumerate(sentences):
            found = kinds_of(sentence, no_language, f"sentences[{number}]")
            for first, part in encoder.words(sentence.words, f"sentences[{number}]"):
                yield from _word_rows(part, found[first:], folds)

    scores: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in SwitchPoints._fields}
    for row, losses, hits in _score_rows(model, tokenizer, rows(), batch_size):
        sizes = [size for _, size in row.words]
        parts = zip(row.words, torch.split(losses, sizes), torch.split(hits, sizes), strict=True)
        for (kind, _), *part in parts:
            scores[kind].append((part[0], part[1]))
    require(any(scores.values()), "sentences", "hold at least one word with a piece", "none")
    return SwitchPoints(*map(_mean_score, scores.values()))


def _mean_score(words: Sequence[tuple[Tensor, Tensor]]) -> MaskedScore:
    """Return the mean over the pieces of words, of which each has losses and hits."""
    none = torch.zeros(0)
    losses, hits = (torch.cat(parts).double() for parts in zip((none, none), *words, strict=True))
    return MaskedScore(float(hits.mean()), float(losses.mean()), len(losses), len(words))


def kinds_of(sentence: Spoken, no_language: Collection[str], name: str) -> list[str]:
    """Return of each word whether it is a switch, has no language, or neither ("rest")."""
    languages = getattr(sentence, "languages", None)
    fits = languages is not None and len(languages) == len(sentence.words)
    rule = f"have words and a language for each of them ({name})"
    require(fits, "a sentence", rule, f"languages {languages}")
    kinds: list[str] = []
    last: str | None = None
    for language in languages or ():
        if language in no_language:
            kinds.append("no_language")
            continue
        kinds.append("rest" if last is None or language == last else "switch")
        last = language
    return kinds


def near_switches(sentence: Spoken, name: str) -> set[int]:
    """Return the numbers of the switch points, and before each the last word with a language."""
    near: set[int] = set()
    last = 0
    for i, kind in enumerate(kinds_of(sentence, NO_LANGUAGE, name)):
        if kind == "switch":
            near |= {last, i}
        if kind != "no_language":
            last = i
    return near


def _word_rows(part: Example, kinds: Sequence[str], folds: int | None) -> Iterator[Row]:
    places: dict[int, list[int]] = {}
    for i, word in enumerate(part.words):
        if word is not None:
            places.setdefault(word, []).append(i)
    step = folds or len(places)
    for fold in range(min(step, len(places))):
        chosen = list(places)[fold::step]
        masked = [i for word in chosen for i in places[word]]
        yield Row(part.ids, masked, [(kinds[word], len(places[word])) for word in chosen])


def perplexity(
    model: nn.Module,
    tokenizer: Any,
    texts: Texts,
    *,
    mlm_probability: float = 0.15,
    max_length: int = 128,
    truncation: bool = False,
    batch_size: int = 16,
    seed: int = 0,
) -> float:
    r"""Measure a masked language model's pseudo-perplexity on held-out text, under fixed masks.

    .. math:: \exp\Bigl(-\frac{1}{|M|} \sum_{i \in M} \log p(x_i \mid x_{\setminus M})\Bigr)

    In each example of n pieces, `mlm_probability` of them, rounded, at least one, are replaced by
    the mask piece. Which ones depends on `seed` and the example alone: the same before and after an
    adaptation, in whatever order and batch. The mean runs over the masked pieces of all texts.
    Figures of tokenizers that differ are not comparable.

    Deviations: none of the papers defines it; pseudo-perplexity is also the name of the product
    over all pieces, each masked alone, which costs a pass per piece.

    Args:
        model: A transformers model for masked language modelling; in evaluation mode for the while.
        tokenizer: Its tokenizer, a fast one, with a mask piece.
        texts: The texts, as in `adapt_masked_lm`.
        mlm_probability: The share of pieces that are masked.
        max_length: The largest number of pieces of an example, special ones included; a longer text
            becomes several.
        truncation: Whether the rest of a longer text is dropped.
        batch_size: The number of examples per pass.
        seed: The seed of the masks.

    Returns:
        The perplexity.

    Raises:
        ValueError: If no text has a piece, or an option is out of range.
        TypeError: If the model has no masked-LM head, the tokenizer is slow, or texts are not
            strings.
        FileNotFoundError: If a file does not exist.

    Example:
        ``perplexity(model, tokenizer, ["me gusta that song"])``; see `adapt_masked_lm` for a model
        and a tokenizer.
    """
    check_positive(batch_size=batch_size)
    require(0 < mlm_probability < 1, "mlm_probability", "be between 0 and 1", mlm_probability)
    encoder = ExampleEncoder(model, tokenizer, max_length=max_length, truncation=truncation)
    rows = (
        Row(example.ids, _fixed_mask(example, mlm_probability, seed))
        for example in encoder.texts(read_texts(texts))
    )
    losses = [found for _, found, _ in _score_rows(model, tokenizer, rows, batch_size)]
    require(bool(losses), "texts", "hold at least one text with a piece", "none")
    return float(torch.cat(losses).double().mean().exp())


def _fixed_mask(example: Example, mlm_probability: float, seed: int) -> list[int]:
    places = [i for i, special in enumerate(example.special) if not special]
    count = max(1, round(mlm_probability * len(places)))
    # a string is hashed whole, and alike in every process
    return sorted(random.Random(f"{seed} {example.ids}").sample(places, count))


@torch.no_grad()
def _score_rows(
    model: nn.Module, tokenizer: Any, rows: Iterable[Row], batch_size: int
) -> Iterator[tuple[Row, Tensor, Tensor]]:
    """Yield each row with the losses of its masked places and whether each was predicted."""
    device, model = next(model.parameters()).device, evaluation_view(model)
    for pool in chunked(rows, POOL * batch_size):
        pool.sort(key=lambda row: len(row.ids))
        for batch in chunked(pool, batch_size):
            ids = pad_sequence([torch.tensor(row.ids) for row in batch], True, -1)
            mask = ids >= 0  # (row, piece)
            ids = torch.where(mask, ids, tokenizer.pad_token_id)
            where = [(i, place) for i, row in enumerate(batch) for place in row.masked]
            index = tuple(torch.tensor(where).T)
            gold = ids[index]
            ids[index] = tokenizer.mask_token_id
            logits = model(input_ids=ids.to(device), attention_mask=mask.long().to(device)).logits
            chosen = logits[tuple(part.to(device) for part in index)].float().cpu()
            losses = nn.functional.cross_entropy(chosen, gold, reduction="none")
            counts = [len(row.masked) for row in batch]
            hits = chosen.argmax(-1) == gold
            yield from zip(
                batch, torch.split(losses, counts), torch.split(hits, counts), strict=True
            )
