"""Words in another form: tweets normalised word by word, and words in another script.

A transliterator is any function from words to as many words, in the same order.
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from polyembed._checks import check_choice, check_words, import_optional, require
from polyembed.saving import Configurable

USER = "<USR>"
URL = "<URL>"
EMOJI = "<EMOJI>"

_MENTION = re.compile(r"[@＠]_*[^\W_]")
_HASHTAG = re.compile(r"[#＃]\w*[^\W\d_]")
_URL = re.compile(
    r"(?:(?:https?|ftp)://|www\.|(?:t\.co|bit\.ly|goo\.gl|youtu\.be|pic\.twitter\.com)/)[^/.\s]",
    re.ASCII | re.IGNORECASE,
)

# The characters with Unicode's property Emoji, and code points reserved for more. Some are ordinary
# signs (©, ™, ▶) unless a variation selector follows; hearts, faces and weather are pictures
# without one.
_SIGN = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9-\u21aa\u2328\u23cf\u23ed-\u23ef\u23f1-\u23f2"
    "\u23f8-\u23fa\u24c2\u25aa-\u25ab\u25b6\u25c0\u25fb-\u25fc\u27a1\u2934-\u2935\u2b05-\u2b07\u3030"
    "\u303d\u3297\u3299"
)
_PICTURE = (
    "\u231a-\u231b\u23e9-\u23ec\u23f0\u23f3\u25fd-\u25fe\u2600-\u2604\u260e\u2611\u2614-\u2615\u2618"
    "\u261d\u2620\u2622-\u2623\u2626\u262a\u262e-\u262f\u2638-\u263a\u2640\u2642\u2648-\u2653"
    "\u265f-\u2660\u2663\u2665-\u2666\u2668\u267b\u267e-\u267f\u2692-\u2697\u2699\u269b-\u269c"
    "\u26a0-\u26a1\u26a7\u26aa-\u26ab\u26b0-\u26b1\u26bd-\u26be\u26c4-\u26c5\u26c8\u26ce-\u26cf\u26d1"
    "\u26d3-\u26d4\u26e9-\u26ea\u26f0-\u26f5\u26f7-\u26fa\u26fd\u2702\u2705\u2708-\u270d\u270f\u2712"
    "\u2714\u2716\u271d\u2721\u2728\u2733-\u2734\u2744\u2747\u274c\u274e\u2753-\u2755\u2757\u2763-\u2764"
    "\u2795-\u2797\u27b0\u27bf\u2b1b-\u2b1c\u2b50\u2b55"
    "\U0001f004\U0001f0cf\U0001f170-\U0001f171\U0001f17e-\U0001f17f\U0001f18e\U0001f191-\U0001f19a"
    "\U0001f201-\U0001f202\U0001f21a\U0001f22f\U0001f232-\U0001f23a\U0001f250-\U0001f251"
    "\U0001f300-\U0001f321\U0001f324-\U0001f393\U0001f396-\U0001f397\U0001f399-\U0001f39b"
    "\U0001f39e-\U0001f3f0\U0001f3f3-\U0001f3f5\U0001f3f7-\U0001f4fd\U0001f4ff-\U0001f53d"
    "\U0001f549-\U0001f54e\U0001f550-\U0001f567\U0001f56f-\U0001f570\U0001f573-\U0001f57a\U0001f587"
    "\U0001f58a-\U0001f58d\U0001f590\U0001f595-\U0001f596\U0001f5a4-\U0001f5a5\U0001f5a8"
    "\U0001f5b1-\U0001f5b2\U0001f5bc\U0001f5c2-\U0001f5c4\U0001f5d1-\U0001f5d3\U0001f5dc-\U0001f5de"
    "\U0001f5e1\U0001f5e3\U0001f5e8\U0001f5ef\U0001f5f3\U0001f5fa-\U0001f64f\U0001f680-\U0001f6c5"
    "\U0001f6cb-\U0001f6d2\U0001f6d5-\U0001f6e5\U0001f6e9\U0001f6eb-\U0001f6f0\U0001f6f3-\U0001f6ff"
    "\U0001f7e0-\U0001f7eb\U0001f7f0\U0001f90c-\U0001f93a\U0001f93c-\U0001f945\U0001f947-\U0001f9ff"
    "\U0001fa70-\U0001faff"
)
# Possessive quantifiers, since a skin tone is also a picture by itself: backtracking would be
# exponential.
_ELEMENT = (
    f"(?:[{_PICTURE}]\ufe0f?+|[{_SIGN}]\ufe0f)[\U0001f3fb-\U0001f3ff]?+"
    "(?:[\U000e0020-\U000e007e]++\U000e007f)?+"  # flags of regions
)
_EMOJI = re.compile(
    f"(?:{_ELEMENT}(?:\u200d{_ELEMENT})*+"  # people, families, professions: joined by U+200D
    "|[\U0001f1e6-\U0001f1ff]"  # flags: two of these letters each
    "|[0-9#*]\ufe0f?+\u20e3)++"  # keycaps: a digit alone is not an emoji
)

# Typographic forms to ASCII, from Moses' normalize-punctuation.perl and
# replace-unicode-punctuation.perl, without the spaces that these scripts add around some signs, so
# that a word stays one word.
_PUNCTUATION = str.maketrans(
    {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}  # full-width forms of ASCII
    | dict.fromkeys("“”„‟«»″《》「」『』〝〞", '"')
    | dict.fromkeys("‘’‚‛‹›′`´｀", "'")
    | dict.fromkeys("‐‑‒–—―−", "-")
    | {"…": "...", "。": ".", "、": ",", "〜": "~", "【": "[", "】": "]", "〈": "<", "〉": ">"}
)


@dataclass(frozen=True, kw_only=True)  # no slots: they make a second class of this name
class Normalizer(Configurable):
    """A normaliser of words: call it on the words of a sentence, or call `normalize` on one word.

    The steps, in this order:

    1. `punctuation`: typographic quotes, dashes, ellipses and full-width forms become ASCII, and
       two single quotes become one double quote (van der Heijden 2019, "Data and preprocessing";
       Moses' rules).
    2. A word of one of these kinds becomes a special token (Winata 2021, section 3.1). With
       `mentions`, a word that begins with ``@`` and a letter or digit, with or without underscores
       between them, becomes ``<USR>``. With `hashtags`, a word that begins with ``#`` and a letter,
       with or without digits and underscores between them, becomes ``<USR>``. With `urls`, a word
       that begins with ``http://``, ``https://``, ``ftp://``, ``www.`` or a well-known shortener
       becomes ``<URL>``. With `emoji`, a word that consists of emoji becomes ``<EMOJI>``.
    3. `lowercase`: any other word is put in lower case.

    So ``@`` alone, ``@_@``, ``#1``, ``#`` and ``a@b.com`` stay, and so do ``7``, ``©`` without a
    variation selector, a picture with the selector for text, and letters followed by emoji. The
    whole word is replaced, with the text that follows the mention, hashtag or URL (``@user's``,
    ``#tag!``). No word becomes empty, normalising twice has no effect, and the special tokens are
    kept.

    Deviations: Winata 2021 does not say how its tokens were found; these rules are ours. The
    authors' code replaces every word that begins with ``@`` or ``#`` or has an emoji in it, and
    numbers by ``<num>``. Moses adds spaces around a long dash and a double quote made of two single
    ones.

    Args:
        mentions: Whether to replace user mentions.
        hashtags: Whether to replace hashtags by the token for users, as the paper does.
        urls: Whether to replace URLs.
        emoji: Whether to replace emoji.
        punctuation: Whether to normalise punctuation.
        lowercase: Whether to put words in lower case.

    Example:
        >>> normalize = Normalizer(lowercase=True)
        >>> normalize(["@mari", "No", "puedo", "#lunes", "😂😂", "https://t.co/x", "#1"])
        ['<USR>', 'no', 'puedo', '<USR>', '<EMOJI>', '<URL>', '#1']
        >>> Normalizer(punctuation=True).normalize("“Hola…”")
        '"Hola..."'
    """

    mentions: bool = True
    hashtags: bool = True
    urls: bool = True
    emoji: bool = True
    punctuation: bool = False
    lowercase: bool = False

    def normalize(self, word: str) -> str:
        """Return the normalised word; it is empty only if `word` is empty."""
        if self.punctuation:
            word = word.translate(_PUNCTUATION).replace("''", '"')
        if word in (USER, URL, EMOJI):
            return word
        if (self.mentions and _MENTION.match(word)) or (self.hashtags and _HASHTAG.match(word)):
            return USER
        if self.urls and _URL.match(word):
            return URL
        if self.emoji and _EMOJI.fullmatch(word):
            return EMOJI
        return word.lower() if self.lowercase else word

    def __call__(self, words: Iterable[str]) -> list[str]:
        """Normalise each word of a sentence."""
        return [self.normalize(word) for word in check_words(words)]


_LATIN = "A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff"
_LETTER = f"[{_LATIN}][\u0300-\u0344\u0346-\u036f]*"  # with its combining accents
_RUN = re.compile(f"(?:{_LETTER})+")
_CORE = re.compile(f"{_LETTER}(?:.*{_LETTER})?", re.DOTALL)
_NATIVE = re.compile(r"[^\x00-\x7f।॥]+")
_NOT_A_WORD = re.compile(f"\\d|@|{_LETTER}['’]{_LETTER}")
_SPECIAL = Normalizer()


class DictionaryTransliterator(Configurable):
    """Transliterate listed words by a table, and others by another transliterator.

    ``y = words[x] if x in words else fallback(x)``, for every run x of Latin letters and their
    accents in a word. Runs are looked up composed (NFC) and in lower case; the fallback gets them
    unchanged. If the run is not listed, it is looked up again with letters that are repeated
    three times or more written once (``bahuuut``).

    Args:
        words: The word in the other script for each Roman spelling in lower case, such as
            `hinglish_words()`.
        fallback: A transliterator for runs that are not in the dictionary; if None, they are kept.
        keep: Runs that stay unchanged, such as words of another language; upper and lower case are
            alike. They take precedence over `words`.

    Raises:
        ValueError: If a key is not made of Latin letters in lower case.

    Example:
        >>> from polyembed.text import hinglish_words
        >>> to_devanagari = DictionaryTransliterator(hinglish_words())
        >>> to_devanagari(["Yeh", "song", "achha", "haiiii!", "@kya", "2017", "न"])
        ['यह', 'song', 'अच्छा', 'है!', '@kya', '2017', 'न']

    Deviations: Winata 2021 (section 3.1) transliterates its Hindi-English data from Roman to
    Devanagari and does not say how.
    """

    def __init__(
        self,
        words: Mapping[str, str],
        *,
        fallback: Callable[[list[str]], Sequence[str]] | None = None,
        keep: Collection[str] = (),
    ) -> None:
        self.words = {_composed(spelling): word for spelling, word in dict(words).items()}
        self.fallback = fallback
        self.keep = frozenset(_composed(run).lower() for run in check_words(keep, name="keep"))
        for spelling in self.words:
            sound = _RUN.fullmatch(spelling) is not None and spelling == spelling.lower()
            require(sound, "words", "have Latin letters in lower case as keys", repr(spelling))

    def __call__(self, words: Sequence[str]) -> list[str]:
        """Return each word in the other script."""
        return convert_words(words, self._convert, _RUN)

    def _convert(self, runs: list[str]) -> list[str]:
        found = {run: self._find(run) for run in runs}
        missing = [run for run, word in found.items() if word is None]
        if missing and self.fallback is not None:
            found.update(zip(missing, self.fallback(missing), strict=True))
        return [found[run] or run for run in runs]

    def _find(self, run: str) -> str | None:
        low = _composed(run).lower()
        short = re.sub(r"(.)\1{2,}", r"\1", low)
        if self.keep & {low, short}:
            return run
        return self.words.get(low) or self.words.get(short)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, the dictionary as pairs."""
        words, keep = sorted(self.words.items()), sorted(self.keep)
        return {"words": words, "fallback": self.fallback, "keep": keep}

    def __repr__(self) -> str:
        return f"DictionaryTransliterator({len(self.words)} words, fallback={self.fallback!r})"


class SchemeTransliterator(Configurable):
    """Convert a transliteration scheme (ITRANS, IAST, Harvard-Kyoto...) by indic-transliteration.

    Schemes are exact and reversible: every letter counts, case included. People on social media
    follow no scheme, so their words become wrong Devanagari: ``"kya hai"`` becomes क्य है, not क्या
    है. Use this class for text that was written in a scheme.

    Args:
        scheme: The scheme or script that the words are in, as the package names it: ``"itrans"``,
            ``"iast"``, ``"hk"``, ``"devanagari"``...
        target: The scheme or script to convert to.

    Raises:
        ImportError: If indic-transliteration is not installed.
        ValueError: If the package does not have a scheme.

    Example:
        >>> SchemeTransliterator("itrans")(["kyA", "kya"])  # doctest: +SKIP
        ['क्या', 'क्य']

    Deviations: the package also converts digits and full stops (to १ and ।); here they are kept.
    """

    def __init__(self, scheme: str = "itrans", *, target: str = "devanagari") -> None:
        schemes = sorted(_sanscript().SCHEMES)
        check_choice("scheme", scheme, schemes)
        check_choice("target", target, schemes)
        self.scheme = scheme
        self.target = target

    def __call__(self, words: Sequence[str]) -> list[str]:
        """Return each word in the target scheme."""
        pattern = _CORE if _sanscript().SCHEMES[self.scheme].is_roman else _NATIVE
        return convert_words(words, lambda runs: list(map(self._convert, runs)), pattern)

    def _convert(self, run: str) -> str:
        return str(_sanscript().transliterate(_composed(run), self.scheme, self.target))


def _composed(run: str) -> str:
    return unicodedata.normalize("NFC", run)


def convert_words(
    words: Sequence[str], convert: Callable[[list[str]], list[str]], pattern: re.Pattern[str]
) -> list[str]:
    """Replace the matches of a pattern in each word, except in mentions, URLs and emoji.

    Words with a digit, ``@`` or an apostrophe between letters (``women's``) are kept too, because
    Hindi in Roman letters has no such characters.

    Args:
        words: The words.
        convert: A function from distinct runs of letters to as many replacements; called once.
        pattern: The pattern of a run of letters.

    Returns:
        The words with their replacements, as many as before.

    Raises:
        TypeError: If `words` is a string instead of a list of words.
    """
    words = check_words(words)
    found = {
        word: (
            []
            if _NOT_A_WORD.search(word) or _SPECIAL.normalize(word) in (USER, URL, EMOJI)
            else pattern.findall(word)
        )
        for word in words
    }
    runs = list(dict.fromkeys(run for parts in found.values() for run in parts))
    replaced = dict(zip(runs, convert(runs), strict=True))
    return [pattern.sub(lambda run: replaced[run[0]], w) if found[w] else w for w in words]


def _sanscript() -> Any:
    return import_optional(
        "indic_transliteration.sanscript",
        pip="indic-transliteration",
        feature="SchemeTransliterator",
    )


@cache
def hinglish_words() -> MappingProxyType[str, str]:
    """Return the Devanagari words of 731 Roman spellings in lower case.

    The list, ``data/hinglish.tsv``, was written by hand for this library. The list has the most
    frequent words of Hinglish tweets (counted in SentiMix, SemEval-2020 task 9): pronouns,
    auxiliaries, postpositions, particles, common verbs and nouns. Many spellings follow no rule
    (``h`` है, ``k`` के, ``q`` क्यों). Where several words share a spelling, the list has the most
    common word.

    Returns:
        The word of each spelling.

    Example:
        >>> hinglish_words()["nhi"]
        'नहीं'
    """
    lines = (files(__package__) / "data" / "hinglish.tsv").read_text("utf-8").splitlines()
    rows = (line.split("\t") for line in lines)
    return MappingProxyType({spelling: word for word, all_ in rows for spelling in all_.split(" ")})
