"""WikiAnn (PAN-X): named entities in 282 languages, in its three layouts."""

import os
import re

from polyembed.data.lines import TaggedSentence, join_rows, read_blocks

# by the number of tabs in the first line
_LAYOUTS = (("word", "tag"), ("language:word", "tag"), ("index", "word", "tag"))
_TAG = re.compile(r"O|[BI]-.+")
_PREFIX = re.compile(r"([a-z][a-z-]+):.")


def read_wikiann(path: str | os.PathLike[str], *, encoding: str = "utf-8") -> list[TaggedSentence]:
    r"""Read WikiAnn: one word with its BIO tag per line, blank lines between sentences.

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
        ValueError: If a line is not in the first line's layout, has no BIO tag, has another
            language than the first line, or has an index out of order; or if the file is not in
            this encoding.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "dev"
        >>> _ = path.write_text("en:to\tO\nen:India\tB-LOC\n\n")
        >>> sentence, = read_wikiann(path)
        >>> sentence.words, sentence.tags, sentence.languages
        (('to', 'India'), ('O', 'B-LOC'), ('en', 'en'))
    """
    sentences = []
    layout: tuple[str, ...] = ()
    start = ""
    for block in read_blocks(path, encoding=encoding):
        if not layout:
            layout = _LAYOUTS[min(block[0].text.count("\t"), 2)]
            if layout[0] == "language:word":
                prefix = _PREFIX.match(block[0].text)
                start = f"{prefix[1] if prefix else '<language>'}:"  # no line begins with <
        rows = []
        for position, line in enumerate(block):
            *others, word, tag = line.columns(layout, " " if layout[0] == "word" else "\t")
            sound = word.startswith(start) and word != start
            line.require(sound, f"begin with '{start}' and a word")
            sound = others in ([], [str(position)])
            line.require(sound, f"have the index {position}", "".join(map(repr, others)))
            sound = bool(_TAG.fullmatch(tag))
            line.require(sound, "end in a tag O, B-<type> or I-<type>", repr(tag))
            language = (start.removesuffix(":"),) if start else ()
            rows.append((word.removeprefix(start), tag, *language))
        sentences.append(join_rows(rows))
    return sentences
