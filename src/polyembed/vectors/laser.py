"""Download and read the public files of LASER 1 and 2."""

import io
import os
import ssl
import tarfile
import tempfile
import urllib.request
import zlib
from http.client import HTTPException
from pathlib import Path
from typing import Literal, NamedTuple

from polyembed._checks import check_choice, check_file, must, require

BASE_URL = "https://dl.fbaipublicfiles.com/"
RELEASES = {
    "laser1": ("laser/models", "bilstm.93langs.2018-12-26.pt", "93langs.fcodes", "93langs.fvocab"),
    "laser2": ("nllb/laser", "laser2.pt", "laser2.spm", "laser2.cvocab"),
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
) -> LaserFiles:
    """Return the public files of a LASER encoder, fetched where the cache lacks them.

    Args:
        version: ``"laser1"`` (93 languages, byte pairs) or ``"laser2"`` (the same languages,
            SentencePiece).
        cache_dir: The folder of downloaded files; if None, ``~/.cache/laser_encoders``, as in the
            laser_encoders package.

    Returns:
        The paths of the files.

    Raises:
        FileNotFoundError: If a file is missing and cannot be fetched.
        ValueError: If `version` is neither of the two.
    """
    check_choice("version", version, RELEASES)
    folder = Path(cache_dir or Path.home() / ".cache" / "laser_encoders")
    place, *names = RELEASES[version]
    return LaserFiles(*(fetch(f"{BASE_URL}{place}/{name}", folder / name) for name in names))


def read_merges(path: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """Read a file of byte-pair merges in fastBPE's format: two pieces and a count per line.

    Args:
        path: The file.

    Returns:
        The pairs in the order of merging.

    Raises:
        FileNotFoundError: If `path` is not a file.
        ValueError: If the file has another format, such as the formats of subword-nmt and
            transformers, which have no counts.
    """
    return [(first, second) for first, second in _read_counted(path, 2)]


def read_pieces(path: str | os.PathLike[str]) -> list[str]:
    """Read a file of pieces in the format of fastBPE and fairseq: a piece and a count per line.

    Args:
        path: The file.

    Returns:
        The pieces in the file's order; `PieceDictionary.from_pieces` gives them fairseq's ids.

    Raises:
        FileNotFoundError: If `path` is not a file.
        ValueError: If the file has another format.
    """
    return [piece for (piece,) in _read_counted(path, 1)]


def _read_counted(path: str | os.PathLike[str], num_pieces: int) -> list[list[str]]:
    """Read lines of pieces and a count, separated by single spaces."""
    try:
        text = check_file(path).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ValueError(must(str(path), "be text in UTF-8", error)) from error
    rows = []
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        *pieces, count = line.split(" ")
        good = len(pieces) == num_pieces and all(pieces) and count.isdecimal()
        rule = f"hold {num_pieces} piece(s) and a count, as fastBPE writes them"
        require(good, f"{path}, line {number},", rule, repr(line[:80]))
        rows.append(pieces)
    return rows


TIMEOUT = 60  # seconds without an answer


def fetch(url: str, path: Path) -> Path:
    """Download a file, or the only file of a .tar.gz, to `path` unless `path` exists.

    A failed download leaves no partial file.

    Args:
        url: The address.
        path: The file to write.

    Returns:
        `path`.

    Raises:
        FileNotFoundError: If the file cannot be fetched.
    """
    if path.exists():
        return path
    try:
        context = ssl.create_default_context()
        with urllib.request.urlopen(url, timeout=TIMEOUT, context=context) as response:
            content = response.read()  # raises IncompleteRead where the answer is cut off
        if url.endswith(".tar.gz"):
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                files = [tar.extractfile(member) for member in tar if member.isfile()]
                if len(files) != 1 or files[0] is None:
                    raise tarfile.ReadError(f"{len(files)} files in the archive instead of one")
                content = files[0].read()
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".download-") as folder:
            draft = Path(folder, path.name)
            draft.write_bytes(content)
            draft.replace(path)
    except (OSError, EOFError, HTTPException, tarfile.TarError, zlib.error) as error:
        got = f"neither ({error}). Fetch {url} by other means, and put it (unpacked) at {path}"
        raise FileNotFoundError(must(path.name, "be there or within reach", got)) from error
    return path
