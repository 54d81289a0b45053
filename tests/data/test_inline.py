"""Words with their tags behind them."""

from collections import Counter
from pathlib import Path

import pytest
from checks import refused

from polyembed.data import read_inline


def write(folder: Path, text: str) -> Path:
    path = folder / "train.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_lines(tmp_path: Path) -> None:
    first, second = read_inline(
        write(tmp_path, "yo///lang2  http://x///other\n\n\ta///b///lang1 \xa0///other")
    )
    assert (first.words, first.tags) == (("yo", "http://x"), ("lang2", "other"))
    assert (second.words, second.tags) == (("a///b", "\xa0"), ("lang1", "other"))


def test_separator(tmp_path: Path) -> None:
    path = write(tmp_path, "a_X b_Y\n")
    assert read_inline(path, separator="_")[0].tags == ("X", "Y")
    refused(
        ValueError,
        "separator must have at least one character, got ''",
        read_inline,
        path,
        separator="",
    )


@pytest.mark.parametrize("item", ["a", "a///", "///lang1"])
def test_malformed_words_are_named(tmp_path: Path, item: str) -> None:
    with pytest.raises(
        ValueError, match=rf"train\.txt:2 must hold words as word///tag, got '{item}'"
    ):
        read_inline(write(tmp_path, f"a///b\nc///d {item}\n"))


@pytest.mark.parametrize(
    ("name", "lines", "words"), [("train.enes.txt", 7819, 93_416), ("test_enes.txt", 868, 10_336)]
)
def test_real_files(data_folder: Path, name: str, lines: int, words: int) -> None:
    read = read_inline(data_folder / "code_switched/spanglish_lid_calcs" / name)
    tags = Counter(tag for sentence in read for tag in sentence.tags)
    assert (len(read), tags.total()) == (lines, words)
    assert set(tags) == {"lang1", "lang2", "other", "ne", "ambiguous", "mixed"}
