"""Romanisations: known spellings, unspoken vowels, shares, and pairs drawn by them."""

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyembed.text import HINGLISH_WORDS, social_romanizations, synthetic_pairs
from polyembed.text.romanize import _parts, _spoken, _syllables, _Word, is_devanagari


@pytest.mark.parametrize(
    ("word", "spellings"),
    [
        ("क्या", ["kya"]),
        ("है", ["hai", "he"]),
        ("हैं", ["hain", "hai"]),
        ("में", ["me", "mein", "men"]),
        ("नहीं", ["nahin", "nahi", "nhi"]),
        ("मैं", ["main", "mai"]),
        ("काम", ["kaam", "kam"]),
        ("कर", ["kar", "kr"]),
        ("रहा", ["raha", "rha"]),
        ("पहले", ["pahle", "pehle"]),
        ("बहन", ["bahan", "behan"]),
        ("अच्छा", ["accha", "acha", "achha"]),
        ("पत्थर", ["patthar", "pathar"]),
        ("लड़का", ["ladka", "larka"]),
        ("पढ़ना", ["padhna"]),
        ("गई", ["gai", "gayi"]),
        ("गए", ["gaye", "gae"]),
        ("चाहिए", ["chahiye", "chahie"]),
        ("जाएंगे", ["jayenge", "jaenge"]),
        ("वाला", ["vala", "wala"]),
        ("फिर", ["phir", "fir"]),
        ("ज़्यादा", ["zyada", "jyada"]),
        ("ज्ञान", ["gyan", "gyaan"]),
        ("शिक्षा", ["shiksha"]),
        ("ऋषि", ["rishi"]),
        ("दुःख", ["dukh"]),
        ("संबंध", ["sambandh"]),
        ("डॉक्टर", ["doktar"]),
    ],
)
def test_usual_spellings_are_there(word: str, spellings: list[str]) -> None:
    assert set(spellings) <= set(social_romanizations(word, limit=12))


@pytest.mark.parametrize(
    ("word", "spelling"),
    [
        ("समझना", "samajhna"),
        ("बचपन", "bachpan"),
        ("जनता", "janta"),
        ("सरकार", "sarkar"),
        ("कमल", "kamal"),
        ("अपने", "apne"),
        ("मतलब", "matlab"),
        ("नरेंद्र", "narendra"),
        ("मित्र", "mitra"),
        ("धर्म", "dharm"),
        ("शब्द", "shabd"),
        ("प्रिय", "priya"),
        ("भारतीय", "bhartiya"),
        ("उपन्यास", "upanyas"),
        ("न", "na"),
    ],
)
def test_unspoken_vowels_are_left_out(word: str, spelling: str) -> None:
    assert next(iter(social_romanizations(word))) == spelling


@pytest.mark.parametrize("word", ["काम", "नहीं", "अच्छा", "चाहिए", "ज़्यादा"])
def test_shares_are_sums_over_all_ways(word: str) -> None:
    syllables = _syllables(word)
    cut = _Word(syllables, _spoken(syllables))
    parts = [part for index in range(len(syllables)) for part in _parts(cut, index)]
    expected: Counter[str] = Counter()
    for way in itertools.product(*(part.items() for part in parts)):
        expected["".join(habit for habit, _ in way)] += math.prod(share for _, share in way)
    assert sum(expected.values()) == pytest.approx(1.0)
    found = social_romanizations(word, limit=len(expected))
    assert found == pytest.approx(dict(expected))
    few = social_romanizations(word, limit=3)
    assert list(few) == list(found)[:3]
    assert sum(few.values()) == pytest.approx(1.0)
    first, _, third = few
    assert few[first] / few[third] == pytest.approx(found[first] / found[third])


def test_every_table_of_shares_adds_up_to_one() -> None:
    from polyembed.text import romanize

    tables = [table for name, table in vars(romanize).items() if name.startswith("_") and isinstance(table, dict)]
    shares = [value for table in tables for value in table.values() if isinstance(value, dict)]
    assert len(shares) >= 70
    for habits in shares:
        assert sum(habits.values()) == pytest.approx(1.0), habits


def test_composed_and_decomposed_letters_are_one() -> None:
    assert social_romanizations("\u095bरा") == social_romanizations("ज\u093cरा")
    assert social_romanizations("ल\u095cका") == social_romanizations("ल\u0921\u093cका")


def test_joiners_do_not_count() -> None:
    assert social_romanizations("क्\u200dया") == social_romanizations("क्या")
    assert social_romanizations("क्\u200cया") == social_romanizations("क्या")


def test_long_words_take_no_longer_than_they_should() -> None:
    assert len(next(iter(social_romanizations("कमल" * 700, limit=2)))) > 1400


@given(st.text(alphabet="कखणतयवहड़ंँः्ािीेोअइए", max_size=9))
def test_any_devanagari(word: str) -> None:
    if not is_devanagari(word):
        with pytest.raises(ValueError, match=r"^word must be spelt in Devanagari letters, got "):
            social_romanizations(word)
        return
    found = social_romanizations(word, limit=5)
    assert 0 < len(found) <= 5
    assert all(spelling.isascii() and spelling.isalpha() and spelling.islower() for spelling in found)
    assert list(found.values()) == sorted(found.values(), reverse=True)


@pytest.mark.parametrize("word", ["", "kya", "काम!", "ा", "ं", "्क", "मेंं", "१०", "क़म\u093c", "का ा"])
def test_no_devanagari_word(word: str) -> None:
    assert not is_devanagari(word)
    with pytest.raises(ValueError, match=rf"^word must be spelt in Devanagari letters, got {word!r}$"):
        social_romanizations(word)


def test_errors() -> None:
    with pytest.raises(TypeError, match=r"^word must be a string, got int$"):
        social_romanizations(3)
    with pytest.raises(ValueError, match=r"^limit must be a positive integer, got 0$"):
        social_romanizations("काम", limit=0)
    with pytest.raises(TypeError, match=r"^words must be a collection of words, got the string 'काम'$"):
        synthetic_pairs("काम")
    with pytest.raises(ValueError, match=r"^per_word must be a positive integer, got 0$"):
        synthetic_pairs(["काम"], per_word=0)


def test_the_rules_reach_the_dictionary() -> None:
    """The dictionary was written by hand; what the rules do not reach follows none (h, k, q)."""
    reached = [roman in social_romanizations(word) for roman, word in HINGLISH_WORDS.items()]
    assert sum(reached) / len(reached) > 0.89


def test_pairs_follow_counts_and_shares() -> None:
    pairs = synthetic_pairs({"काम": 4, "है": 9, "का": 10_000, "न": 1}, per_word=3)
    assert Counter(word for _, word in pairs) == {"काम": 6, "है": 9, "का": 48, "न": 3}
    shares = social_romanizations("क्या", limit=16)
    drawn = Counter(roman for roman, _ in synthetic_pairs({"क्या": 10**8}, per_word=500))
    assert drawn.keys() <= shares.keys()
    assert drawn["kya"] / drawn.total() == pytest.approx(shares["kya"], abs=0.02)


def test_pairs_are_drawn_by_the_seed() -> None:
    words = ["काम", "नहीं", "लोगों", "अच्छा"]
    assert synthetic_pairs(words) == synthetic_pairs(words[::-1])
    assert synthetic_pairs(words) == synthetic_pairs(dict.fromkeys(words, 1))
    assert synthetic_pairs(words) != synthetic_pairs(words, seed=1)
