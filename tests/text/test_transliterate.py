"""Dictionary look-up, scheme conversion, and words that do not change."""

import re
import unicodedata

import pytest
from checks import refused
from hypothesis import given
from hypothesis import strategies as st

from polyembed.text import DictionaryTransliterator, SchemeTransliterator, hinglish_words

UNCHANGED = """
    2017 !!! ... :) ₹ @kya @modi_ji #kya #notebandi http://hai.in/kya www.hai.in <USR> <URL> <EMOJI>
    😂 है क्या! кто hai2 2hai 100% a@hai.in
"""
to_devanagari = DictionaryTransliterator(hinglish_words())


class Upper:
    """A transliterator to upper case, which records its input."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, words: list[str]) -> list[str]:
        self.asked.append(list(words))
        return [word.upper() for word in words]


def test_what_is_no_word_stays():
    words = ["", *UNCHANGED.split(), "hai'ka", "ka’hai"]
    assert to_devanagari(words) == words
    assert DictionaryTransliterator({}, fallback=Upper())(words) == words


def test_dictionary():
    words = "hai HAI Nahi hai. (kya???) kya-kya hai😂 'hai' haiiii bahuuuuut song song,hai se\u0301"
    expected = "है है नहीं है. (क्या???) क्या-क्या है😂 'है' है बहुत song song,है se\u0301"
    assert to_devanagari(words.split()) == expected.split()
    own = DictionaryTransliterator({"haaa": "हाऽ", "ha": "हा", "é": "x", "e\u0300": "y"})
    asked = ["haaa", "haaaa", "haa", "e\u0301", "è"]
    assert own(asked) == ["हाऽ", "हा", "haa", "x", "y"]


def test_fallback_is_asked_once_for_each_unknown_word():
    upper = Upper()
    words = DictionaryTransliterator({"hai": "है"}, fallback=upper, keep=["song"])
    assert words(["hai"]) == ["है"]
    asked = ["good", "hai", "so-good", "good", "@so", "Song", "sonnng"]
    assert words(iter(asked)) == ["GOOD", "है", "SO-GOOD", "GOOD", "@so", "Song", "sonnng"]
    assert upper.asked == [["good", "so"]]


parts = st.sampled_from([*"@#<>1'’.-!?aÉß", "hai", "kya", "है", "http://", "www.", "😂", " "])


@given(st.lists(st.one_of(st.text(max_size=5), st.lists(parts, max_size=4).map("".join))))
def test_every_word_has_its_place(words: list[str]):
    found = DictionaryTransliterator({"hai": "है"}, fallback=Upper())(words)
    assert len(found) == len(words)
    for old, new in zip(words, found, strict=True):
        assert bool(new) == bool(old)
        assert new == old or any(letter.isalpha() for letter in old)
        kept = [[c for c in word if not c.isalpha() and c != "ै"] for word in (old, new)]
        assert kept[0] == kept[1]


def test_errors():
    rule = r"^words must have Latin letters in lower case as keys, got 'Hai'$"
    refused(ValueError, rule, DictionaryTransliterator, {"Hai": "है"})
    refused(TypeError, r"^words must be a list of words, got the string", to_devanagari, "hai")


def test_schemes():
    pytest.importorskip("indic_transliteration")
    assert SchemeTransliterator()(["kyA", "R^iShi", "hai."]) == ["क्या", "ऋषि", "है."]
    assert SchemeTransliterator("iast")(["kya\u0304", "ṛṣi"]) == ["क्या", "ऋषि"]
    assert SchemeTransliterator("hk", target="iast")(["kRSNa"]) == ["kṛṣṇa"]
    assert SchemeTransliterator("devanagari", target="iast")(["कृष्ण।"]) == ["kṛṣṇa।"]
    assert SchemeTransliterator()(UNCHANGED.split()) == UNCHANGED.split()
    refused(ValueError, r"^scheme must be one of .*'itrans'", SchemeTransliterator, "hinglish")
    refused(ValueError, r"^target must be one of", lambda: SchemeTransliterator(target="hindi"))


def test_the_dictionary_of_hinglish_is_sound():
    words = hinglish_words()
    assert len(words) == 731
    for spelling, word in words.items():
        assert re.fullmatch("[a-z]+", spelling), spelling
        assert re.fullmatch("[\u0900-\u0963\u0970-\u097f]+", word), word
        assert unicodedata.normalize("NFC", word) == word
