"""Words as sequences of smaller units: characters, or the pieces of a sub-word model.

A *spelling* turns words into lists of unit ids; id 0 is kept for padding. It is complete in itself,
so a word met later is spelled as it would have been from the start.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from polyembed._checks import check_positive
from polyembed.saving import Configurable


@runtime_checkable
class Spelling(Protocol):
    """Words to lists of unit ids from 1 to ``num_units - 1``."""

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

    Ids: 0 pads, 1 is any character outside the inventory, the inventory's follow in order. A word
    longer than `max_length` keeps its first and its last characters, half each, which has its
    affixes.

    Args:
        characters: The inventory.
        max_length: The most characters of a word that count.

    Example:
        >>> spelling = CharSpelling("abc")
        >>> spelling.spell(["cab", "añb"])
        [[4, 2, 3], [2, 1, 3]]
    """

    def __init__(self, characters: Iterable[str], *, max_length: int = 64) -> None:
        check_positive(max_length=max_length)
        self.characters = "".join(dict.fromkeys(characters))
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

    Ids are the model's plus one; 0 pads.

    Args:
        pieces: An object with ``piece_ids(words)``, ``num_pieces`` and ``unknown_id``: a
            `BPEmbVectors`.
        max_length: The most pieces of a word that count: half from its start, half from its end.
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
    """Return the first and the last half of a sequence that is longer than `length`."""
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


def pad_rows(rows: Sequence[Sequence[int]], filler: int = 0) -> Int[Tensor, "row column"]:
    """Return an int64 table of rows, padded to the longest."""
    width = max(map(len, rows), default=0)
    padded = [[*row, *[filler] * (width - len(row))] for row in rows]
    return torch.tensor(padded, dtype=torch.int64).reshape(len(rows), width)
