"""XNLI and PAWS-X, in the layout of the published files."""

from collections.abc import Callable
from pathlib import Path

from polyembed.data import SentencePair, read_pawsx, read_xnli

Write = Callable[[str], Path]
XNLI_HEAD = (
    "language\tgold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
    "sentence2_parse\tsentence1\tsentence2\tpromptID\tpairID\tgenre\tlabel1\tlabel2\tlabel3\tlabel4\t"
    "label5\tsentence1_tokenized\tsentence2_tokenized\tmatch\n"
)
ROWS = [
    ("es", "neutral", 'Y él dijo: "Mamá.', "Llamó a  casa.", 1, 'Y él dijo : " Mamá .', "Llamó a"),
    ("es", "entailment", "Sí\xa0!", '"No"', 2, "Sí !", '" No "'),
    ("zh", "contradiction", "他说,妈妈。", "他没说话", 1, "他 说 , 妈妈 。", "他 没 说话"),
]
ROW = (
    "{0}\t{1}\t\t\t\t\t{2}\t{3}\t{4}\t10{4}\tfacetoface\t{1}\t{1}\t{1}\t{1}\t{1}\t{5}\t{6}\tTrue\n"
)
XNLI = XNLI_HEAD + "".join(ROW.format(*row) for row in ROWS)
PAWSX = (
    "id\tsentence1\tsentence2\tlabel\n"
    '1\tEl "perro , corre .\tUn perro corre .\t1\n2\tLa casa .\tNS\t0\n3\t\t\t0\n'
)


def test_xnli(file: Write):
    first, second, third = read_xnli(file(XNLI))
    assert first.first == ("Y", "él", "dijo:", '"Mamá.')
    assert first.second == ("Llamó", "a", "casa.")
    assert (first.label, second.label, third.label) == ("neutral", "entailment", "contradiction")
    assert dict(first.metadata) == {"pair_id": "101", "language": "es"}
    assert third.metadata["pair_id"] == "101", "the same pair in another language"
    assert (second.first, third.second) == (("Sí\xa0!",), ("他没说话",))


def test_xnli_of_one_language(file: Write):
    path = file(XNLI)
    assert read_xnli(path, language="es") == read_xnli(path)[:2]
    (pair,) = read_xnli(path, language="zh", tokenized=True)
    assert (pair.first, pair.second) == (("他", "说", ",", "妈妈", "。"), ("他", "没", "说话"))
    assert read_xnli(file(XNLI_HEAD)) == []


def test_pawsx(file: Write):
    first, second, third = read_pawsx(file(PAWSX))
    assert first == SentencePair(
        ("El", '"perro', ",", "corre", "."), ("Un", "perro", "corre", "."), "1", {"pair_id": "1"}
    )
    assert (second.first, second.second, second.label) == (("La", "casa", "."), ("NS",), "0")
    assert (third.first, third.second) == ((), ())


def test_line_ends_and_order_of_columns(file: Write):
    text = "\ufefflabel\tsentence2\tmore\tsentence1\tid\r\n1\tb c\t?\ta\t5\r\n\r\n"
    assert read_pawsx(file(text)) == [SentencePair(("a",), ("b", "c"), "1", {"pair_id": "5"})]
