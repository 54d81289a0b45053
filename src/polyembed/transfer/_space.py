"""The words of two sources and their vectors, checked, as tensors; and the pairs of a dictionary."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from polyembed._checks import class_name, must, require
from polyembed.vectors.adapters import as_source
from polyembed.vectors.protocol import WordVectors

Words = Iterable[str] | None


class Space(NamedTuple):
    """Words that have a vector, the most frequent first.

    Attributes:
        words: The words, each once.
        rows: Their vectors, float32, ``(word, dim)``.
        ids: The row of each word.
        num_empty: How many words were left out because their vector is zero.
    """

    words: list[str]
    rows: Tensor
    ids: dict[str, int]
    num_empty: int


def read_spaces(
    source: WordVectors,
    target: WordVectors,
    source_words: Words,
    target_words: Words,
    max_words: int,
    device: torch.device | str | None,
) -> tuple[Space, Space]:
    """Read the vectors of the most frequent words of both sources; arguments as for `align_spaces`."""
    one = _read_space("source", source, source_words, max_words, device)
    other = _read_space("target", target, target_words, max_words, device)
    dims = (one.rows.shape[1], other.rows.shape[1])
    require(
        dims[0] == dims[1],
        "source and target",
        "have vectors of one length",
        f"{dims[0]} and {dims[1]}",
    )
    return one, other


def _read_space(
    name: str, vectors: WordVectors, words: Words, max_words: int, device: torch.device | str | None
) -> Space:
    vectors = as_source(vectors, name=name)
    if isinstance(words, str) or not (words is None or isinstance(words, Iterable)):
        got = f"the string {words!r}" if isinstance(words, str) else class_name(words)
        raise TypeError(must(f"{name}_words", "be words", got))
    own: Iterable[str] = getattr(vectors, "words", ()) if words is None else words
    chosen = list(islice(dict.fromkeys(own), max_words))
    rule = f"be given where {name} lists no words" if words is None else "hold a word"
    require(
        len(chosen) > 0, f"{name}_words", rule, class_name(vectors) if words is None else "none"
    )
    for word in chosen:
        if not isinstance(word, str):
            raise TypeError(must(f"{name}_words", "be strings", repr(word)))
    rows = np.asarray(vectors.vectors(chosen), np.float32)
    require(
        rows.shape == (len(chosen), vectors.dim),
        f"{name}.vectors",
        "give one row a word",
        f"shape {rows.shape}",
    )
    for row in np.flatnonzero(~np.isfinite(rows).all(1)):
        raise ValueError(
            must(f"the vector of {chosen[row]!r} in {name}", "be finite", "NaN or an infinity")
        )
    valid = np.flatnonzero(rows.any(1))
    require(
        len(valid) > 0,
        name,
        "hold a word with a vector",
        f"{len(chosen)} words, none with a vector",
    )
    kept = [chosen[row] for row in valid]
    ids = {word: i for i, word in enumerate(kept)}
    return Space(kept, torch.from_numpy(rows[valid]).to(device), ids, len(chosen) - len(kept))


def distinct_pairs(dictionary: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Check the pairs of a source word and a target word, and leave repetitions out."""
    if isinstance(dictionary, str | Mapping) or not isinstance(dictionary, Iterable):
        got = (
            f"the string {dictionary!r}" if isinstance(dictionary, str) else class_name(dictionary)
        )
        raise TypeError(must("dictionary", "be pairs of words", got))
    found: dict[tuple[str, str], None] = {}
    for i, pair in enumerate(dictionary):
        words = tuple(pair) if isinstance(pair, Iterable) and not isinstance(pair, str) else ()
        if len(words) != 2 or not all(isinstance(word, str) for word in words):
            raise TypeError(
                must(f"dictionary[{i}]", "be a source word and a target word", repr(pair))
            )
        found[words] = None
    return list(found)


def pair_ids(
    pairs: Iterable[tuple[str, str]], source: Space, target: Space
) -> list[tuple[int, int]]:
    """Return the rows of each pair of words that both spaces have; at least one, or raise."""
    pairs = list(pairs)
    ids = ((source.ids.get(one), target.ids.get(other)) for one, other in pairs)
    found = [(one, other) for one, other in ids if one is not None and other is not None]
    got = f"{len(pairs)} pairs, all with an unknown word" if pairs else "no pair"
    require(len(found) > 0, "dictionary", "hold a pair of words that both vocabularies have", got)
    return found
