"""XNLI and PAWS-X, in the layout of the published files."""

import pickle
from pathlib import Path

import pytest
from checks import refused
from toys import toy_table

import polyembed as pe
from polyembed.data import SentencePair, read_pawsx, read_xnli

XNLI_HEAD = (
    "language\tgold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\tsentence1\t"
    "sentence2\tpromptID\tpairID\tgenre\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tsentence1_tokenized\t"
    "sentence2_tokenized\tmatch\n"
)
PAWSX_HEAD = "id\tsentence1\tsentence2\tlabel\n"


def xnli_row(
    language: str, label: str, first: str, second: str, number: int, tokens: tuple[str, str]
) -> str:
    votes = "\t".join([label] * 5)
    return (
        f"{language}\t{label}\t\t\t\t\t{first}\t{second}\t{number}\t{number + 100}\tfacetoface\t{votes}\t"
        f"{tokens[0]}\t{tokens[1]}\tTrue\n"
    )


XNLI = (
    XNLI_HEAD
    + xnli_row(
        "es",
        "neutral",
        'Y él dijo: "Mamá.',
        "Llamó a  casa.",
        1,
        ('Y él dijo : " Mamá .', "Llamó a casa ."),
    )
    + xnli_row("es", "entailment", "Sí\xa0!", '"No"', 2, ("Sí !", '" No "'))
    + xnli_row(
        "zh", "contradiction", "他说,妈妈。", "他没说话", 1, ("他 说 , 妈妈 。", "他 没 说话")
    )
)
PAWSX = PAWSX_HEAD + '1\tEl "perro , corre .\tUn perro corre .\t1\n2\tLa casa .\tNS\t0\n3\t\t\t0\n'


def write(folder: Path, text: str, name: str = "file.tsv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_xnli(tmp_path: Path) -> None:
    first, second, third = read_xnli(write(tmp_path, XNLI))
    assert first.first == ("Y", "él", "dijo:", '"Mamá.')
    assert first.second == ("Llamó", "a", "casa.")
    assert (first.label, second.label, third.label) == ("neutral", "entailment", "contradiction")
    assert dict(first.metadata) == {"pair_id": "101", "language": "es"}
    assert first.metadata["pair_id"] == third.metadata["pair_id"], (
        "the same pair in another language"
    )
    assert second.first == ("Sí\xa0!",)
    assert third.second == ("他没说话",)


def test_xnli_tokenized(tmp_path: Path) -> None:
    (pair,) = read_xnli(write(tmp_path, XNLI), language="zh", tokenized=True)
    assert (pair.first, pair.second) == (("他", "说", ",", "妈妈", "。"), ("他", "没", "说话"))


def test_xnli_of_one_language(tmp_path: Path) -> None:
    path = write(tmp_path, XNLI)
    everything = read_xnli(path)
    assert read_xnli(path, language="es") == everything[:2]
    assert read_xnli(path, language="zh") == everything[2:]
    refused(
        ValueError,
        r"file\.tsv must have pairs in the language 'de', got es, zh$",
        read_xnli,
        path,
        language="de",
    )
    path = write(tmp_path, XNLI_HEAD)
    assert read_xnli(path) == []
    refused(
        ValueError,
        r"file\.tsv must have pairs in the language 'de', got none$",
        read_xnli,
        path,
        language="de",
    )


def test_pawsx(tmp_path: Path) -> None:
    first, second, third = read_pawsx(write(tmp_path, PAWSX))
    assert first == SentencePair(
        ("El", '"perro', ",", "corre", "."), ("Un", "perro", "corre", "."), "1", {"pair_id": "1"}
    )
    assert (second.first, second.second, second.label) == (("La", "casa", "."), ("NS",), "0")
    assert (third.first, third.second) == ((), ())


def test_line_ends_and_order_of_columns(tmp_path: Path) -> None:
    text = "\ufefflabel\tsentence2\tmore\tsentence1\tid\r\n1\tb c\t?\ta\t5\r\n\r\n"
    assert read_pawsx(write(tmp_path, text)) == [
        SentencePair(("a",), ("b", "c"), "1", {"pair_id": "5"})
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            r"file\.tsv:1 must name the columns 'language', 'gold_label', 'sentence1', .*, got \[''\]$",
        ),
        (
            XNLI_HEAD.replace("pairID", "id"),
            r"file\.tsv:1 must name the columns .*'pairID', got \['language', ",
        ),
        (
            XNLI + "es\tneutral\ta\tb\n",
            r"file\.tsv:5 must have 19 columns as the first line, got 4 in 'es\\tneutral",
        ),
        (
            XNLI + xnli_row("es", "-", "a", "b", 3, ("a", "b")),
            "file.tsv:5 must have one of the labels entailment, .*, got '-'$",
        ),
        (
            XNLI + xnli_row("es", "neutral", "a", " ", 3, ("a", "b")),
            r"file\.tsv:5 must have no empty language or sentence, got \('es', 'a', ' '\)$",
        ),
        (
            XNLI + xnli_row("", "neutral", "a", "b", 3, ("a", "b")),
            r"file\.tsv:5 must have no empty language or sentence",
        ),
    ],
)
def test_malformed_lines_of_xnli_are_named(tmp_path: Path, text: str, message: str) -> None:
    refused(ValueError, message, read_xnli, write(tmp_path, text))
    refused(ValueError, message, read_xnli, write(tmp_path, text), language="es")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            r"file\.tsv:1 must name the columns 'id', 'sentence1', 'sentence2', 'label', got \[''\]$",
        ),
        ("1\ta\tb\t1\n", r"file\.tsv:1 must name the columns .*, got \['1', 'a', 'b', '1'\]$"),
        (
            PAWSX + "4\ta\tb\n",
            r"file\.tsv:5 must have 4 columns as the first line, got 3 in '4\\ta\\tb'$",
        ),
        (PAWSX + "4\ta\tb\t\n", r"file\.tsv:5 must have one of the labels 0, 1, got ''$"),
        (PAWSX + "4\ta\tb\t2\n", r"file\.tsv:5 must have one of the labels 0, 1, got '2'$"),
    ],
)
def test_malformed_lines_of_pawsx_are_named(tmp_path: Path, text: str, message: str) -> None:
    refused(ValueError, message, read_pawsx, write(tmp_path, text))


def test_pairs_train_a_classifier(tmp_path: Path) -> None:
    pairs = read_pawsx(write(tmp_path, PAWSX))  # one of them without words
    assert pickle.loads(pickle.dumps(pairs)) == pairs
    model = pe.PairClassifier(toy_table(5), ["0", "1"], pooling="mean")
    result = pe.fit(model, pairs, pairs[:2], pe.FitOptions(num_train_epochs=1))
    assert result is not None
    assert len(model.predict([(pair.first, pair.second) for pair in pairs])) == 3


def test_pairs_do_not_share_metadata() -> None:
    assert SentencePair((), ()).metadata is not SentencePair((), ()).metadata
