"""The pseudo-perplexity of a masked language model on held-out text."""

import math
import random
from collections.abc import Mapping
from typing import Any, overload

import torch
from torch import nn

from polyembed._checks import check_positive, require
from polyembed.training._masked_scores import Row, score_rows
from polyembed.training._masked_text import (
    Example,
    ExampleEncoder,
    TextCorpus,
    Texts,
    check_masked_lm,
    check_masking,
)


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

    In each example of n pieces, `mlm_probability` of them, rounded, at least one, are replaced by
    the mask piece. Which ones depends on `seed` and the example alone: the same before and after an
    adaptation, in whatever order and batch. The mean runs over the masked pieces of all texts.
    Figures of tokenizers that differ are not comparable.

    Deviations: none of the papers defines it; pseudo-perplexity is also the name of the product
    over all pieces, each masked alone, which costs one pass a piece.

    Args:
        model: A transformers model for masked language modelling; in evaluation mode for the while.
        tokenizer: Its tokenizer, a fast one, with a mask piece.
        texts: As in `adapt_masked_lm`; or a mapping from languages to such, each measured apart.
        mlm_probability: The share of pieces masked.
        max_length: The most pieces of an example, special ones included; a longer text becomes
            several.
        truncation: Whether the rest of a longer text is dropped.
        batch_size: Examples a pass.
        seed: Of the masks.

    Returns:
        The perplexity, or one for each language.

    Raises:
        ValueError: No text with a piece, or options out of range.
        TypeError: A model without a masked-LM head, a slow tokenizer, or texts that are not
            strings.
        FileNotFoundError: A file that is not there.

    Example:
        ``perplexity(model, tokenizer, {"es": ["me gusta"], "en": ["that song"]})`` gives a dict of
        two figures; see `adapt_masked_lm` for a model and a tokenizer.
    """
    check_masking(mlm_probability)
    check_positive(max_length=max_length, batch_size=batch_size)
    check_masked_lm(model)
    encoder = ExampleEncoder(model, tokenizer, max_length=max_length, truncation=truncation)

    def measure(name: str, texts: Texts) -> float:
        rows = (
            Row(example.ids, _fixed_mask(example, mlm_probability, seed))
            for example in encoder(TextCorpus(texts).open(), name)
        )
        total, count = 0.0, 0
        for _, losses, _ in score_rows(model, tokenizer, rows, batch_size):
            total, count = total + math.fsum(losses), count + len(losses)
        require(count > 0, name, "hold at least one text with a piece", "none")
        return float(torch.tensor(total / count, dtype=torch.float64).exp())

    if isinstance(texts, Mapping):
        return {language: measure(f"texts[{language!r}]", part) for language, part in texts.items()}
    return measure("texts", texts)


def _fixed_mask(example: Example, mlm_probability: float, seed: int) -> list[int]:
    places = [i for i, special in enumerate(example.special) if not special]
    count = max(1, round(mlm_probability * len(places)))
    rng = random.Random(
        f"{seed} {example.ids}"
    )  # hashed, not truncated, and the same in every process
    return sorted(rng.sample(places, count))
