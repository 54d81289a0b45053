"""Random inputs of a given length for any word embedder."""

from typing import Any

import torch
from torch import nn

from polyembed.embeddings.embedder import WordEmbedder, require_lexicon
from polyembed.embeddings.meta import CombinedEmbedder
from polyembed.text.lexicon import NUM_SPECIAL
from polyembed.text.pieces import Pieces


def random_inputs(
    embedder: WordEmbedder,
    rows: int,
    length: int,
    pieces_per_word: float,
    generator: torch.Generator,
) -> Any:
    """Return ids, `Pieces`, or a tuple of them for a mixed embedder; None if it cannot read `length`."""
    if embedder.lexicon is not None:
        count = embedder.num_embeddings
        return torch.randint(
            min(NUM_SPECIAL, count - 1), count, (rows, length), generator=generator
        )
    if isinstance(embedder, CombinedEmbedder):
        members = [
            random_inputs(member, rows, length, pieces_per_word, generator)
            for member in embedder.members
        ]
        return None if any(member is None for member in members) else tuple(members)
    count = round(length * pieces_per_word)
    limit = getattr(embedder, "max_length", None)
    windows = (
        getattr(embedder, "overflow", None) == "window"
        and getattr(embedder, "tokenizer", None) is not None
    )
    if limit is not None and count > limit and not windows:
        return None
    vocabulary = _vocabulary_size(embedder)
    ids = torch.randint(min(5, vocabulary - 1), vocabulary, (rows, count), generator=generator)
    owners = (torch.arange(count) * length // count).repeat(rows, 1)
    return Pieces(ids, torch.ones_like(ids, dtype=torch.bool), owners, length)


def random_words(embedder: WordEmbedder, rows: int, length: int, *, seed: int) -> list[list[str]]:
    """Return sentences of words in the lexicon."""
    known = require_lexicon(embedder).words() or ["unknown"]
    places = torch.randint(
        len(known), (rows, length), generator=torch.Generator().manual_seed(seed)
    )
    return [[known[i] for i in row] for row in places.tolist()]


def _vocabulary_size(encoder: Any) -> int:
    """Return the number of pieces: of a transformers model its input table, else of the largest table."""
    model: Any = getattr(encoder, "model", None)
    table = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    tables = [table] if isinstance(table, nn.Embedding) else encoder.modules()
    return max(part.num_embeddings for part in tables if isinstance(part, nn.Embedding))
