"""How much of a text a source of vectors knows."""

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from itertools import zip_longest
from typing import Any

from polyembed._checks import class_name, must, require
from polyembed.tables import Table

ALL = "all"
COLUMNS = ("language", "types", "known", "known %", "tokens", "known tokens", "known tokens %")


def coverage(
    source: Container[str],
    sentences: Iterable[Sequence[str]],
    languages: Iterable[Sequence[str]] | None = None,
) -> Table:
    """Count the types and tokens of a text that a source knows, in all and by language.

    A word is known if ``word in source``: it has its own row. fastText models give other words a
    vector of their n-grams; those count as unknown here.

    Args:
        source: Anything with ``in``: vectors, a lexicon, a set of words. Not `BPEmbVectors`, which
            has pieces only.
        sentences: Lists of words.
        languages: The language tag of each word, a list for each sentence; None if no word has one.
            A type with several tags counts under each.

    Returns:
        A row for all words, then one for each tag, the one with most tokens first; shares are in
        percent.

    Raises:
        TypeError: A source without ``in``, or None or another object instead of a sentence's words
            or tags.
        ValueError: Not as many lists of tags as sentences, or not as many tags as words; no words.

    Example:
        >>> table = coverage({"me", "that"}, [["me", "gusta", "that"], ["me"]], [["es", "es", "en"], ["es"]])
        >>> print(table.to_markdown())
        | language | types | known | known % | tokens | known tokens | known tokens % |
        | -------- | ----- | ----- | ------- | ------ | ------------ | -------------- |
        | all      | 3     | 2     | 66.7    | 4      | 3            | 75.0           |
        | es       | 2     | 1     | 50.0    | 3      | 2            | 66.7           |
        | en       | 1     | 1     | 100.0   | 1      | 1            | 100.0          |
    """
    if not hasattr(source, "__contains__"):
        raise TypeError(must("source", "have words (word in source)", class_name(source)))
    counts: dict[str, Counter[str]] = {ALL: Counter()}
    end: Any = object()
    pairs: Iterable[tuple[Sequence[str], Sequence[str]]]
    pairs = (
        ((words, ()) for words in sentences)
        if languages is None
        else zip_longest(sentences, languages, fillvalue=end)
    )
    for i, (words, tags) in enumerate(pairs):
        if words is end or tags is end:
            raise ValueError(
                must(
                    "languages",
                    "have a list of tags for each sentence",
                    f"one of the two ends at {i}",
                )
            )
        _check_strings(f"sentences[{i}]", words)
        _check_strings(f"languages[{i}]", tags)
        counts[ALL].update(words)
        if languages is not None:
            require(
                len(tags) == len(words),
                f"languages[{i}]",
                f"be as many as the words, {len(words)}",
                len(tags),
            )
            for word, tag in zip(words, tags, strict=True):
                counts.setdefault(f"{tag}\0", Counter())[word] += 1  # a tag may be called "all"
    require(bool(counts[ALL]), "sentences", "hold at least one word", "none")
    known = {word for word in counts[ALL] if word in source}
    total, *others = counts
    names = [total, *sorted(others, key=lambda name: (-counts[name].total(), name))]
    return Table(
        COLUMNS, [_row(name.removesuffix("\0"), counts[name], known) for name in names], digits=1
    )


def _check_strings(name: str, strings: Any) -> None:
    if isinstance(strings, str) or not hasattr(strings, "__len__"):
        raise TypeError(must(name, "be a list of strings", repr(strings)))
    for i, string in enumerate(strings):
        if not isinstance(string, str):
            raise TypeError(must(f"{name}[{i}]", "be a string", repr(string)))


def _row(name: str, words: Counter[str], known: set[str]) -> tuple[str | int | float, ...]:
    types, tokens = (
        len(words.keys() & known),
        sum(count for word, count in words.items() if word in known),
    )
    return (
        name,
        len(words),
        types,
        100 * types / len(words),
        words.total(),
        tokens,
        100 * tokens / words.total(),
    )
