"""Ids of pieces: fairseq's special pieces, look-ups, and files."""

import pytest
from checks import refused

from polyembed.text import PieceDictionary

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def test_special_pieces_come_first():
    dictionary = PieceDictionary.from_pieces(["a", "</s>", "b", "a"])
    assert dictionary.pieces() == [*SPECIAL, "a", "b"]
    assert (dictionary.padding_id, dictionary.end_id, dictionary.unknown_id) == (1, 2, 3)
    assert dictionary.ids(["b", "no", "<s>"]) == [5, 3, 0]
    assert "a" in dictionary
    assert "no" not in dictionary


def test_a_table_of_ids_in_any_order():
    ids = {"b": 5, "<unk>": 3, "a": 4, "</s>": 2, "<s>": 0, "<pad>": 1}
    assert PieceDictionary.from_ids(ids).pieces() == [*SPECIAL, "a", "b"]
    assert PieceDictionary.from_ids({"b": 5, "a": 4}).pieces() == [*SPECIAL, "a", "b"]


@pytest.mark.parametrize(
    ("build", "argument", "message"),
    [
        (PieceDictionary, ["<s>", "a"], r"pieces must hold .*, got none of \['<pad>', '</s>'"),
        (PieceDictionary, [*SPECIAL, "a", "a"], "pieces must occur once each, got repetitions"),
        (PieceDictionary.from_ids, {"a": 6}, "dictionary must number its pieces 0, 1, 2, ..."),
    ],
)
def test_bad_tables_are_refused(build, argument, message: str):
    refused(ValueError, f"^{message}", build, argument)
