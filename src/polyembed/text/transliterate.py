"""Words in another script: the protocol, a dictionary, scheme conversion, and sentences with languages."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, Self, runtime_checkable

from polyembed._checks import check_choice, class_name, import_optional, must, require
from polyembed.saving import Configurable
from polyembed.text.normalize import EMOJI, URL, USER, Normalizer

_LATIN = "A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff"
LATIN_RUN = re.compile(f"[{_LATIN}]+")
LATIN_CORE = re.compile(f"[{_LATIN}](?:.*[{_LATIN}])?", re.DOTALL)
_NOT_A_WORD = re.compile(f"\\d|@|[{_LATIN}]['’][{_LATIN}]")
_find_special = Normalizer()


@runtime_checkable
class Transliterator(Protocol):
    """Words of one script to words of another.

    As many words are returned as were given, in the same order, so that labels keep their words.
    Numbers, punctuation, mentions, hashtags, URLs, emoji and words of other scripts are kept.
    """

    def transliterate(self, words: Sequence[str]) -> list[str]:
        """Return each word in the other script."""
        ...


class DictionaryTransliterator(Configurable):
    """Look words up, and leave unlisted ones to another transliterator.

    ``y = dictionary[x] if x in dictionary else fallback(x)``, for every run of Latin letters x of a
    word, in lower case. If the run is not listed, it is looked up again with letters that are
    repeated three times or more written once (``bahuuut``).

    Args:
        words: Roman spelling in lower case -> the word in the other script; `hinglish_words()`, or
            your own.
        fallback: For runs that are not in the dictionary; if None, they are kept.
        keep: Runs that are kept, in lower case, as words of another language; they win over the
            dictionary.

    Raises:
        TypeError: A dictionary that is not a mapping, a fallback that is not a transliterator, or a
            string for `keep`.
        ValueError: A key that is not made of Latin letters in lower case.

    Example:
        >>> from polyembed.text import hinglish_words
        >>> dictionary = DictionaryTransliterator(hinglish_words())
        >>> dictionary.transliterate(["Yeh", "song", "achha", "haiiii!", "@kya", "2017", "न"])
        ['यह', 'song', 'अच्छा', 'है!', '@kya', '2017', 'न']

    Deviations: Winata 2021 (section 3.1) transliterates its Hindi-English data from Roman to
    Devanagari and does not say how.
    """

    def __init__(
        self,
        words: Mapping[str, str],
        *,
        fallback: Transliterator | None = None,
        keep: Collection[str] = (),
    ) -> None:
        if not isinstance(words, Mapping):
            raise TypeError(must("words", "be a mapping of spellings to words", class_name(words)))
        if fallback is not None and not isinstance(fallback, Transliterator):
            raise TypeError(must("fallback", "be a transliterator or None", class_name(fallback)))
        for spelling, word in words.items():
            require(
                isinstance(word, str) and word != "",
                f"words[{spelling!r}]",
                "be a word",
                repr(word),
            )
            sound = LATIN_RUN.fullmatch(spelling) is not None and spelling == spelling.lower()
            require(sound, "words", "have Latin letters in lower case as keys", repr(spelling))
        if isinstance(keep, str):
            raise TypeError(must("keep", "be a collection of words", f"the string {keep!r}"))
        self.words = dict(words)
        self.fallback = fallback
        self.keep = frozenset(keep)

    def transliterate(self, words: Sequence[str]) -> list[str]:
        """Return each word in the other script."""
        return convert_words(words, self._convert, LATIN_RUN)

    def _convert(self, runs: list[str]) -> list[str]:
        found = {run: run if run.lower() in self.keep else self._find(run.lower()) for run in runs}
        missing = [run for run, word in found.items() if word is None]
        if self.fallback is not None:
            found.update(zip(missing, self.fallback.transliterate(missing), strict=True))
        return [found[run] or run for run in runs]

    def _find(self, run: str) -> str | None:
        return self.words.get(run) or self.words.get(squeeze(run, 1))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments; the dictionary as pairs, since any word may be a key."""
        return {
            "words": sorted(self.words.items()),
            "fallback": self.fallback,
            "keep": sorted(self.keep),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the transliterator from the result of `get_config`."""
        return cls(**{**config, "words": dict(config["words"])})

    def __repr__(self) -> str:
        kept = f", keep={len(self.keep)} words" if self.keep else ""
        return (
            f"DictionaryTransliterator({len(self.words)} words, fallback={self.fallback!r}{kept})"
        )


class SchemeTransliterator(Configurable):
    """Convert a transliteration scheme (ITRANS, IAST, Harvard-Kyoto...) by the package
    indic-transliteration.

    Schemes are exact and reversible: every letter counts, case included. People on social media
    follow none, so their
    words become wrong Devanagari: ``"kya hai"`` क्य है for क्या है, ``kaam`` काम् for काम. Use it
    for text that was written in a scheme, and `CharacterTransliterator` for other text.

    Args:
        scheme: The scheme that the words are in, as the package names it: ``"itrans"``, ``"iast"``,
            ``"hk"``...
        target: The scheme or script to convert to.

    Raises:
        ImportError: indic-transliteration is not installed.
        ValueError: A scheme that the package does not have.

    Example:
        >>> SchemeTransliterator("itrans").transliterate(["kyA", "kya"])  # doctest: +SKIP
        ['क्या', 'क्य']

    Deviations: the package also converts digits and full stops (to १ and ।); here they are kept.
    """

    def __init__(self, scheme: str = "itrans", *, target: str = "devanagari") -> None:
        schemes = _sanscript().SCHEMES
        check_choice("scheme", scheme, sorted(schemes))
        check_choice("target", target, sorted(schemes))
        self.scheme = scheme
        self.target = target

    def transliterate(self, words: Sequence[str]) -> list[str]:
        """Return each word in the target scheme."""
        convert = _sanscript().transliterate
        return convert_words(
            words, lambda runs: [convert(run, self.scheme, self.target) for run in runs], LATIN_CORE
        )


def transliterate_sentences(
    transliterator: Transliterator,
    sentences: Sequence[Sequence[str]],
    languages: Sequence[Sequence[str | None]],
    *,
    only: Collection[str],
) -> list[list[str]]:
    """Transliterate the words of some languages in code-switched sentences; others are kept.

    Args:
        transliterator: Called once, for all sentences.
        sentences: Lists of words.
        languages: The language of each word, as the corpus names it.
        only: The languages to transliterate.

    Returns:
        Sentences of the same lengths.

    Raises:
        ValueError: Different numbers of sentences or of words.
        TypeError: A string for `only`.

    Example:
        >>> dictionary = DictionaryTransliterator({"the": "थे", "kahan": "कहाँ"})
        >>> transliterate_sentences(dictionary, [["kahan", "the", "the"]], [["hi", "hi", "en"]], only={"hi"})
        [['कहाँ', 'थे', 'the']]

    Deviations: Winata 2021 does not say whether English words were transliterated too.
    """
    if isinstance(only, str):
        raise TypeError(must("only", "be a collection of languages", f"the string {only!r}"))
    require(
        len(languages) == len(sentences),
        "languages",
        f"have {len(sentences)} sentences",
        len(languages),
    )
    for row, (words, names) in enumerate(zip(sentences, languages, strict=True)):
        require(
            len(names) == len(words),
            f"languages[{row}]",
            f"have {len(words)} languages, one a word",
            len(names),
        )
    wanted = {
        (row, column): word
        for row, words in enumerate(sentences)
        for column, word in enumerate(words)
        if languages[row][column] in only
    }
    converted = dict(zip(wanted, transliterator.transliterate(list(wanted.values())), strict=True))
    return [
        [converted.get((row, column), word) for column, word in enumerate(words)]
        for row, words in enumerate(sentences)
    ]


def convert_words(
    words: Sequence[str], convert: Callable[[list[str]], list[str]], pattern: re.Pattern[str]
) -> list[str]:
    """Replace what `pattern` finds in each word, except in mentions, URLs and emoji.

    Words with a digit, ``@`` or an apostrophe between letters (``women's``) are kept too, because
    Hindi in Roman letters has none.

    Args:
        words: The words.
        convert: From distinct runs of letters to as many replacements; called once.
        pattern: Matches a run of letters.

    Returns:
        As many words.

    Raises:
        TypeError: A string instead of a list of words.
    """
    if isinstance(words, str):
        raise TypeError(must("words", "be a sequence of words", f"the string {words!r}"))
    found = {word: [] if _stays(word) else pattern.findall(word) for word in words}
    runs = list(dict.fromkeys(run for parts in found.values() for run in parts))
    replaced = dict(zip(runs, convert(runs), strict=True))
    return [
        pattern.sub(lambda run: replaced[run[0]], word) if found[word] else word for word in words
    ]


def squeeze(word: str, count: int) -> str:
    """Shorten a character that is repeated three times or more to `count`: ``haaaan`` to ``haan`` with 2."""
    return re.sub(r"(.)\1{2,}", lambda run: run[1] * count, word)


def _stays(word: str) -> bool:
    return bool(_NOT_A_WORD.search(word)) or _find_special(word) in (USER, URL, EMOJI)


def _sanscript() -> Any:
    return import_optional(
        "indic_transliteration.sanscript",
        pip="indic-transliteration",
        feature="SchemeTransliterator",
    )
