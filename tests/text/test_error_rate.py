"""Character error rates against a recursive edit distance, and what folding makes equal."""

import functools

import pytest
from checks import refused
from hypothesis import given
from hypothesis import strategies as st

from polyembed.text import character_error_rate, fold_devanagari
from polyembed.text.error_rate import edit_distance


def distance(a: str, b: str) -> int:
    @functools.cache
    def between(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j
        return min(
            between(i - 1, j) + 1,
            between(i, j - 1) + 1,
            between(i - 1, j - 1) + (a[i - 1] != b[j - 1]),
        )

    return between(len(a), len(b))


short = st.text(alphabet="abc", max_size=7)


@given(short, short)
def test_edit_distance(a: str, b: str) -> None:
    assert edit_distance(a, b) == distance(a, b)


def test_rate() -> None:
    assert character_error_rate(["ab", "x"], [["abc"], ["x"]]) == 1 / 4
    assert character_error_rate(["", "abc"], [["ab"], ["abc"]]) == 2 / 5
    assert character_error_rate(["abcdef"], [["z"]]) == 6


def test_the_nearest_answer_counts() -> None:
    assert character_error_rate(["abx"], [["zz", "abc"]]) == 1 / 3
    assert character_error_rate(["ab"], [["a", "abc"]]) == 1 / 3  # equally near: the longer
    assert character_error_rate(["ab"], [["", "b"]]) == 1


ONE = [
    "ज़िंदगी",
    "जिंदगी",
    "फ़िल्म",
    "फिल्म",
    "ज़रा",
    "जरा",
    "हाँ",
    "हां",
    "हिन्दी",
    "हिंदी",
    "सम्भव",
    "संभव",
    "इलेक्शन्स",
    "इलेक्शंस",
]


@pytest.mark.parametrize(("word", "other"), list(zip(ONE[::2], ONE[1::2], strict=True)))
def test_spellings_that_are_one(word: str, other: str) -> None:
    assert fold_devanagari(word) == fold_devanagari(other)
    assert fold_devanagari(fold_devanagari(word)) == fold_devanagari(word)


@pytest.mark.parametrize(
    ("word", "other"),
    [
        ("लड़का", "लडका"),
        ("पढ़ना", "पढना"),
        ("तुम्हें", "तुंहें"),
        ("जन्म", "जंम"),
        ("अन्य", "अंय"),
        ("काम", "कम"),
        ("है", "हैं"),
    ],
)
def test_spellings_that_are_two(word: str, other: str) -> None:
    assert fold_devanagari(word) != fold_devanagari(other)


@pytest.mark.parametrize(
    ("predicted", "expected", "error", "text"),
    [
        (["a"], [["a"], ["b"]], ValueError, r"^expected must have 1 entries, one a word, got 2$"),
        ([], [], ValueError, r"^predicted must hold at least one word, got none$"),
        (["a"], [[]], ValueError, r"^expected\[0\] must hold at least one answer, got \[\]$"),
        (["a"], ["a"], TypeError, r"^expected\[0\] must be a list of answers, got the string 'a'$"),
    ],
)
def test_errors(predicted: list, expected: list, error: type[Exception], text: str) -> None:
    refused(error, text, character_error_rate, predicted, expected)
