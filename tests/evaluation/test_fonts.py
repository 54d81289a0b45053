"""Any script in a picture: a font that has it is found, and nothing is drawn as a box in silence."""

from pathlib import Path

import matplotlib
import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager
from matplotlib import pyplot as plt

from polyembed.evaluation._fonts import font_families

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _only_the_fonts_of_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else the machine has would decide what these tests see."""
    own = [entry for entry in font_manager.fontManager.ttflist if "mpl-data" in entry.fname]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    monkeypatch.setattr(matplotlib, "rcParams", matplotlib.rcParams.copy())


def install(folder: Path, name: str, characters: str) -> None:
    """Make a font whose every letter is a full black square, and let matplotlib know it."""
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for corner in ((0, 1000), (1000, 1000), (1000, 0)):
        pen.lineTo(corner)
    pen.closePath()
    square, empty = pen.glyph(), TTGlyphPen(None).glyph()
    names = [f"u{ord(character):04X}" for character in characters]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", *names])
    builder.setupCharacterMap(
        {ord(character): glyph for character, glyph in zip(characters, names, strict=True)}
    )
    builder.setupGlyf({".notdef": empty, **dict.fromkeys(names, square)})
    builder.setupHorizontalMetrics(dict.fromkeys([".notdef", *names], (1000, 0)))
    builder.setupHorizontalHeader(ascent=1000, descent=0)
    builder.setupNameTable({"familyName": name, "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    path = folder / f"{name}.ttf"
    builder.save(path)
    font_manager.fontManager.addfont(path)


def draw(text: str, **style: object) -> np.ndarray:
    """Draw a text on white, and give its pixels, 0 = black."""
    figure = plt.figure(figsize=(3, 1), dpi=50)
    figure.text(0.1, 0.3, text, fontsize=30, **style)
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., 0]


def test_latin_cyrillic_and_arabic_need_nothing() -> None:
    texts = ["año", "two\nlines", "Straße", "мир", "مرحبا", ""]
    families = font_families(texts)
    assert families == ["sans-serif"]
    for text in texts:
        draw(text, fontfamily=families)


def test_a_font_that_has_the_glyphs_is_found_and_drawn(tmp_path: Path) -> None:
    install(tmp_path, "Squares of Devanagari", "कखग")
    families = font_families(["क", "song"])
    assert families == ["sans-serif", "Squares of Devanagari"]
    dark = draw("ककक", fontfamily=families) < 128
    rows, columns = dark.any(1), dark.any(0)
    assert dark[np.ix_(rows, columns)].mean() > 0.95  # its squares, filled; a box would be hollow
    assert columns.sum() > 2.5 * rows.sum()
    hollow = draw("OOO", fontfamily=families) < 128
    assert hollow[np.ix_(hollow.any(1), hollow.any(0))].mean() < 0.6


def test_few_fonts_and_noto_first(tmp_path: Path) -> None:
    install(tmp_path, "A Few", "कख")
    install(tmp_path, "Adobe Blank 3", "कखगघ中")
    install(tmp_path, "Many", "कखग")
    install(tmp_path, "More Han", "中文")
    install(tmp_path, "Noto Sans Han", "中文")
    assert font_families(["कखग", "中文", "क中"]) == ["sans-serif", "Many", "Noto Sans Han"]


def test_the_users_fonts_come_first(tmp_path: Path) -> None:
    install(tmp_path, "A Font", "ab")
    install(tmp_path, "Squares of Devanagari", "क")
    matplotlib.rcParams["font.family"] = ["A Font", "sans-serif"]
    assert font_families(["ab"]) == ["A Font", "sans-serif"]
    assert font_families(["abक"])[:2] == ["A Font", "sans-serif"]
    assert "Squares of Devanagari" in font_families(["abक"])


def test_a_font_file_that_is_gone_is_passed_over(tmp_path: Path) -> None:
    install(tmp_path, "Gone", "क")
    (tmp_path / "Gone.ttf").unlink()
    assert font_families(["क"]) == ["sans-serif"]
