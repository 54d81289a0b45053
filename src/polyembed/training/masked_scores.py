"""The pseudo-perplexity of a masked language model on held-out text."""

import random
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from polyembed._batches import batches_by_length
from polyembed._checks import check_positive, require
from polyembed._views import evaluation_view
from polyembed.training.masked_text import Example, ExampleEncoder, Texts, read_texts


@torch.no_grad()
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

    In each example of n pieces, ``n * mlm_probability`` pieces, rounded but at least one, are
    replaced by the mask piece. The choice depends on `seed` and the example alone: it is the same
    before and after an adaptation, in any order and batch. The mean runs over the masked pieces of
    all texts. The values of different tokenizers are not comparable.

    Deviations: the papers do not define their perplexity. Pseudo-perplexity is also the name of the
    product over all pieces, each masked alone, which costs a pass per piece.

    Args:
        model: A transformers model for masked language modelling; it runs in evaluation mode.
        tokenizer: The model's tokenizer; it must be fast and have a mask piece.
        texts: The texts, as in `adapt_masked_lm`.
        mlm_probability: The share of pieces that are masked.
        max_length: The largest number of pieces of an example, special ones included; a longer text
            becomes several examples.
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
    examples = encoder.texts(read_texts(texts))
    losses, view = [], evaluation_view(model)
    device = next(model.parameters()).device
    for batch in batches_by_length(examples, batch_size, lambda example: len(example.ids)):
        ids = pad_sequence([torch.tensor(example.ids) for example in batch], True, -1)
        mask = ids >= 0  # (row, piece)
        ids = torch.where(mask, ids, tokenizer.pad_token_id or 0)
        masked = [_fixed_mask(example, mlm_probability, seed) for example in batch]
        where = [(i, place) for i, places in enumerate(masked) for place in places]
        index = tuple(torch.tensor(where).T)
        gold = ids[index]
        ids[index] = tokenizer.mask_token_id
        logits = view(input_ids=ids.to(device), attention_mask=mask.long().to(device)).logits
        chosen = logits[index].float().cpu()
        losses.append(nn.functional.cross_entropy(chosen, gold, reduction="none"))
    require(bool(losses), "texts", "hold at least one text with a piece", "none")
    return float(torch.cat(losses).double().mean().exp())


def _fixed_mask(example: Example, mlm_probability: float, seed: int) -> list[int]:
    places = [i for i, special in enumerate(example.special) if not special]
    count = max(1, round(mlm_probability * len(places)))
    # a string is hashed whole, and alike in every process
    return sorted(random.Random(f"{seed} {example.ids}").sample(places, count))
