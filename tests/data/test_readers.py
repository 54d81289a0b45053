"""Common features of all readers: formats, line ends, encodings, and errors that name a line."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from checks import refused

from polyembed import data
from polyembed.data import (
    TaggedSentence,
    read_conll,
    read_conllu,
    read_csv,
    read_dictionary,
    read_inline,
    read_lince,
    read_pawsx,
    read_sentimix,
    read_tagged,
    read_wikiann,
    read_xnli,
)

Write = Callable[[str], Path]
NER, LID = (partial(read_lince, task=task) for task in ("ner_spaeng", "lid_spaeng"))
TAGGED = [read_conll, read_conllu, read_inline, read_sentimix, read_wikiann, NER]
WORD = "1\ta\ta\tX\t_\t_\t0\troot\t_\t_\n"
CSV = "Sent,Word,Tag\n"
PAWSX = "id\tsentence1\tsentence2\tlabel\n"
XNLI = "language\tgold_label\tsentence1\tsentence2\tpairID\n"


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("conll", "hola O\n", {}),
        ("conllu", "1\thola\thola\tO\t_\t_\t0\troot\t_\t_\n", {"tag": "upos"}),
        ("wikiann", "es:hola\tO\n", {}),
        ("lince", "hola\tlang2\tO\n", {"task": "ner_spaeng"}),
        ("sentimix", "meta\t1\tneutral\nhola\tO\n", {}),
        ("inline", "hola_O\n", {"separator": "_"}),
        ("csv", "Sent,Word,Tag\n1,hola,Other\n", {}),
    ],
)
def test_every_format_by_name(file: Write, name: str, text: str, options: dict[str, str]):
    read = read_tagged(path := file(text), name, **options)
    assert read == getattr(data, f"read_{name}")(path, **options)
    assert (read[0].words, read[0].tags) == (("hola",), ("O",))


def test_only_line_feeds_end_a_line_and_only_blanks_separate(file: Write):
    odd = "a\u2028b\x0c\x85c"
    for text in ("\ufeff{} O\r\n\xa0 O\r\n \t\r\n\r\nd O", "{} O\n\xa0 O\n\n\nd O\n\n\n"):
        words = [sentence.words for sentence in read_conll(file(text.format(odd)))]
        assert words == [(odd, "\xa0"), ("d",)]


@pytest.mark.parametrize("read", TAGGED)
def test_a_file_without_words_has_no_sentence(file: Write, read: Callable[[Path], Any]):
    assert [read(file(text)) for text in ("", "\n \t\n", "\ufeff")] == [[], [], []]


@pytest.mark.parametrize("read", [*TAGGED, read_csv, read_dictionary, read_pawsx, read_xnli])
def test_files_that_cannot_be_read(file: Write, read: Callable[..., Any], tmp_path: Path):
    latin = file("\n\udcf1 O")
    refused(
        ValueError, "file must be utf-8 text, got byte 0xf1 on line 2; .*encoding=", read, latin
    )
    refused(FileNotFoundError, "path must name a file, got nothing at", read, tmp_path / "none")


def test_another_encoding(file: Write):
    assert read_conll(file("ni\udcf1o O"), encoding="latin-1")[0].words == ("niño",)
    pair = file("")
    pair.write_bytes("sol sun\n".encode("utf-16"))
    assert read_dictionary(pair, encoding="utf-16") == [("sol", "sun")]


MALFORMED = [
    (read_conll, "the O\rstorm O\r", ":1 must end in .*, got 'the"),
    (read_conll, "a X\nb Y\n\nc\n", ":4 must have 2 columns as the lines before, got 1 in 'c'"),
    (read_conll, "a\tX\nb\tY\tZ\n", ":2 must have 2 columns as the lines before, got 3 in"),
    (read_conll, "a\tX\n\tY\n", r":2 must have no empty word, tag or language, got '\\tY'"),
    (read_conll, "a\nb\n", "the columns must differ, of the 1 of .*, got"),
    (partial(read_conll, tag_column=2), "a X", "tag_column must be one of the 2 .*, got 2"),
    (read_conllu, WORD + "2\tb", r":2 must have ten columns, none empty, got '2\\tb'"),
    (read_conllu, WORD + WORD, ":2 must be word 2, a range or an empty node, got id '1'"),
    (read_conllu, WORD.replace("\ta", "\t_"), ".* must hold words, got '_' for all: its text is"),
    (partial(read_conllu, tag="misc:A"), WORD, "tag must name a key that a word of .*, got 'misc:A'"),
    (partial(read_conllu, tag="pos"), WORD, "tag must be one of 'lemma', 'upos', .*, got 'pos'"),
    (read_csv, "Sent,Token,Tag\n", r":1 must name the columns .*, got \['Sent', 'Token', 'Tag'\]"),
    (read_csv, CSV + "s,a\n", r":2 must have 3 columns as the first line, got \['s', 'a'\]"),
    (read_csv, CSV + "s,a,O\ns,,O\n", r":3 must have no empty word or tag, got \['s', '', 'O'\]"),
    (read_csv, CSV + 's,"a"b,O\n', ":2 must be a row of CSV, got ',' expected after '\"'"),
    (read_csv, CSV + ",a,O\n", r":2 must name its sentence, got \['', 'a', 'O'\]"),
    (read_csv, CSV + 's,",O\ns,a,O\ns,",O\n', r":4 must hold one line \(a quotation mark"),
    *(
        (read_dictionary, f"sol sun\n\n{line}", ":3 must hold a source word and a target word, got '.+'$")
        for line in ("perro", "\tdog", "perro dog hound")
    ),
    (read_dictionary, "\ufeff \n\t\n", ":1 must hold a pair of words, got an empty file$"),
    *(
        (read_inline, f"a///b\nc///d {item}", f":2 must hold words as word///tag, got '{item}'")
        for item in ("a", "a///", "///lang1")
    ),
    (NER, "# sent_enum = 1\na\n", ":2 must have 2 or 3 columns for ner_spaeng, got 'a'"),
    (partial(read_lince, task="sa_spaeng"), "a", ":1 must have 2 columns for sa_spaeng, got 'a'"),
    (NER, "a\tne\tO\n\nb\tne\n", r":3 must have 3 columns \(word, language, tag\), none empty, got"),
    (LID, "a\tne\n# sent_enum = 2\nb\tne\n", ":2 must come after a blank line"),
    (partial(read_lince, task="ner"), "a", "^task must be one of 'lid_hineng', .*, got 'ner'$"),
    (read_sentimix, "a\tEng\n", r":1 must be a line 'meta<TAB>id<TAB>sentiment', got 'a\\tEng'"),
    (read_sentimix, "meta\t1\tneutral\na\n", r":2 must have 2 columns \(word, language\), none empty"),
    (read_wikiann, "en:a\tO\nes:b\tO\n", r":2 must begin with 'en:' and a word, got 'es:b\\tO'"),
    (read_wikiann, "a\tB-LOC\n", r":1 must begin with '<language>:' and a word, got 'a\\tB-LOC'"),
    (read_wikiann, "en:a\tO\nen:b O\n", r":2 must have 2 columns \(language:word, tag\), none empty"),
    (read_wikiann, "0\ta\tO\n2\tb\tO\n", ":2 must have the index 1, got '2'"),
    (read_wikiann, "a O\nb LOC\n", ":2 must end in a tag O, B-<type> or I-<type>, got 'LOC'"),
    (read_xnli, XNLI + "es\tneutral\ta\n", r":2 must have 5 columns as the first line, got 3 in 'es"),
    (read_xnli, XNLI + "es\t-\ta\tb\t1", ":2 must have one of the labels entailment, .*, got '-'$"),
    (read_xnli, XNLI + "es\tneutral\ta\t \t1", r":2 must have no empty .*, got \('es', 'a', ' '\)$"),
    (
        partial(read_xnli, language="de"),
        XNLI + "es\tneutral\ta\tb\t1",
        "file must have pairs in the language 'de', got es$",
    ),
    (read_pawsx, "1\ta\tb\t1\n", r":1 must name the columns .*, got \['1', 'a', 'b', '1'\]$"),
    (read_pawsx, PAWSX + "4\ta\tb\t2\n", ":2 must have one of the labels 0, 1, got '2'$"),
    (partial(read_tagged, format="xml"), "", "format must be one of 'conll', .*, got 'xml'"),
]  # fmt: skip


@pytest.mark.parametrize(("read", "text", "message"), MALFORMED)
def test_malformed_lines_are_named(
    file: Write, read: Callable[[Path], Any], text: str, message: str
):
    refused(ValueError, message, read, file(text))


def test_a_sentence_has_a_tag_and_a_language_for_each_word():
    rule = "^{} must be as many as the words, 1, got 2$"
    refused(ValueError, rule.format("tags"), TaggedSentence, ("a",), ("X", "Y"))
    refused(ValueError, rule.format("languages"), TaggedSentence, ("a",), ("X",), ("en", "es"))
