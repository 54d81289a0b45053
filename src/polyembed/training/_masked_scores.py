"""The losses of masked pieces, one row of pieces after another."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from polyembed._views import evaluation_view
from polyembed.training._masked_text import POOL, T, chunked


class Row(NamedTuple):
    """Ids of pieces, the places to mask, and for `switch_points` the kind of each such place and of each word."""

    ids: list[int]
    masked: list[int]
    kinds: list[str] = []  # noqa: RUF012
    words: list[str] = []  # noqa: RUF012


def score_rows(
    model: nn.Module, tokenizer: Any, rows: Iterable[Row], batch_size: int
) -> Iterator[tuple[Row, list[float], list[bool]]]:
    """Yield each row with the losses of its masked places and whether each was predicted."""
    device, model = next(model.parameters()).device, evaluation_view(model)
    for pool in chunked(rows, POOL * batch_size):
        pool.sort(key=lambda row: len(row.ids))
        for batch in chunked(pool, batch_size):
            yield from zip(batch, *_score_batch(model, tokenizer, batch, device), strict=True)


@torch.no_grad()
def _score_batch(
    model: nn.Module, tokenizer: Any, batch: list[Row], device: torch.device
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
