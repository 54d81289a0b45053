"""Draw docs/_static/quality.svg, the README's chart, from docs/results.
`python docs/draw_quality.py`.

One file serves both themes: the colour of its text follows the reader's.
"""

import hashlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATH = HERE / "_static" / "quality.svg"
sys.path.insert(0, str(HERE / "_ext"))

import results  # noqa: E402

STYLE = "<style>svg { color: #222 } @media (prefers-color-scheme: dark) { svg { color: #ddd } }</style>"


def source() -> Path:
    """Return the file that the chart is drawn from."""
    return results.FOLDER / "build_tagger.json"


def mark() -> str:
    """Return a comment with the checksum of the picture's data."""
    return (
        f"<!-- {source().name} {hashlib.sha256(source().read_bytes()).hexdigest()} -->"
    )


def main() -> None:
    """Draw the chart."""
    data = results.load(source())
    svg = results.draw(data["charts"]["quality code-switched"], data["tables"])
    head, _, rest = svg.partition(">")
    text = f"{head}>\n{mark()}\n{STYLE}{rest}"
    PATH.write_text(
        "\n".join(line.rstrip() for line in text.splitlines()) + "\n", "utf-8"
    )


if __name__ == "__main__":
    main()
