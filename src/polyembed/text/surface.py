"""Words as the features of their surface: lower form, shape, prefixes and suffixes, hashed."""

import itertools
import re
import zlib
from collections.abc import Sequence

import regex

from polyembed._checks import check_positive, check_words, require
from polyembed.saving import Configurable
from polyembed.text.spelling import clip

FEATURES = (
    "lower",
    "shape",
    *(f"{end}{size}" for end in ("prefix", "suffix") for size in (1, 2, 3, 4)),
)
"""The features of a hand-made tagger that need no dictionary."""

LONGEST = 256
"""The most characters of a word whose prefixes and suffixes are cut, half from either end."""

_NAME = re.compile(r"lower|shape|(prefix|suffix)[1-9]")


class SurfaceSpelling(Configurable):
    """Spell words by the features of their surface, each hashed to an id.

    Every word has one id for each feature, in order. Features: ``lower``, the word in lower case;
    ``shape``, its characters as ``X`` (upper case), ``x`` (other letters), ``0`` (digits) or
    themselves, of which at most two equal ones in a row count; ``prefixN`` and ``suffixN``, the
    first and last N grapheme clusters in lower case, so that a Devanagari vowel sign stays with its
    consonant and an emoji sequence is one unit. A shorter word is its own prefix.

    An id is ``1 + crc32("feature=value") % num_buckets``: the same in every process and on every
    machine. Different values may share an id.

    Args:
        features: The names of the features.
        num_buckets: The number of ids without the padding's 0.

    Raises:
        ValueError: If a feature is unknown.

    Example:
        >>> spelling = SurfaceSpelling(["lower", "suffix2"], num_buckets=1000)
        >>> [me, ME] = spelling.spell(["me", "ME"])
        >>> me == ME, len(me)
        (True, 2)
        >>> spelling.values("Gusta")
        ['gusta', 'ta']
    """

    def __init__(self, features: Sequence[str] = FEATURES, *, num_buckets: int = 2**16) -> None:
        check_positive(num_buckets=num_buckets)
        self.features = tuple(check_words(features, name="features"))
        for i, name in enumerate(self.features):
            known = _NAME.fullmatch(name) is not None
            require(known, f"features[{i}]", "be lower, shape, prefixN or suffixN", name)
        self.num_buckets = num_buckets

    @property
    def num_units(self) -> int:
        """The number of ids: the buckets, and 0 for padding."""
        return self.num_buckets + 1

    @property
    def unknown(self) -> list[int]:
        """The spelling of the unknown word: features that no word has."""
        return [self._id(f"unknown {name}") for name in self.features]

    def spell(self, words: Sequence[str]) -> list[list[int]]:
        """Return each word's ids, one for each feature."""
        return [
            [self._id(f"{k}={v}") for k, v in zip(self.features, self.values(word), strict=True)]
            for word in words
        ]

    def values(self, word: str) -> list[str]:
        """Return the values of a word's features."""
        lower = word.lower()
        # clusters of a long run of flags take quadratic time
        clusters = regex.findall(r"\X", clip(lower, LONGEST))
        found = {"lower": lower, "shape": shape_of(word)}
        for name in self.features:
            if name not in found:
                size = int(name[-1])
                ends = clusters[:size] if name.startswith("prefix") else clusters[-size:]
                found[name] = "".join(ends)
        return [found[name] for name in self.features]

    def _id(self, text: str) -> int:
        return 1 + zlib.crc32(text.encode("utf-8", "surrogatepass")) % self.num_buckets


def shape_of(word: str) -> str:
    """Return a word's shape: its kinds of characters, of equal ones at most two in a row.

    Args:
        word: The word.

    Returns:
        The shape.

    Example:
        >>> shape_of("McDonald's"), shape_of("2026"), shape_of("!!!!")
        ("XxXxx'x", '00', '!!')
    """
    kinds = (
        "X" if c.isupper() else "x" if c.isalpha() else "0" if c.isdigit() else c
        for c in word
    )  # fmt: skip
    return "".join(kind for _, run in itertools.groupby(kinds) for kind in itertools.islice(run, 2))
