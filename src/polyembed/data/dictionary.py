"""Bilingual dictionaries: one pair of words per line."""

import os

from polyembed._checks import require
from polyembed.data.lines import BLANKS, read_lines


def read_dictionary(
    path: str | os.PathLike[str], *, encoding: str = "utf-8"
) -> list[tuple[str, str]]:
    r"""Read pairs of words in the format of the MUSE dictionaries.

    A line has a source word and a target word, separated by blanks or a tab. A word with several
    translations has several lines. On a line with a tab, only the tab separates, and both sides may
    contain blanks.

    Args:
        path: The file.
        encoding: The encoding of the file.

    Returns:
        The pairs in the order of the file, repetitions included.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is not in this encoding or has no pair, or a line is not a pair of
            words.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "es-en.txt"
        >>> _ = path.write_text("perro dog\nperro hound\n")
        >>> read_dictionary(path)
        [('perro', 'dog'), ('perro', 'hound')]
    """
    pairs = []
    for line in read_lines(path, encoding=encoding):
        text = line.text.strip(BLANKS)
        sides = text.split("\t" if "\t" in text else " ")
        words = [word for side in sides if (word := side.strip(BLANKS))]
        if words:
            line.require(len(words) == 2, "hold a source word and a target word")
            pairs.append((words[0], words[1]))
    require(len(pairs) > 0, f"{path}:1", "hold a pair of words", "an empty file")
    return pairs
