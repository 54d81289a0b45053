"""Words misspelled at random, one letter at a time."""

import random
from collections.abc import Sequence

from polyembed._checks import require

ERRORS = ("swap", "drop", "insert", "replace")
MIN_LENGTH = 4


def misspell(word: str, letters: Sequence[str], draw: random.Random, *, min_length: int = MIN_LENGTH) -> str:
    """Make one typing error: swap two neighbouring letters, drop one, insert one or replace one.

    Each of the four is as likely as the others, and so is each place. The first letter stays, as it mostly does in
    typing errors, and what is put in comes from `letters`.

    Args:
        word: Any word.
        letters: What may be inserted or put in a letter's place; without any, letters are swapped or dropped only.
        draw: Where chance comes from.
        min_length: Shorter words stay as they are.

    Returns:
        The misspelled word; the word itself where it is too short, or where chance swapped two equal letters or put a
        letter in its own place.

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
