"""Typing errors: one each, of four kinds, all as likely."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyembed.text import misspell


def all_errors(word: str, letters: str) -> dict[str, set[str]]:
    places = range(1, len(word))
    return {
        "swap": {
            word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in places if i + 1 < len(word)
        },
        "drop": {word[:i] + word[i + 1 :] for i in places},
        "insert": {
            word[:i] + letter + word[i:] for i in range(1, len(word) + 1) for letter in letters
        },
        "replace": {word[:i] + letter + word[i + 1 :] for i in places for letter in letters},
    }


@given(st.text(min_size=4, max_size=9), st.text(min_size=1, max_size=4), st.integers())
def test_one_error(word: str, letters: str, seed: int) -> None:
    found = misspell(word, letters, random.Random(seed))
    assert found in set().union(*all_errors(word, letters).values())
    assert found[0] == word[0]
    assert found == misspell(word, letters, random.Random(seed))


def test_every_error_comes_up() -> None:
    word, letters, draw = "gracis", "xyz", random.Random(0)
    errors = all_errors(word, letters)
    counts = Counter(misspell(word, letters, draw) for _ in range(20_000))
    assert set(counts) == set().union(*errors.values())
    for kind, results in errors.items():
        share = sum(counts[result] for result in results) / 20_000
        assert share == pytest.approx(0.25, abs=0.015), kind
        for result in results:
            assert counts[result] / 20_000 == pytest.approx(0.25 / len(results), rel=0.35), result


@given(st.text(max_size=3), st.integers())
def test_short_words_stay(word: str, seed: int) -> None:
    assert misspell(word, "abc", random.Random(seed)) == word


def test_without_letters() -> None:
    draw = random.Random(0)
    errors = all_errors("gracias", "")
    assert {misspell("gracias", "", draw) for _ in range(500)} == errors["swap"] | errors["drop"]
    assert misspell("abc", "", draw, min_length=3) in ("acb", "ac", "ab")


def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"^min_length must be at least 3, got 2$"):
        misspell("gracias", "a", random.Random(0), min_length=2)
