"""The notebooks as files, and outside their folder; `make docs` runs every cell in a kernel."""

from pathlib import Path

import matplotlib
import nbformat
import pytest
from matplotlib import pyplot as plt

matplotlib.use("Agg")
ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples" / "notebooks"
NAMES = [
    "1_meta_embeddings", "2_crf", "3_metaxl", "4_layer_fusion", "5_laser", "6_alignment",
    "7_few_labels",
]  # fmt: skip


def read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=nbformat.NO_CONVERT)


def code(name: str) -> str:
    return "\n\n".join(cell.source for cell in read(name).cells if cell.cell_type == "code")


def test_all_of_them_are_here_and_in_the_documentation():
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES
    page = (ROOT / "docs" / "notebooks" / "index.md").read_text("utf-8")
    for name in NAMES:
        assert f"\n{name}: " in page
        assert f"\n{name}\n" in page


@pytest.mark.parametrize("name", NAMES)
def test_they_are_valid_and_stripped(name: str):
    book = read(name)
    assert (book.nbformat, book.nbformat_minor) == (4, 5)
    nbformat.validate(book)
    ids = [cell.id for cell in book.cells]
    assert len(set(ids)) == len(ids)
    for cell in book.cells:
        assert not cell.metadata
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
    assert set(book.metadata) == {"kernelspec", "language_info"}
    assert set(book.metadata.language_info) == {"name"}


def test_one_runs_in_another_folder_and_leaves_nothing_there(tmp_path, monkeypatch):
    """The notebook runs as a script with warnings as errors, and removes the files it writes."""
    monkeypatch.chdir(tmp_path)
    before = sorted(FOLDER.iterdir())
    exec(compile(code("6_alignment"), "6_alignment", "exec"), {"__name__": "__main__"})
    assert plt.get_fignums()
    assert list(tmp_path.iterdir()) == []
    assert sorted(FOLDER.iterdir()) == before
