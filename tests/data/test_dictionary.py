"""Dictionaries: every layout of a line, every file of the data folder, and what is wrong with a broken one."""

from pathlib import Path

import pytest
from checks import refused

from polyembed.data import read_dictionary

FILES = {"es-en.0-5000.txt": 8667, "de-en.5000-6500.txt": 2827}


@pytest.mark.parametrize("name", FILES)
def test_real_files_are_read_whole(data_folder: Path, name: str) -> None:
    path = data_folder / "bilingual_dictionaries" / "muse" / name
    expected = [tuple(line.split()) for line in path.read_text("utf-8").splitlines()]
    assert len(expected) == FILES[name]
    assert {len(pair) for pair in expected} == {2}
    assert read_dictionary(path) == expected


@pytest.mark.parametrize(
    "text",
    [
        "perro dog\nsol sun",
        "perro\tdog\nsol\tsun\n",
        "perro   dog\n\n  \n\t\nsol \t sun  \n\n",
        "perro dog\r\nsol sun\r\n",
        "\ufeffperro dog\nsol sun\n",
    ],
)
def test_layouts_of_a_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "es-en.txt"
    path.write_bytes(text.encode())
    assert read_dictionary(path) == [("perro", "dog"), ("sol", "sun")]


def test_only_a_tab_separates_where_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "es-en.txt"
    path.write_text("por favor\tplease\nperro\thot dog \na\u00a0b c\u3000d\n", "utf-8")
    assert read_dictionary(path) == [
        ("por favor", "please"),
        ("perro", "hot dog"),
        ("a\u00a0b", "c\u3000d"),
    ]


def test_translations_and_repetitions_stay_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "es-en.txt"
    path.write_text("b x\na y\nb z\nb x\n", "utf-8")
    assert read_dictionary(str(path)) == [("b", "x"), ("a", "y"), ("b", "z"), ("b", "x")]


@pytest.mark.parametrize("line", ["perro", "perro\t", "\tdog", "perro dog hound", "a\tb\tc"])
def test_a_line_that_is_no_pair_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "es-en.txt"
    path.write_text(f"sol sun\n\n{line}\n", "utf-8")
    refused(
        ValueError,
        r"es-en.txt:3 must hold a source word and a target word, got '.+'$",
        read_dictionary,
        path,
    )


@pytest.mark.parametrize("text", ["", "\ufeff \n\t\n"])
def test_a_file_without_a_pair_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "es-en.txt"
    path.write_text(text, "utf-8")
    refused(
        ValueError,
        r"es-en.txt:1 must hold a pair of words, got an empty file$",
        read_dictionary,
        path,
    )


def test_encodings(tmp_path: Path) -> None:
    path = tmp_path / "es-en.txt"
    path.write_bytes("sol sun\ncanción song\n".encode("latin-1"))
    with pytest.raises(
        ValueError,
        match=r"es-en.txt must be utf-8 text, got byte 0xf3 on line 2; another encoding is",
    ):
        read_dictionary(path)
    assert read_dictionary(path, encoding="latin-1") == [("sol", "sun"), ("canción", "song")]
    path.write_bytes("sol sun\n".encode("utf-16"))
    refused(ValueError, r"must be utf-8 text, got byte 0xff on line 1", read_dictionary, path)
    assert read_dictionary(path, encoding="utf-16") == [("sol", "sun")]


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    refused(
        FileNotFoundError,
        r"^path must name a file, got nothing at",
        read_dictionary,
        tmp_path / "nothing.txt",
    )
