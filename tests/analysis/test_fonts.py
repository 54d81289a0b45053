"""Any script in a picture: a font that has it is found, and nothing is drawn as a box in silence."""

import warnings
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager
from matplotlib import pyplot as plt
from toys import own_words

from polyembed.analysis._fonts import legible

matplotlib.use("Agg")
NOTE = (
    r"^no installed font has glyphs of {}: written in Latin letters or as code points; the Noto Sans fonts have them$"
)


@pytest.fixture(autouse=True)
def _only_the_fonts_of_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else the machine has would decide what these tests see."""
    own = [entry for entry in font_manager.fontManager.ttflist if "mpl-data" in entry.fname]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    monkeypatch.setattr(matplotlib, "rcParams", matplotlib.rcParams.copy())
    yield
    plt.close("all")


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
    builder.setupCharacterMap({ord(character): glyph for character, glyph in zip(characters, names, strict=True)})
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


def test_what_matplotlib_does_by_itself() -> None:
    """The box that this is about: it warns of each glyph, which is an error in these tests."""
    with pytest.raises(UserWarning, match=r"^Glyph 2325 .* missing from font"):
        draw("क")


def test_latin_cyrillic_and_arabic_need_nothing() -> None:
    texts = ["año", "two\nlines", "Straße", "мир", "مرحبا", "a\u200bb", ""]
    written, style = legible(texts)
    assert written == {text: text for text in texts}
    assert style["fontfamily"] == ["DejaVu Sans"]
    for text in texts:
        draw(text, **style)


def test_a_font_that_has_the_glyphs_is_found_and_drawn(tmp_path: Path) -> None:
    install(tmp_path, "Squares of Devanagari", "कखग")
    written, style = legible(["क", "song"])
    assert written["क"] == "क"
    assert style["fontfamily"] == ["DejaVu Sans", "Squares of Devanagari"]
    dark = draw("ककक", **style) < 128
    rows, columns = dark.any(1), dark.any(0)
    assert dark[np.ix_(rows, columns)].mean() > 0.95  # its squares, filled; a box would be hollow
    assert columns.sum() > 2.5 * rows.sum()
    hollow = draw("OOO", **style) < 128
    assert hollow[np.ix_(hollow.any(1), hollow.any(0))].mean() < 0.6


def test_few_fonts_and_noto_first(tmp_path: Path) -> None:
    install(tmp_path, "A Few", "कख")
    install(tmp_path, "Adobe Blank 3", "कखगघ中")
    install(tmp_path, "Many", "कखग")
    install(tmp_path, "More Han", "中文")
    install(tmp_path, "Noto Sans Han", "中文")
    assert legible(["कखग", "中文", "क中"])[1]["fontfamily"] == ["DejaVu Sans", "Many", "Noto Sans Han"]


def test_the_users_fonts_come_first(tmp_path: Path) -> None:
    install(tmp_path, "A Font", "ab")
    matplotlib.rcParams["font.family"] = ["Nowhere", "A Font", "sans"]
    matplotlib.rcParams["font.sans-serif"] = ["Nowhere Sans", "DejaVu Sans"]
    assert legible(["ab"])[1]["fontfamily"] == ["A Font", "DejaVu Sans"]
    matplotlib.rcParams["font.family"] = ["Nowhere"]
    assert legible(["ab"])[1]["fontfamily"] == ["DejaVu Sans"]


@pytest.mark.parametrize(
    ("text", "written", "scripts"),
    [
        ("नहीं", "nahiin", "DEVANAGARI"),
        ("#नहीं!", "#nahiin!", "DEVANAGARI"),
        ("क्या१", "kyaa1", "DEVANAGARI"),
        ("中文ok", r"\u4e2d\u6587ok", "CJK"),
        ("ひ中", r"\u3072\u4e2d", "CJK, HIRAGANA"),
        ("\U0001fae0", r"\U0001fae0", "symbols"),
        ("\ud800", r"\ud800", "symbols"),
        ("a\tb", r"a\tb", "symbols"),
    ],
)
def test_without_a_font_it_is_written_otherwise_and_said_so(text: str, written: str, scripts: str) -> None:
    with pytest.warns(UserWarning, match=NOTE.format(scripts)) as notes:
        found, style = legible([text, text, "song"])
    assert len(notes) == 1
    assert found == {text: written, "song": "song"}
    draw(found[text], **style)  # no box: matplotlib warns of none


def test_marks_that_do_not_show_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joiners and marks of direction that no font has: no box, and nothing to tell."""
    monkeypatch.setattr("polyembed.analysis._fonts._glyphs", lambda families, characters: characters & set("ab"))
    assert legible(["a\u200db\ufe0f"])[0] == {"a\u200db\ufe0f": "ab"}


def test_dollars_are_dollars() -> None:
    """Two of them would make a formula of what stands between."""
    text = r"$AAPL$ \frac_{"
    written, style = legible([text])
    assert written[text] == text
    plain = draw(text, **style)
    with pytest.raises(ValueError, match="frac"):
        draw(r"$\frac_{$")
    assert (plain < 128).any()


def test_a_font_file_that_is_gone_is_passed_over(tmp_path: Path) -> None:
    install(tmp_path, "Gone", "क")
    (tmp_path / "Gone.ttf").unlink()
    with pytest.warns(UserWarning, match=NOTE.format("DEVANAGARI")):
        assert legible(["क"])[0] == {"क": "ka"}


@own_words
def test_a_note_is_shown_once_a_place() -> None:
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("default")

        def plot() -> None:
            legible(["中"])

        for _ in range(3):
            plot()
    assert len(notes) == 1
    assert notes[0].filename == __file__
