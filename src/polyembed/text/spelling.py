"""Words as sequences of smaller units: characters, or the pieces of a sub-word model.

A *spelling* turns words into lists of unit ids; id 0 is kept for padding. A spelling does not
depend on the words met so far, so words met later are spelled by the same rules.
"""

import itertools
import re
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import regex
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from polyembed._checks import check_positive, check_words, require
from polyembed.saving import Configurable


@runtime_checkable
class Spelling(Protocol):
    """A map from words to lists of unit ids from 1 to ``num_units - 1``."""

    @property
    def num_units(self) -> int:
        """The number of ids, the padding's 0 included."""
        ...

    @property
    def unknown(self) -> list[int]:
        """The spelling of the unknown word."""
        ...

    def spell(self, words: Sequence[str]) -> list[list[int]]:
        """Return each word's unit ids; an empty list for a word without units."""
        ...


class CharSpelling(Configurable):
    """Spell words by their characters (Unicode code points).

    Id 0 is padding, 1 is any character outside the inventory, and the inventory's ids follow in
    order. A word longer than `max_length` keeps its first and its last characters, half each,
    because these have its affixes.

    Args:
        characters: The inventory.
        max_length: The largest number of characters of a word that count.

    Example:
        >>> spelling = CharSpelling("abc")
        >>> spelling.spell(["cab", "añb"])
        [[4, 2, 3], [2, 1, 3]]
    """

    def __init__(self, characters: Iterable[str], *, max_length: int = 64) -> None:
        check_positive(max_length=max_length)
        self.characters = "".join(dict.fromkeys("".join(characters)))
        self.max_length = max_length
        self._ids = {character: i for i, character in enumerate(self.characters, start=2)}

    @property
    def num_units(self) -> int:
        """The number of ids: the inventory, padding and the unknown character."""
        return len(self.characters) + 2

    @property
    def unknown(self) -> list[int]:
        """The spelling of the unknown word: one unknown character."""
        return [1]

    def spell(self, words: Sequence[str]) -> list[list[int]]:
        """Return each word's character ids."""
        return [
            [self._ids.get(character, 1) for character in clip(word, self.max_length)]
            for word in words
        ]


class PieceSpelling(Configurable):
    """Spell words by the pieces of a SentencePiece model, as `BPEmbVectors` cuts them.

    A piece's id is the model's id plus one; 0 is padding.

    Args:
        pieces: An object with ``piece_ids(words)``, ``num_pieces`` and ``unknown_id``: a
            `BPEmbVectors`.
        max_length: The largest number of pieces of a word that count: half from its start, half
            from its end.
    """

    def __init__(self, pieces: Any, *, max_length: int = 64) -> None:
        check_positive(max_length=max_length)
        self.pieces = pieces
        self.max_length = max_length

    @property
    def num_units(self) -> int:
        """The number of ids: the model's pieces and padding."""
        return int(self.pieces.num_pieces) + 1

    @property
    def unknown(self) -> list[int]:
        """The spelling of the unknown word: the model's unknown piece."""
        return [int(self.pieces.unknown_id) + 1]

    def spell(self, words: Sequence[str]) -> list[list[int]]:
        """Return each word's piece ids."""
        return [[i + 1 for i in clip(ids, self.max_length)] for ids in self.pieces.piece_ids(words)]


Units = TypeVar("Units", str, list[int])


def clip(units: Units, length: int) -> Units:
    """Return at most `length` units of a sequence, half from its start and half from its end."""
    if len(units) <= length:
        return units
    tail = length // 2
    return units[: length - tail] + units[len(units) - tail :]


def spelling_table(spellings: Sequence[Sequence[int]]) -> Int[Tensor, "word unit"]:
    """Build a table of spellings, padded with 0.

    Args:
        spellings: The unit ids of each word.

    Returns:
        An int32 table as wide as the longest spelling.

    Example:
        >>> spelling_table([[3, 4], [5]]).tolist()
        [[3, 4], [5, 0]]
    """
    return pad_rows(spellings).int()


def mask_of(rows: Sequence[Sequence[Any]]) -> Bool[Tensor, "row column"]:
    """Return a table with True for each entry of a row, False for the padding after it."""
    return pad_rows([[1] * len(row) for row in rows]).bool()


def pad_rows(rows: Sequence[Sequence[int]], filler: int = 0) -> Int[Tensor, "row column"]:
    """Return an int64 table of rows, padded to the longest."""
    width = max(map(len, rows), default=0)
    padded = [[*row, *[filler] * (width - len(row))] for row in rows]
    return torch.tensor(padded, dtype=torch.int64).reshape(len(rows), width)


FEATURES = (
    "lower",
    "shape",
    *(f"{end}{size}" for end in ("prefix", "suffix") for size in (1, 2, 3, 4)),
)
"""The features of a hand-made tagger that need no dictionary."""

LONGEST = 256
"""The most characters of a word, half from either end, that give its prefixes and suffixes."""

_NAME = re.compile(r"lower|shape|(prefix|suffix)[1-9]")


class SurfaceSpelling(Configurable):
    """Spell words by the features of their surface, each hashed to an id.

    Every word has one id for each feature, in order. Features: ``lower``, the word in lower case;
    ``shape``, its characters as ``X`` (upper case), ``x`` (other letters), ``0`` (digits) or
    themselves, with at most two equal ones in a row; ``prefixN`` and ``suffixN``, the first and
    last N grapheme clusters in lower case, so that a Devanagari vowel sign stays with its consonant
    and an emoji sequence is one unit. A word of fewer clusters is its own prefix and suffix.

    An id is ``1 + crc32("feature=value") % num_buckets``: the same in every process and on every
    machine. Different values may share an id.

    Args:
        features: The names of the features.
        num_buckets: The number of ids without the padding's 0.

    Raises:
        ValueError: If a feature is unknown.

    Example:
        >>> spelling = SurfaceSpelling(["lower", "suffix2"], num_buckets=1000)
        >>> [me, ME] = spelling.spell(["me", "ME"])
        >>> me == ME, len(me)
        (True, 2)
        >>> spelling.values("Gusta")
        ['gusta', 'ta']
    """

    def __init__(self, features: Sequence[str] = FEATURES, *, num_buckets: int = 2**16) -> None:
        check_positive(num_buckets=num_buckets)
        self.features = tuple(check_words(features, name="features"))
        for i, name in enumerate(self.features):
            known = _NAME.fullmatch(name) is not None
            require(known, f"features[{i}]", "be lower, shape, prefixN or suffixN", name)
        self.num_buckets = num_buckets

    @property
    def num_units(self) -> int:
        """The number of ids: the buckets, and 0 for padding."""
        return self.num_buckets + 1

    @property
    def unknown(self) -> list[int]:
        """The spelling of the unknown word: features that no word has."""
        return [self._id(f"unknown {name}") for name in self.features]

    def spell(self, words: Sequence[str]) -> list[list[int]]:
        """Return each word's ids, one for each feature."""
        return [
            [self._id(f"{k}={v}") for k, v in zip(self.features, self.values(word), strict=True)]
            for word in words
        ]

    def values(self, word: str) -> list[str]:
        """Return the values of a word's features."""
        lower = word.lower()
        # clusters of a long run of flags take quadratic time
        clusters = regex.findall(r"\X", clip(lower, LONGEST))
        found = {"lower": lower, "shape": shape_of(word)}
        for name in self.features:
            if name not in found:
                size = int(name[-1])
                ends = clusters[:size] if name.startswith("prefix") else clusters[-size:]
                found[name] = "".join(ends)
        return [found[name] for name in self.features]

    def _id(self, text: str) -> int:
        return 1 + zlib.crc32(text.encode("utf-8", "surrogatepass")) % self.num_buckets


def shape_of(word: str) -> str:
    """Return a word's shape: the kinds of its characters, with at most two equal ones in a row.

    Args:
        word: The word.

    Returns:
        The shape.

    Example:
        >>> shape_of("McDonald's"), shape_of("2026"), shape_of("!!!!")
        ("XxXxx'x", '00', '!!')
    """
    kinds = (
        "X" if c.isupper() else "x" if c.isalpha() else "0" if c.isdigit() else c
        for c in word
    )  # fmt: skip
    return "".join(kind for _, run in itertools.groupby(kinds) for kind in itertools.islice(run, 2))
