"""Words as sequences of units."""

import torch
from checks import refused
from hypothesis import given
from hypothesis import strategies as st
from toys import ToyPieces

import polyembed as pe
from polyembed.text import CharSpelling
from polyembed.text.spelling import clip, spelling_table


@given(st.lists(st.text(st.characters(), max_size=9)), st.text(st.characters(), max_size=9))
def test_character_ids(words: list[str], characters: str) -> None:
    spelling = CharSpelling(characters)
    inventory = list(dict.fromkeys(characters))
    assert spelling.num_units == 2 + len(inventory)
    expected = [[inventory.index(c) + 2 if c in inventory else 1 for c in word] for word in words]
    assert spelling.spell(words) == expected


def test_long_words_keep_both_ends() -> None:
    spelling = CharSpelling("abcdefg", max_length=5)
    assert spelling.spell(["abcdefg", "abcde"]) == [[2, 3, 4, 7, 8], [2, 3, 4, 5, 6]]
    assert CharSpelling("abc", max_length=1).spell(["abc"]) == [[2]]
    assert clip([1, 2, 3, 4, 5, 6], 4) == [1, 2, 5, 6]


def test_pieces_count_from_one() -> None:
    pieces = ToyPieces(3)
    spelling = pe.text.PieceSpelling(pieces, max_length=2)
    assert spelling.num_units == 18
    assert spelling.unknown == [1]
    words = ["me", "gusta"]
    first, second = pieces.piece_ids(words)
    assert len(second) == 3
    assert spelling.spell(words) == [[first[0] + 1], [second[0] + 1, second[2] + 1]]


def test_tables() -> None:
    table = spelling_table([[3, 4, 0], [], [5]])
    assert table.dtype == torch.int32
    assert table.tolist() == [[3, 4, 0], [0, 0, 0], [5, 0, 0]]
    assert spelling_table([]).shape == (0, 0)
    assert spelling_table([[], []]).shape == (2, 0)


def test_max_length_is_positive() -> None:
    for build in (CharSpelling, pe.text.PieceSpelling):
        refused(
            ValueError, r"^max_length must be a positive integer, got 0$", build, "ab", max_length=0
        )
