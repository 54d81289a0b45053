"""Tagging a corpus on a cluster of two workers: every row once, also where a worker is killed."""

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from toys import SENTENCES, TAGS, toy_lexicon

import polyembed as pe

pa = pytest.importorskip("pyarrow", reason="pip install polyembed[ray]")
pytest.importorskip("ray", reason="pip install polyembed[ray]")
pq = pytest.importorskip("pyarrow.parquet")

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "tag_corpus_ray.py"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    lexicon = toy_lexicon()
    characters = pe.SpelledEmbedding.from_characters(lexicon, pe.CharCNN(lexicon.num_characters, 5))
    folder = tmp_path_factory.mktemp("tagger")
    pe.SequenceTagger(pe.bake(characters), TAGS).save_pretrained(folder)
    return folder


def write_corpus(
    folder: Path, *, files: int, rows: int, row_group: int, texts: bool = False
) -> list[list[str]]:
    """Write sentences of words that are all unseen and different, and give them."""
    folder.mkdir()
    sentences = [[f"w{i}", *SENTENCES[i % len(SENTENCES)]] for i in range(files * rows)]
    for number in range(files):
        part = range(number * rows, (number + 1) * rows)
        words = [" ".join(sentences[i]) if texts else sentences[i] for i in part]
        below = folder / f"part{number % 2}"
        below.mkdir(exist_ok=True)
        table = pa.table({"id": list(part), "words": words})
        pq.write_table(table, below / f"{number}.parquet", row_group_size=row_group)
    return sentences


def command(tagger: Path, corpus: Path, tagged: Path, *options: object) -> list[str]:
    arguments = ["--tagger", tagger, "--input", corpus, "--output", tagged, *options]
    return [sys.executable, str(EXAMPLE), *map(str, arguments)]


def run(*arguments: object) -> str:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read(folder: Path) -> dict[int, tuple[list[str], list[str]]]:
    """Give words and tags by id; an id that stands twice is an error."""
    found = {}
    for path in sorted(folder.rglob("*.parquet")):
        for row in pq.ParquetFile(path).read().to_pylist():
            assert row["id"] not in found
            found[row["id"]] = (row["words"], row["tags"])
    return found


def workers() -> Iterator[int]:
    """Give the processes of Ray's workers that tag."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::MapWorker"):
                yield int(path.parent.name)
        except OSError:
            continue


def test_a_killed_worker_loses_and_doubles_nothing(tagger: Path, tmp_path: Path) -> None:
    sentences = write_corpus(tmp_path / "corpus", files=4, rows=3000, row_group=250)
    (tmp_path / "tagged").mkdir()
    (tmp_path / "tagged" / "old.part").touch()
    arguments = (tagger, tmp_path / "corpus", tmp_path / "tagged")
    with subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as job:
        end = time.monotonic() + 120
        while (
            job.poll() is None
            and time.monotonic() < end
            and not list((tmp_path / "tagged").rglob("*.parquet"))
        ):
            time.sleep(0.02)
        os.kill(next(workers()), signal.SIGKILL)
        printed = job.communicate(timeout=240)[0]
    assert job.returncode == 0, printed
    found = read(tmp_path / "tagged")
    assert sorted(found) == list(range(len(sentences)))
    assert not list((tmp_path / "tagged").rglob("old.part"))
    expected = pe.SequenceTagger.from_pretrained(tagger).predict(sentences)
    assert [found[i] for i in range(len(sentences))] == list(zip(sentences, expected, strict=True))

    assert "48 of them (12,000 sentences) tagged before" in run(*arguments)  # nothing is left to do
    lost = sorted((tmp_path / "tagged").rglob("*.parquet"))[5]
    times = {
        path: path.stat().st_mtime_ns
        for path in (tmp_path / "tagged").rglob("*.parquet")
        if path != lost
    }
    lost.unlink()
    assert "250 sentences tagged" in run(*arguments)
    assert all(path.stat().st_mtime_ns == before for path, before in times.items())
    assert read(tmp_path / "tagged") == found


def test_memory_does_not_grow_with_the_corpus(tagger: Path, tmp_path: Path) -> None:
    peaks = []
    for name, files in (("small", 1), ("large", 10)):
        write_corpus(tmp_path / name, files=files, rows=4000, row_group=1000, texts=True)
        printed = run(tagger, tmp_path / name, tmp_path / f"{name} tagged")
        assert f"{4000 * files:,} sentences tagged" in printed
        peaks.append(int(printed.split("had ")[1].split(" MB")[0].replace(",", "")))
    assert peaks[1] < 1.1 * peaks[0]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda folder: [path.unlink() for path in folder.rglob("*.parquet")],
            "must hold parquet files, got none",
        ),
        (
            lambda folder: pq.write_table(pa.table({"words": [[1]]}), folder / "x.parquet"),
            "must have a column 'words' of strings or of lists of strings, got list<",
        ),
        (
            lambda folder: pq.write_table(
                pa.table({"words": ["a"], "tags": ["b"]}), folder / "x.parquet"
            ),
            "must have no column 'tags' yet",
        ),
        (
            lambda folder: (folder / "x.parquet").write_bytes(b"PAR?"),
            "x.parquet must be a parquet file, got: ",
        ),
    ],
)
def test_a_strange_corpus_is_refused(tagger: Path, tmp_path: Path, spoil, message: str) -> None:
    write_corpus(tmp_path / "corpus", files=1, rows=3, row_group=3)
    spoil(tmp_path / "corpus")
    done = subprocess.run(
        command(tagger, tmp_path / "corpus", tmp_path / "tagged"), capture_output=True, text=True
    )
    assert done.returncode == 1
    assert message in done.stderr


def test_the_output_is_not_in_the_corpus(tagger: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", files=1, rows=3, row_group=3)
    tagged = (tmp_path / "corpus" / "tagged").resolve()
    done = subprocess.run(
        command(tagger, tmp_path / "corpus", tagged), capture_output=True, text=True
    )
    assert f"--output must not be in --input, got {tagged}" in done.stderr
    assert not list((tmp_path / "corpus").rglob("_run.json"))


def test_rows_and_words_without_a_value(
    tagger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker, without a cluster."""
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    example = importlib.import_module(EXAMPLE.stem)
    rows = [["me", None, "gusta"], None, [], ["song"]]
    (tmp_path / "corpus").mkdir()
    table = pa.table({"id": range(len(rows)), "words": pa.array(rows, pa.list_(pa.string()))})
    pq.write_table(table, tmp_path / "corpus" / "x.parquet")
    worker = example.Worker(
        str(tagger), str(tmp_path / "corpus"), str(tmp_path / "tagged"), "words", 2, 1
    )
    (task,) = example.list_tasks(worker.source, worker.target)
    assert worker.tag(task) == len(rows)
    found = read(tmp_path / "tagged")
    assert [found[i][0] for i in range(len(rows))] == rows
    assert [len(found[i][1]) for i in range(len(rows))] == [3, 0, 0, 1]


def test_a_folder_is_of_one_tagger(tagger: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", files=1, rows=3, row_group=3)
    (tmp_path / "tagged").mkdir()
    (tmp_path / "tagged" / "_run.json").write_text('{"tagger": {}, "column": "words"}')
    arguments = command(tagger, tmp_path / "corpus", tmp_path / "tagged")
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert "--output must be empty, or of the same tagger and column" in done.stderr
    done = subprocess.run([*arguments, "--tagger", str(tmp_path)], capture_output=True, text=True)
    assert "--tagger must be a folder of save_pretrained" in done.stderr
