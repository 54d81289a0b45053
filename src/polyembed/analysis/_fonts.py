"""Words of any script in a picture: installed fonts that have the glyphs, or letters that every font has."""

import re
import unicodedata
import warnings
from collections.abc import Iterable
from typing import Any

from polyembed._checks import import_optional

GENERIC = {"sans": "sans-serif", "sans serif": "sans-serif"}
DEVANAGARI = re.compile("[\u0900-\u0963\u0966-\u096f\u0971-\u097f]+")
WITHOUT_SHAPES = ("lastresort", "adobeblank")  # fonts with a box, or nothing, for every character


def legible(texts: Iterable[str]) -> tuple[dict[str, str], dict[str, Any]]:
    r"""Find out how to write texts so that no glyph is missing.

    A character that the fonts in use lack is looked for in all installed ones. What none has is written otherwise,
    which a warning says: Devanagari in Roman letters, the rest as ``\u4e2d``.

    Args:
        texts: What stands in the picture.

    Returns:
        Each text as it can be drawn, and the properties to draw it with.
    """
    texts = list(dict.fromkeys(texts))
    families = _in_use()
    lacking = {character for text in texts for character in text} - {"\n"}
    lacking -= _glyphs(families, lacking)
    if lacking:
        more = _others(lacking, families)
        families += more
        lacking -= _glyphs(more, lacking)
    dropped = {character for character in lacking if _is_invisible(character)}
    written = {text: _rewrite("".join(c for c in text if c not in dropped), lacking) for text in texts}
    scripts = sorted({_script(character) for character in lacking - dropped})
    if scripts:
        message = f"no installed font has glyphs of {', '.join(scripts)}: written in Latin letters or as code points"
        warnings.warn(f"{message}; the Noto Sans fonts have them", stacklevel=3)
    return written, {"fontfamily": families, "parse_math": False, "usetex": False}


def _in_use() -> list[str]:
    """Name the installed families that matplotlib would write in."""
    matplotlib = import_optional("matplotlib")
    names: list[str] = []
    for family in matplotlib.rcParams["font.family"]:
        generic = GENERIC.get(family, family)
        names += matplotlib.rcParams.get(f"font.{generic}", [family])
    installed = _installed()
    return [name for name in dict.fromkeys(names) if name in installed] or ["DejaVu Sans"]


def _installed() -> set[str]:
    manager = import_optional("matplotlib.font_manager").fontManager
    return {entry.name for entry in manager.ttflist}


def _glyphs(families: Iterable[str], characters: set[str]) -> set[str]:
    """Tell which of the characters the families have a glyph for."""
    manager = import_optional("matplotlib.font_manager")
    found: set[str] = set()
    for family in families:
        faces = (face for face in manager.fontManager.ttflist if face.name == family)
        face = min(faces, key=lambda face: (face.style != "normal", abs(face.weight - 400)), default=None)
        try:
            font = face and manager.get_font(manager.FontPath(face.fname, face.index))
        except (OSError, RuntimeError):  # a file that is gone or broken
            continue
        found |= {character for character in characters if font and font.get_char_index(ord(character))}
    return found


def _others(characters: set[str], families: list[str]) -> list[str]:
    """Choose few installed families that together have the most of the characters."""
    names = sorted(_installed() - set(families), key=lambda name: (not name.startswith("Noto Sans"), name))
    names = [name for name in names if not name.replace(" ", "").lower().startswith(WITHOUT_SHAPES)]
    glyphs = {name: _glyphs([name], characters) for name in names}
    chosen: list[str] = []
    while names:
        best = max(names, key=lambda name: len(glyphs[name] & characters))
        if not glyphs[best] & characters:
            break
        chosen.append(best)
        characters = characters - glyphs[best]
    return chosen


def _is_invisible(character: str) -> bool:
    """Tell joiners, marks of direction and the like, whose absence does not show."""
    return unicodedata.category(character) == "Cf" or "\ufe00" <= character <= "\ufe0f"


def _script(character: str) -> str:
    """Name a character's script, by the first word of its name."""
    if unicodedata.category(character)[0] in "LMN":
        return unicodedata.name(character, "unnamed letters").partition(" ")[0]
    return "symbols"


def _rewrite(text: str, lacking: set[str]) -> str:
    """Write runs of characters that no font has in ASCII."""
    if not lacking.intersection(text):
        return text
    runs = re.compile("[" + "".join(map(re.escape, sorted(lacking))) + "]+")
    return runs.sub(lambda run: _ascii(run[0]), text)


def _ascii(run: str) -> str:
    return _romanize(run) if DEVANAGARI.fullmatch(run) else run.encode("unicode_escape").decode("ascii")


def _romanize(run: str) -> str:
    """Write Devanagari by the names of its letters: DEVANAGARI LETTER KA, VOWEL SIGN II make ``kii``."""
    signs = {"VIRAMA": "", "NUKTA": "", "ANUSVARA": "N", "CANDRABINDU": "N", "VISARGA": "H", "AVAGRAHA": "'"}
    text = ""
    for character in run:
        _, *kind, sound = unicodedata.name(character).split()
        if sound == "VIRAMA" or "VOWEL" in kind:
            text = text.removesuffix("A")
        text += str(unicodedata.digit(character)) if "DIGIT" in kind else signs.get(sound, sound)
    return text.lower()
