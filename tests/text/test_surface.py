"""Surface features: their values, stable hashes, strange words."""

import zlib

import pytest
from checks import refused

from polyembed.text import SurfaceSpelling


def test_the_values_of_a_word():
    spelling = SurfaceSpelling()
    expected = ["gustaron", "Xxx", "g", "gu", "gus", "gust", "n", "on", "ron", "aron"]
    assert spelling.values("Gustaron") == expected
    assert spelling.values("ab")[2:] == ["a", "ab", "ab", "ab", "b", "ab", "ab", "ab"]
    assert SurfaceSpelling(["shape"]).values("iPhone12!!!") == ["xXxx00!!"]


def test_an_affix_is_of_grapheme_clusters():
    spelling = SurfaceSpelling(["prefix1", "suffix1", "suffix2"])
    assert spelling.values("किताबें") == ["कि", "बें", "ताबें"]
    assert spelling.values("ok👩‍👩‍👧") == ["o", "👩‍👩‍👧", "k👩‍👩‍👧"]
    assert spelling.values("é") == ["é"] * 3


def test_an_id_is_a_checksum():
    [ids] = SurfaceSpelling(["lower", "suffix2"], num_buckets=999).spell(["Gusta"])
    assert ids == [1 + zlib.crc32(text) % 999 for text in (b"lower=gusta", b"suffix2=ta")]


@pytest.mark.parametrize(
    "word", ["", "a" * 10_000, "\ud800", "👩‍👩‍👧‍👦" * 500, "🇪🇸" * 50_000, "\u200b", "\x00", "ﷺ"]
)
def test_every_string_has_all_features(word: str):
    spelling = SurfaceSpelling(num_buckets=7)
    [ids] = spelling.spell([word])
    assert len(ids) == 10 == len(spelling.unknown)
    assert all(1 <= i <= 7 for i in ids)
    assert spelling.num_units == 8


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"features": "lower"}, TypeError, "features must be a list of words, got the string"),
        ({"features": ["stem"]}, ValueError, r"features\[0\] must be lower, .*, got stem"),
        ({"num_buckets": 0}, ValueError, "num_buckets must be a positive integer, got 0"),
    ],
)
def test_bad_arguments(arguments, error, message):
    refused(error, message, SurfaceSpelling, **arguments)
