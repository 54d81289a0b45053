"""A sentence with a tag for each word, the result of every reader."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from polyembed._checks import require

MISSING_TAG = "_"
"""The tag of a word without one (CoNLL-U's sign for "unspecified")."""


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """The words of a sentence, their tags, and what else the file holds.

    Args:
        words: The words, in order.
        tags: One tag for each word; `MISSING_TAG` where the file has none, as in the test files of
            LinCE.
        languages: One language for each word, or None where the format has none.
        metadata: Values of the whole sentence: ``sent_id``, ``text``, ``sentiment``.
        label: The label of the whole sentence, such as its sentiment; None where the file has none.

    Raises:
        ValueError: If there are not as many `tags` or `languages` as `words`.

    Example:
        >>> sentence = TaggedSentence(("me", "gusta"), ("PRON", "VERB"), languages=("es", "es"))
        >>> len(sentence), list(zip(sentence.words, sentence.tags))
        (2, [('me', 'PRON'), ('gusta', 'VERB')])
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    languages: tuple[str, ...] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    label: str | None = None

    def __post_init__(self) -> None:
        count = len(self.words)
        require(
            len(self.tags) == count, "tags", f"be as many as the words, {count}", len(self.tags)
        )
        if self.languages is not None:
            found = len(self.languages)
            require(found == count, "languages", f"be as many as the words, {count}", found)

    def __len__(self) -> int:
        return len(self.words)


def join_rows(rows: Iterable[tuple[str, ...]], **values: Any) -> TaggedSentence:
    """Return the sentence of rows ``(word, tag)`` or ``(word, tag, language)``, one for each word."""
    words, tags, *languages = zip(*rows, strict=True)
    return TaggedSentence(words, tags, languages[0] if languages else None, **values)
