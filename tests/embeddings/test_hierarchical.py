"""Words, sub-words and characters side by side."""

import torch
from checks import refused
from toys import toy_table

import polyembed as pe

IDS = torch.tensor([[2, 3, 0], [10, 1, 2]])


def test_a_place_may_stay_empty(tmp_path) -> None:
    characters, words = toy_table(5, 11), toy_table(2, 11)
    hme = pe.HierarchicalMetaEmbedding(characters=characters, words=words)
    assert hme.subwords is None
    assert hme.words.weight is words.weight
    assert hme.characters.weight is characters.weight
    assert torch.equal(hme(IDS), torch.cat([words(IDS), characters(IDS)], dim=-1))
    hme.save_pretrained(tmp_path)
    loaded = pe.HierarchicalMetaEmbedding.from_pretrained(tmp_path)
    assert loaded.parts == ("words", "characters")
    assert torch.equal(loaded(IDS), hme(IDS))
    refused(
        ValueError,
        r"^embedders must hold at least one embedder, got none$",
        pe.HierarchicalMetaEmbedding,
    )
