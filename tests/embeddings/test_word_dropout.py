"""Words are forgotten in training alone, at the rate asked for."""

import pytest
import torch
from toys import ToyWordEncoder, toy_lexicon

from polyembed.embeddings import SourceEmbedding, WordDropout


def test_words_become_unknown_in_training_alone() -> None:
    lexicon = toy_lexicon()
    source = SourceEmbedding.from_embedding(
        torch.nn.Embedding(len(lexicon), 3), lexicon
    )  # unknown is not zeros
    words = WordDropout(source, 0.3)
    ids = torch.arange(2, 6).repeat(2500)
    unknown, found = source(torch.tensor([1])), words(ids)
    dropped = (found == unknown).all(-1)
    assert 0.27 < dropped.float().mean() < 0.33
    torch.testing.assert_close(found[~dropped], source(ids)[~dropped])
    assert torch.equal(
        words(torch.zeros(500, dtype=torch.int64)), source(torch.zeros(500, dtype=torch.int64))
    )
    assert torch.equal(words.eval()(ids), source(ids))


def test_needs_a_type_embedder_and_a_probability() -> None:
    source = SourceEmbedding.from_embedding(
        torch.nn.Embedding(len(toy_lexicon()), 3), toy_lexicon()
    )
    with pytest.raises(ValueError, match=r"^dropout must lie in \[0, 1\), got None$"):
        WordDropout(source, None)
    with pytest.raises(TypeError, match=r"^embedder must be a type embedder"):
        WordDropout(ToyWordEncoder(5))
