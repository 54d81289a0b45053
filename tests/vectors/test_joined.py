"""Several sources as one: the source that answers for a word, saving and loading."""

from pathlib import Path

import numpy as np
import pytest
import torch
from checks import refused
from toys import SENTENCES, ToyVectors

import polyembed as pe
from polyembed.vectors import (
    FastTextVectors,
    JoinedVectors,
    OrthogonalMapping,
    TextVectors,
)


class Known:
    """A source with one vector for all known words, and zeros for other words."""

    dim = 2

    def __init__(self, number: int, *words: str) -> None:
        self.number, self.known = number, words

    def vectors(self, words: list[str]) -> np.ndarray:
        row = [self.number, 1]
        return np.float32([row if word in self.known else [0, 0] for word in words])


class Speller(Known):
    """A source that spells every word, but has a vocabulary."""

    @property
    def words(self) -> list[str]:
        return list(self.known)

    def __contains__(self, word: object) -> bool:
        return word in self.known

    def vectors(self, words: list[str]) -> np.ndarray:
        return np.float32([[self.number] * 2 for _ in words])


def test_the_first_that_knows_a_word_answers():
    joined = JoinedVectors([Known(1, "a", "both"), Known(2, "both", "b"), Known(3, "b", "c", "a")])
    rows = joined.vectors(["c", "a", "both", "b", "a", "nobody"])
    assert rows[:, 0].tolist() == [3, 1, 1, 2, 1, 0]
    assert (rows.dtype, joined.vectors([]).shape) == (np.float32, (0, 2))


def test_a_vocabulary_goes_before_spelling():
    """Sources with a word in their vocabulary precede sources that could only spell the word."""
    joined = JoinedVectors([Speller(1, "a"), Speller(2, "b", "a"), Known(3, "c"), Speller(0, "d")])
    words = ["a", "b", "c", "d", "new"]
    assert joined.vectors(iter(words))[:, 0].tolist() == [1, 2, 3, 0, 1]
    assert joined.words == ["a", "b", "d"]
    assert [word in joined for word in [*words, 5]] == [True] * 4 + [False] * 2


@pytest.mark.parametrize(
    ("sources", "error", "message"),
    [
        ([], ValueError, "sources must hold at least one source, got none"),
        ([Known(1), ToyVectors(3)], ValueError, r"sources must have .* length, got \[2, 3\]"),
        ([Known(1), "es.bin"], TypeError, r"sources must have dim and vectors.*, got str"),
    ],
)
def test_what_cannot_be_joined_is_refused(sources, error: type[Exception], message: str):
    refused(error, f"^{message}$", JoinedVectors, sources)


def test_real_files_and_their_way_to_a_folder(tmp_path: Path):
    """The sources are a mapped fastText model and a text file."""
    es = FastTextVectors.train(SENTENCES * 20, tmp_path / "es.bin", dim=5, min_count=1, bucket=100)
    (tmp_path / "en.vec").write_text("that 1 2 3 4 5\nonly 5 4 3 2 1\n")
    mapping = OrthogonalMapping(torch.linalg.qr(torch.randn(5, 5)).Q)
    joined = JoinedVectors([mapping(es), TextVectors(tmp_path / "en.vec"), mapping.inverse()(es)])
    words = ["song", "only", "that", "songs"]
    rows = joined.vectors(words)
    np.testing.assert_array_equal(rows[[0, 2, 3]], mapping(es).vectors(["song", "that", "songs"]))
    assert rows[1].tolist() == [5, 4, 3, 2, 1]
    pe.SourceEmbedding(joined, pe.Lexicon(["song"])).save_pretrained(tmp_path / "saved")
    for name in ("es.bin", "en.vec"):
        (tmp_path / name).unlink()
    assert len(list((tmp_path / "saved").glob("*.bin"))) == 1, "one model mapped twice is one file"
    for _ in range(2):  # a folder that is saved over itself keeps the files in use
        again = pe.SourceEmbedding.from_pretrained(tmp_path / "saved")
        again.save_pretrained(tmp_path / "saved")
    found = again.with_words(words)(torch.arange(2, 6)).detach().numpy()
    np.testing.assert_allclose(found, rows, atol=1e-7)
