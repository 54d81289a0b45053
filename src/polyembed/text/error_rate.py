"""The character error rate, and a normal form for Hindi words with several spellings."""

import re
import unicodedata
from collections.abc import Sequence

from polyembed._checks import must, require

_LOAN_NUKTA = re.compile("(?<=[कखगजफ])\u093c")
_NASAL_LETTER = re.compile("[ङञणनम]\u094d(?=[क-घच-झट-ढत-धप-भश-स])")


def character_error_rate(predicted: Sequence[str], expected: Sequence[Sequence[str]]) -> float:
    """Compute the character error rate ``sum_i d(p_i, e_i) / sum_i len(e_i)``.

    d is the Levenshtein distance in code points. Of several right answers, the one with the
    smallest distance counts, and the longest of those.

    Args:
        predicted: A spelling for each word.
        expected: The right spellings of each word, at least one.

    Returns:
        0 if all are right; may exceed 1.

    Raises:
        ValueError: Different numbers of words, no words, or a word without an answer.
        TypeError: A string instead of a list of answers.

    Example:
        >>> character_error_rate(["काम", "है"], [["काम", "कम"], ["हैं"]])
        0.16666666666666666
    """
    require(
        len(predicted) == len(expected),
        "expected",
        f"have {len(predicted)} entries, one a word",
        len(expected),
    )
    require(len(predicted) > 0, "predicted", "hold at least one word", "none")
    errors = length = 0
    for index, (word, answers) in enumerate(zip(predicted, expected, strict=True)):
        if isinstance(answers, str):
            raise TypeError(
                must(f"expected[{index}]", "be a list of answers", f"the string {answers!r}")
            )
        require(any(answers), f"expected[{index}]", "hold at least one answer", list(answers))
        distance, negative = min(
            (edit_distance(word, answer), -len(answer)) for answer in answers if answer
        )
        errors += distance
        length -= negative
    return errors / length


def edit_distance(a: str, b: str) -> int:
    """Count the insertions, deletions and substitutions that turn `a` into `b` (Levenshtein 1966).

    Args:
        a: One string.
        b: Another.

    Returns:
        The smallest number of edits, in code points.

    Example:
        >>> edit_distance("kaam", "kam")
        1
    """
    above = list(range(len(b) + 1))
    for row, x in enumerate(a, start=1):
        line = [row]
        for column, y in enumerate(b, start=1):
            line.append(min(above[column] + 1, line[-1] + 1, above[column - 1] + (x != y)))
        above = line
    return above[-1]


def fold_devanagari(word: str) -> str:
    """Normalise spellings that Hindi uses side by side, so that a comparison does not count the
    difference.

    The dot of loan sounds is removed (ज़ as ज; ड़ and ढ़ are letters of their own and keep it),
    chandrabindu becomes anusvara (हाँ as हां), and so does a nasal letter before a stop or a
    sibilant (हिन्दी as हिंदी).

    Args:
        word: A word.

    Returns:
        The normalised word, in NFC.

    Example:
        >>> fold_devanagari("ज़िन्दगी"), fold_devanagari("लड़का")
        ('जिंदगी', 'लड़का')
    """
    word = unicodedata.normalize("NFC", word).replace("\u0901", "\u0902")
    return _NASAL_LETTER.sub("\u0902", _LOAN_NUKTA.sub("", word))
