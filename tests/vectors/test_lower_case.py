"""Tables in lower case know capitalised words, others do not."""

from types import SimpleNamespace

import pytest

from polyembed.vectors import TextVectors, as_source

LOWER, CASED = "2 2\nparis 1 2\nél 3 4\n", "3 2\nparis 1 2\nél 3 4\nROMA 5 6\n"


@pytest.mark.parametrize("vocabulary_first", [False, True])
def test_a_capitalised_word(tmp_path, vocabulary_first: bool) -> None:
    for text, rows in ((LOWER, [[1, 2], [3, 4], [0, 0]]), (CASED, [[0, 0], [0, 0], [0, 0]])):
        path = tmp_path / "table.vec"
        path.write_text(text, "utf-8")
        table = TextVectors(path)
        if vocabulary_first:
            assert ("Paris" in table) is (text is LOWER)
        assert table.vectors(["Paris", "ÉL", "Roma"]).tolist() == rows
        assert table.vectors(["paris"]).tolist() == [[1, 2]]
        assert ("Paris" in table) is (text is LOWER)
        assert table.vectors(["PARIS", "paris"]).tolist()[0] == rows[0]


@pytest.mark.parametrize("cased", [False, True])
def test_a_capitalised_word_of_keyed_vectors(cased: bool) -> None:
    rows = {"paris": [1, 2], "él": [3, 4], **({"ROMA": [5, 6]} if cased else {})}
    keyed = SimpleNamespace(
        vector_size=2, key_to_index=dict.fromkeys(rows, 0), get_vector=rows.__getitem__
    )
    table = as_source(keyed)
    found = [[0, 0]] * 3 if cased else [[1, 2], [3, 4], [0, 0]]
    assert table.vectors(["Paris", "ÉL", "Roma"]).tolist() == found
    assert ("Paris" in table, "paris" in table) == (not cased, True)
