"""What writes into a folder never writes through a link that it finds there."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from saving.folders import CORPUS, build_tagger

from polyembed.training import save_checkpoint
from polyembed.vectors import BPEmbVectors

WRITES: dict[str, Callable[[Path], object]] = {
    "module": lambda folder: build_tagger().save_pretrained(folder),
    "checkpoint": lambda folder: save_checkpoint(folder / "checkpoint.pt", {"x": torch.ones(1)}),
    "byte pairs": lambda folder: BPEmbVectors.train(CORPUS, folder, vocab_size=30, dim=5),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_no_link_is_followed(write: Callable[[Path], object], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    write(tmp_path / "first")
    names = [path.relative_to(tmp_path / "first") for path in (tmp_path / "first").rglob("*")]
    files = [name for name in names if (tmp_path / "first" / name).is_file()]
    for name in files:
        for known in (name, name.with_name(f"{name.name}.part")):
            place = tmp_path / "second" / known
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(secret)
    with contextlib.suppress(ValueError, OSError):  # refused is as good as replaced
        write(tmp_path / "second")
    assert secret.read_text() == "mine"
    assert not secret.is_symlink()
