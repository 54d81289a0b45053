"""The public files of LASER 1 and 2: fetched once, checked at every use, read."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from polyembed._checks import check_choice, check_file, must, require
from polyembed.vectors._download import DOWNLOAD_ERRORS, download

RELEASES = {
    "laser1": (
        "https://dl.fbaipublicfiles.com/laser/models/",
        ("bilstm.93langs.2018-12-26.pt", "93langs.fcodes", "93langs.fvocab"),
    ),
    "laser2": (
        "https://dl.fbaipublicfiles.com/nllb/laser/",
        ("laser2.pt", "laser2.spm", "laser2.cvocab"),
    ),
}


class LaserFiles(NamedTuple):
    """The files of one release.

    Attributes:
        checkpoint: The encoder's weights, sizes and dictionary.
        pieces: fastBPE's merges (LASER 1) or a SentencePiece model (LASER 2).
        vocabulary: The pieces and their frequencies in the training text.
    """

    checkpoint: Path
    pieces: Path
    vocabulary: Path


def fetch_laser(
    version: Literal["laser1", "laser2"] = "laser2",
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    sha256: Mapping[str, str] | None = None,
) -> LaserFiles:
    """Return the public files of a LASER encoder, fetched where the cache lacks them.

    The authors publish no checksums. Each file's SHA-256 is therefore written beside it when it is
    downloaded, and every later call checks it again. With `sha256` the files must have the sums
    that you know.

    Args:
        version: ``"laser1"`` (93 languages, byte pairs) or ``"laser2"`` (the same languages,
            SentencePiece).
        cache_dir: Where downloads are kept; ``~/.cache/laser_encoders``, as the laser_encoders
            package has it, if None.
        sha256: File name -> checksum in hexadecimal, for some or all files.

    Returns:
        The paths.

    Raises:
        FileNotFoundError: A file is missing and cannot be fetched.
        ValueError: Another release, or a file with another checksum.
    """
    check_choice("version", version, RELEASES)
    folder = Path(cache_dir) if cache_dir is not None else Path.home() / ".cache" / "laser_encoders"
    base, names = RELEASES[version]
    given = dict(sha256 or {})
    foreign = sorted(set(given) - set(names))
    require(not foreign, "sha256", f"name files of {version} ({', '.join(names)})", foreign)
    for name in names:
        path, note = folder / name, folder / f"{name}.sha256"
        if path.exists():
            if name in given:
                _check_sum(path, name, given[name])
            elif note.exists():
                _check_sum(path, name, note.read_text().strip(), f" and {note.name}")
            continue

        def check(fetched: Path, name: str = name, note: Path = note) -> None:
            if name in given:
                _check_sum(fetched, name, given[name])
            draft = fetched.with_name(note.name)
            draft.write_text(_sum(fetched) + "\n")
            draft.replace(note)  # whole, and before the file is at its place

        try:
            download(base + name, path, check=check)
        except DOWNLOAD_ERRORS as error:
            urls = ", ".join(base + other for other in names)
            advice = f"Fetch {urls} by other means, and put them into {folder}"
            raise FileNotFoundError(
                must(str(path), "be there or within reach", f"{error}. {advice}")
            ) from error
    return LaserFiles(*(folder / name for name in names))


def read_merges(path: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """Read a file of byte-pair merges in fastBPE's format: two pieces and a count a line.

    Args:
        path: The file.

    Returns:
        The pairs in the order of merging.

    Raises:
        FileNotFoundError: No such file.
        ValueError: Another format: the files of subword-nmt and of transformers, for example, have
            no counts.
    """
    merges = []
    for where, line in _lines(path, "merges"):
        fields = line.split(" ")
        sound = len(fields) == 3 and all(fields) and fields[2].isdecimal()
        require(sound, where, "be two pieces and a count, as fastBPE writes them", repr(line[:80]))
        merges.append((fields[0], fields[1]))
    return merges


def read_pieces(path: str | os.PathLike[str]) -> list[str]:
    """Read a file of pieces in the format that fastBPE and fairseq share: a piece and a count a
    line.

    Args:
        path: The file.

    Returns:
        The pieces in the file's order; `PieceDictionary.from_pieces` gives them fairseq's ids.

    Raises:
        FileNotFoundError: No such file.
        ValueError: Another format.
    """
    pieces = []
    for where, line in _lines(path, "pieces"):
        piece, _, count = line.rpartition(" ")
        require(bool(piece) and count.isdecimal(), where, "be a piece and a count", repr(line[:80]))
        pieces.append(piece)
    return pieces


def _lines(path: str | os.PathLike[str], content: str) -> Iterator[tuple[str, str]]:
    """Yield the place of each line, for errors, and the line."""
    try:
        text = check_file(path).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ValueError(must(str(path), "be text in UTF-8", error)) from error
    require(bool(text), str(path), f"hold {content}", "none")
    for number, line in enumerate(
        text.removesuffix("\n").split("\n"), 1
    ):  # no other separator ends a line here
        yield f"{path}, line {number},", line


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_sum(path: Path, name: str, expected: str, also: str = "") -> None:
    found = _sum(path)
    rule = f"have the SHA-256 {expected.lower()} (remove the file{also} to fetch it anew)"
    require(found == expected.lower(), name, rule, found)
