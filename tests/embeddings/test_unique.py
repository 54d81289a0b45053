"""Each word type once a batch."""

import torch
from cases import hierarchical
from toys import ToyVectors, toy_lexicon

import polyembed as pe

IDS = torch.tensor([[2, 3, 2, 0], [8, 2, 3, 0], [1, 1, 0, 0]])


def test_values_and_gradients_are_the_embedders_own() -> None:
    plain = hierarchical(toy_lexicon()).double()
    unique = pe.UniqueWords(plain)
    parameters = [parameter for parameter in plain.parameters() if parameter.requires_grad]
    weights = torch.randn(3, 4, plain.embedding_dim, dtype=torch.float64)
    torch.testing.assert_close(unique(IDS), plain(IDS))
    expected = torch.autograd.grad((plain(IDS) * weights).sum(), parameters)
    for gradient, reference in zip(
        torch.autograd.grad((unique(IDS) * weights).sum(), parameters), expected, strict=True
    ):
        torch.testing.assert_close(gradient, reference)


def test_asks_for_each_type_once() -> None:
    class Counting(pe.SourceEmbedding):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            self.asked = ids.tolist()
            return super().forward(ids)

    embedder = Counting(ToyVectors(3), toy_lexicon())
    unique = pe.UniqueWords(embedder)
    unique(IDS)
    assert embedder.asked == [0, 1, 2, 3, 8]


def test_occurrences_of_a_type_share_their_dropout() -> None:
    lexicon = toy_lexicon()
    cnn = pe.CharCNN(lexicon.num_characters, 5, dropout=0.5)
    unique = pe.UniqueWords(pe.SpelledEmbedding.from_characters(lexicon, cnn)).train()
    vectors = unique(IDS)
    assert torch.equal(vectors[0, 0], vectors[0, 2])
    assert torch.equal(vectors[0, 0], vectors[1, 1])
    assert not torch.equal(vectors[0, 0], unique(IDS)[0, 0])
