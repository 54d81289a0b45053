"""Devanagari words as people type them in Roman letters: several spellings a word, with their shares.

There is no standard. A spelling is made of small habits (``aa`` or ``a`` for आ, ``w`` or ``v`` for व, a last nasal
written or left out), so it is generated as one: a word is cut into syllables, unspoken vowels are found, and each
part contributes its habits independently of the others.
"""

import math
import random
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from polyembed._checks import check_positive, class_name, must, require

Shares = Mapping[str, float]

_VIRAMA, _NUKTA, _VISARGA = "\u094d", "\u093c", "\u0903"
_NASALS = ("\u0901", "\u0902")
_JOINERS = dict.fromkeys((0x200C, 0x200D))  # they change a conjunct's look only

# How consonants are typed. Estimates by hand: nobody has counted them.
_CONSONANTS: dict[str, Shares] = {
    **{letter: {roman: 1.0} for letter, roman in zip("कगङचटडणतदनपबमयरलसहञळऱऩ", "kgnctdntdnpbmyrlshnlrn", strict=True)},
    "क": {"k": 0.98, "c": 0.02},
    "ख": {"kh": 0.97, "k": 0.03},
    "घ": {"gh": 0.95, "g": 0.05},
    "च": {"ch": 0.97, "c": 0.03},
    "छ": {"ch": 0.6, "chh": 0.4},
    "ज": {"j": 0.93, "z": 0.07},
    "झ": {"jh": 0.9, "j": 0.1},
    "ठ": {"th": 0.93, "t": 0.07},
    "ढ": {"dh": 0.95, "d": 0.05},
    "थ": {"th": 0.97, "t": 0.03},
    "ध": {"dh": 0.95, "d": 0.05},
    "फ": {"f": 0.6, "ph": 0.4},
    "भ": {"bh": 0.97, "b": 0.03},
    "व": {"v": 0.55, "w": 0.45},
    "श": {"sh": 0.88, "s": 0.12},
    "ष": {"sh": 0.93, "s": 0.07},
    "क" + _NUKTA: {"q": 0.6, "k": 0.4},
    "ख" + _NUKTA: {"kh": 1.0},
    "ग" + _NUKTA: {"g": 0.7, "gh": 0.3},
    "ज" + _NUKTA: {"z": 0.75, "j": 0.25},
    "ड" + _NUKTA: {"d": 0.65, "r": 0.35},
    "ढ" + _NUKTA: {"dh": 0.75, "rh": 0.15, "d": 0.1},
    "फ" + _NUKTA: {"f": 0.95, "ph": 0.05},
}
_CONJUNCTS: dict[tuple[str, str], Shares] = {
    ("क", "ष"): {"ksh": 0.85, "x": 0.1, "ch": 0.05},
    ("ज", "ञ"): {"gy": 0.85, "gn": 0.1, "jn": 0.05},
}
_VOWELS: dict[str, Shares] = {
    "अ": {"a": 1.0},
    "आ": {"a": 0.65, "aa": 0.35},
    "इ": {"i": 0.96, "e": 0.04},
    "ई": {"i": 0.65, "ee": 0.35},
    "उ": {"u": 0.97, "oo": 0.03},
    "ऊ": {"u": 0.5, "oo": 0.5},
    "ऋ": {"ri": 0.85, "ru": 0.1, "r": 0.05},
    "ॠ": {"ri": 1.0},
    "ऍ": {"a": 0.6, "e": 0.4},
    "ऎ": {"e": 1.0},
    "ए": {"e": 0.94, "ai": 0.03, "ay": 0.03},
    "ऐ": {"ai": 0.85, "e": 0.1, "ei": 0.05},
    "ऑ": {"o": 0.85, "a": 0.1, "au": 0.05},
    "ऒ": {"o": 1.0},
    "ओ": {"o": 1.0},
    "औ": {"au": 0.75, "o": 0.15, "ou": 0.1},
}
_LAST_VOWELS: dict[str, Shares] = {
    "आ": {"a": 0.95, "aa": 0.05},
    "ई": {"i": 0.93, "ee": 0.07},
    "ऊ": {"u": 0.8, "oo": 0.2},
}
_VOWELS_AFTER_A_VOWEL: dict[str, Shares] = {  # आए aaye, गई gayi, हुआ hua
    "आ": {"a": 0.85, "ya": 0.08, "wa": 0.07},
    "ई": {"i": 0.6, "yi": 0.35, "ee": 0.05},
    "ए": {"ye": 0.6, "e": 0.4},
    "एं": {"yen": 0.4, "en": 0.3, "ye": 0.15, "yein": 0.15},
}
_LAST_NASAL_VOWELS: dict[str, Shares] = {
    "ए": {"e": 0.45, "ein": 0.35, "en": 0.2},
    "ऐ": {"ain": 0.75, "ai": 0.15, "ein": 0.05, "en": 0.05},
}
_SIGNS = dict(zip("ािीुूृॄॅॆेैॉॊोौ", "आइईउऊऋॠऍऎएऐऑऒओऔ", strict=True))

_LAST_SILENT, _SILENT = 0.97, 0.87  # how often a vowel that the rules find unspoken is left out
_SPOKEN_LEFT_OUT = 0.06  # kar -> kr, raha -> rha


class _Syllable(NamedTuple):
    """A consonant with what follows it. `vowel` is an independent vowel's letter, "" under a virama."""

    consonant: str
    vowel: str
    nasal: bool = False
    visarga: bool = False


class _Word(NamedTuple):
    """Syllables, and whether each one's vowel is heard."""

    syllables: Sequence[_Syllable]
    spoken: Sequence[bool]


def social_romanizations(word: str, *, limit: int = 8) -> dict[str, float]:
    """Spell a Devanagari word in Roman letters as in social media.

    ``p(spelling) = sum over ways to it of prod_parts p(habit)``: long vowels single or doubled, unspoken vowels
    left out (करना karna), spoken ones dropped now and then (कर kr), last nasals written or not, ``v``/``w``,
    ``ph``/``f``, ``z``/``j``, ``chh``/``ch``, doubled consonants single, glides (गए gaye, gae).

    Args:
        word: Devanagari letters and signs, nothing else.
        limit: How many spellings at most.

    Returns:
        Spelling -> its share, the likeliest first; the shares of those kept add up to 1.

    Raises:
        ValueError: A word with other characters, or none.

    Example:
        >>> list(social_romanizations("नहीं", limit=4))
        ['nahin', 'nahi', 'naheen', 'nhin']
        >>> list(social_romanizations("समझना", limit=2))
        ['samajhna', 'samajhana']

    Deviations: no paper's. Rules and shares were written by hand; docs/transliteration.md says how much of real
    spelling they reach.
    """
    check_positive(limit=limit)
    syllables = _syllables(word)
    cut = _Word(syllables, _spoken(syllables))
    parts = [part for index in range(len(syllables)) for part in _parts(cut, index)]
    found = {"": 1.0}
    for part in parts:
        longer: dict[str, float] = {}
        for start, share in found.items():
            for end, habit in part.items():
                longer[start + end] = longer.get(start + end, 0.0) + share * habit
        found = dict(_likeliest(longer, 8 * limit))
    kept = _likeliest({spelling: share for spelling, share in found.items() if spelling}, limit)
    total = sum(share for _, share in kept)
    return {spelling: share / total for spelling, share in kept}


def synthetic_pairs(
    words: Iterable[str] | Mapping[str, int], *, per_word: int = 2, limit: int = 16, seed: int = 0
) -> list[tuple[str, str]]:
    """Make training pairs for a transliterator out of Devanagari words.

    A word that occurs n times is paired with ``min(per_word * sqrt(n), 16 * per_word)`` spellings, rounded, drawn from
    its `social_romanizations`: a likely spelling may come several times, and a frequent word weighs more, though less
    than it occurs.

    Args:
        words: Devanagari words as they come in a text, or word -> how often it occurs.
        per_word: How many pairs a word gives that occurs once.
        limit: Among how many spellings of a word to draw.
        seed: Of the draws.

    Returns:
        Pairs of a Roman and a Devanagari spelling, by the words' code points.

    Raises:
        ValueError: A word that is not Devanagari.

    Example:
        >>> synthetic_pairs({"काम": 4, "है": 1}, per_word=1)
        [('kam', 'काम'), ('kam', 'काम'), ('hai', 'है')]

    Deviations: no paper's. The pairs are synthetic; nobody wrote these spellings.
    """
    check_positive(per_word=per_word, limit=limit)
    if isinstance(words, str):
        raise TypeError(must("words", "be a collection of words", f"the string {words!r}"))
    draw = random.Random(seed)
    pairs = []
    for word, occurrences in sorted(Counter(words).items()):
        shares = social_romanizations(word, limit=limit)
        count = min(round(per_word * math.sqrt(occurrences)), 16 * per_word)
        spellings = draw.choices(list(shares), weights=list(shares.values()), k=count)
        pairs += [(spelling, word) for spelling in spellings]
    return pairs


def is_devanagari(word: str) -> bool:
    """Tell whether `social_romanizations` can spell the word: Devanagari letters and signs, nothing else."""
    try:
        _syllables(word)
    except ValueError:
        return False
    return True


def _likeliest(shares: Shares, limit: int) -> list[tuple[str, float]]:
    return sorted(shares.items(), key=lambda item: (-item[1], item[0]))[:limit]


def _syllables(word: str) -> list[_Syllable]:
    if not isinstance(word, str):
        raise TypeError(must("word", "be a string", class_name(word)))
    syllables: list[_Syllable] = []
    letters = unicodedata.normalize("NFC", word).translate(_JOINERS)
    for letter in letters:
        last = syllables[-1] if syllables else _Syllable("", "")
        if letter == _NUKTA and last.consonant + letter in _CONSONANTS:
            syllables[-1] = last._replace(consonant=last.consonant + letter)
        elif letter in _CONSONANTS:
            syllables.append(_Syllable(letter, "अ"))
        elif letter in _VOWELS:
            syllables.append(_Syllable("", letter))
        elif letter in _SIGNS and last.consonant and last.vowel == "अ":
            syllables[-1] = last._replace(vowel=_SIGNS[letter])
        elif letter == _VIRAMA and last.consonant and last.vowel == "अ":
            syllables[-1] = last._replace(vowel="")
        elif letter in _NASALS and last.vowel and not last.nasal:
            syllables[-1] = last._replace(nasal=True)
        elif letter == _VISARGA and last.vowel and not last.visarga:
            syllables[-1] = last._replace(visarga=True)
        else:
            raise ValueError(must("word", "be spelt in Devanagari letters", repr(word)))
    require(bool(syllables), "word", "be spelt in Devanagari letters", repr(word))
    return syllables


def _parts(word: _Word, index: int) -> list[Shares]:
    """List the habits for one syllable: of its consonant, its vowel, its nasal."""
    parts = [_consonant(word.syllables, index), *_vowel_and_nasal(word, index)]
    return [*parts, {"": 0.7, "h": 0.3}] if word.syllables[index].visarga else parts


def _consonant(syllables: Sequence[_Syllable], index: int) -> Shares:
    this = syllables[index]
    before = syllables[index - 1] if index else None
    after = syllables[index + 1] if index + 1 < len(syllables) else None
    if before is not None and not before.vowel and (before.consonant, this.consonant) in _CONJUNCTS:
        return _CONJUNCTS[before.consonant, this.consonant]
    if after is not None and not this.vowel:
        if (this.consonant, after.consonant) in _CONJUNCTS:
            return {"": 1.0}  # the second letter of the two brings both
        if _is_doubled(this.consonant, after.consonant):
            roman = next(iter(_CONSONANTS[this.consonant]))
            return {roman[0]: 0.7, "": 0.25, roman: 0.05} if len(roman) > 1 else {roman: 0.75, "": 0.25}
    if not this.consonant:
        return {"": 1.0}
    if this.consonant == "य" and before is not None and before.vowel in ("इ", "ई"):
        return {"y": 0.85, "": 0.15}  # किया kiya, kia
    return _CONSONANTS[this.consonant]


def _is_doubled(first: str, second: str) -> bool:
    """Tell क्क and च्छ from other conjuncts."""
    rows = ("कख", "गघ", "चछ", "जझ", "टठ", "डढ", "तथ", "दध", "पफ", "बभ")
    return first == second or any(first == row[0] and second == row[1] for row in rows)


def _vowel_and_nasal(word: _Word, index: int) -> list[Shares]:
    this = word.syllables[index]
    if not this.vowel:
        return [{"": 1.0}]
    if not this.nasal:
        return [_vowel(word, index)]
    if index < len(word.syllables) - 1:
        before_lips = word.syllables[index + 1].consonant[:1] in ("प", "फ", "ब", "भ")
        return [_vowel(word, index), {"m": 0.75, "n": 0.25} if before_lips else {"n": 0.96, "": 0.04}]
    if index > 0 and not this.consonant and this.vowel + "ं" in _VOWELS_AFTER_A_VOWEL:
        return [_VOWELS_AFTER_A_VOWEL[this.vowel + "ं"]]
    if this.vowel in _LAST_NASAL_VOWELS:
        return [_LAST_NASAL_VOWELS[this.vowel]]
    return [_vowel(word, index), {"n": 0.55, "": 0.45}]


def _vowel(word: _Word, index: int) -> Shares:
    this = word.syllables[index]
    if this.consonant and this.vowel == "अ":
        return _inherent_vowel(word, index)
    if index > 0 and not this.consonant and this.vowel in _VOWELS_AFTER_A_VOWEL:
        return _VOWELS_AFTER_A_VOWEL[this.vowel]
    if 0 < index == len(word.syllables) - 1 and this.vowel in _LAST_VOWELS:
        return _LAST_VOWELS[this.vowel]
    if this.vowel == "आ":  # काम kaam, but सरकार sarkar
        doubled = 0.65 if sum(word.spoken) == 1 or not this.consonant else 0.2
        return {"aa": doubled, "a": 1 - doubled}
    return _VOWELS[this.vowel]


def _inherent_vowel(word: _Word, index: int) -> Shares:
    is_last = index == len(word.syllables) - 1
    if not word.spoken[index]:
        silent = _LAST_SILENT if is_last else _SILENT
        return {"": silent, "a": 1 - silent}
    if is_last:
        return {"a": 0.9, "": 0.1}
    after = word.syllables[index + 1]
    if after.consonant == "ह" and (after.vowel in ("अ", "ए") or not word.spoken[index + 1]):
        return {"a": 0.5, "e": 0.44, "": 0.06}  # पहले pehle
    return {"a": 1 - _SPOKEN_LEFT_OUT, "": _SPOKEN_LEFT_OUT}


def _spoken(syllables: Sequence[_Syllable]) -> list[bool]:
    """Tell which syllables' vowels are heard.

    The inherent vowel is silent at the end of a word, and between a vowel and a consonant on its left and a consonant
    and a vowel that is heard on its right; so the rule goes from the right to the left (Ohala 1983).
    """
    spoken = [bool(syllable.vowel) for syllable in syllables]
    for index in range(len(syllables) - 1, 0, -1):
        this, before = syllables[index], syllables[index - 1]
        if this.vowel != "अ" or not this.consonant or this.nasal or this.visarga:
            continue
        if index == len(syllables) - 1:
            spoken[index] = _is_last_spoken(before, this)
        else:
            after = syllables[index + 1]
            spoken[index] = not (before.vowel and after.consonant and spoken[index + 1])
    return spoken


def _is_last_spoken(before: _Syllable, this: _Syllable) -> bool:
    """Tell प्रिय and मित्र, whose last vowel is heard, from काम and धर्म."""
    if before.vowel:
        return this.consonant == "य" and before.vowel in ("इ", "ई")
    return this.consonant in ("र", "ल", "व", "न", "म", "य") and before.consonant not in ("र", "ल", "न", "म")
