"""Vectors that are computed once per word type, in a batch or for the whole lexicon."""

import torch
from cases import hierarchical
from contracts import Operations
from torch import nn
from toys import NEW_WORDS, ToyVectors, toy_lexicon, toy_table

import polyembed as pe

IDS = torch.tensor([[2, 3, 2, 0], [8, 2, 3, 0], [1, 1, 0, 0]])


def test_unique_words_have_the_embedders_values_and_gradients():
    plain = hierarchical(toy_lexicon()).double()
    unique = pe.UniqueWords(plain)
    parameters = [parameter for parameter in plain.parameters() if parameter.requires_grad]
    weights = torch.randn(3, 4, plain.embedding_dim, dtype=torch.float64)
    torch.testing.assert_close(unique(IDS), plain(IDS))
    expected = torch.autograd.grad((plain(IDS) * weights).sum(), parameters)
    gradients = torch.autograd.grad((unique(IDS) * weights).sum(), parameters)
    torch.testing.assert_close(gradients, expected)


def test_unique_words_are_asked_for_once_and_share_their_dropout():
    class Counting(pe.SourceEmbedding):
        def forward(self, ids):
            self.asked = ids.tolist()
            return super().forward(ids)

    lexicon = toy_lexicon()
    embedder = Counting(ToyVectors(3), lexicon)
    pe.UniqueWords(embedder)(IDS)
    assert embedder.asked == [0, 1, 2, 3, 8]
    cnn = pe.CharCNN(lexicon.num_characters, 5, dropout=0.5)
    unique = pe.UniqueWords(pe.SpelledEmbedding.from_characters(lexicon, cnn)).train()
    vectors = unique(IDS)
    assert torch.equal(vectors[0, 0], vectors[0, 2])
    assert torch.equal(vectors[0, 0], vectors[1, 1])
    assert not torch.equal(vectors[0, 0], unique(IDS)[0, 0])


def test_baked_numbers_are_the_embedders_in_evaluation_mode(monkeypatch):
    monkeypatch.setattr("polyembed.embeddings.precomputed.CHUNK", 2)
    lexicon = toy_lexicon()
    cnn = pe.CharCNN(lexicon.num_characters, 5, dropout=0.5)
    embedder = pe.MetaEmbedding.concat(
        [pe.SpelledEmbedding.from_characters(lexicon, cnn), hierarchical(lexicon)]
    )
    embedder.train()
    embedder.combiner.eval()
    baked = pe.bake(embedder)
    assert (embedder.training, cnn.training, embedder.combiner.training) == (True, True, False)
    torch.testing.assert_close(baked(IDS), embedder.eval()(IDS), rtol=1e-6, atol=1e-6)
    plain = nn.Embedding.from_pretrained(baked.weight)
    for ids in (IDS.int(), IDS[:0], torch.tensor(3)):
        assert torch.equal(baked(ids), plain(ids))
    assert not baked(IDS).requires_grad
    twice = pe.bake(pe.UniqueWords(baked))
    assert torch.equal(twice(IDS), baked(IDS))
    more = baked.with_words(NEW_WORDS)
    expected = embedder.with_words(NEW_WORDS)(torch.arange(12))
    torch.testing.assert_close(more(torch.arange(12)), expected, rtol=1e-6, atol=1e-6)


def test_a_word_costs_one_row_whatever_was_baked():
    """A baked embedder of many sources, pieces and characters needs as many kernels as a table."""

    def operations(embedder):
        with Operations() as counted:
            embedder(IDS)
        return counted.count

    lexicon = toy_lexicon()
    sources = [hierarchical(lexicon) for _ in range(5)]
    many = pe.MetaEmbedding.self_attention(sources, embedding_dim=7)
    assert operations(many) > 5 * operations(sources[0].words)
    assert operations(pe.bake(many)) == operations(toy_table(7)) == 1
