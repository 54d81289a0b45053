"""One sentence per line, each word with its tag behind it: ``word///tag word///tag``."""

import os
import re

from polyembed.data.lines import BLANKS, TaggedSentence, join_rows, read_lines

_GAP = re.compile(f"[{BLANKS}]+")


def read_inline(
    path: str | os.PathLike[str], *, separator: str = "///", encoding: str = "utf-8"
) -> list[TaggedSentence]:
    r"""Read one sentence per line, its words as ``word<separator>tag`` with spaces between them.

    The last separator counts, so that a word may contain it. Blank lines are left out.

    Args:
        path: The file.
        separator: The separator of a word and its tag.
        encoding: The encoding of the file.

    Returns:
        The sentences, in the order of the file.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a word has no tag, or a tag has no word; or if the file is not in this
            encoding.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "train.txt"
        >>> _ = path.write_text("Yo///lang2 know///lang1\n:)///other\n")
        >>> [(sentence.words, sentence.tags) for sentence in read_inline(path)]
        [(('Yo', 'know'), ('lang2', 'lang1')), ((':)',), ('other',))]
    """
    sentences = []
    for line in read_lines(path, encoding=encoding):
        pairs = []
        for item in filter(None, _GAP.split(line.text)):
            word, _, tag = item.rpartition(separator)
            line.require(bool(word and tag), f"hold words as word{separator}tag", repr(item))
            pairs.append((word, tag))
        if pairs:
            sentences.append(join_rows(pairs))
    return sentences
