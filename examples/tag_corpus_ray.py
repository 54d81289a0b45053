r"""Tag a corpus that is larger than memory, on many workers: parquet in, parquet out, with Ray
Data.

    python examples/tag_corpus_ray.py --tagger FOLDER --input corpus --output tagged \
        [--workers 8] [--address auto]

The corpus is a folder of parquet files, or one file; a column holds each sentence's words (a list
of strings, or a string that is split at spaces). Every row group is one task, and becomes one file
with the same rows and a column ``tags``. A worker opens the tagger once (`bake` its embedder first:
the table is then mapped from the file, and workers on one machine share it). It reads some thousand
rows of a row group at a time, and moves the finished file into its place in one step. If a worker
dies, another one repeats its task, and no row is lost or doubled. The same command continues an
interrupted run. The memory that is needed does not depend on the size of the corpus.

Paths may be any that pyarrow opens, such as ``s3://bucket/folder``; workers on other machines must
see them too.
"""

import argparse
import hashlib
import json
import resource
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

ROWS = 2048
RUN, DRAFT = "_run.json", ".part"


class Task(NamedTuple):
    """A row group of a file, and the file that it becomes."""

    path: str
    group: int
    rows: int
    target: str


class Folder:
    """A local or remote folder."""

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/") if "://" in uri else str(Path(uri).resolve())
        self.files, path = fs.FileSystem.from_uri(self.uri)
        self.path = path.rstrip("/")

    def parquet_files(self) -> list[str]:
        """List the parquet files here and in folders below; the path of a file is that file."""
        if self.files.get_file_info(self.path).type == fs.FileType.File:
            return [self.path]
        found = self.files.get_file_info(
            fs.FileSelector(self.path, recursive=True, allow_not_found=True)
        )
        return sorted(
            info.path for info in found if info.is_file and info.path.endswith(".parquet")
        )

    def remove_drafts(self) -> None:
        """Remove the unfinished files of killed workers."""
        for info in self.files.get_file_info(fs.FileSelector(self.path, recursive=True)):
            if info.is_file and info.path.endswith(DRAFT):
                self.files.delete_file(info.path)

    def exists(self, path: str) -> bool:
        """Check whether a file exists."""
        return bool(self.files.get_file_info(path).is_file)


def list_tasks(source: Folder, target: Folder) -> list[Task]:
    """Return a task for each row group; the path below the folder is kept in the target's name."""
    tasks = []
    for path in source.parquet_files():
        below = path.removeprefix(source.path).strip("/") or Path(path).name
        with source.files.open_input_file(path) as file:
            metadata = pq.read_metadata(file)
        for group in range(metadata.num_row_groups):
            name = f"{target.path}/{below.removesuffix('.parquet')}.{group:05}.parquet"
            tasks.append(Task(path, group, metadata.row_group(group).num_rows, name))
    return tasks


def read_words(column: pa.ChunkedArray | pa.Array) -> Iterator[list[str]]:
    """Yield each row's words: an empty list for a null row, an empty string for a null word."""
    split = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    for value in column.to_pylist():
        yield [] if value is None else value.split() if split else [word or "" for word in value]


class Worker:
    """A worker that tags row groups with its own tagger."""

    def __init__(
        self, tagger: str, source: str, target: str, column: str, batch_size: int, threads: int
    ) -> None:
        import torch

        import polyembed as pe

        torch.set_num_threads(threads)
        self.tagger = pe.SequenceTagger.from_pretrained(tagger)
        self.source, self.target = Folder(source), Folder(target)
        self.column, self.batch_size = column, batch_size

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Do the tasks of a batch.

        Return their numbers of rows, and the most memory that this worker has used, in MB.
        """
        rows = [
            self.tag(Task(*values))
            for values in zip(*(batch[name].tolist() for name in Task._fields), strict=True)
        ]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        return {"rows": rows, "peak_mb": [peak] * len(rows)}

    def tag(self, task: Task) -> int:
        """Tag one row group; skip it if a worker that died has already written its file."""
        if self.target.exists(task.target):
            return task.rows
        draft = f"{task.target}.{uuid.uuid4().hex}{DRAFT}"
        self.target.files.create_dir(task.target.rpartition("/")[0], recursive=True)
        count = 0
        with self.source.files.open_input_file(task.path) as file:
            parquet = pq.ParquetFile(file)
            schema = parquet.schema_arrow.append(pa.field("tags", pa.list_(pa.string())))
            with (
                self.target.files.open_output_stream(draft) as out,
                pq.ParquetWriter(out, schema) as writer,
            ):
                for rows in parquet.iter_batches(ROWS, row_groups=[task.group]):
                    words = list(read_words(rows.column(self.column)))
                    tags = pa.array(
                        self.tagger.predict(words, batch_size=self.batch_size),
                        pa.list_(pa.string()),
                    )
                    writer.write_batch(pa.record_batch([*rows.columns, tags], schema=schema))
                    count += len(rows)
        self.target.files.move(draft, task.target)
        return count


def check_column(source: Folder, column: str) -> None:
    """Exit if the corpus has no file, or a file has no column of sentences or has one of tags."""
    files = source.parquet_files()
    if not files:
        raise SystemExit(f"--input must hold parquet files, got none in {source.path}")
    for path in files:
        with source.files.open_input_file(path) as file:
            try:
                schema = pq.read_schema(file)
            except pa.ArrowInvalid as error:
                raise SystemExit(f"{path} must be a parquet file, got: {error}") from error
        kind = schema.field(column).type if column in schema.names else None
        listed = kind is not None and (pa.types.is_list(kind) or pa.types.is_large_list(kind))
        text = kind.value_type if listed else kind
        if text is None or not (pa.types.is_string(text) or pa.types.is_large_string(text)):
            rule = f"a column {column!r} of strings or of lists of strings"
            raise SystemExit(f"{path} must have {rule}, got {kind or ', '.join(schema.names)}")
        if "tags" in schema.names:
            raise SystemExit(f"{path} must have no column 'tags' yet")


def claim(target: Folder, tagger: str, column: str) -> None:
    """Record the tagger and the column of this folder; exit if it has another tagger or column."""
    config = Path(tagger) / "config.json"
    if not config.exists():
        raise SystemExit(f"--tagger must be a folder of save_pretrained, got {tagger}")
    digest = hashlib.sha256(config.read_bytes()).hexdigest()  # it has the digest of every file
    run = {"tagger": digest, "column": column}
    path = f"{target.path}/{RUN}"
    target.files.create_dir(target.path, recursive=True)
    if target.exists(path):
        with target.files.open_input_stream(path) as file:
            if json.loads(file.read()) != run:
                raise SystemExit(
                    f"--output must be empty, or of the same tagger and column, got {target.path}"
                )
    with target.files.open_output_stream(path) as file:
        file.write(json.dumps(run, indent=1).encode())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tagger", required=True, help="a folder that save_pretrained wrote")
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--column", default="words")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="the number of threads of a worker")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument(
        "--address",
        help="the address of a running cluster (auto: the cluster of this machine); if missing, a "
        "new one is started",
    )
    arguments = parser.parse_args()
    source, target = Folder(arguments.input), Folder(arguments.output)
    if f"{target.uri}/".startswith(
        f"{source.uri}/"
    ):  # a second call would read the output as part of the corpus
        raise SystemExit(f"--output must not be in --input, got {target.uri}")
    check_column(source, arguments.column)
    claim(target, arguments.tagger, arguments.column)
    tasks = list_tasks(source, target)
    waiting = [task for task in tasks if not target.exists(task.target)]
    done = sum(task.rows for task in tasks) - sum(task.rows for task in waiting)
    print(
        f"{len(tasks)} row groups, {len(tasks) - len(waiting)} of them ({done:,} sentences) tagged before",
        flush=True,
    )
    if not waiting:
        return
    target.remove_drafts()
    try:
        import ray
    except ImportError:
        sys.exit("Ray is missing: pip install '.[ray]'")
    cores, blocks = arguments.workers * arguments.threads, min(len(waiting), 16 * arguments.workers)
    options = (
        {"address": arguments.address}
        if arguments.address
        else {"num_cpus": cores, "include_dashboard": False}
    )
    ray.init(log_to_driver=False, **options)
    ray.data.DataContext.get_current().enable_progress_bars = sys.stderr.isatty()
    made = ray.data.from_items(
        [task._asdict() for task in waiting], override_num_blocks=blocks
    ).map_batches(
        Worker,
        fn_constructor_args=(
            str(Path(arguments.tagger).resolve()),
            source.uri,
            target.uri,
            arguments.column,
            arguments.batch_size,
            arguments.threads,
        ),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=arguments.workers),
        num_cpus=arguments.threads,
    )
    rows = peak = 0
    for result in made.iter_rows():
        rows, peak = rows + result["rows"], max(peak, result["peak_mb"])
    print(f"{rows:,} sentences tagged; the largest worker had {peak:,} MB at most")
    ray.shutdown()


if __name__ == "__main__":
    main()
