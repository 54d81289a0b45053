"""One function for all readers, for command lines."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

from polyembed._checks import check_choice, require
from polyembed.data.conll import read_conll
from polyembed.data.conllu import read_conllu
from polyembed.data.csvfile import read_csv
from polyembed.data.inline import read_inline
from polyembed.data.lince import read_lince
from polyembed.data.lines import TaggedSentence
from polyembed.data.sentimix import read_sentimix
from polyembed.data.wikiann import read_wikiann

_READERS: dict[str, Callable[..., list[TaggedSentence]]] = {
    "conll": read_conll,
    "conllu": read_conllu,
    "wikiann": read_wikiann,
    "lince": read_lince,
    "sentimix": read_sentimix,
    "inline": read_inline,
    "csv": read_csv,
}


def read_tagged(
    path: str | os.PathLike[str],
    format: str = "conll",
    *,
    set_separator: str | None = None,
    **options: object,
) -> list[TaggedSentence]:
    r"""Read a file in a format given by name.

    Args:
        path: The file.
        format: ``"conll"``, ``"conllu"``, ``"wikiann"``, ``"lince"``, ``"sentimix"``, ``"inline"``
            or ``"csv"``.
        set_separator: The separator of the names of a half-known tag, as in ``B-PER|B-ORG``; such a
            tag becomes a frozenset. If None, a tag is one name.
        **options: The options of that format's reader, such as ``task=`` for LinCE.

    Returns:
        The sentences, in the order of the file.

    Raises:
        TypeError: If the format's reader does not have one of the options.
        ValueError: If the format is unknown, or the file is not in this format.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "tiny.conll"
        >>> _ = path.write_text("hola\tINTJ\n")
        >>> read_tagged(path, "conll")[0].words
        ('hola',)
    """
    check_choice("format", format, _READERS)
    found = _READERS[format](path, **options)
    if set_separator is None:
        return found

    outside = options.get("outside_tag", "Other") if format == "csv" else None

    def split(tag: str) -> Any:
        names = [name.strip() for name in tag.split(set_separator)]
        require(all(names), "set_separator", "stand between names", tag)
        known = frozenset("O" if name == outside else name for name in names)
        return known if len(known) > 1 else min(known)

    return [dataclasses.replace(one, tags=tuple(map(split, one.tags))) for one in found]
