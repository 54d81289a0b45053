"""Sentence vectors: the order, the batches, processes, and the numbers of the released recipe."""

import oracles
import pytest
import torch
from checks import refused
from laser_files import small_encoder, write_checkpoint
from toys import own_words, toy_bpe_tokenizer

import polyembed as pe
from polyembed.encoders import LaserEncoder, LaserSentences

TEXTS = ["Me gusta that song", "", "song", "cañón x, x!", "me " * 17, "me"]


@pytest.fixture
def sentences() -> LaserSentences:
    return LaserSentences(small_encoder(), toy_bpe_tokenizer())


def test_the_numbers_of_the_released_recipe(tmp_path) -> None:
    path = write_checkpoint(tmp_path / "laser.pt")
    sentences = LaserSentences(LaserEncoder.from_checkpoint(path), toy_bpe_tokenizer())
    names = sentences.tokenizer.dictionary.pieces()
    cut = [[names[i] for i in sentences.tokenizer.cut_text(text).ids] for text in TEXTS]
    assert cut[2:4] == [["song"], ["c@@", "a@@", *["<unk>"] * 3, "x", "<unk>", "x", "<unk>"]]
    expected = oracles.laser_sentences(path, cut)[0]
    torch.testing.assert_close(sentences.encode(TEXTS), expected, atol=1e-6, rtol=0)


def test_batches_change_nothing(sentences, capsys) -> None:
    found = sentences.encode(TEXTS, batch_size=2, progress=True)
    assert "sentences" in capsys.readouterr().err
    assert not found.requires_grad
    for row, text in enumerate(TEXTS):
        torch.testing.assert_close(found[row], sentences.encode([text])[0])
        torch.testing.assert_close(
            found[row], sentences(sentences.tokenizer.text_pieces([text]))[0].detach()
        )


def test_like_lengths_go_together(sentences, monkeypatch) -> None:
    widths = []
    join = sentences.tokenizer.join

    def watched(cut) -> pe.Pieces:
        pieces = join(cut)
        widths.append(pieces.piece_ids.shape[1])
        return pieces

    monkeypatch.setattr(sentences.tokenizer, "join", watched)
    sentences.encode(TEXTS, batch_size=2)
    lengths = sorted(
        (len(sentences.tokenizer.cut_text(text).ids) + 1 for text in TEXTS), reverse=True
    )
    assert widths == lengths[::2]


def test_normalized_vectors_have_length_1(sentences) -> None:
    plain, unit = sentences.encode(TEXTS), sentences.encode(TEXTS, normalize=True)
    torch.testing.assert_close(unit.norm(dim=1), torch.ones(len(TEXTS)))
    torch.testing.assert_close(unit * plain.norm(dim=1, keepdim=True), plain)
    assert sentences.bfloat16().encode(TEXTS).dtype == torch.bfloat16


def test_nearest_sentences(sentences) -> None:
    found = sentences.nearest(["song", "me gusta that song"], TEXTS, k=2)
    assert found.ids[:, 0].tolist() == [2, 0]
    torch.testing.assert_close(found.scores[:, 0], torch.ones(2))
    again = sentences.nearest(sentences.encode(["song"]), sentences.encode(TEXTS))
    assert again.ids.tolist() == [[2]]


@own_words
def test_what_can_be_read_only_once_is_read_once(sentences) -> None:
    assert torch.equal(sentences.encode(iter(TEXTS)), sentences.encode(TEXTS))


def test_bad_arguments_are_refused(sentences) -> None:
    encoder, tokenizer = sentences.encoder, sentences.tokenizer
    refused(
        TypeError,
        r"^texts must be a list of words, got the string 'me'$",
        sentences.encode,
        "me",
    )
    refused(TypeError, r"^texts\[1\] must be a string, got int$", sentences.encode, ["me", 1])
    refused(
        ValueError,
        r"^batch_size must be a positive integer, got 0$",
        sentences.encode,
        ["me"],
        batch_size=0,
    )
    refused(
        TypeError,
        r"^tokenizer must be a LaserTokenizer, got str$",
        LaserSentences,
        encoder,
        "laser2",
    )
    refused(
        TypeError, r"^encoder must be a LaserEncoder, got ", LaserSentences, encoder.lstm, tokenizer
    )
    with pytest.raises(ValueError, match=r"^tokenizer must have a dictionary of 9 pieces, got 23$"):
        LaserSentences(LaserEncoder(9, 2, 2), tokenizer)
