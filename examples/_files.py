"""The caller's own files: options that name them, and checks of their content before training."""

import argparse
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyembed.data import MISSING_TAG, TaggedSentence, read_tagged

PARTS = ("train", "dev", "test")


def add_file_arguments(parser: argparse.ArgumentParser, instead: str) -> None:
    """Add options for the caller's own files, which replace the data of the example."""
    for part in PARTS:
        parser.add_argument(f"--{part}", type=Path, help=f"your own file, instead of {instead}")
    parser.add_argument(
        "--format",
        default="conll",
        help="the format of your files: one that `polyembed.data.read_tagged` knows",
    )
    parser.add_argument(
        "--format-option",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help="options of the reader of this format, such as task=ner_spaeng",
    )


def format_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the reader's options; numbers become ints, the numbers of columns."""
    options: dict[str, Any] = {}
    for option in arguments.format_option:
        name, equals, value = option.partition("=")
        if not equals:
            raise SystemExit(f"--format-option must be NAME=VALUE, got {option!r}")
        options[name] = int(value) if value.lstrip("-").isdigit() else value
    return options


def read_files(
    arguments: argparse.Namespace, *, needs_labels: bool
) -> dict[str, list[TaggedSentence]]:
    """Read the files that the caller named; exit if they cannot be used."""
    options = format_options(arguments)
    paths = {part: getattr(arguments, part) for part in PARTS if getattr(arguments, part)}
    try:
        parts = {
            part: read_tagged(path, arguments.format, **options) for part, path in paths.items()
        }
    except (
        OSError,
        TypeError,
        ValueError,
    ) as error:  # an error in the files: a traceback would not help
        raise SystemExit(str(error)) from error
    kinds = {part: kinds_of(sentences) for part, sentences in parts.items()}
    for part, sentences in parts.items():
        where = f"--{part} ({paths[part]})"
        spaced = [word for sentence in sentences for word in sentence.words if " " in word]
        if 2 * len(spaced) > sum(map(len, sentences)):
            raise SystemExit(
                f"{where} must have one word a line with its tag, not texts, got {spaced[0]!r}"
            )
        strange = next((tag for tag in sorted(kinds[part]) if " " in tag), None)
        if strange is not None:
            raise SystemExit(
                f"{where} must have tags without spaces, one word a line, got {strange!r}"
            )
        if not kinds[part] and (needs_labels or part != "test"):
            raise SystemExit(
                f"{where} must have labels, got none (tag_code_switched.py tags a test file without)"
            )
        known = kinds.get("train", kinds[part])
        unseen = sorted(kinds[part] - known)
        if unseen and 2 * len(unseen) > len(kinds[part]):
            raise SystemExit(f"{where} must have labels of --train, {sorted(known)}, got {unseen}")
        if unseen:
            count = sum(kind_of(tag) in unseen for tag in names_of(sentences))
            print(f"{where}: {count} words have labels that --train lacks, {unseen}: errors")
    return parts


def read_lines(path: Path) -> Iterator[str]:
    """Read the lines of a text, plain or ``.xz``."""
    with (
        lzma.open(path, "rt", encoding="utf-8")
        if path.suffix == ".xz"
        else path.open(encoding="utf-8") as lines
    ):
        try:
            yield from lines
        except (EOFError, lzma.LZMAError) as error:
            raise ValueError(f"{path} must be a whole .xz file, got {error}") from error


def read_all_files(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, data: Path | None
) -> list[list[TaggedSentence]]:
    """Read the caller's train, dev and test sentences; return an empty list if no file is named.

    Exit if only some of the files are named, or if no file is named and the data folder is missing.
    """
    given = [part for part in PARTS if getattr(arguments, part)]
    if given and len(given) < len(PARTS):
        parser.error("--train, --dev and --test must be given together")
    if not given and data is not None and not data.is_dir():
        parser.error(f"there must be real data at {data} (set POLYEMBED_DATA), or files of yours")
    return list(read_files(arguments, needs_labels=True).values())


def kinds_of(sentences: list[TaggedSentence]) -> set[str]:
    """Return the labels without the ``B-`` and ``I-`` of entities."""
    return {kind_of(tag) for tag in names_of(sentences)}


def names_of(sentences: list[TaggedSentence]) -> Iterator[str]:
    """Yield the names of all tags: every name of a set of tags, and no name for a missing tag."""
    for sentence in sentences:
        for tag in sentence.tags:
            yield from {*([tag] if isinstance(tag, str) else tag)} - {MISSING_TAG}


def kind_of(tag: str) -> str:
    """Return a label without ``B-`` or ``I-``."""
    return tag[2:] if tag.startswith(("B-", "I-")) else tag


def tags_of(*parts: list[TaggedSentence]) -> list[str]:
    """Return the tag set of all parts, sorted."""
    return sorted({tag for part in parts for tag in names_of(part)})
