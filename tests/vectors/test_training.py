"""Training sub-word pieces: a model and vectors that open, and nothing half-written."""

import os
from pathlib import Path

import numpy as np
import pytest

from polyembed.vectors import BPEmbVectors

CORPUS = [["me", "gusta", "that", "song"], ["no", "puedo", "open", "the", "door", "42"]] * 20


def test_trained_pieces_open_and_spell(tmp_path: Path) -> None:
    trained = BPEmbVectors.train(CORPUS, tmp_path / "pieces", vocab_size=40, dim=7)
    assert (trained.num_pieces, trained.dim) == (40, 7)
    assert "".join(trained.pieces("gusta")) == "▁gusta"
    assert trained.pieces("GUSTA 17")[-1] == trained.pieces("42")[-1], "lower-cased, digits are 0"
    assert np.abs(trained.vectors(["gusta", "doors"])).sum(1).all()
    assert sorted(os.listdir(tmp_path / "pieces")) == ["pieces.model", "pieces.vec"]
    cased = BPEmbVectors.train(
        CORPUS, tmp_path / "cased", vocab_size=40, dim=3, epochs=1, preprocess=False
    )
    assert cased.piece_ids(["Gusta"]) != cased.piece_ids(["gusta"])


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"sentences must hold at least one word, got none"):
        BPEmbVectors.train([[], [""]], tmp_path / "pieces")
    with pytest.raises(
        ValueError, match=r"vocab_size must leave room for the corpus's characters, got 3 \("
    ):
        BPEmbVectors.train(CORPUS, tmp_path / "pieces", vocab_size=3)
    assert not (tmp_path / "pieces").exists()
