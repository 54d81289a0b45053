"""Downloads that leave a whole file or none."""

import shutil
import ssl
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import IO

TIMEOUT = 60  # seconds without an answer
DOWNLOAD_ERRORS = (OSError, EOFError, HTTPException, tarfile.TarError, zlib.error)


def download(url: str, path: Path, *, check: Callable[[Path], None] | None = None) -> None:
    """Download a file, or the only file of a .tar.gz, so that `path` is whole or absent.

    Args:
        url: The address.
        path: The file to write.
        check: Called with the file before it is moved to `path`; if it raises, `path` stays absent.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".download-") as folder:
        fetched, unpacked = Path(folder, "fetched"), Path(folder, "unpacked")
        with urllib.request.urlopen(
            url, timeout=TIMEOUT, context=ssl.create_default_context()
        ) as response:
            length = response.headers.get("Content-Length")
            with fetched.open("wb") as file:
                shutil.copyfileobj(response, file)
        if length is not None and fetched.stat().st_size != int(length):
            raise ConnectionError(f"{url} ended after {fetched.stat().st_size} of {length} bytes")
        if url.endswith(".tar.gz"):
            with _only_member(fetched) as member, unpacked.open("wb") as file:
                shutil.copyfileobj(member, file)
            fetched = unpacked
        if check is not None:
            check(fetched)
        fetched.replace(path)


@contextmanager
def _only_member(archive: Path) -> Iterator[IO[bytes]]:
    """Open the one file of an archive; its name and folder do not matter."""
    with tarfile.open(archive) as tar:
        members = [member for member in tar if member.isfile()]
        member = tar.extractfile(members[0]) if len(members) == 1 else None
        if member is None:
            raise tarfile.ReadError(f"{len(members)} files in the archive instead of one")
        yield member
