"""The public files of LASER 1 and 2: fetched once, checked at every use, read."""

import hashlib
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from polyembed._checks import check_choice, check_file, must, require
from polyembed.text.piece_dictionary import PieceDictionary
from polyembed.vectors._download import DOWNLOAD_ERRORS, download

RELEASES = {
    "laser1": (
        "https://dl.fbaipublicfiles.com/laser/models/",
        ("bilstm.93langs.2018-12-26.pt", "93langs.fcodes", "93langs.fvocab"),
    ),
    "laser2": ("https://dl.fbaipublicfiles.com/nllb/laser/", ("laser2.pt", "laser2.spm", "laser2.cvocab")),
}


class LaserFiles(NamedTuple):
    """The files of one release.

    Attributes:
        checkpoint: The encoder's weights, sizes and dictionary.
        pieces: What cuts words: fastBPE's merges (LASER 1), a SentencePiece model (LASER 2).
        vocabulary: The pieces and how often each stood in the training text.
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
    """Give the public files of a LASER encoder, fetched where the cache lacks them.

    Their authors publish no checksums. So each file's SHA-256 is written down beside it when it arrives, and every
    later call checks it again; give `sha256` to hold the files to sums that you know.

    Args:
        version: ``"laser1"`` (93 languages, byte pairs) or ``"laser2"`` (the same languages, SentencePiece).
        cache_dir: Where downloads are kept; ``~/.cache/laser_encoders``, as the laser_encoders package has it, if None.
        sha256: File name -> checksum in hexadecimal; may name some of the files only.

    Returns:
        The paths.

    Raises:
        FileNotFoundError: A file is missing and cannot be fetched.
        ValueError: Another release, a file whose checksum is another one.
    """
    check_choice("version", version, RELEASES)
    folder = Path(cache_dir) if cache_dir is not None else Path.home() / ".cache" / "laser_encoders"
    base, names = RELEASES[version]
    given = dict(sha256 or {})
    foreign = sorted(set(given) - set(names))
    require(not foreign, "sha256", f"name files of {version} ({', '.join(names)})", foreign)
    for name in names:
        path = folder / name
        if not path.exists():
            try:
                download(base + name, path, check=partial(_take, note=_note(path), expected=given.get(name)))
            except DOWNLOAD_ERRORS as error:
                urls = ", ".join(base + other for other in names)
                advice = f"Fetch {urls} by other means, and put them into {folder}"
                raise FileNotFoundError(must(str(path), "be there or within reach", f"{error}. {advice}")) from error
        elif name in given:
            _check_sum(path, name=name, expected=given[name])
        elif _note(path).exists():
            expected = _note(path).read_text().strip()
            _check_sum(path, name=name, expected=expected, also=f" and {_note(path).name}")
    return LaserFiles(*(folder / name for name in names))


def read_merges(path: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """Read a file of byte-pair merges in fastBPE's format: two pieces and a count a line.

    Args:
        path: The file.

    Returns:
        The pairs in the order of merging.

    Raises:
        FileNotFoundError: No such file.
        ValueError: Another format: that of subword-nmt or of transformers, for one, which have no counts.
    """
    merges = []
    for number, line in enumerate(_lines(path), start=1):
        fields = line.split(" ")
        sound = len(fields) == 3 and all(fields) and fields[2].isdecimal()
        require(sound, f"{path}, line {number},", "be two pieces and a count, as fastBPE writes them", repr(line[:80]))
        merges.append((fields[0], fields[1]))
    require(len(merges) > 0, str(path), "hold merges", "none")
    return merges


def read_pieces(path: str | os.PathLike[str]) -> list[str]:
    """Read a file of pieces in the format that fastBPE and fairseq share: a piece and a count a line.

    Args:
        path: The file.

    Returns:
        The pieces in the file's order; `PieceDictionary.from_pieces` gives them fairseq's ids.

    Raises:
        FileNotFoundError: No such file.
        ValueError: Another format.
    """
    pieces = []
    for number, line in enumerate(_lines(path), start=1):
        piece, _, count = line.rpartition(" ")
        sound = bool(piece) and count.isdecimal()
        require(sound, f"{path}, line {number},", "be a piece and a count", repr(line[:80]))
        pieces.append(piece)
    require(len(pieces) > 0, str(path), "hold pieces", "none")
    return pieces


def read_piece_dictionary(path: str | os.PathLike[str]) -> PieceDictionary:
    """Read a dictionary of fairseq's, such as ``laser2.cvocab``.

    Args:
        path: The file.

    Returns:
        The dictionary: the special pieces, then the file's.
    """
    return PieceDictionary.from_pieces(read_pieces(path))


def _lines(path: str | os.PathLike[str]) -> list[str]:
    try:
        text = check_file(path).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ValueError(must(str(path), "be text in UTF-8", error)) from error
    return text.removesuffix("\n").split("\n") if text else []  # no other separator ends a line here


def _note(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _take(path: Path, *, note: Path, expected: str | None) -> None:
    """Check a file that arrived, and write its sum down whole before the file is where others look for it."""
    if expected is not None:
        _check_sum(path, name=note.stem, expected=expected)
    draft = path.with_name(note.name)
    draft.write_text(_sum(path) + "\n")
    draft.replace(note)


def _check_sum(path: Path, *, name: str, expected: str, also: str = "") -> None:
    found = _sum(path)
    rule = f"have the SHA-256 {expected.lower()} (remove the file{also} to fetch it anew)"
    require(found == expected.lower(), name, rule, found)
