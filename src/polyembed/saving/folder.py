"""A saved folder: it is replaced and read as a whole, and consists of regular files.

A save fills the subfolder ``.polyembed-draft`` and renames it to ``.polyembed-saved``: from that
moment the new save counts. Its files then replace the folder's, the configuration last. Readers
look for each file in ``.polyembed-saved`` first, so they find the old save or the new one wherever
a process was killed; the next save removes a draft that was left, and finishes an exchange that was
interrupted. Files reach the disk before they are renamed, and the folder after, so that a power cut
leaves the old save or the new one where the disk keeps its promises.
"""

import errno
import hashlib
import json
import os
import shutil
import stat
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from polyembed._checks import check_file, must, require

CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"
CARD_NAME = "README.md"
DRAFT = ".polyembed-draft"
SAVED = ".polyembed-saved"
READS = 20  # how often to read a folder that is saved meanwhile

Result = TypeVar("Result")


def save_folder(folder: Path, write: Callable[[Path], set[Path]]) -> None:
    """Replace all files of an earlier save by the files that `write` makes, or none.

    Args:
        folder: The folder; made if missing. Files that no save has written stay.
        write: Fills an empty folder, and returns files that are in use and must stay.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / DRAFT
    with _locked(folder):
        try:
            _exchange(folder, keep=set())
            _remove(draft)
            draft.mkdir()
            keep = write(draft)
            for path in draft.iterdir():
                place = folder / path.name
                free = place.is_symlink() or not place.is_dir()
                require(
                    free,
                    str(place),
                    "not be a folder: a file of this name is to be saved",
                    "a folder",
                )
                sync(path)
            sync(draft)
            draft.rename(folder / SAVED)
        except BaseException:
            _remove(draft)
            with suppress(OSError):  # another file is in one of them
                for path in made:
                    path.rmdir()
            raise
        sync(folder)  # from here on, the new save survives a power cut
        for path in made:
            sync(path.parent)
        _exchange(folder, keep=keep)


def read_folder(folder: Path, read: Callable[[], Result]) -> Result:
    """Return what `read` makes of a folder; it is called again if a save has changed the folder meanwhile."""
    for attempt in range(READS):
        with _locked(folder, shared=True) if attempt else nullcontext():
            before = _state(folder)
            try:
                result, failed = read(), None
            except (OSError, ValueError) as error:
                failed = error
            # without a lock, files may be on their way out of ".polyembed-saved"
            settled = _state(folder) == before and (
                attempt > 0 or before is None or before[0] != SAVED
            )
        if settled and failed is None:
            return result
        if settled and failed is not None:
            raise failed
        time.sleep(0.001)
    raise ValueError(
        must(
            str(folder),
            "stay the same while it is read",
            f"another save during each of {READS} reads",
        )
    )


def own_file(folder: Path, file: object, *, name: str) -> Path:
    """Return the path of a regular file of `folder` itself; `name` is for the message.

    A link is followed into the folder, or into the blobs of a hub's cache, where snapshots are
    links; nowhere else. A device or a named pipe is not a regular file: reading it could block.
    """
    where = f"{folder / CONFIG_NAME}: files.{name}"
    require(_is_file_name(file), where, "be a plain file name", repr(file)[:300])
    saved = folder / SAVED / str(file)
    path = saved if os.path.lexists(saved) else folder / str(file)
    if not path.is_symlink() and path.exists() and not path.is_dir():
        require(path.is_file(), str(path), "be a regular file", "a device or a pipe")
    path = check_file(path, name=name)
    target, home = path.resolve(), folder.resolve()
    homes = [
        home,
        home / SAVED,
        *([home.parent.parent / "blobs"] if home.parent.name == "snapshots" else []),
    ]
    require(target.is_file(), str(path), "be a regular file", "a device or a pipe")
    require(
        target.parent in homes, str(path), "be a file of the folder itself", f"a link to {target}"
    )
    return path


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, which is read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(folder: Path, checksums: Mapping[str, Any]) -> None:
    """Check that every file is the one that was saved; only the card may be edited."""
    digest = cache(checksum)  # links to one file are read once
    for name, saved in checksums.items():
        path = None if name == CARD_NAME else own_file(folder, name, name="folder")
        found = saved if path is None else digest(path.resolve())
        advice = "It is damaged or was changed: fetch or copy it again."
        require(
            found == saved,
            str(path),
            f"have the SHA-256 {saved!r} of {CONFIG_NAME}",
            f"{found!r}. {advice}",
        )


def sync(path: Path) -> None:
    """Write a file, or the names in a folder, through to the disk, where the system can."""
    if path.is_symlink() or not (
        path.is_file() or (path.is_dir() and os.name != "nt")
    ):  # Windows opens no folder
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if path.is_file() or error.errno not in (
            errno.EINVAL,
            errno.ENOTSUP,
        ):  # folders of some file systems
            raise
    finally:
        os.close(handle)


def try_lock(file: BinaryIO) -> bool:
    """Return whether this process now holds the lock of a file; True on systems without such locks."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def usual_mode(path: Path) -> Iterator[Path]:
    """Give a file the permissions of other new files; safetensors lets only the owner read its files."""
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    yield path
    path.chmod(mode)


def _exchange(folder: Path, *, keep: set[Path]) -> None:
    """Move the files of a finished save into place, the configuration last, and remove the files of the save before."""
    saved = folder / SAVED
    if saved.is_symlink() or not saved.is_dir():
        _remove(saved)
        return
    config = saved / CONFIG_NAME
    for path in saved.iterdir():
        if path != config and not path.is_dir():
            path.replace(folder / path.name)
    if config.is_file():
        stays = _checksums(saved)
        for name, digest in _checksums(folder).items():
            if name not in stays and _is_file_name(name) and (folder / name).resolve() not in keep:
                _remove_saved(folder / name, digest)
        sync(folder)  # the files are in place before the configuration that counts
        config.replace(folder / CONFIG_NAME)
        sync(folder)
    _remove(saved)


def _remove_saved(path: Path, digest: object) -> None:
    """Remove a file of an earlier save, unless it was changed since."""
    if path.is_symlink() or not path.is_file():
        return
    if checksum(path) == digest:
        path.unlink()
    elif path.name == CARD_NAME:
        warnings.warn(
            f"{path} was edited and describes an earlier model: pass card= to replace it",
            stacklevel=6,
        )


def _checksums(folder: Path) -> dict[str, Any]:
    """Return the checksums that a folder's configuration lists; none if it cannot be read."""
    path = folder / CONFIG_NAME
    try:
        found = (
            json.loads(path.read_text("utf-8", "surrogatepass"))["checksums"]
            if path.is_file()
            else {}
        )
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_file_name(file: object) -> bool:
    try:
        return (
            isinstance(file, str)
            and Path(file).name == file
            and "\0" not in file
            and len(os.fsencode(file)) < 256
        )
    except UnicodeEncodeError:
        return False


def _state(folder: Path) -> tuple[str, int, int] | None:
    """Return what changes with every save: which file is the configuration."""
    for place in (folder / SAVED, folder):
        with suppress(OSError):
            found = (place / CONFIG_NAME).stat()
            return place.name, found.st_ino, found.st_mtime_ns
    return None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _locked(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Lock a folder against other saves, where the system can; the lock of a process ends with it."""
    try:
        import fcntl
    except ImportError:  # Windows: two processes must not save into one folder at once
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)  # a forked child may still have the handle
        os.close(handle)
