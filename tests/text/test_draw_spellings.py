"""Spellings drawn for the words of a text."""

import math
from collections import Counter

from checks import refused

from polyembed.text import Candidate, draw_spellings

SPELLINGS = {
    "नहीं": [Candidate("nahi", math.log(6)), Candidate("nhi", math.log(2))],
    "क": [Candidate("k", -900.0)],
}


def test_spellings_come_as_often_as_their_weights_say() -> None:
    sentences = [["नहीं", "song", "क"]] * 4000
    drawn = list(draw_spellings(sentences, SPELLINGS))
    counts = Counter(words[0] for words in drawn)
    assert {tuple(words[1:]) for words in drawn} == {("song", "k")}
    assert counts.keys() == {"nahi", "nhi"}
    assert abs(counts["nahi"] / 4000 - 0.75) < 0.03
    assert drawn == list(draw_spellings(iter(sentences), SPELLINGS, seed=0))
    assert drawn != list(draw_spellings(sentences, SPELLINGS, seed=1))
    assert list(draw_spellings([[], ["ok"]], {})) == [[], ["ok"]]


def test_a_word_without_a_spelling_is_refused() -> None:
    refused(
        ValueError,
        r"spellings\['न'\] must hold at least one spelling, got none",
        list,
        draw_spellings([[]], {"न": []}),
    )
    nan = {"न": [Candidate("n", math.nan)]}
    refused(
        ValueError,
        r"spellings\['न'\] must have finite scores, got \[nan\]",
        list,
        draw_spellings([[]], nan),
    )
    nan["न"].insert(0, Candidate("na", 0.0))  # the best is finite, another is not
    refused(
        ValueError,
        r"spellings\['न'\] must have finite scores, got \[nan\]",
        list,
        draw_spellings([[]], nan),
    )


def test_what_is_no_sentence_and_no_candidate_is_refused() -> None:
    one = r"sentences\[1\] must be a list of words, got the string 'ab'"
    refused(TypeError, one, list, draw_spellings([["a"], "ab"], SPELLINGS))
    for wrong in ("nahi", [("nahi",)], ["nahi"]):
        text = r"spellings\['न'\] must be a list of Candidates, got "
        refused(TypeError, text, list, draw_spellings([], {"न": wrong}))
