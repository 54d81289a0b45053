"""The smaller formats: inline tags, CSV, dictionaries, labelled tweets and WikiAnn."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from polyembed.data import read_csv, read_dictionary, read_inline, read_sentimix, read_wikiann

Write = Callable[[str], Path]


def test_inline(file: Write):
    text = "yo///lang2  http://x///other\n\n\ta///b///lang1 \xa0///other"
    first, second = read_inline(file(text))
    assert (first.words, first.tags) == (("yo", "http://x"), ("lang2", "other"))
    assert (second.words, second.tags) == (("a///b", "\xa0"), ("lang1", "other"))


@pytest.mark.parametrize(
    ("name", "lines", "words"), [("train.enes.txt", 7819, 93_416), ("test_enes.txt", 868, 10_336)]
)
def test_inline_files(data_folder: Path, name: str, lines: int, words: int):
    read = read_inline(data_folder / "code_switched/spanglish_lid_calcs" / name)
    tags = Counter(tag for sentence in read for tag in sentence.tags)
    assert (len(read), tags.total()) == (lines, words)
    assert set(tags) == {"lang1", "lang2", "other", "ne", "ambiguous", "mixed"}


def test_csv_fields_are_quoted(file: Write):
    rows = 's0,"tha,",Other\r\ns0,"""",Other\r\ns0,gujarat ,B-Loc\r\n""\r\n\r\ns1,\xa0,Other\r\n'
    first, second = read_csv(file("\ufeffSent,Word,Tag\r\n" + rows + "\r\ns1,a b,I-Per"))
    assert (first.words, first.tags) == (("tha,", '"', "gujarat"), ("O", "O", "B-Loc"))
    assert dict(first.metadata) == {"sent_id": "s0"}
    assert second.words == ("\xa0", "a b"), "a blank row does not end what its name goes on with"


def test_a_csv_sentence_named_once(file: Write):
    rows = "Sent,Word,Tag\ns0,Ana,B-Per\n,lives,Other\n\n,here,Other\ns1,Rain,Other\n,falls,Other\n"
    read = read_csv(file(rows))
    assert [s.words for s in read] == [("Ana", "lives", "here"), ("Rain", "falls")]
    assert [s.metadata["sent_id"] for s in read] == ["s0", "s1"]


def test_csv_columns_by_name(file: Write):
    (sentence,) = read_csv(
        file("tok;x;label;id\na;?;Other;1\n"),
        sentence_column="id",
        word_column="tok",
        tag_column="label",
        delimiter=";",
        outside_tag=None,
    )
    assert (sentence.words, sentence.tags) == (("a",), ("Other",))


def test_hinglish_tweets(data_folder: Path):
    read = read_csv(data_folder / "code_switched/hinglish_ner/annotatedData.csv")
    assert len(read) == len({sentence.metadata["sent_id"] for sentence in read}) == 3085
    tags = Counter(tag for sentence in read for tag in sentence.tags)
    assert (tags.total(), tags["O"], tags["B-Per"], tags["I-Loc"]) == (68_506, 63_499, 2138, 31)
    words = [word for sentence in read for word in sentence.words]
    assert sum(word != word.strip() for word in words) == words.count("\xa0") == 13


@pytest.mark.parametrize(
    ("name", "count"), [("es-en.0-5000.txt", 8667), ("de-en.5000-6500.txt", 2827)]
)
def test_dictionary_files(data_folder: Path, name: str, count: int):
    path = data_folder / "bilingual_dictionaries" / "muse" / name
    expected = [tuple(line.split()) for line in path.read_text("utf-8").splitlines()]
    assert len(expected) == count
    assert read_dictionary(path) == expected


@pytest.mark.parametrize(
    "text",
    ["perro dog\nsol sun", "perro   dog\n\n  \n\t\nsol \t sun  \n\n", "perro dog\r\nsol sun"],
)
def test_dictionary_lines(file: Write, text: str):
    assert read_dictionary(file(text)) == [("perro", "dog"), ("sol", "sun")]


def test_only_a_tab_separates_where_there_is_one(file: Write):
    pairs = [("por favor", "please"), ("perro", "hot dog"), ("perro", "hot dog"), ("a\xa0b", "c")]
    assert (
        read_dictionary(file("por favor\tplease\n" + "perro\thot dog \n" * 2 + "a\xa0b c")) == pairs
    )


def test_sentimix(file: Write):
    text = "meta\t1\tneutral\n@\tO\nmeta\tEng\n\nmeta\t2\n\xa0\tO\n"
    first, second = read_sentimix(file(text))
    assert (first.words, first.tags, first.languages) == (("@", "meta"), *[("O", "Eng")] * 2)
    assert dict(first.metadata) == {"sent_id": "1", "sentiment": "neutral"}
    assert (first.label, second.label, second.words) == ("neutral", None, ("\xa0",))


def test_sentimix_file(data_folder: Path):
    read = read_sentimix(data_folder / "code_switched/hinglish_sentimix/dev_3k_split_conll.txt")
    assert (len(read), sum(map(len, read))) == (3000, 78_678)
    sentiments = Counter(sentence.label for sentence in read)
    assert sentiments == {"neutral": 1128, "positive": 982, "negative": 890}
    assert {tag for sentence in read for tag in sentence.tags} == {"Hin", "Eng", "O", "EMT"}


@pytest.mark.parametrize(
    ("text", "languages"),
    [
        ("zh-min-nan::\tO\nzh-min-nan:Tâi-oân\tB-LOC\n\n\nzh-min-nan:a\tO", ("zh-min-nan",) * 2),
        ("0\t:\tO\n1\tTâi-oân\tB-LOC\n\n0\ta\tO\n", None),
        (": O\nTâi-oân B-LOC\n\na O", None),
    ],
)
def test_wikiann_layouts(file: Write, text: str, languages: tuple[str, ...] | None):
    first, second = read_wikiann(file(text))
    assert (first.words, first.tags) == ((":", "Tâi-oân"), ("O", "B-LOC"))
    assert (first.languages, second.words) == (languages, ("a",))


@pytest.mark.parametrize(
    ("path", "sentences", "words"),
    [("high_resource/de/test.conllu", 1140, 10_856), ("low_resource/yor/test.txt", 100, 503)],
)
def test_wikiann_files(data_folder: Path, path: str, sentences: int, words: int):
    read = read_wikiann(data_folder / "wikiann" / path)
    assert (len(read), sum(map(len, read))) == (sentences, words)
    assert {tag[2:] for s in read for tag in s.tags if tag != "O"} == {"PER", "ORG", "LOC"}


def test_wikiann_as_distributed(data_folder: Path):
    folder = data_folder / "format_samples/wikiann"
    files = [path for path in folder.glob("*/*") if path.is_file()]
    assert len(files) == 45
    for path in files:
        (sentence,) = read_wikiann(path)
        assert sentence.languages == (path.parent.name,) * len(sentence)
