"""Tagging of a corpus on a cluster of two workers: each row once, even if a worker is killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from checks import refused
from toys import SENTENCES, TAGS, toy_lexicon

import polyembed as pe

pa = pytest.importorskip("pyarrow", reason="pip install polyembed[ray]")
pytest.importorskip("ray", reason="pip install polyembed[ray]")
pq = pytest.importorskip("pyarrow.parquet")
example = pytest.importorskip("tag_corpus_ray")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tagger(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    lexicon = toy_lexicon()
    characters = pe.SpelledEmbedding.from_characters(lexicon, pe.CharCNN(lexicon.num_characters, 5))
    folder = tmp_path_factory.mktemp("tagger")
    pe.SequenceTagger(pe.bake(characters), TAGS).save_pretrained(folder)
    return folder


@pytest.fixture
def options(tagger, tmp_path) -> dict[str, str]:
    folders = {"--input": tmp_path / "corpus", "--output": tmp_path / "tagged"}
    return {name: str(path) for name, path in {"--tagger": tagger, **folders}.items()}


def command(options: dict[str, str]) -> list[str]:
    return [example.__file__, *(part for option in options.items() for part in option)]


@pytest.fixture
def run(options, monkeypatch):
    """Return a function that calls the example's `main` in this process, without a cluster."""

    def run(**changes):
        given = options | {f"--{name}": value for name, value in changes.items()}
        monkeypatch.setattr(sys, "argv", command(given))
        example.main()

    return run


@pytest.fixture
def worker(options):
    return example.Worker(*options.values(), "words", 64, 1)


def write_corpus(folder: Path, *, files: int = 1, rows: int = 3, row_group: int = 3):
    """Write and return sentences that begin with different unseen words."""
    sentences = [[f"w{i}", *SENTENCES[i % len(SENTENCES)]] for i in range(files * rows)]
    for number in range(files):
        part = range(number * rows, (number + 1) * rows)
        below = folder / f"part{number % 2}"
        below.mkdir(parents=True, exist_ok=True)
        table = pa.table({"id": list(part), "words": [sentences[i] for i in part]})
        pq.write_table(table, below / f"{number}.parquet", row_group_size=row_group)
    return sentences


def read(folder: Path) -> dict[int, tuple[list[str], list[str]]]:
    """Return words and tags by id, and check that each id occurs once."""
    found = {}
    for path in sorted(folder.rglob("*.parquet")):
        for row in pq.ParquetFile(path).read().to_pylist():
            assert row["id"] not in found
            found[row["id"]] = (row["words"], row["tags"])
    return found


def workers() -> Iterator[int]:
    """Yield the ids of Ray's worker processes that tag."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::MapWorker"):
                yield int(path.parent.name)
        except OSError:
            continue


def test_a_killed_worker_loses_and_doubles_nothing(tagger, options, worker, run, capsys):
    """Rows that were tagged before are not tagged again."""
    corpus, tagged = Path(options["--input"]), Path(options["--output"])
    sentences = write_corpus(corpus, files=4, rows=2000, row_group=250)
    worker.tag(example.list_tasks(worker.source, worker.target)[5])
    (before,) = tagged.rglob("*.parquet")
    written = before.stat().st_mtime_ns
    (tagged / "old.part").touch()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen([sys.executable, *command(options)], **pipes) as job:
        end = time.monotonic() + 120
        while (
            job.poll() is None
            and time.monotonic() < end
            and len(list(tagged.rglob("*.parquet"))) < 2
        ):
            time.sleep(0.02)
        os.kill(next(workers()), signal.SIGKILL)
        printed = job.communicate(timeout=240)[0]
    assert job.returncode == 0, printed
    assert "32 row groups, 1 of them (250 sentences) tagged before" in printed
    assert "7,750 sentences tagged" in printed
    found = read(tagged)
    assert sorted(found) == list(range(len(sentences)))
    assert before.stat().st_mtime_ns == written
    assert not list(tagged.rglob("old.part"))
    expected = pe.SequenceTagger.from_pretrained(tagger).predict(sentences)
    assert [found[i] for i in range(len(sentences))] == list(zip(sentences, expected, strict=True))
    run()
    assert "32 of them (8,000 sentences) tagged before" in capsys.readouterr().out


def test_rows_and_words_without_a_value(options, worker):
    rows = [["me", None, "gusta"], None, [], ["song"]]
    Path(options["--input"]).mkdir()
    table = pa.table({"id": range(len(rows)), "words": pa.array(rows, pa.list_(pa.string()))})
    pq.write_table(table, Path(options["--input"]) / "x.parquet")
    (task,) = example.list_tasks(worker.source, worker.target)
    assert worker.tag(task) == len(rows)
    found = read(Path(options["--output"]))
    assert [found[i][0] for i in range(len(rows))] == rows
    assert [len(found[i][1]) for i in range(len(rows))] == [3, 0, 0, 1]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (None, "--input must hold parquet files, got none"),
        ({"words": [[1]]}, "a column 'words' of strings or of lists of strings, got list<"),
        ({"words": ["a"], "tags": ["b"]}, "must have no column 'tags' yet"),
    ],
)
def test_a_strange_corpus_is_refused(columns, message: str, options, run):
    path = Path(options["--input"]) / "x.parquet"
    path.parent.mkdir()
    if columns:
        pq.write_table(pa.table(columns), path)
    refused(SystemExit, message, run)


def test_folders_that_do_not_go_together_are_refused(options, run):
    write_corpus(Path(options["--input"]))
    refused(
        SystemExit,
        "--output must not be in --input, got ",
        run,
        output=f"{options['--input']}/tagged",
    )
    Path(options["--output"]).mkdir()
    (Path(options["--output"]) / "_run.json").write_text('{"tagger": {}, "column": "words"}')
    refused(SystemExit, "--output must be empty, or of the same tagger and column", run)
