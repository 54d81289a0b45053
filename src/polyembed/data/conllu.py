"""CoNLL-U, the format of Universal Dependencies: syntactic words, one column as the tag."""

import os
import re

from polyembed._checks import require
from polyembed.data.conll import parse_comment
from polyembed.data.lines import MISSING_TAG, TaggedSentence, join_rows, read_blocks

_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_MISC = _COLUMNS.index("misc")
_NAMES = ("lemma", "upos", "xpos", "feats", "deprel", "misc", "feats:<key>", "misc:<key>")
_RANGE_ID = re.compile(r"[1-9][0-9]*-([1-9][0-9]*)")
_EMPTY_NODE_ID = re.compile(r"[0-9]+\.[1-9][0-9]*")


def read_conllu(
    path: str | os.PathLike[str],
    *,
    tag: str = "upos",
    language: str | None = None,
    encoding: str = "utf-8",
) -> list[TaggedSentence]:
    r"""Read the syntactic words of a CoNLL-U file, the units that UPOS is evaluated on.

    The words of a multi-word token (``8-9``) are read, not the token; empty nodes (``8.1``) are
    left out.

    The tag is a whole column or one key of FEATS or MISC, such as ``misc:CSID``. A word without the
    key gets `MISSING_TAG`; for a MISC key, it first gets the value of its multi-word token. A key
    that no word of the file has is an error, because it is probably misspelt.

    Args:
        path: The file.
        tag: The column or key of the tag: ``"lemma"``, ``"upos"``, ``"xpos"``, ``"feats"``,
            ``"deprel"``, ``"misc"``, ``"feats:<key>"`` or ``"misc:<key>"``.
        language: The column or key of the language; None: the words have no language.
        encoding: The encoding of the file.

    Returns:
        The sentences; ``# key = value`` comments such as ``sent_id`` and ``text`` are their
        metadata.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a line does not have ten columns or has an empty one; if the words are not
            numbered 1, 2, 3, or each is ``_`` because the text is published apart; if a column is
            unknown or no word has the key; or if the file is not in this encoding.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "tiny.conllu"
        >>> row = "\t".join(["1", "Ja", "ja", "ADV", "_", "_", "0", "root", "_", "CSID=DE"])
        >>> _ = path.write_text("# sent_id = a\n" + row + "\n\n")
        >>> sentence, = read_conllu(path, language="misc:CSID")
        >>> sentence.words, sentence.tags, sentence.languages, sentence.metadata["sent_id"]
        (('Ja',), ('ADV',), ('DE',), 'a')
    """
    names = {"tag": tag} | ({} if language is None else {"language": language})
    fields = {argument: _field(argument, name) for argument, name in names.items()}
    found: set[str] = set()
    sentences = []
    for block in read_blocks(path, encoding=encoding):
        metadata: dict[str, str] = {}
        rows: list[tuple[str, ...]] = []
        last, misc = 0, ""  # the last word of the current multi-word token, and its MISC
        for line in block:
            if line.text.startswith("#"):
                metadata |= parse_comment(line.text.removeprefix("#"))
                continue
            row = line.text.split("\t")
            line.require(len(row) == len(_COLUMNS) and all(row), "have ten columns, none empty")
            number = len(rows) + 1
            if token := _RANGE_ID.fullmatch(row[0]):
                last, misc = int(token[1]), row[_MISC]
            elif row[0] == str(number):
                misc = misc if number <= last else ""
                values = {name: _value(row, *field, misc) for name, field in fields.items()}
                found.update(name for name, value in values.items() if value)
                rows.append((row[1], *(value or MISSING_TAG for value in values.values())))
            else:
                rule = f"be word {number}, a range or an empty node"
                line.require(bool(_EMPTY_NODE_ID.fullmatch(row[0])), rule, f"id {row[0]!r}")
        if rows:
            sentences.append(join_rows(rows, metadata=metadata))
    text = not sentences or any({*one.words} != {MISSING_TAG} for one in sentences)
    require(text, str(path), "hold words", f"{MISSING_TAG!r} for all: its text is published apart")
    for argument, name in names.items():
        known = argument in found or not sentences
        require(known, argument, f"name a key that a word of {path} has", repr(name))
    return sentences


def _field(argument: str, name: str) -> tuple[int, str]:
    """Return the index of the column that `name` names, and the key in it or the empty string."""
    column, _, key = name.partition(":")
    sound = (f"{column}:<key>" if key else name) in _NAMES
    require(sound, argument, f"be one of {', '.join(map(repr, _NAMES))}", repr(name))
    return _COLUMNS.index(column), key


def _value(row: list[str], index: int, key: str, token_misc: str) -> str | None:
    """Return a column of a word's row, or the value of its key; MISC includes `token_misc`."""
    if not key:
        return row[index]
    pairs = f"{row[index]}|{token_misc}" if index == _MISC else row[index]
    items = (pair.partition("=") for pair in pairs.split("|"))
    return next((value for name, equals, value in items if equals and name == key), None)
