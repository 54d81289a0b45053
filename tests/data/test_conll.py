"""CoNLL columns, on small files and on CoNLL-2002."""

from pathlib import Path

import pytest
from checks import refused

from polyembed.data import read_conll


def write(folder: Path, text: str) -> Path:
    path = folder / "file.conll"
    path.write_bytes(text.encode())
    return path


def test_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "Sao NC es B-LOC\nPaulo VMI pt I-LOC\n\n\n. Fp xx O")
    first, second = read_conll(path)
    assert (first.words, first.tags, first.languages) == (
        ("Sao", "Paulo"),
        ("B-LOC", "I-LOC"),
        None,
    )
    assert (second.words, second.tags) == ((".",), ("O",))
    first, _ = read_conll(path, word_column=-4, tag_column=1, language_column=2)
    assert (first.words, first.tags, first.languages) == (
        ("Sao", "Paulo"),
        ("NC", "VMI"),
        ("es", "pt"),
    )


def test_number_signs_are_words(tmp_path: Path) -> None:
    path = write(tmp_path, "# O\n#lunes O\n# O\n")
    assert read_conll(path)[0].words == ("#", "#lunes", "#")


def test_comments_stand_before_the_first_word(tmp_path: Path) -> None:
    path = write(tmp_path, "# sent_id = 7\n# free words\nno O\n# O\n\n# a=b = c\nsi O\n")
    first, second = read_conll(path, comment="# ")
    assert (first.words, dict(first.metadata)) == (("no", "#"), {"sent_id": "7"})
    assert (second.words, dict(second.metadata)) == (("si",), {"a": "b = c"})
    assert [s.words for s in read_conll(write(tmp_path, "# x\n\na O\n"), comment="#")] == [("a",)]


def test_document_starts_are_left_out(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "-DOCSTART- -DOCSTART- O\nDat Pron O\n-DOCSTART-\nis V O\n\n-DOCSTART- -X- O\n\nx V O\n",
    )
    assert [s.words for s in read_conll(path)] == [("Dat",), ("is",), ("x",)]
    assert read_conll(write(tmp_path, "-DOCSTART-x O\n"))[0].words == ("-DOCSTART-x",)


def test_tabs_keep_spaces_and_spaces_run(tmp_path: Path) -> None:
    assert read_conll(write(tmp_path, "New York\tB-LOC\n"))[0].words == ("New York",)
    assert read_conll(write(tmp_path, "York   NC  B-LOC \n"))[0].tags == ("B-LOC",)
    assert read_conll(write(tmp_path, "a|b\n"), separator="|")[0].tags == ("b",)


def test_no_break_space_is_a_word(tmp_path: Path) -> None:
    assert read_conll(write(tmp_path, "\xa0 O\na O\n"))[0].words == ("\xa0", "a")
    assert read_conll(write(tmp_path, "\xa0\tO\na\tO\n"))[0].words == ("\xa0", "a")


def test_one_column_has_no_tags(tmp_path: Path) -> None:
    refused(
        ValueError,
        r"the columns must differ, of the 1 of .*, got",
        read_conll,
        write(tmp_path, "a\nb\n"),
    )


def test_malformed_lines_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"file\.conll:4 must have 2 columns as the lines before, got 1 in 'c'"
    ):
        read_conll(write(tmp_path, "a X\nb Y\n\nc\n"))
    with pytest.raises(
        ValueError, match=r"file\.conll:2 must have 2 columns as the lines before, got 3 in"
    ):
        read_conll(write(tmp_path, "a\tX\nb\tY\tZ\n"))
    with pytest.raises(
        ValueError, match=r"file\.conll:2 must have no empty word, tag or language, got '\\tY'"
    ):
        read_conll(write(tmp_path, "a\tX\n\tY\n"))


def test_columns_must_be_there(tmp_path: Path) -> None:
    path = write(tmp_path, "a X\n")
    refused(
        ValueError,
        r"tag_column must be one of the 2 columns of .*, got 2",
        read_conll,
        path,
        tag_column=2,
    )
    refused(
        ValueError,
        r"word_column must be one of the 2 columns of .*, got -3",
        read_conll,
        path,
        word_column=-3,
    )
    with pytest.raises(
        ValueError, match=r"language_column must be one of the 2 columns of .*, got 5"
    ):
        read_conll(path, language_column=5)


@pytest.mark.parametrize(
    ("name", "sentences", "tokens"),
    [("esp.testa", 1915, 52_923), ("esp.testb", 1517, 51_533), ("ned.testa", 2895, 37_687)],
)
def test_conll_2002(data_folder: Path, name: str, sentences: int, tokens: int) -> None:
    path = data_folder / "conll2002" / name
    read = read_conll(path)
    assert (len(read), sum(map(len, read))) == (sentences, tokens)
    kinds = {"PER", "LOC", "ORG", "MISC"}
    assert {tag for s in read for tag in s.tags} == {"O"} | {
        f"{p}-{kind}" for p in "BI" for kind in kinds
    }
    if name == "ned.testa":
        assert read_conll(path, tag_column=1)[0].tags[:3] == ("Pron", "V", "Adj")


def test_separators_that_change(tmp_path: Path) -> None:
    path = tmp_path / "mixed.txt"
    path.write_text("the O\nstorm \tO\n")
    with pytest.raises(ValueError, match=r"mixed.txt:2 must have no tab, as the lines before"):
        read_conll(path)
    path.write_text("the\tO\nstorm \t O\n")
    assert [sentence.words for sentence in read_conll(path)] == [("the", "storm")]


@pytest.mark.parametrize("end", ["\r", "\r\r\n"])
def test_other_line_ends_are_named(tmp_path: Path, end: str) -> None:
    path = tmp_path / "ends.txt"
    path.write_bytes(end.join(["the\tO", "storm\tO", ""]).encode())
    with pytest.raises(ValueError, match=r"ends.txt:1 must end in .*, got 'the"):
        read_conll(path)
