"""Words as sequences of units."""

from checks import refused
from hypothesis import given
from hypothesis import strategies as st
from toys import ToyPieces

from polyembed.text.spelling import CharSpelling, PieceSpelling, clip


@given(st.lists(st.text(st.characters(), max_size=9)), st.text(st.characters(), max_size=9))
def test_character_ids(words: list[str], characters: str):
    spelling = CharSpelling(characters)
    inventory = list(dict.fromkeys(characters))
    assert spelling.num_units == 2 + len(inventory)
    expected = [[inventory.index(c) + 2 if c in inventory else 1 for c in word] for word in words]
    assert spelling.spell(words) == expected


def test_long_words_keep_both_ends():
    spelling = CharSpelling("abcdefg", max_length=5)
    assert spelling.spell(["abcdefg", "abcde"]) == [[2, 3, 4, 7, 8], [2, 3, 4, 5, 6]]
    assert clip([1, 2, 3, 4, 5, 6], 4) == [1, 2, 5, 6]


def test_pieces_count_from_one():
    pieces = ToyPieces(3)
    spelling = PieceSpelling(pieces, max_length=2)
    assert spelling.num_units == 18
    assert spelling.unknown == [1]
    words = ["me", "gusta"]
    first, second = pieces.piece_ids(words)
    assert len(second) == 3
    assert spelling.spell(words) == [[first[0] + 1], [second[0] + 1, second[2] + 1]]


def test_max_length_is_positive():
    for build in (CharSpelling, PieceSpelling):
        rule = r"^max_length must be a positive integer, got 0$"
        refused(ValueError, rule, build, "ab", max_length=0)
