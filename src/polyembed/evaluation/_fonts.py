"""Fonts for words of any script."""

from collections.abc import Iterable
from typing import Any

from polyembed._checks import import_optional

WITHOUT_SHAPES = (
    "lastresort",
    "adobeblank",
)  # fonts that have a box or an empty glyph for every character


def font_families(texts: Iterable[str]) -> list[str]:
    """Return the font families in use, and few installed ones that have the glyphs that these lack.

    matplotlib draws each character in the first family that has it, and warns of a character that
    no family has.

    Args:
        texts: The texts of a picture.

    Returns:
        Names for matplotlib's ``fontfamily``.
    """
    manager = import_optional("matplotlib.font_manager", pip="matplotlib", feature="a picture")
    families = list(manager.FontProperties().get_family())
    lacking = set("".join(texts)) - {"\n"}
    lacking -= _glyphs(
        manager, manager.findfont(manager.FontProperties(family=families)), 0, lacking
    )
    if not lacking:
        return families
    faces = sorted(
        manager.fontManager.ttflist,
        key=lambda face: (face.style != "normal", abs(face.weight - 400)),
    )
    names = sorted(
        {face.name for face in faces}, key=lambda name: (not name.startswith("Noto Sans"), name)
    )
    names = [name for name in names if not name.replace(" ", "").lower().startswith(WITHOUT_SHAPES)]
    files = {face.name: (face.fname, face.index) for face in reversed(faces)}
    glyphs = {name: _glyphs(manager, *files[name], lacking) for name in names}
    while lacking and (best := max(names, key=lambda name: len(glyphs[name] & lacking))):
        if not glyphs[best] & lacking:
            break
        families.append(best)
        lacking -= glyphs[best]
    return families


def _glyphs(manager: Any, path: str, index: int, characters: set[str]) -> set[str]:
    """Return the characters that a font file has glyphs for."""
    try:
        font = manager.get_font(manager.FontPath(path, index))
    except (OSError, RuntimeError):  # a missing or broken file
        return set()
    return {character for character in characters if font.get_char_index(ord(character))}
