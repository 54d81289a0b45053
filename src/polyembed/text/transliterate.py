"""Words in another script: a dictionary, and the conversion of schemes.

A transliterator is any function from words to as many words, in the same order.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Self

from polyembed._checks import check_choice, check_words, import_optional, require
from polyembed.saving import Configurable
from polyembed.text.normalize import EMOJI, URL, USER, Normalizer

_LATIN = "A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff"
_RUN = re.compile(f"[{_LATIN}]+")
_CORE = re.compile(f"[{_LATIN}](?:.*[{_LATIN}])?", re.DOTALL)
_NOT_A_WORD = re.compile(f"\\d|@|[{_LATIN}]['’][{_LATIN}]")
_SPECIAL = Normalizer()


class DictionaryTransliterator(Configurable):
    """Look words up, and leave unlisted ones to another transliterator.

    ``y = words[x] if x in words else fallback(x)``, for every run of Latin letters x of a word, in
    lower case. If the run is not listed, it is looked up again with letters that are repeated three
    times or more written once (``bahuuut``).

    Args:
        words: The word in the other script for each Roman spelling in lower case; `hinglish_words`,
            or your own.
        fallback: A transliterator for runs that are not in the dictionary; if None, they are kept.
        keep: Runs that are kept, in lower case, as words of another language; they win over the
            dictionary.

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
        self.words = dict(words)
        self.fallback = fallback
        self.keep = frozenset(keep)
        for spelling in self.words:
            sound = _RUN.fullmatch(spelling) is not None and spelling == spelling.lower()
            require(sound, "words", "have Latin letters in lower case as keys", repr(spelling))

    def __call__(self, words: Sequence[str]) -> list[str]:
        """Return each word in the other script."""
        return convert_words(words, self._convert, _RUN)

    def _convert(self, runs: list[str]) -> list[str]:
        found = {run: run if run.lower() in self.keep else self._find(run.lower()) for run in runs}
        missing = [run for run, word in found.items() if word is None]
        if self.fallback is not None:
            found.update(zip(missing, self.fallback(missing), strict=True))
        return [found[run] or run for run in runs]

    def _find(self, run: str) -> str | None:
        return self.words.get(run) or self.words.get(re.sub(r"(.)\1{2,}", r"\1", run))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, the dictionary as pairs."""
        words, keep = sorted(self.words.items()), sorted(self.keep)
        return {"words": words, "fallback": self.fallback, "keep": keep}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the transliterator from the result of `get_config`."""
        return cls(**{**config, "words": dict(config["words"])})

    def __repr__(self) -> str:
        return f"DictionaryTransliterator({len(self.words)} words, fallback={self.fallback!r})"


class SchemeTransliterator(Configurable):
    """Convert a transliteration scheme (ITRANS, IAST, Harvard-Kyoto...) by indic-transliteration.

    Schemes are exact and reversible: every letter counts, case included. People on social media
    follow none, so their words become wrong Devanagari: ``"kya hai"`` क्य है for क्या है. Use it for
    text that was written in a scheme.

    Args:
        scheme: The scheme that the words are in, as the package names it: ``"itrans"``, ``"iast"``,
            ``"hk"``...
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
        convert = _sanscript().transliterate
        return convert_words(
            words, lambda runs: [convert(run, self.scheme, self.target) for run in runs], _CORE
        )


def convert_words(
    words: Sequence[str], convert: Callable[[list[str]], list[str]], pattern: re.Pattern[str]
) -> list[str]:
    """Replace what a pattern finds in each word, except in mentions, URLs and emoji.

    Words with a digit, ``@`` or an apostrophe between letters (``women's``) are kept too, because
    Hindi in Roman letters has none.

    Args:
        words: The words.
        convert: A function from distinct runs of letters to as many replacements; called once.
        pattern: The pattern of a run of letters.

    Returns:
        As many words.

    Raises:
        TypeError: If `words` is a string instead of a list of words.
    """
    found = {w: [] if _stays(w) else pattern.findall(w) for w in check_words(words)}
    runs = list(dict.fromkeys(run for parts in found.values() for run in parts))
    replaced = dict(zip(runs, convert(runs), strict=True))
    return [pattern.sub(lambda run: replaced[run[0]], w) if found[w] else w for w in words]


def _stays(word: str) -> bool:
    return bool(_NOT_A_WORD.search(word)) or _SPECIAL.normalize(word) in (USER, URL, EMOJI)


def _sanscript() -> Any:
    return import_optional(
        "indic_transliteration.sanscript",
        pip="indic-transliteration",
        feature="SchemeTransliterator",
    )


@cache
def hinglish_words() -> MappingProxyType[str, str]:
    """Return the Devanagari words of 731 Roman spellings in lower case.

    The list, ``data/hinglish.tsv``, was written by hand for this library. The words are those that
    Hinglish tweets use most (SentiMix, SemEval-2020 task 9, showed which): pronouns, auxiliaries,
    postpositions, particles, common verbs and nouns. Many spellings follow no rule (``h`` है, ``k``
    के, ``q`` क्यों). A spelling of several words has the most common one.

    Returns:
        The word of each spelling.

    Example:
        >>> hinglish_words()["nhi"]
        'नहीं'
    """
    lines = (files(__package__) / "data" / "hinglish.tsv").read_text("utf-8").splitlines()
    rows = (line.split("\t") for line in lines)
    return MappingProxyType({spelling: word for word, all_ in rows for spelling in all_.split(" ")})
