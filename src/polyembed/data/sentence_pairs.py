"""Pairs of sentences with one label: XNLI and PAWS-X."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from polyembed._checks import require
from polyembed.data.lines import Line, read_lines


@dataclass(frozen=True, slots=True)
class SentencePair:
    """The words of two sentences and their label, an item to train a `PairClassifier` on.

    Args:
        first: The words of the first sentence, such as the premise.
        second: The words of the second sentence, such as the hypothesis.
        label: The label of the pair; None where it has none.
        metadata: Other values of the pair: ``pair_id``, ``language``.

    Example:
        >>> pair = SentencePair(("me", "gusta"), ("no", "me", "gusta"), "contradiction")
        >>> len(pair.first), pair.label
        (2, 'contradiction')
    """

    first: tuple[str, ...]
    second: tuple[str, ...]
    label: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)


def read_xnli(
    path: str | os.PathLike[str],
    *,
    language: str | None = None,
    tokenized: bool = False,
    encoding: str = "utf-8",
) -> list[SentencePair]:
    r"""Read XNLI: ``xnli.dev.tsv`` or ``xnli.test.tsv``, pairs in 15 languages under a row of
    column names.

    Quotation marks are text. Spaces separate words. Metadata: ``pair_id``, which is the same for a
    pair in every language, and ``language``.

    Args:
        path: The file.
        language: The language of the pairs to return, such as ``"es"``. None: all languages.
        tokenized: Whether to read the columns ``sentence1_tokenized`` and ``sentence2_tokenized``
            in place of ``sentence1`` and ``sentence2``. Only the former have spaces between words
            of Chinese and Thai.
        encoding: The encoding of the file.

    Returns:
        The pairs, premise first, in the order of the file.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a column does not exist; if a line has another number of columns than the
            first, an empty sentence or language, or a label other than entailment, neutral and
            contradiction; if no pair is in the language; or if the file is not in this encoding.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "xnli.dev.tsv"
        >>> head = "language\tgold_label\tsentence1\tsentence2\tpairID\n"
        >>> _ = path.write_text(head + "es\tneutral\tMe gusta .\tLe gusta .\t7\n")
        >>> pair, = read_xnli(path, language="es")
        >>> pair.first, pair.second, pair.label
        (('Me', 'gusta', '.'), ('Le', 'gusta', '.'), 'neutral')
    """
    suffix = "_tokenized" if tokenized else ""
    columns = ("language", f"sentence1{suffix}", f"sentence2{suffix}", "pairID", "gold_label")
    labels = ("entailment", "neutral", "contradiction")
    pairs, languages = [], set()
    for line, (tongue, *sentences, pair_id, label) in _read_rows(path, columns, labels, encoding):
        first, second = map(_split_words, sentences)
        sound = bool(tongue and first and second)
        line.require(sound, "have no empty language or sentence", (tongue, *sentences))
        languages.add(tongue)
        if language in (None, tongue):
            metadata = {"pair_id": pair_id, "language": tongue}
            pairs.append(SentencePair(first, second, label, metadata))
    found = ", ".join(sorted(languages)) or "none"
    known = language is None or len(pairs) > 0
    require(known, str(path), f"have pairs in the language {language!r}", found)
    return pairs


def read_pawsx(path: str | os.PathLike[str], *, encoding: str = "utf-8") -> list[SentencePair]:
    r"""Read PAWS-X: a file of one language, such as ``es/dev_2k.tsv``, under a row of column names.

    The label is ``"1"`` for a paraphrase and ``"0"`` otherwise. Quotation marks are text. Spaces
    separate words; Chinese and Japanese have none. Metadata: ``pair_id``.

    The published files have sentences whose translation failed. These sentences are empty in
    ``translated_train.tsv`` and ``NS`` in the development and test files. They are returned as
    ``()`` and ``("NS",)``.

    Args:
        path: The file.
        encoding: The encoding of the file.

    Returns:
        The pairs, in the order of the file.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a column does not exist; if a line has another number of columns than the
            first, or a label other than 0 and 1; or if the file is not in this encoding.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "dev_2k.tsv"
        >>> rows = "1\tEl perro .\tUn perro .\t1\n2\tEl perro .\tNS\t0\n"
        >>> _ = path.write_text("id\tsentence1\tsentence2\tlabel\n" + rows)
        >>> pairs = read_pawsx(path)
        >>> pairs[0].first, pairs[0].second, pairs[0].label
        (('El', 'perro', '.'), ('Un', 'perro', '.'), '1')
        >>> len([pair for pair in pairs if not {(), ("NS",)} & {pair.first, pair.second}])
        1
    """
    columns = ("id", "sentence1", "sentence2", "label")
    return [
        SentencePair(_split_words(first), _split_words(second), label, {"pair_id": pair_id})
        for _, (pair_id, first, second, label) in _read_rows(path, columns, ("0", "1"), encoding)
    ]


def _read_rows(
    path: str | os.PathLike[str], columns: Sequence[str], labels: Sequence[str], encoding: str
) -> Iterator[tuple[Line, list[str]]]:
    """Yield each line of a table separated by tabs, and its values of `columns`; the last value is
    the label.
    """
    lines = read_lines(path, encoding=encoding)
    head = next(lines)
    header = head.text.split("\t")
    rule = f"name the columns {', '.join(map(repr, columns))}"
    head.require(set(columns) <= set(header), rule, header)
    for line in filter(lambda line: line.text, lines):
        row = line.text.split("\t")
        rule = f"have {len(header)} columns as the first line"
        line.require(len(row) == len(header), rule, f"{len(row)} in {line.text!r}")
        values = [row[header.index(column)] for column in columns]
        rule = f"have one of the labels {', '.join(labels)}"
        line.require(values[-1] in labels, rule, repr(values[-1]))
        yield line, values


def _split_words(text: str) -> tuple[str, ...]:
    """Split a sentence at spaces, not at no-break spaces."""
    return tuple(filter(None, text.split(" ")))
