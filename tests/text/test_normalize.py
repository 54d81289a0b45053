"""Normalisation of words: replaced words, kept words, and labels that keep their words."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyembed.text.normalize import EMOJI, URL, USER, Normalizer

normalize = Normalizer()


REPLACED = [
    (USER, "@mari @_easanti @Jangiz_ @99 @user's ＠mari @مصر #lunes #2016goals #tag! #मोदी"),
    (
        URL,
        "https://t.co/HM6wcLnykD http://t… HTTPS://X.ORG ftp://a www.uh.edu t.co/x pic.twitter.com/x",
    ),
    # repeated, with skin tones, joined, flags (one by tags), keycaps, and pictures by a variation
    # selector
    (EMOJI, "😂 😂😂😂 ❤ ❤️ ♥ ☺ 👍🏽 👩‍👩‍👧‍👦 👩🏿‍🚀 🏳️‍🌈 🇲🇽 🇲🇽🇺🇸 5️⃣ #️⃣ ©️ ▶️ 🤷‍♂️ 🫠"),
    (EMOJI, "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"),
]


@pytest.mark.parametrize(("token", "words"), REPLACED)
def test_what_is_replaced(token: str, words: str):
    off = Normalizer(
        mentions=token != USER, hashtags=token != USER, urls=token != URL, emoji=token != EMOJI
    )
    for word in words.split():
        assert normalize([word]) + off([word]) == [token, word]


KEPT = [
    "@ @_ @_@ @-@ a@b.com # #1 ## #_ 1#a .@mari #️",
    "http https:// http:// www. www... U.S.A/UK and/or t.co //",
    "5 # * 12 © ™ → ▶ ★ :) lol😂 😂! ❤\ufe0e \ufe0f \u200d x\u20e3 中",
]


@pytest.mark.parametrize("words", KEPT)
def test_what_is_kept(words: str):
    assert normalize(words.split()) == words.split()


def test_emoji_are_those_of_unicode():
    """Compare with the property tables of a package that has them."""
    regex = pytest.importorskip("regex")
    emoji = regex.compile(r"\p{Emoji}")
    kept_for_emoji = regex.compile(r"\p{Extended_Pictographic}")
    shown_as_picture = regex.compile(r"\p{Emoji_Presentation}")
    for code in itertools.chain(range(0x80, 0xD800), range(0xE000, 0x20000)):
        character = chr(code)
        mine = normalize.normalize(character) == EMOJI
        assert not mine or emoji.match(character) or kept_for_emoji.match(character), hex(code)
        assert mine or not shown_as_picture.match(character), hex(code)
        if emoji.match(character) and not "\U0001f1e6" <= character <= "\U0001f1ff":
            assert normalize.normalize(character + "\ufe0f") == EMOJI, hex(code)


PUNCTUATION = """
    “Hola” "Hola"  „Hallo‟ "Hallo"  «vale» "vale"  don’t don't  `a´ 'a'  '' "  ´´ "  ''' "'  1–2 1-2  — -
    … ...  （Ａ１） (A1)  。 .  ｀ '  「 "  ¿qué? ¿qué?  । ।
"""


def test_punctuation():
    words = PUNCTUATION.split()
    assert Normalizer(punctuation=True)(words[::2]) == words[1::2]
    assert normalize(words[::2]) == words[::2]
    assert Normalizer(punctuation=True)(["＠mari", "＜USR＞"]) == [USER, USER]


@pytest.mark.parametrize("unit", ["🏽", "🇲", "👩‍🚀\u200d", "1️⃣", "@_", "'"])
def test_long_words_take_no_longer_than_they_should(unit: str):
    word = unit * 20_000 + "!"
    assert normalize.normalize(word) == word
    assert len(Normalizer(punctuation=True, lowercase=True).normalize(word)) > 1


def test_lowercase():
    assert Normalizer(lowercase=True)(["Él", "ΑΣ", "@Mari", "HTTP://X"]) == [
        "él",
        "ας",
        USER,
        URL,
    ]


pieces = st.sampled_from(
    [*"@#＠＃_a1İſKé5*:/.'’“…", "http://", "ｗww.", "t.co/", "<USR>", "😂", "\ufe0f", "\u20e3"]
)
words = st.lists(st.one_of(st.text(max_size=5), st.lists(pieces, max_size=5).map("".join)))


@settings(max_examples=40)
@given(words, st.tuples(*[st.booleans()] * 6))
def test_keeps_count_and_is_idempotent(given_words: list[str], switches: tuple[bool, ...]):
    names = ("mentions", "hashtags", "urls", "emoji", "punctuation", "lowercase")
    every = Normalizer(**dict(zip(names, switches, strict=True)))
    once = every(given_words)
    assert len(once) == len(given_words)
    assert every(once) == once
    assert every([USER, URL, EMOJI]) == [USER, URL, EMOJI]
    assert all(bool(new) == bool(old) for new, old in zip(once, given_words, strict=True))
