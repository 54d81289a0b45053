"""WikiAnn's three layouts."""

from pathlib import Path

import pytest
from checks import refused

from polyembed.data import read_wikiann


def write(folder: Path, text: str) -> Path:
    path = folder / "dev"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("zh-min-nan::\tO\nzh-min-nan:Tâi-oân\tB-LOC\n\n\nzh-min-nan:a\tO\n\n", "zh-min-nan"),
        ("0\t:\tO\n1\tTâi-oân\tB-LOC\n\n0\ta\tO\n", None),
        (": O\nTâi-oân B-LOC\n\na O", None),
    ],
)
def test_layouts(tmp_path: Path, text: str, language: str | None) -> None:
    first, second = read_wikiann(write(tmp_path, text))
    assert (first.words, first.tags) == ((":", "Tâi-oân"), ("O", "B-LOC"))
    assert second.words == ("a",)
    assert first.languages == (None if language is None else (language, language))


def test_malformed_lines_are_named(tmp_path: Path) -> None:
    for text, message in {
        "en:a\tO\nes:b\tO\n": r"dev:2 must begin with 'en:' and a word, got 'es:b\\tO'",
        "India\tB-LOC\n": r"dev:1 must begin with '<language>:' and a word, got 'India\\tB-LOC'",
        "en:a\tO\nen:b B-LOC\n": r"dev:2 must have 2 columns \(language:word, tag\), none empty, got 'en:b",
        "en:a\tO\nen:\tO\n": r"dev:2 must begin with 'en:' and a word",
        "a O\nb c O\n": r"dev:2 must have 2 columns \(word, tag\), none empty, got 'b c O'",
        "0\ta\tO\n2\tb\tO\n": r"dev:2 must have the index 1, got '2'",
        "0\ta\tO\n1\tO\n": r"dev:2 must have 3 columns \(index, word, tag\), none empty",
        "a O\nb LOC\n": r"dev:2 must end in a tag O, B-<type> or I-<type>, got 'LOC'",
    }.items():
        refused(ValueError, message, read_wikiann, write(tmp_path, text))


@pytest.mark.parametrize(
    ("path", "sentences", "words"),
    [
        ("high_resource/de/test.conllu", 1140, 10_856),
        ("low_resource/amh/train.txt", 100, 622),
        ("low_resource/yor/test.txt", 100, 503),
    ],
)
def test_real_files(data_folder: Path, path: str, sentences: int, words: int) -> None:
    read = read_wikiann(data_folder / "wikiann" / path)
    assert (len(read), sum(map(len, read))) == (sentences, words)
    assert {tag[2:] for s in read for tag in s.tags if tag != "O"} == {"PER", "ORG", "LOC"}


def test_distributed_layout(data_folder: Path) -> None:
    folder = data_folder / "format_samples/wikiann"
    files = [path for path in folder.glob("*/*") if path.is_file()]
    assert len(files) == 45
    for path in files:
        (sentence,) = read_wikiann(path)
        assert sentence.languages == (path.parent.name,) * len(sentence)
    assert read_wikiann(folder / "mi/train")[0].words == ("Tsou",)
