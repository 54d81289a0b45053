"""Downloads that leave a whole file or none."""

import io
import ssl
import tarfile
import tempfile
import urllib.request
import zlib
from http.client import HTTPException
from pathlib import Path

TIMEOUT = 60  # seconds without an answer
DOWNLOAD_ERRORS = (OSError, EOFError, HTTPException, tarfile.TarError, zlib.error)


def download(url: str, path: Path) -> None:
    """Download a file, or the only file of a .tar.gz, so that `path` is whole or absent.

    Args:
        url: The address.
        path: The file to write.
    """
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
