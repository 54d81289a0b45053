"""The checkpoint file of a training run."""

import numpy as np
from checks import refused

from polyembed.training import load_checkpoint, save_checkpoint


def test_another_training_and_a_damaged_file_are_refused(tmp_path):
    """Numbers of NumPy, which an optimiser may have, become Python numbers."""
    path = tmp_path / "run.pt"
    save_checkpoint(path, {"rates": [np.float64(0.5)]}, seed=np.int64(0), rows=3)
    assert load_checkpoint(path, seed=0, rows=3) == {"rates": [0.5]}
    message = r"run\.pt must be a checkpoint of this training, got seed 0 in place of 1, rows 3 in "
    refused(ValueError, message, load_checkpoint, path, seed=1)
    path.write_bytes(path.read_bytes()[:100])
    refused(
        ValueError,
        r"run\.pt must be a checkpoint, got .*to start anew$",
        load_checkpoint,
        path,
        seed=0,
        rows=3,
    )
