"""The words of a source and their vectors, checked, as tensors."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from polyembed._checks import class_name, must, require
from polyembed.vectors.protocol import WordVectors


class Space(NamedTuple):
    """Words that have a vector, the most frequent first.

    Attributes:
        words: The words, each once.
        rows: Their vectors, float32, ``(word, dim)``.
        ids: The row of each word.
        num_empty: How many words were left out, since their vector is zero.
    """

    words: list[str]
    rows: Tensor
    ids: dict[str, int]
    num_empty: int


def read_space(
    name: str, vectors: WordVectors, words: Iterable[str] | None, max_words: int, device: torch.device | str | None
) -> Space:
    """Read the vectors of the most frequent words.

    Args:
        name: The argument, for errors.
        vectors: The source.
        words: The words, the most frequent first; the source's own if None.
        max_words: How many at most.
        device: Where the tensor shall be.

    Returns:
        The words with a vector that is not zero.
    """
    if not (hasattr(vectors, "vectors") and hasattr(vectors, "dim")):
        raise TypeError(must(name, "have dim and vectors(words)", class_name(vectors)))
    if isinstance(words, str):
        raise TypeError(must(f"{name}_words", "be words", f"the string {words!r}"))
    if words is None:
        words = getattr(vectors, "words", None)
        require(bool(words), f"{name}_words", f"be given where {name} lists no words", class_name(vectors))
    chosen = list(islice(dict.fromkeys(words or ()), max_words))
    rows = np.asarray(vectors.vectors(chosen), np.float32)
    require(rows.shape == (len(chosen), vectors.dim), f"{name}.vectors", "give one row a word", f"shape {rows.shape}")
    for row in np.flatnonzero(~np.isfinite(rows).all(1)):
        raise ValueError(must(f"the vector of {chosen[row]!r} in {name}", "be finite", "NaN or an infinity"))
    there = np.flatnonzero(rows.any(1))
    require(len(there) > 0, name, "hold a word with a vector", f"{len(chosen)} words, none with a vector")
    kept = [chosen[row] for row in there]
    ids = {word: i for i, word in enumerate(kept)}
    return Space(kept, torch.from_numpy(rows[there]).to(device), ids, len(chosen) - len(kept))


def pair_ids(pairs: Sequence[tuple[str, str]], source: Space, target: Space) -> list[tuple[int, int]]:
    """Give the rows of each pair of words that both spaces have, repetitions left out.

    Args:
        pairs: Source word, target word.
        source: The source's space.
        target: The target's space.

    Returns:
        Row of the source, row of the target.
    """
    if isinstance(pairs, str):
        raise TypeError(must("dictionary", "be pairs of words", f"the string {pairs!r}"))
    found: dict[tuple[int, int], None] = {}
    for i, pair in enumerate(pairs):
        if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(word, str) for word in pair):
            raise TypeError(must(f"dictionary[{i}]", "be a source word and a target word", repr(pair)))
        one, other = source.ids.get(pair[0]), target.ids.get(pair[1])
        if one is not None and other is not None:
            found[one, other] = None
    return list(found)


def none_known(num_pairs: int) -> ValueError:
    """Word the error for a dictionary of which nothing is left."""
    rule = "hold a pair of words that both vocabularies have"
    return ValueError(must("dictionary", rule, f"{num_pairs} pairs, all with an unknown word"))
