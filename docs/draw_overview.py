"""Draw docs/_static/overview.svg: a code-switched sentence through the library.
`python docs/draw_overview.py`.

Text is on coloured boxes, and lines are of a middle grey, so that one picture serves both themes.
"""

from pathlib import Path

ES, EN, PART, CONTEXT, TAG, GREY = (
    "#b4531f",
    "#2764a8",
    "#5b5f6b",
    "#7a3f8f",
    "#2f7a4f",
    "#7d828c",
)
WORDS = (
    ("me", ES, "PRON"),
    ("gusta", ES, "VERB"),
    ("that", EN, "DET"),
    ("song", EN, "NOUN"),
)
SOURCES = (
    ("Spanish vectors", ES),
    ("English vectors", EN),
    ("pieces, characters", PART),
    ("pretrained layer", CONTEXT),
)
STEPS = (
    (322, ("meta-", "embedding"), ("one vector", "for each word")),
    (474, ("sequence", "encoder"), ("words in", "context")),
    (626, ("CRF",), ("the best", "sequence")),
)
TOP, ROW, HEIGHT = 20, 56, 40


def box(x: int, y: int, width: int, height: int, color: str) -> str:
    """A rounded box."""
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="7" fill="{color}"/>'


def text(
    x: float,
    y: float,
    content: str,
    *,
    size: int = 15,
    weight: int = 600,
    color: str = "#fff",
) -> str:
    """A line of text, centred."""
    style = f'font-size="{size}" font-weight="{weight}" fill="{color}"'
    return f'<text x="{x:g}" y="{y:g}" {style} text-anchor="middle">{content}</text>'


def line(x: int, y: float, to_x: int, to_y: float) -> str:
    """A curve from one box to the next."""
    return f'<path d="M{x} {y:g} C{(x + to_x) // 2} {y:g} {(x + to_x) // 2} {to_y:g} {to_x} {to_y:g}"/>'


def draw() -> str:
    """The whole picture."""
    rows = [TOP + ROW * i for i in range(len(WORDS))]
    middle, bottom = rows[0] + (rows[-1] + HEIGHT - rows[0]) / 2, rows[-1] + HEIGHT
    lines, shapes = [], []
    for y, (word, color, tag), (source, source_color) in zip(
        rows, WORDS, SOURCES, strict=True
    ):
        shapes += [box(10, y, 88, HEIGHT, color), text(54, y + 25, word)]
        shapes += [
            box(144, y, 138, HEIGHT, source_color),
            text(213, y + 25, source, size=13),
        ]
        shapes += [box(772, y, 78, HEIGHT, TAG), text(811, y + 25, tag)]
        lines += [line(98, y + HEIGHT / 2, 144, other + HEIGHT / 2) for other in rows]
        lines += [
            line(282, y + HEIGHT / 2, 322, middle),
            line(738, middle, 772, y + HEIGHT / 2),
        ]
    for x, names, notes in STEPS:
        shapes.append(box(x, rows[0], 112, bottom - rows[0], PART))
        start = middle - 10 - 10 * len(names)
        shapes += [
            text(x + 56, start + 20 * i, name, size=16) for i, name in enumerate(names)
        ]
        shapes += [
            text(x + 56, middle + 26 + 18 * i, note, size=13, weight=400)
            for i, note in enumerate(notes)
        ]
    lines += [line(434, middle, 474, middle), line(586, middle, 626, middle)]
    note = "the first three depend on the word, the last on its sentence"
    lines.append(f'<path d="M144 {bottom + 12} v8 H586 v-8"/>')
    shapes.append(text(365, bottom + 40, note, size=14, weight=400, color=GREY))
    shapes.append(
        text(
            738,
            bottom + 40,
            "or softmax, votes, labels",
            size=14,
            weight=400,
            color=GREY,
        )
    )
    title = "A Spanish-English sentence becomes vectors of several sources, one vector a word, words in context, tags."
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 {bottom + 56}" role="img" aria-label="{title}"'
            ' font-family="system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif">',
            f"<title>{title}</title>",
            f'<g fill="none" stroke="{GREY}" stroke-width="1.4" stroke-opacity="0.75">',
            *lines,
            "</g>",
            *shapes,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    Path(__file__).with_name("_static").joinpath("overview.svg").write_text(
        draw(), "utf-8"
    )
