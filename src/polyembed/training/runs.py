"""One resumable run: a folder whose checkpoint is whole, undamaged and of this run, or an error."""

import contextlib
import hashlib
import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, Self

import torch

from polyembed._checks import class_name
from polyembed._fingerprint import MARK, checksum, sync, try_lock

CHECKPOINT_NAME = "checkpoint.pt"
LOCK_NAME = "lock"
FORMAT_VERSION = 2
CONTENTS = {"fingerprint", "finished", "state"}
DIGEST_SIZE = hashlib.sha256().digest_size
ANEW = "remove the file to start anew"


class Run:
    """The state of a training on disk, so that it can be killed anywhere and go on to the same
    numbers.

    ``folder/checkpoint.pt`` holds the last saved state, the fingerprint and whether the run is
    finished, followed by a SHA-256 digest of these bytes. It is replaced as a whole, so a kill or a
    power cut leaves the state before or after. While the run is open, a lock of the operating
    system excludes other processes; it ends with the process.

    Args:
        folder: Where the state is saved; None disables saving.
        fingerprint: Whatever changes the numbers, by name. Strings and numbers are stored
            unchanged, all other values (data, models, optimisers, functions) as a `checksum`.
        writes: Whether this process locks the folder and saves. Of several processes with one run,
            one does.

    Attributes:
        fingerprint: The strings, numbers and checksums that are stored.
        finished: Whether the state that was loaded or saved last is final.

    Raises:
        RuntimeError: On entering, if another process has the folder open.
        OSError: On entering or saving, if the folder cannot be written to.
        ValueError: On loading, if the checkpoint is damaged or of another run.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     for _ in range(2):  # the second time, all is done
        ...         with Run(folder, {"seed": 0, "data": ["me", "gusta"]}) as run:
        ...             state = run.load() or {"epoch": 0}
        ...             for epoch in range(state["epoch"], 3):
        ...                 run.save({"epoch": epoch + 1})
        ...             print(state)
        {'epoch': 0}
        {'epoch': 3}
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        fingerprint: Mapping[str, Any],
        *,
        writes: bool = True,
    ) -> None:
        # absolute, so that it stays true if the working folder changes
        self.folder = None if folder is None else Path(folder).absolute()
        self.fingerprint = {name: _stored(value) for name, value in fingerprint.items()}
        self.writes = writes
        self.finished = False
        self._lock: BinaryIO | None = None

    @property
    def path(self) -> Path | None:
        """The checkpoint file; None without a folder."""
        return None if self.folder is None else self.folder / CHECKPOINT_NAME

    def __enter__(self) -> Self:
        if self.folder is not None and self.writes:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._lock = (self.folder / LOCK_NAME).open("ab")
            except OSError as error:
                raise type(error)(
                    f"{self.folder} must be a folder that can be written to: {error}"
                ) from error
            if not try_lock(self._lock):
                self._lock.close()
                rule = "must be used by one process at a time, and another process trains in it now"
                raise RuntimeError(f"{self.folder} {rule} (wait for it or choose another folder)")
        return self

    def __exit__(self, *error: object) -> None:
        if self._lock is not None:
            self._lock.close()  # releases the lock

    def load(self) -> dict[str, Any] | None:
        """Return the state that was saved last, its tensors on the CPU; None before the first."""
        path = self.path
        if path is None or not path.exists():
            return None
        content = read_checkpoint(path)
        differs = differences(content["fingerprint"], self.fingerprint)
        if differs:
            raise ValueError(f"{path} must come from this run, got another one: {differs} ({ANEW})")
        self.finished = content["finished"]
        state: dict[str, Any] = content["state"]
        return state

    def save(self, state: Mapping[str, Any]) -> None:
        """Replace the checkpoint by a state of tensors and plain values."""
        self._write(state, finished=False)

    def finish(self, state: Mapping[str, Any]) -> None:
        """Replace the checkpoint by the outcome: what a later call needs instead of training."""
        self._write(state, finished=True)

    def _write(self, state: Mapping[str, Any], *, finished: bool) -> None:
        self.finished = finished
        if self.path is None or not self.writes:
            return
        draft = self.path.with_suffix(".draft")
        content = {
            "format_version": FORMAT_VERSION,
            "fingerprint": self.fingerprint,
            "finished": finished,
            "state": dict(state),
        }
        try:
            torch.save(content, draft)
            with draft.open("r+b") as file:
                file.write(_digest(file, draft.stat().st_size))
                os.fsync(file.fileno())
        except (OSError, RuntimeError) as error:  # torch raises a RuntimeError for a full disk
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise OSError(
                f"{self.path} could not be written ({class_name(error)}: {error})"
            ) from error
        unknown = torch.serialization.get_unsafe_globals_in_checkpoint(draft)
        if unknown:
            draft.unlink()
            raise TypeError(
                f"the state of a run must hold tensors and plain values, got objects of {unknown}"
            )
        draft.replace(self.path)
        sync(self.path.parent)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a whole checkpoint file: its fingerprint, whether it is finished, and its state."""
    with path.open("rb") as file:
        size = path.stat().st_size - DIGEST_SIZE
        intact = size > 0 and _digest(file, size) == file.read()
        if not intact:
            rule = "must be a whole checkpoint, got a damaged file or one of another version"
            raise ValueError(f"{path} {rule} ({ANEW}, or restore it from a copy)")
        try:
            content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            if not set(content) >= CONTENTS:
                raise KeyError(*(CONTENTS - set(content)))
        except (
            Exception
        ) as error:  # torch raises many kinds; the digest of such a file is right by intent
            rule = "must hold tensors and plain values of a run"
            raise ValueError(f"{path} {rule}, got {class_name(error)}: {error} ({ANEW})") from error
        return content


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """Return the differences of two fingerprints in words; empty if they are equal."""
    found = []
    for name in {**ours, **theirs}:
        there, here = repr(theirs.get(name)), repr(ours.get(name))
        if there != here:
            found.append(
                f"other {name}" if MARK in there + here else f"{name} {there} in place of {here}"
            )
    return ", ".join(found)


def _stored(value: Any) -> str | int | float | bool | None:
    value = value.value if isinstance(value, Enum) else value
    return (
        value if value is None or isinstance(value, str | bool | int | float) else checksum(value)
    )


def _digest(file: BinaryIO, size: int) -> bytes:
    """Return the digest of the first bytes of a file, and leave the file at their end."""
    file.seek(0)
    digest = hashlib.sha256()
    while size > 0 and (chunk := file.read(min(size, 1 << 20))):
        digest.update(chunk)
        size -= len(chunk)
    return digest.digest()
