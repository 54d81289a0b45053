"""CoNLL columns, on small files and on CoNLL-2002."""

from collections.abc import Callable
from pathlib import Path

import pytest

from polyembed.data import read_conll

Write = Callable[[str], Path]


def test_columns(file: Write):
    path = file("Sao NC es B-LOC\nPaulo VMI pt I-LOC\n\n\n. Fp xx O")
    first, second = read_conll(path)
    assert (first.words, first.languages) == (("Sao", "Paulo"), None)
    assert (first.tags, second.words, second.tags) == (("B-LOC", "I-LOC"), (".",), ("O",))
    first, _ = read_conll(path, word_column=-4, tag_column=1, language_column=2)
    assert (first.words, first.tags) == (("Sao", "Paulo"), ("NC", "VMI"))
    assert first.languages == ("es", "pt")


def test_comments_precede_the_first_word(file: Write):
    path = file("# sent_id = 7\n# free words\nno O\n# O\n\n# a=b = c\nsi O\n")
    first, second = read_conll(path, comment="# ")
    assert (first.words, dict(first.metadata)) == (("no", "#"), {"sent_id": "7"})
    assert (second.words, dict(second.metadata)) == (("si",), {"a": "b = c"})
    assert [s.words for s in read_conll(file("# x\n\na O\n"), comment="#")] == [("a",)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# O\n#lunes O\n# O\n", [("#", "#lunes", "#")]),
        (
            "-DOCSTART- -DOCSTART- O\nDat Pron O\n-DOCSTART-\nis V O\n\n-DOCSTART- -X- O\n\nx V O",
            [("Dat",), ("is",), ("x",)],
        ),
        ("-DOCSTART-x O\n", [("-DOCSTART-x",)]),
        ("New York\tB-LOC\nstorm \t O", [("New York", "storm")]),
        ("York   NC  B-LOC \n", [("York",)]),
        ("\xa0 O\na O\n", [("\xa0", "a")]),
        ("\xa0\tO\na\tO\n", [("\xa0", "a")]),
    ],
)
def test_what_is_a_word(file: Write, text: str, words: list[tuple[str, ...]]):
    assert [sentence.words for sentence in read_conll(file(text))] == words


@pytest.mark.parametrize(
    ("name", "sentences", "tokens"),
    [("esp.testa", 1915, 52_923), ("esp.testb", 1517, 51_533), ("ned.testa", 2895, 37_687)],
)
def test_conll_2002(data_folder: Path, name: str, sentences: int, tokens: int):
    read = read_conll(data_folder / "conll2002" / name)
    assert (len(read), sum(map(len, read))) == (sentences, tokens)
    kinds = {tag.removeprefix("B-").removeprefix("I-") for s in read for tag in s.tags}
    assert kinds == {"O", "PER", "LOC", "ORG", "MISC"}
