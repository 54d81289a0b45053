"""Numbered lines, whatever the file's ends, mark and encoding."""

from pathlib import Path

import pytest
from checks import refused

from polyembed.data import (
    read_conll,
    read_conllu,
    read_csv,
    read_inline,
    read_lince,
    read_pawsx,
    read_sentimix,
    read_wikiann,
    read_xnli,
)
from polyembed.data.lines import read_blocks, read_lines


def write(folder: Path, data: bytes) -> Path:
    path = folder / "file"
    path.write_bytes(data)
    return path


def test_line_ends_and_mark(tmp_path: Path) -> None:
    expected = [[(1, "a"), (2, "b")], [(5, "c")]]
    for data in (b"a\nb\n\n \t\nc\n\n\n", b"\xef\xbb\xbfa\r\nb\r\n\r\n\r\nc", b"a\nb\n\n\nc\r\n"):
        assert list(read_blocks(write(tmp_path, data))) == expected


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    path = write(tmp_path, "a\u2028b\x0c\x85c\n\xa0\n".encode())
    assert [line.text for line in read_lines(path)] == ["a\u2028b\x0c\x85c", "\xa0", ""]
    assert [len(block) for block in read_blocks(path)] == [2]  # a no-break space is a word


def test_empty_file(tmp_path: Path) -> None:
    for data in (b"", b"\n\n", b"\xef\xbb\xbf"):
        path = write(tmp_path, data)
        assert list(read_blocks(path)) == []
        for reader in (read_conll, read_conllu, read_inline, read_sentimix, read_wikiann):
            assert reader(path) == []
        assert read_lince(path, task="ner_spaeng") == []


def test_another_encoding_is_said(tmp_path: Path) -> None:
    path = write(tmp_path, "uno O\nni\xf1o O\n".encode("latin-1"))
    refused(
        ValueError,
        r"file must be utf-8 text, got byte 0xf1 on line 2; .*encoding=",
        read_conll,
        path,
    )
    assert read_conll(path, encoding="latin-1")[0].words == ("uno", "niño")


READERS = [
    read_conll,
    read_conllu,
    read_csv,
    read_inline,
    read_pawsx,
    read_sentimix,
    read_wikiann,
    read_xnli,
]


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_names_the_file_it_cannot_decode(tmp_path: Path, reader) -> None:  # type: ignore[no-untyped-def]
    refused(
        ValueError,
        "file must be utf-8 text, got byte 0xff on line 1",
        reader,
        write(tmp_path, b"\xff"),
    )
    refused(FileNotFoundError, "path must name a file, got nothing at", reader, tmp_path / "none")
    refused(FileNotFoundError, "path must name a file, got a folder at", reader, tmp_path)
