"""Dictionary look-up, scheme conversion, sentences with languages, and what stays as it is."""

import json
from collections.abc import Sequence

import pytest
from checks import refused
from hypothesis import given
from hypothesis import strategies as st

from polyembed.saving.loading import ConfigReader
from polyembed.saving.writing import ConfigWriter
from polyembed.text import (
    DictionaryTransliterator,
    SchemeTransliterator,
    hinglish_words,
    transliterate_sentences,
)


class Upper:
    """A transliterator that shouts, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def transliterate(self, words: Sequence[str]) -> list[str]:
        self.asked.append(list(words))
        return [word.upper() for word in words]


dictionary = DictionaryTransliterator(hinglish_words())

UNCHANGED = """
    2017 !!! ... :) ₹ @kya @modi_ji #kya #notebandi http://hai.in/kya www.hai.in <USR> <URL> <EMOJI> 😂 है
    क्या! кто hai2 2hai 100% a@hai.in
"""


def test_what_is_no_word_stays() -> None:
    words = ["", *UNCHANGED.split(), "hai'ka", "ka’hai"]
    assert dictionary.transliterate(words) == words
    assert DictionaryTransliterator({}, fallback=Upper()).transliterate(words) == words


def test_dictionary() -> None:
    words = "hai HAI Nahi hai. (kya???) kya-kya hai😂 'hai' haiiii bahuuuuut song song,hai"
    expected = "है है नहीं है. (क्या???) क्या-क्या है😂 'है' है बहुत song song,है"
    assert dictionary.transliterate(words.split()) == expected.split()


def test_a_word_as_it_is_comes_first() -> None:
    words = DictionaryTransliterator({"haaa": "हाऽ", "ha": "हा"})
    assert words.transliterate(["haaa", "haaaa", "haa"]) == ["हाऽ", "हा", "haa"]


def test_fallback_is_asked_once_for_each_unknown_word() -> None:
    upper = Upper()
    words = DictionaryTransliterator({"hai": "है"}, fallback=upper)
    assert words.transliterate(["good", "hai", "so-good", "good", "@so"]) == [
        "GOOD",
        "है",
        "SO-GOOD",
        "GOOD",
        "@so",
    ]
    assert upper.asked == [["good", "so"]]


parts = st.sampled_from([*"@#<>1'’.-!?aÉß", "hai", "kya", "है", "http://", "www.", "😂", " "])


@given(st.lists(st.one_of(st.text(max_size=5), st.lists(parts, max_size=4).map("".join))))
def test_every_word_has_its_place(words: list[str]) -> None:
    found = DictionaryTransliterator({"hai": "है"}, fallback=Upper()).transliterate(words)
    assert len(found) == len(words)
    for old, new in zip(words, found, strict=True):
        assert bool(new) == bool(old)
        assert new == old or any(letter.isalpha() for letter in old)
        assert [c for c in new if not c.isalpha() and c != "ै"] == [
            c for c in old if not c.isalpha() and c != "ै"
        ]


def test_dictionaries_are_rebuilt_from_their_configuration(tmp_path) -> None:
    nested = DictionaryTransliterator(
        {"kya": "क्या"}, fallback=DictionaryTransliterator({"hai": "है"})
    )
    again = ConfigReader(tmp_path).read(
        ConfigWriter(tmp_path, copy_vectors=False).encode(nested, "dictionary")
    )
    assert again.transliterate(["kya", "hai", "ji"]) == ["क्या", "है", "ji"]
    assert (
        repr(again)
        == repr(nested)
        == "DictionaryTransliterator(1 words, fallback=DictionaryTransliterator(1 words, fallback=None))"
    )


@pytest.mark.parametrize(
    ("words", "options", "error", "text"),
    [
        (["hai"], {}, TypeError, r"^words must be a mapping of spellings to words, got list$"),
        (
            {},
            {"fallback": str},
            TypeError,
            r"^fallback must be a transliterator or None, got type$",
        ),
        (
            {"Hai": "है"},
            {},
            ValueError,
            r"^words must have Latin letters in lower case as keys, got 'Hai'$",
        ),
        (
            {"": "है"},
            {},
            ValueError,
            r"^words must have Latin letters in lower case as keys, got ''$",
        ),
        ({"hai": ""}, {}, ValueError, r"^words\['hai'\] must be a word, got ''$"),
    ],
)
def test_dictionary_errors(words: dict, options: dict, error: type[Exception], text: str) -> None:
    refused(error, text, DictionaryTransliterator, words, **options)


def test_a_string_is_no_list_of_words() -> None:
    refused(
        TypeError,
        r"^words must be a sequence of words, got the string 'hai'$",
        dictionary.transliterate,
        "hai",
    )


def test_only_words_of_the_language() -> None:
    upper = Upper()
    sentences = [["the", "party", "the"], [], ["the"]]
    languages = [["hi", "en", None], [], ["en"]]
    assert transliterate_sentences(upper, sentences, languages, only={"hi"}) == [
        ["THE", "party", "the"],
        [],
        ["the"],
    ]
    assert upper.asked == [["the"]]
    assert transliterate_sentences(upper, sentences, languages, only=("hi", "en", None))[0] == [
        "THE",
        "PARTY",
        "THE",
    ]
    assert sentences == [["the", "party", "the"], [], ["the"]]


def test_sentence_errors() -> None:
    with pytest.raises(
        TypeError, match=r"^only must be a collection of languages, got the string 'hi'$"
    ):
        transliterate_sentences(dictionary, [["hai"]], [["hi"]], only="hi")
    with pytest.raises(ValueError, match=r"^languages must have 1 sentences, got 2$"):
        transliterate_sentences(dictionary, [["hai"]], [["hi"], []], only={"hi"})
    with pytest.raises(
        ValueError, match=r"^languages\[1\] must have 2 languages, one a word, got 1$"
    ):
        transliterate_sentences(dictionary, [[], ["hai", "na"]], [[], ["hi"]], only={"hi"})


class TestSchemes:
    @pytest.fixture(autouse=True)
    def _package(self) -> None:
        pytest.importorskip("indic_transliteration")

    def test_schemes(self) -> None:
        assert SchemeTransliterator("itrans").transliterate(["kyA", "R^iShi", "hai."]) == [
            "क्या",
            "ऋषि",
            "है.",
        ]
        assert SchemeTransliterator("iast").transliterate(["kyā", "ṛṣi"]) == ["क्या", "ऋषि"]
        assert SchemeTransliterator("hk", target="iast").transliterate(["kRSNa"]) == ["kṛṣṇa"]
        assert SchemeTransliterator().transliterate(UNCHANGED.split()) == UNCHANGED.split()

    def test_is_a_value(self) -> None:
        scheme = SchemeTransliterator("hk", target="telugu")
        assert scheme.get_config() == {"scheme": "hk", "target": "telugu"}
        assert repr(scheme) == "SchemeTransliterator(scheme='hk', target='telugu')"

    def test_errors(self) -> None:
        refused(
            ValueError,
            r"^scheme must be one of .*'itrans'.*, got 'hinglish'$",
            SchemeTransliterator,
            "hinglish",
        )
        with pytest.raises(
            ValueError, match=r"^target must be one of .*'devanagari'.*, got 'hindi'$"
        ):
            SchemeTransliterator(target="hindi")


def test_the_package_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "indic_transliteration.sanscript", None)
    rule = r"^SchemeTransliterator must find the package .*pip install indic-transliteration$"
    refused(ImportError, rule, SchemeTransliterator)


def test_words_that_are_kept() -> None:
    dictionary = DictionaryTransliterator({"the": "थे", "class": "क"}, keep=["the", "song"])
    assert dictionary.transliterate(["The", "class", "song!", "kya"]) == [
        "The",
        "क",
        "song!",
        "kya",
    ]
    again = DictionaryTransliterator.from_config(json.loads(json.dumps(dictionary.get_config())))
    assert (again.words, again.keep) == (dictionary.words, dictionary.keep)
    refused(
        TypeError,
        "keep must be a collection of words, got the string 'the'",
        DictionaryTransliterator,
        {},
        keep="the",
    )
