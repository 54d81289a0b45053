"""CoNLL columns: one word per line, blank lines between sentences."""

import os
import re
from itertools import groupby

from polyembed._checks import require
from polyembed.data.lines import BLANKS, TaggedSentence, join_rows, read_blocks

_DOCUMENT_START = re.compile(r"-DOCSTART-(?:[ \t]|$)")


def read_conll(
    path: str | os.PathLike[str],
    *,
    word_column: int = 0,
    tag_column: int = -1,
    language_column: int | None = None,
    separator: str | None = None,
    comment: str | None = None,
    encoding: str = "utf-8",
) -> list[TaggedSentence]:
    r"""Read CoNLL columns: one word per line with its tags, blank lines between sentences.

    ``-DOCSTART-`` lines end a sentence and are left out. Every line must have as many columns as
    the first.

    Args:
        path: The file.
        word_column: The number of the word's column, from 0; a negative number counts from the last
            column.
        tag_column: The number of the tag's column.
        language_column: The number of the language's column; None: the words have no language.
        separator: The separator of columns. None: a tab if the first line has one, else runs of
            spaces, not of no-break spaces.
        comment: The beginning of comment lines, which precede the first word of a sentence; later
            lines that begin this way are words. Comments ``key = value`` become metadata. None: the
            file has no comments.
        encoding: The encoding of the file.

    Returns:
        The sentences, in the order of the file.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a line has another number of columns than the first, or an empty word, tag or
            language; if a column does not exist or is given twice; or if the file is not in this
            encoding.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "tiny.conll"
        >>> _ = path.write_text("Sao NC B-LOC\nPaulo VMI I-LOC\n\n# Fz O\n")
        >>> [sentence.words for sentence in read_conll(path)]
        [('Sao', 'Paulo'), ('#',)]
        >>> read_conll(path, tag_column=1)[0].tags
        ('NC', 'VMI')
    """
    wanted = {"word": word_column, "tag": tag_column}
    if language_column is not None:
        wanted["language"] = language_column
    sentences = []
    count = 0
    for block in read_blocks(path, encoding=encoding):
        metadata: dict[str, str] = {}
        while comment is not None and block and block[0].text.startswith(comment):
            metadata |= parse_comment(block.pop(0).text.removeprefix(comment))
        for is_start, lines in groupby(
            block, key=lambda line: bool(_DOCUMENT_START.match(line.text))
        ):
            if is_start:
                continue
            rows = []
            for line in lines:
                separator = separator or ("\t" if "\t" in line.text else " ")
                one_kind = separator != " " or "\t" not in line.text
                line.require(one_kind, "have no tab, as the lines before")
                row = [x for x in line.text.split(separator) if x or separator != " "]
                if not count:
                    count = len(row)
                    for name, column in wanted.items():
                        rule = f"be one of the {count} columns of {path}"
                        require(-count <= column < count, f"{name}_column", rule, column)
                    different = len({column % count for column in wanted.values()}) == len(wanted)
                    require(different, "the columns", f"differ, of the {count} of {path}", wanted)
                rule = f"have {count} columns as the lines before"
                line.require(len(row) == count, rule, f"{len(row)} in {line.text!r}")
                rows.append(tuple(row[column].strip(BLANKS) for column in wanted.values()))
                line.require(all(rows[-1]), "have no empty word, tag or language")
            sentences.append(join_rows(rows, metadata=metadata))
    return sentences


def parse_comment(text: str) -> dict[str, str]:
    """Return the key and value of a comment ``key = value``; an empty dict for another comment."""
    key, equals, value = (part.strip(BLANKS) for part in text.partition("="))
    return {key: value} if key and equals else {}
