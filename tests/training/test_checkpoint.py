from pathlib import Path
from typing import Any

import pytest
import torch

from polyembed.training._checkpoint import check_tensors, read, write

CPU = torch.device("cpu")


def count(state: dict[str, Any]) -> int:
    return int(state["count"])


def test_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.pt"
    for number in (1, 2):
        write(path, {"seed": 3}, {"count": number})
        assert read(path, {"seed": 3}, CPU, count) == number
    assert [file.name for file in path.parent.iterdir()] == ["run.pt"]


def test_other_runs(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    write(path, {"seed": 3, "old": 1}, {"count": 1})
    rule = r"run.pt must come from this run \(remove it to start anew\), got other "
    with pytest.raises(ValueError, match=rule + r"\['seed', 'old'\]$"):
        read(path, {"seed": 4}, CPU, count)
    with pytest.raises(ValueError, match=rule + r"\['new', 'old'\]$"):
        read(path, {"seed": 3, "new": 1}, CPU, count)


def test_damage(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    write(path, {}, {"number": 1})
    with pytest.raises(ValueError, match=r"run.pt must be a whole checkpoint, got KeyError: 'count'$"):
        read(path, {}, CPU, count)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ValueError, match=r"run.pt must be a whole checkpoint, got "):
        read(path, {}, CPU, count)
    check_tensors(path, ["a", "b"], {"a": 1, "b": 2})
    with pytest.raises(ValueError, match=r"run.pt must be a whole checkpoint, got the tensors \['a'\]$"):
        check_tensors(path, ["a", "b"], {"a": 1, "b": 2}, {"a": 1})
