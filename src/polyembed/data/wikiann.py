"""WikiAnn (PAN-X): named entities in 282 languages, in its three layouts."""

import os
import re

from polyembed.data.lines import TaggedSentence, join_rows, malformed, read_blocks, split_columns

_LAYOUTS = (
    ("word", "tag"),
    ("language:word", "tag"),
    ("index", "word", "tag"),
)  # by the number of tabs
_TAG = re.compile(r"O|[BI]-.+")
_PREFIX = re.compile(r"([a-z][a-z-]+):(.+)")


def read_wikiann(path: str | os.PathLike[str], *, encoding: str = "utf-8") -> list[TaggedSentence]:
    r"""Read WikiAnn: one word and its BIO tag a line, blank lines between sentences.

    The first line determines the layout of the file:

    - ``en:India<TAB>B-LOC``, as distributed, with the language, which is the same on every line;
    - ``0<TAB>India<TAB>B-LOC``, with the word's index in its sentence;
    - ``India B-LOC``, with one space.

    ``India<TAB>B-LOC`` is plain columns: read it with `read_conll`.

    Args:
        path: The file.
        encoding: The encoding of the file.

    Returns:
        The sentences; `languages` is None in the layouts without a language.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a line is not in the first line's layout, has no BIO tag, another language
            than the first line or an index out of order; if the file is not in this encoding.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "dev"
        >>> _ = path.write_text("en:to\tO\nen:India\tB-LOC\n\n")
        >>> sentence, = read_wikiann(path)
        >>> sentence.words, sentence.tags, sentence.languages
        (('to', 'India'), ('O', 'B-LOC'), ('en', 'en'))
    """
    sentences: list[TaggedSentence] = []
    layout: tuple[str, ...] | None = None
    language: str | None = None
    for block in read_blocks(path, encoding=encoding):
        if layout is None:
            layout = _LAYOUTS[min(block[0].text.count("\t"), 2)]
            if layout[0] == "language:word":
                prefix = _PREFIX.match(block[0].text)
                language = (
                    prefix[1] if prefix else "<language>"
                )  # no line begins so: the first one is reported
        rows = []
        for position, line in enumerate(block):
            separator = " " if layout[0] == "word" else "\t"
            *others, word, tag = split_columns(
                path, line, len(layout), ", ".join(layout), separator
            )
            start = "" if language is None else f"{language}:"
            if not word.startswith(start) or word == start:
                raise malformed(
                    path, line.number, f"begin with '{start}' and a word", repr(line.text)
                )
            if others and others != [str(position)]:
                raise malformed(path, line.number, f"have the index {position}", repr(others[0]))
            if not _TAG.fullmatch(tag):
                raise malformed(
                    path, line.number, "end in a tag O, B-<type> or I-<type>", repr(tag)
                )
            rows.append((word.removeprefix(start), tag, *([language] if language else [])))
        sentences.append(join_rows(rows))
    return sentences
