"""The documentation in a browser: no page scrolls sideways on a phone or on a screen.

Needs a site (`make docs`) and a Chromium (`apt-get install chromium-headless-shell`, or any other);
without either the tests skip.
"""

import functools
import html
import http.server
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "docs"
PAGES = (
    "index",
    "choose",
    "meta_embeddings",
    "results/tagging",
    "notebooks/1_meta_embeddings",
    "notebooks/index",
    "api/crf",
)
WIDTHS = (360, 800, 1300)
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
FRAMES = """<!doctype html><body style="margin: 0; white-space: nowrap"><script>
const found = [];
let left = {count};
for (const [page, width] of {frames}) {{
  const frame = document.createElement("iframe");
  frame.style = `border: 0; height: 1500px; width: ${{width}}px`;
  frame.onload = () => {{
    const root = frame.contentDocument.documentElement;
    const inside = frame.contentDocument.querySelector(".content");  // scrolls by itself on a phone
    const over = inside.scrollWidth - inside.clientWidth;
    found.push({{page, width, wide: root.scrollWidth + over}});
    if (--left === 0) document.body.dataset.found = JSON.stringify(found);
  }};
  frame.src = `site/${{page}}.html`;
  document.body.append(frame);
}}
</script>"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def browser() -> str:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium on this machine")
    if not (SITE / "index.html").exists():
        pytest.skip("no site: `make docs` builds it")
    return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Serve a folder with the site in it, because only frames of one origin may be measured."""
    folder = tmp_path_factory.mktemp("frames")
    (folder / "site").symlink_to(SITE, target_is_directory=True)
    handler = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_no_page_scrolls_sideways(browser: str, served: tuple[str, Path], tmp_path: Path):
    address, folder = served
    frames = [(page, width) for width in WIDTHS for page in PAGES]
    page = FRAMES.format(count=len(frames), frames=json.dumps(frames))
    (folder / "frames.html").write_text(page, "utf-8")
    size = f"{sum(width for _, width in frames)},1500"
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={tmp_path}",
    ]
    options += [f"--window-size={size}", "--virtual-time-budget=20000", "--dump-dom"]
    command = [browser, *options, f"{address}/frames.html"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr
    match = re.search(r'data-found="([^"]*)"', done.stdout)
    assert match is not None, "a page did not load"
    found = json.loads(html.unescape(match[1]))
    assert {(one["page"], one["width"]) for one in found} == set(frames)
    assert [one for one in found if one["wide"] > one["width"]] == []


def test_the_gallery_has_the_last_picture_of_each_notebook():
    page = SITE / "notebooks" / "index.html"
    if not page.exists():
        pytest.skip("no site: `make docs` builds it")
    cards = re.findall(
        r'href="(\w+)\.html"><img alt="[^"]*" src="([^"]+)"', page.read_text("utf-8")
    )
    names = sorted(path.stem for path in (ROOT / "examples" / "notebooks").glob("*.ipynb"))
    assert [name for name, _ in cards] == names
    for name, picture in cards:
        assert (page.parent / picture).is_file()
        notebook = (page.parent / f"{name}.html").read_text("utf-8")
        assert re.findall(r'src="([^"]+\.png)"', notebook)[-1] == picture
