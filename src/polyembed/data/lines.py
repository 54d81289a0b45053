"""Text files as numbered lines, and errors that name a line."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from polyembed._checks import check_file, must, require

BLANKS = " \t"
"""The characters that separate words. A no-break space does not: in tweets it can be a word."""


class Line(NamedTuple):
    """A line without its end, and its number in the file, from 1."""

    number: int
    text: str


def read_text(path: str | os.PathLike[str], *, encoding: str = "utf-8") -> str:
    """Read a whole text file, without a byte-order mark.

    Args:
        path: The file.
        encoding: The encoding of the file.

    Returns:
        The text with its original line ends.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is not in this encoding.
    """
    data = check_file(path).read_bytes()
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        got = (
            f"byte 0x{data[error.start]:02x} on line {line}; another encoding is named by encoding="
        )
        raise ValueError(must(str(path), f"be {encoding} text", got)) from error


def read_lines(path: str | os.PathLike[str], *, encoding: str = "utf-8") -> Iterator[Line]:
    r"""Yield the lines of a text file, which end in ``\n`` or ``\r\n``.

    The other characters that `str.splitlines` splits at occur inside words.

    Args:
        path: The file.
        encoding: The encoding of the file.

    Yields:
        Each line with its number.
    """
    for number, text in enumerate(read_text(path, encoding=encoding).split("\n"), start=1):
        text = text.removesuffix("\r")
        if "\r" in text:
            rule = r"end in \n or \r\n, with no other carriage return"
            raise malformed(path, number, rule, repr(text[:60]))
        yield Line(number, text)


def read_blocks(path: str | os.PathLike[str], *, encoding: str = "utf-8") -> Iterator[list[Line]]:
    """Yield the runs of lines between blank lines.

    Args:
        path: The file.
        encoding: The encoding of the file.

    Yields:
        The lines of a block, one or more.
    """
    block: list[Line] = []
    for line in read_lines(path, encoding=encoding):
        if line.text.strip(BLANKS):
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def malformed(path: str | os.PathLike[str], number: int, rule: str, got: object) -> ValueError:
    """Return the error for one line: ``<path>:<line> must <rule>, got <value>``."""
    return ValueError(must(f"{path}:{number}", rule, got))


def split_columns(
    path: str | os.PathLike[str], line: Line, count: int, names: str, separator: str = "\t"
) -> list[str]:
    """Split a line into exactly `count` columns that are not empty.

    Args:
        path: The file, for the error.
        line: The line to split.
        count: The number of columns.
        names: The names of the columns, for the error.
        separator: The separator of two columns.

    Returns:
        The columns.

    Raises:
        ValueError: If there are more or fewer columns, or one is empty.
    """
    columns = line.text.split(separator)
    if len(columns) != count or not all(columns):
        raise malformed(
            path, line.number, f"have {count} columns ({names}), none empty", repr(line.text)
        )
    return columns


MISSING_TAG = "_"
"""The tag of a word without one (CoNLL-U's sign for "unspecified")."""


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """The words of a sentence, their tags, and what else the file holds.

    Args:
        words: The words, in order.
        tags: One tag for each word; `MISSING_TAG` where the file has none, as in the test files of
            LinCE; a frozenset of tags where it is one of them.
        languages: One language for each word, or None where the format has none.
        metadata: Values of the whole sentence: ``sent_id``, ``text``, ``sentiment``.
        label: The label of the whole sentence, such as its sentiment; None where the file has none.

    Raises:
        ValueError: If there are not as many `tags` or `languages` as `words`.

    Example:
        >>> sentence = TaggedSentence(("me", "gusta"), ("PRON", "VERB"), languages=("es", "es"))
        >>> len(sentence), list(zip(sentence.words, sentence.tags))
        (2, [('me', 'PRON'), ('gusta', 'VERB')])
    """

    words: tuple[str, ...]
    tags: tuple[Any, ...]
    languages: tuple[str, ...] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    label: str | None = None

    def __post_init__(self) -> None:
        count = len(self.words)
        require(
            len(self.tags) == count, "tags", f"be as many as the words, {count}", len(self.tags)
        )
        if self.languages is not None:
            found = len(self.languages)
            require(found == count, "languages", f"be as many as the words, {count}", found)

    def __len__(self) -> int:
        return len(self.words)


def join_rows(rows: Iterable[tuple[str, ...]], **values: Any) -> TaggedSentence:
    """Return the sentence of rows ``(word, tag)`` or ``(word, tag, language)``."""
    words, tags, *languages = zip(*rows, strict=True)
    return TaggedSentence(words, tags, languages[0] if languages else None, **values)
