"""Rows of pretrained vectors."""

import tracemalloc

import numpy as np
import pytest
import torch
from checks import refused
from torch import nn
from toys import NEW_WORDS, WORDS, ToyVectors, toy_lexicon

import polyembed as pe


def test_rows_are_the_sources_and_special_rows_are_zero():
    lexicon, source = toy_lexicon(), ToyVectors(5)
    embedder = pe.SourceEmbedding(source, lexicon)
    assert embedder.weight[:2].eq(0).all()
    np.testing.assert_array_equal(embedder.weight[2:].detach().numpy(), source.vectors(WORDS))
    ids, _ = lexicon.encode([["song", "me"], ["nobody"]])
    assert torch.equal(embedder(ids), embedder.weight[ids])


class Numbers:
    """A source whose rows repeat the number that the word spells."""

    dim = 101

    def vectors(self, words: list[str]) -> np.ndarray:
        return np.array(words).astype(np.float32)[:, None].repeat(self.dim, axis=1)


def test_beside_a_large_table_there_is_no_second_one():
    lexicon = pe.Lexicon(map(str, range(70_000)))
    tracemalloc.start()
    try:
        embedder = pe.SourceEmbedding(Numbers(), lexicon)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert torch.equal(embedder.weight[2:, 3], torch.arange(70_000.0))
    assert embedder.weight[:2].eq(0).all()
    assert peak - held < 0.5 * held


def test_extending_leaves_the_trained_parameter_where_it_is():
    lexicon = toy_lexicon()
    embedder = pe.SourceEmbedding(ToyVectors(5), lexicon, freeze=False)
    weight = embedder.weight
    embedder = embedder.with_words(NEW_WORDS)
    assert embedder.weight is weight
    assert [name for name, parameter in embedder.named_parameters() if parameter.requires_grad] == [
        "table.weight"
    ]
    ids = torch.tensor([2, len(embedder.lexicon) - 1])
    embedder(ids).sum().backward()
    assert weight.grad[2].eq(1).all()
    assert weight.grad[3:].eq(0).all()


def test_without_a_source_later_words_are_unknown_and_all_rows_are_saved(tmp_path):
    lexicon = toy_lexicon()
    plain = nn.Embedding(len(lexicon), 5)
    embedder = pe.SourceEmbedding.from_embedding(plain, lexicon)
    assert embedder.weight is plain.weight
    embedder = embedder.with_words(NEW_WORDS)
    rows = embedder(torch.arange(12))
    assert torch.equal(rows[9:], plain.weight[1].expand(3, 5))
    for outside in (12, -1):
        rule = rf"^ids must be in \[0, 12\), got {outside}$"
        refused(ValueError, rule, embedder, torch.tensor([2, outside]))
    embedder.requires_grad_(False).save_pretrained(tmp_path, save_sources=False)
    again = pe.SourceEmbedding.from_pretrained(tmp_path)
    assert torch.equal(again(torch.arange(12)), rows)


@pytest.mark.parametrize(("freeze", "dtype"), [(True, torch.float16), (False, torch.float32)])
def test_attaching_fills_what_was_left_out(tmp_path, freeze, dtype):
    table = pe.SourceEmbedding(ToyVectors(5), toy_lexicon(), freeze=freeze).to(dtype)
    embedder = table.with_words(NEW_WORDS)
    embedder.save_pretrained(tmp_path, save_sources=False, copy_vectors=False)
    loaded = pe.SourceEmbedding.from_pretrained(tmp_path)
    ids = torch.arange(12)
    rule = r"^the source must be attached \(its rows were left out"
    refused(ValueError, rule, loaded, ids)
    refused(ValueError, rule, pe.bake, loaded)
    refused(ValueError, r"^source.dim must be 5, got 3$", loaded.attach, ToyVectors(3))
    loaded.attach(ToyVectors(5))
    assert torch.equal(loaded(ids), embedder(ids))
    assert loaded.state_dict().keys() == embedder.state_dict().keys()
    loaded.save_pretrained(tmp_path)
    assert torch.equal(pe.SourceEmbedding.from_pretrained(tmp_path)(ids), embedder(ids))


def test_a_source_of_another_shape_or_with_nan_is_refused():
    class Spoilt(ToyVectors):
        def vectors(self, words):
            rows = super().vectors(words)
            return rows.T if self.dim == 5 else np.where(rows > 1, np.nan, rows)

    rule = r"^Spoilt.vectors must return an array of shape \(7, 5\), got \(5, 7\)$"
    refused(ValueError, rule, pe.SourceEmbedding, Spoilt(5), toy_lexicon())
    rule = r"^the vector of '\w+' in Spoilt\(dim=9, seed=0\) must be finite, got NaN or an infinity"
    refused(ValueError, rule, pe.SourceEmbedding, Spoilt(9), toy_lexicon())


def test_a_plain_embedding_keeps_its_padding():
    plain = nn.Embedding(11, 5, padding_idx=0)
    words = pe.Lexicon(map(str, range(9)))
    embedder = pe.SourceEmbedding.from_embedding(plain, words)
    embedder(torch.tensor([0, 2])).sum().backward()
    assert plain.weight.grad is not None
    assert plain.weight.grad[0].abs().sum() == 0
    assert plain.weight.grad[2].abs().sum() > 0
    rule = r"^embedding must have a row for each of the lexicon's 11 ids, got 8$"
    refused(ValueError, rule, embedder.from_embedding, nn.Embedding(8, 5), words)
