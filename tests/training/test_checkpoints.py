"""The file of a training that goes on."""

from pathlib import Path

import pytest
import torch

from polyembed.training import load_checkpoint, save_checkpoint


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.pt"
    assert load_checkpoint(path, seed=0) is None
    save_checkpoint(path, {"weights": torch.ones(2), "step": 3}, seed=0)
    save_checkpoint(path, {"weights": torch.zeros(2), "step": 4}, seed=0)
    found = load_checkpoint(path, seed=0)
    assert found is not None
    assert found["step"] == 4
    assert torch.equal(found["weights"], torch.zeros(2))
    assert [file.name for file in path.parent.iterdir()] == ["run.pt"]


def test_another_training_and_a_damaged_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    save_checkpoint(path, {"step": 1}, seed=0, rows=3)
    message = r"run\.pt must be a checkpoint of this training, got seed 0 in place of 1, rows 3 in "
    with pytest.raises(ValueError, match=message):
        load_checkpoint(path, seed=1)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"run\.pt must be a checkpoint, got .*to start anew$"):
        load_checkpoint(path, seed=0, rows=3)
