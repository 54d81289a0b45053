"""Text files as numbered lines, and errors that name a line."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from polyembed._checks import check_file, must, require

BLANKS = " \t"
"""The characters that separate words. A no-break space does not: in tweets it can be a word."""


class Line(NamedTuple):
    """A line of a file without its end; its number counts from 1."""

    path: str | os.PathLike[str]
    number: int
    text: str

    def require(self, condition: bool, rule: str, got: object = None) -> None:
        """Raise ``<path>:<number> must <rule>, got <value>`` unless `condition` is true.

        Args:
            condition: Whether the line meets the rule.
            rule: The rule in words.
            got: The value for the error; the text of the line if None.

        Raises:
            ValueError: If `condition` is false.
        """
        if not condition:
            got = repr(self.text) if got is None else got
            raise ValueError(must(f"{self.path}:{self.number}", rule, got))

    def columns(self, names: Sequence[str], separator: str = "\t") -> list[str]:
        """Split the line into columns, as many as there are names, and require that each has text.

        Args:
            names: The names of the columns, for the error.
            separator: The separator of two columns.

        Returns:
            The columns.
        """
        found = self.text.split(separator)
        rule = f"have {len(names)} columns ({', '.join(names)}), none empty"
        self.require(len(found) == len(names) and all(found), rule)
        return found


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
        byte = f"byte 0x{data[error.start]:02x} on line {line}"
        got = f"{byte}; another encoding is named by encoding="
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
        line = Line(path, number, text.removesuffix("\r"))
        rule = r"end in \n or \r\n, with no other carriage return"
        line.require("\r" not in line.text, rule, repr(text[:60]))
        yield line


def read_blocks(path: str | os.PathLike[str], *, encoding: str = "utf-8") -> Iterator[list[Line]]:
    """Yield the runs of lines between blank lines.

    Args:
        path: The file.
        encoding: The encoding of the file.

    Yields:
        The lines of a block, one or more.
    """
    lines = read_lines(path, encoding=encoding)
    for has_text, block in groupby(lines, key=lambda line: bool(line.text.strip(BLANKS))):
        if has_text:
            yield list(block)


MISSING_TAG = "_"
"""The tag of a word without one (CoNLL-U's sign for "unspecified")."""


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """The words of a sentence, their tags, and the other values of the file.

    Args:
        words: The words, in order.
        tags: One tag for each word; `MISSING_TAG` where the file has none, as in the test files of
            LinCE; a frozenset of tags where one of them is right.
        languages: One language for each word, or None where the format has none.
        metadata: The values of the whole sentence: ``sent_id``, ``text``, ``sentiment``.
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
        rule = f"be as many as the words, {len(self)}"
        require(len(self.tags) == len(self), "tags", rule, len(self.tags))
        if self.languages is not None:
            require(len(self.languages) == len(self), "languages", rule, len(self.languages))

    def __len__(self) -> int:
        return len(self.words)


def join_rows(rows: Iterable[tuple[str, ...]], **values: Any) -> TaggedSentence:
    """Return the sentence of rows ``(word, tag)`` or ``(word, tag, language)``."""
    words, tags, *languages = zip(*rows, strict=True)
    return TaggedSentence(words, tags, languages[0] if languages else None, **values)
