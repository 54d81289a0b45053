"""Sentence vectors: the numbers of the released recipe, batches, and nearest sentences."""

import oracles
import pytest
import torch
from laser_files import small_encoder, write_checkpoint
from toys import toy_bpe_tokenizer

from polyembed.encoders import LaserEncoder, LaserSentences

TEXTS = ["Me gusta that song", "", "song", "cañón x, x!", "me " * 17, "me"]


@pytest.fixture
def sentences() -> LaserSentences:
    return LaserSentences(small_encoder(), toy_bpe_tokenizer())


def test_the_numbers_of_the_released_recipe(tmp_path):
    path = write_checkpoint(tmp_path / "laser.pt")
    sentences = LaserSentences(LaserEncoder.from_checkpoint(path), toy_bpe_tokenizer())
    names = sentences.tokenizer.dictionary.pieces()
    cut = [[names[i] for i in sentences.tokenizer.cut_text(text).ids] for text in TEXTS]
    assert cut[2:4] == [["song"], ["c@@", "a@@", *["<unk>"] * 3, "x", "<unk>", "x", "<unk>"]]
    expected = oracles.laser_sentences(path, cut)[0]
    torch.testing.assert_close(sentences.encode(TEXTS), expected, atol=1e-6, rtol=0)


def test_batches_change_nothing(sentences):
    found = sentences.encode(TEXTS, batch_size=2)
    unit = sentences.encode(TEXTS, normalize=True)
    torch.testing.assert_close(unit * found.norm(dim=1, keepdim=True), found)
    assert not found.requires_grad
    for row, text in enumerate(TEXTS):
        alone = sentences(sentences.tokenizer.text_pieces([text]))[0].detach()
        torch.testing.assert_close(found[row], alone)
    sentences.register_forward_hook(lambda *args: args[-1].half())  # as under autocast on a GPU
    torch.testing.assert_close(sentences.encode(TEXTS), found, atol=1e-3, rtol=0)


def test_nearest_sentences(sentences):
    found = sentences.nearest(["song", "me gusta that song"], TEXTS, k=2)
    assert found.ids[:, 0].tolist() == [2, 0]
    torch.testing.assert_close(found.scores[:, 0], torch.ones(2))
