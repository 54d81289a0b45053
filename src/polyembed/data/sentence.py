"""A sentence with one tag a word: what every reader of this folder returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from polyembed._checks import require

MISSING_TAG = "_"
"""What stands for a tag that the file does not give (CoNLL-U's sign for "unspecified")."""


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """Words, one tag for each, and what else the file says of them.

    Deviations: none.

    Args:
        words: The words, in order.
        tags: One tag a word; `MISSING_TAG` where the file gives none, as the test files of LinCE do.
        languages: One language a word, or None where the format has none.
        metadata: What the file says of the sentence as a whole: ``sent_id``, ``text``, ``sentiment``.
        label: What the sentence as a whole is labelled with, as its sentiment; None where the file gives none.

    Raises:
        ValueError: If `tags` or `languages` are not as many as `words`.

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
        require(len(self.tags) == count, "tags", f"be as many as the words, {count}", len(self.tags))
        if self.languages is not None:
            found = len(self.languages)
            require(found == count, "languages", f"be as many as the words, {count}", found)

    def __len__(self) -> int:
        return len(self.words)
