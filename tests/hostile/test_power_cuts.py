"""A save and a checkpoint reach the disk in the right order, so that a power cut leaves the old or the new."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from toys import toy_table

from polyembed.training.runs import Run

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no names of open files")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, str]]:
    """Record what is synchronised and renamed, by paths under `tmp_path`; nothing changes."""
    found: list[tuple[str, str]] = []

    def short(path: object) -> str:
        return str(Path(os.fsdecode(path)).relative_to(tmp_path))  # type: ignore[arg-type]

    fsync = os.fsync

    def record_fsync(handle: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file"
        found.append((f"fsync {kind}", short(os.readlink(f"/proc/self/fd/{handle}"))))
        fsync(handle)

    def recorder(rename: Callable[[object, object], None]) -> Callable[[object, object], None]:
        def record(source: object, target: object) -> None:
            rename(source, target)
            found.append(("rename", short(target)))

        return record

    monkeypatch.setattr(os, "fsync", record_fsync)
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, recorder(getattr(os, name)))
    return found


def save(folder: Path, number: float) -> None:
    table = toy_table(3)
    with torch.no_grad():
        table.weight.fill_(number)
    table.save_pretrained(folder)


def test_a_save(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    save(tmp_path / "saved", 1.0)
    files = {path.name for path in (tmp_path / "saved").iterdir()}
    first = calls.index(("rename", "saved/.polyembed-saved"))
    assert {call for call in calls[:first] if call[0] != "rename"} == {
        *(("fsync file", f"saved/.polyembed-draft/{name}") for name in files),
        ("fsync folder", "saved/.polyembed-draft"),
    }
    assert calls[first - 1] == ("fsync folder", "saved/.polyembed-draft"), "names, after contents"
    assert calls[first + 1 : first + 3] == [("fsync folder", "saved"), ("fsync folder", ".")]
    assert set(calls[first + 3 : -3]) == {
        ("rename", f"saved/{name}") for name in files - {"config.json"}
    }
    assert calls[-3:] == [
        ("fsync folder", "saved"),
        ("rename", "saved/config.json"),
        ("fsync folder", "saved"),
    ]


def test_a_checkpoint(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    with Run(tmp_path / "run", {"seed": 0}) as run:
        run.save({"weight": torch.ones(2)})
        run.finish({"weight": torch.zeros(2)})
    one = [
        ("fsync file", "run/checkpoint.draft"),
        ("rename", "run/checkpoint.pt"),
        ("fsync folder", "run"),
    ]
    assert calls == [*one, *one]


def test_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not on the disk is not saved: the old save stays, and the caller learns of it."""
    save(tmp_path / "saved", 1.0)
    before = {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()}

    def fail(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        save(tmp_path / "saved", 2.0)
    assert {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()} == before
