"""Words misspelled at random, one letter at a time."""

import random
from collections.abc import Sequence

from polyembed._checks import require

ERRORS = ("swap", "drop", "insert", "replace")
MIN_LENGTH = 4


def misspell(
    word: str, letters: Sequence[str], draw: random.Random, *, min_length: int = MIN_LENGTH
) -> str:
    """Return the word with one typing error: swap two neighbouring letters, drop one, insert one or
    replace one.

    The four errors are equally likely, and so are the places. The first letter stays, as in most
    typing errors.

    Args:
        word: Any word.
        letters: The letters to insert or to replace others with; if empty, letters are only swapped
            or dropped.
        draw: The source of randomness.
        min_length: Shorter words are kept.

    Returns:
        The misspelled word; the word itself if it is too short, or if two equal letters were
        swapped or a letter was replaced by itself.

    Example:
        >>> [misspell("gracias", "aeiou", random.Random(seed)) for seed in (0, 1, 2, 5)]
        ['gracaas', 'gracis', 'garcias', 'graciais']
    """
    require(min_length >= 3, "min_length", "be at least 3", min_length)
    if len(word) < min_length:
        return word
    error = draw.choice(ERRORS if letters else ERRORS[:2])
    if error == "swap":
        place = draw.randrange(1, len(word) - 1)
        return word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    if error == "insert":
        place = draw.randrange(1, len(word) + 1)
        return word[:place] + draw.choice(letters) + word[place:]
    place = draw.randrange(1, len(word))
    return word[:place] + (draw.choice(letters) if error == "replace" else "") + word[place + 1 :]
