"""Ids of pieces: fairseq's special ones, look-ups, files."""

import pytest
from checks import refused

from polyembed.text import PieceDictionary

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def test_special_pieces_come_first() -> None:
    dictionary = PieceDictionary.from_pieces(["a", "</s>", "b", "a"])
    assert dictionary.pieces() == [*SPECIAL, "a", "b"]
    assert (dictionary.padding_id, dictionary.end_id, dictionary.unknown_id) == (1, 2, 3)
    assert dictionary.ids(["b", "no", "<s>"]) == [5, 3, 0]
    assert "a" in dictionary
    assert "no" not in dictionary


def test_special_pieces_may_stand_anywhere() -> None:
    dictionary = PieceDictionary(["a", "<unk>", "</s>", "<pad>", "<s>"])
    assert (dictionary.padding_id, dictionary.end_id, dictionary.unknown_id) == (3, 2, 1)
    assert dictionary.ids(["no"]) == [1]


def test_a_table_of_ids_in_any_order() -> None:
    ids = {"b": 5, "<unk>": 3, "a": 4, "</s>": 2, "<s>": 0, "<pad>": 1}
    assert PieceDictionary.from_ids(ids).pieces() == [*SPECIAL, "a", "b"]
    assert PieceDictionary.from_ids({"b": 5, "a": 4}).pieces() == [*SPECIAL, "a", "b"]
    assert PieceDictionary.from_ids({"<pad>": 0, "<unk>": 1, "</s>": 2, "<s>": 3}).padding_id == 0


def test_bad_tables_are_refused() -> None:
    rule = r"^pieces must hold <s>, <pad>, </s>, <unk>, got none of \['<pad>', '</s>', '<unk>'\]$"
    refused(ValueError, rule, PieceDictionary, ["<s>", "a"])
    once = r"^pieces must occur once each, got repetitions$"
    refused(ValueError, once, PieceDictionary, [*SPECIAL, "a", "b", "a"])
    refused(
        TypeError, r"^pieces must be a list of words, got the string 'ab'", PieceDictionary, "ab"
    )
    refused(TypeError, r"^pieces\[4\] must be a string, got int$", PieceDictionary, [*SPECIAL, 4])
    rule = r"^pieces must hold .*, got none of \['<s>'\]$"
    refused(ValueError, rule, PieceDictionary.from_ids, {"a": 0})  # which is where <s> belongs
    rule = r"^dictionary must number its pieces 0, 1, 2, ..., each once, got other ids"
    refused(ValueError, rule, PieceDictionary.from_ids, {"a": 6})


@pytest.mark.parametrize(
    "content", ["{}", "no json", '["a"]', '["<s>", "<pad>", "</s>", "<unk>", 4]']
)
def test_a_damaged_file_is_refused(tmp_path, content: str) -> None:
    names = PieceDictionary(SPECIAL).write_files(tmp_path)
    assert PieceDictionary.from_config({"pieces": tmp_path / names["pieces"]}).pieces() == SPECIAL
    (tmp_path / names["pieces"]).write_text(content)
    refused(
        (ValueError, TypeError),
        "must",
        PieceDictionary.from_config,
        {"pieces": tmp_path / names["pieces"]},
    )
