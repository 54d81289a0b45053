"""Words, sub-words and characters side by side."""

import pytest
import torch
from toys import toy_table

import polyembed as pe

IDS = torch.tensor([[2, 3, 0], [10, 1, 2]])


def test_lays_its_parts_side_by_side() -> None:
    words, subwords, characters = (toy_table(dim, 11) for dim in (2, 3, 5))
    hme = pe.HierarchicalMetaEmbedding(words=words, subwords=subwords, characters=characters)
    assert hme.embedding_dim == 10
    assert torch.equal(hme(IDS), torch.cat([words(IDS), subwords(IDS), characters(IDS)], dim=-1))


def test_a_place_may_stay_empty() -> None:
    characters, words = toy_table(5, 11), toy_table(2, 11)
    hme = pe.HierarchicalMetaEmbedding(characters=characters, words=words)
    assert hme.subwords is None
    assert hme.words.weight is words.weight
    assert hme.characters.weight is characters.weight
    assert torch.equal(hme(IDS), torch.cat([words(IDS), characters(IDS)], dim=-1))
    with pytest.raises(ValueError, match=r"^embedders must hold at least one embedder, got none$"):
        pe.HierarchicalMetaEmbedding()


def test_parts_keep_their_places_when_saved(tmp_path) -> None:
    hme = pe.HierarchicalMetaEmbedding(characters=toy_table(5, 11), subwords=toy_table(3, 11))
    hme.save_pretrained(tmp_path)
    loaded = pe.HierarchicalMetaEmbedding.from_pretrained(tmp_path)
    assert loaded.parts == ("subwords", "characters")
    assert torch.equal(loaded(IDS), hme(IDS))
