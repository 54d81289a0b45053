"""The words of a source and their vectors, checked, as tensors."""

from collections.abc import Iterable, Mapping, Sequence
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
    if words is not None and not isinstance(words, Iterable):
        raise TypeError(must(f"{name}_words", "be words", class_name(words)))
    own = getattr(vectors, "words", ()) if words is None else words
    chosen = list(islice(dict.fromkeys(own), max_words))
    rule = f"be given where {name} lists no words" if words is None else "hold a word"
    require(len(chosen) > 0, f"{name}_words", rule, class_name(vectors) if words is None else "none")
    for word in chosen:
        if not isinstance(word, str):
            raise TypeError(must(f"{name}_words", "be strings", repr(word)))
    rows = np.asarray(vectors.vectors(chosen), np.float32)
    require(rows.shape == (len(chosen), vectors.dim), f"{name}.vectors", "give one row a word", f"shape {rows.shape}")
    for row in np.flatnonzero(~np.isfinite(rows).all(1)):
        raise ValueError(must(f"the vector of {chosen[row]!r} in {name}", "be finite", "NaN or an infinity"))
    there = np.flatnonzero(rows.any(1))
    require(len(there) > 0, name, "hold a word with a vector", f"{len(chosen)} words, none with a vector")
    kept = [chosen[row] for row in there]
    ids = {word: i for i, word in enumerate(kept)}
    return Space(kept, torch.from_numpy(rows[there]).to(device), ids, len(chosen) - len(kept))


def distinct_pairs(dictionary: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Check the pairs of a dictionary and leave repetitions out.

    Args:
        dictionary: Source word, target word.

    Returns:
        The pairs, each once.
    """
    if isinstance(dictionary, str | Mapping) or not isinstance(dictionary, Iterable):
        got = f"the string {dictionary!r}" if isinstance(dictionary, str) else class_name(dictionary)
        raise TypeError(must("dictionary", "be pairs of words", got))
    found: dict[tuple[str, str], None] = {}
    for i, pair in enumerate(dictionary):
        words = tuple(pair) if isinstance(pair, Iterable) and not isinstance(pair, str) else ()
        if len(words) != 2 or not all(isinstance(word, str) for word in words):
            raise TypeError(must(f"dictionary[{i}]", "be a source word and a target word", repr(pair)))
        found[words] = None
    return list(found)


def pair_ids(pairs: Sequence[tuple[str, str]], source: Space, target: Space) -> list[tuple[int, int]]:
    """Give the rows of each pair of words that both spaces have.

    Args:
        pairs: Source word, target word, each pair once.
        source: The source's space.
        target: The target's space.

    Returns:
        Row of the source, row of the target.
    """
    ids = ((source.ids.get(one), target.ids.get(other)) for one, other in pairs)
    return [(one, other) for one, other in ids if one is not None and other is not None]


def none_known(num_pairs: int) -> ValueError:
    """Word the error for a dictionary of which nothing is left."""
    rule = "hold a pair of words that both vocabularies have"
    got = f"{num_pairs} pairs, all with an unknown word" if num_pairs else "no pair"
    return ValueError(must("dictionary", rule, got))
