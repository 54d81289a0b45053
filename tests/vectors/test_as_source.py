"""Vectors of other packages as sources."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from toys import ToyVectors, own_words

from polyembed import Lexicon, SourceEmbedding
from polyembed.vectors import JoinedVectors, WordVectors, as_source

ROWS = {"me": [1.0, 2.0], "song": [3.0, 4.0]}


class Keyed:
    """What is used of gensim's ``KeyedVectors``: its ``vectors`` is a table, and it has no ``dim``."""

    vector_size = 2
    key_to_index: ClassVar[dict[str, int]] = {"me": 0, "song": 1}
    vectors = np.array(list(ROWS.values()), np.float32)

    def get_vector(self, word: str) -> np.ndarray:
        return self.vectors[self.key_to_index[word]]


def gensim_vectors() -> object:
    keyed = pytest.importorskip("gensim").models.KeyedVectors(2)
    keyed.add_vectors(list(ROWS), list(ROWS.values()))
    return keyed


@pytest.mark.parametrize("build", [Keyed, gensim_vectors])
def test_keyed_vectors_are_a_source(build) -> None:
    source = as_source(build())
    assert isinstance(source, WordVectors)
    assert (source.dim, source.words) == (2, ["me", "song"])
    assert source.vectors(["song", "gusta", "me", ""]).tolist() == [[3, 4], [0, 0], [1, 2], [0, 0]]
    assert source.vectors([]).shape == (0, 2)
    assert source.vectors(["me"]).dtype == np.float32
    assert ["me" in source, "gusta" in source, 0 in source] == [True, False, False]
    assert JoinedVectors([build(), ToyVectors(2)]).vectors(["me", "gusta"]).all()
    embedder = SourceEmbedding(build(), Lexicon(["me", "gusta"]))
    assert embedder(torch.tensor([2, 3])).tolist() == [[1, 2], [0, 0]]
    with pytest.raises(TypeError, match="words must be a sequence of words, got the string 'me'"):
        source.vectors("me")


@own_words
def test_what_is_no_source() -> None:
    toy = ToyVectors(3)
    assert as_source(toy) is toy
    for value in ({"me": [1.0]}, np.zeros((2, 3)), "cc.es.300.bin", None):
        with pytest.raises(
            TypeError,
            match=rf"^target must have dim and vectors\(words\), got {type(value).__name__}$",
        ):
            as_source(value, name="target")
