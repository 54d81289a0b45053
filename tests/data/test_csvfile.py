"""Comma-separated tokens, and the Hindi-English tweets."""

from collections import Counter
from pathlib import Path

import pytest
from checks import refused

from polyembed.data import read_csv


def write(folder: Path, text: str) -> Path:
    path = folder / "tweets.csv"
    path.write_bytes(text.encode())
    return path


def test_rows(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '\ufeffSent,Word,Tag\r\ns0,"tha,",Other\r\ns0,"""",Other\r\ns0,gujarat ,B-Loc\r\n""\r\n""\r\n\r\n'
        "s1,\xa0,Other\r\n\r\ns1,a b,I-Per",
    )
    first, second = read_csv(path)
    assert (first.words, first.tags) == (("tha,", '"', "gujarat"), ("O", "O", "B-Loc"))
    assert dict(first.metadata) == {"sent_id": "s0"}
    assert second.words == ("\xa0", "a b"), "a blank row does not end what its name goes on with"


def test_a_sentence_named_once(tmp_path: Path) -> None:
    rows = "Sent,Word,Tag\ns0,Ana,B-Per\n,lives,Other\n\n,here,Other\ns1,Rain,Other\n,falls,Other\n"
    read = read_csv(write(tmp_path, rows))
    assert [s.words for s in read] == [("Ana", "lives", "here"), ("Rain", "falls")]
    assert [s.metadata["sent_id"] for s in read] == ["s0", "s1"]
    for text, message in {
        ",Ana,Other\n": r"tweets\.csv:2 must name its sentence, got \['', 'Ana', 'Other'\]",
        's0,",Other\ns0,a,Other\ns0,",Other\n': r"tweets\.csv:4 must hold one line \(a quotation",
    }.items():
        with pytest.raises(ValueError, match=message):
            read_csv(write(tmp_path, "Sent,Word,Tag\n" + text))


def test_columns_by_name(tmp_path: Path) -> None:
    path = write(tmp_path, "tok;x;label;id\na;?;Other;1\nb;?;V;2\n")
    options = {
        "sentence_column": "id",
        "word_column": "tok",
        "tag_column": "label",
        "delimiter": ";",
    }
    read = read_csv(path, **options, outside_tag=None)  # type: ignore[arg-type]
    assert [(s.words, s.tags) for s in read] == [(("a",), ("Other",)), (("b",), ("V",))]


def test_malformed_rows_are_named(tmp_path: Path) -> None:
    head = "Sent,Word,Tag\n"
    for text, message in {
        "": r"tweets\.csv:1 must name the columns 'Sent', 'Word', 'Tag', got \[\]",
        "Sent,Token,Tag\n": r"tweets\.csv:1 must name the columns .*, got \['Sent', 'Token', 'Tag'\]",
        head + "s,a\n": r"tweets\.csv:2 must have 3 columns as the first line, got \['s', 'a'\]",
        head
        + "s,a,O\ns,,O\n": r"tweets\.csv:3 must have no empty word or tag, got \['s', '', 'O'\]",
        head + "s,a, \n": r"tweets\.csv:2 must have no empty word or tag",
        head + 's,"a"b,O\n': r"tweets\.csv:2 must be a row of CSV, got ',' expected after '\"'",
        head + 's,"a,O\n': r"tweets\.csv:2 must be a row of CSV, got unexpected end of data",
    }.items():
        refused(ValueError, message, read_csv, write(tmp_path, text))


def test_hinglish_tweets(data_folder: Path) -> None:
    read = read_csv(data_folder / "code_switched/hinglish_ner/annotatedData.csv")
    assert (len(read), sum(map(len, read))) == (3085, 68_506)
    assert len({sentence.metadata["sent_id"] for sentence in read}) == 3085
    tags = Counter(tag for sentence in read for tag in sentence.tags)
    assert tags == {
        "O": 63_499,
        "B-Per": 2138,
        "B-Org": 1432,
        "B-Loc": 762,
        "I-Per": 554,
        "I-Org": 90,
        "I-Loc": 31,
    }
    words = [word for sentence in read for word in sentence.words]
    assert sum(word != word.strip() for word in words) == words.count("\xa0") == 13
    assert words.count(",") > 0
    assert read[0].words[:3] == ("Bahubali", "2", "ke")
