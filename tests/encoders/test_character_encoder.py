"""An encoder over characters against the same encoder over a table of the computed rows."""

import pytest
import torch
from checks import refused
from tiny_models import MODELS, tiny_model, word_piece_tokenizer
from tokenizers import normalizers
from torch import nn
from toys import own_words

import polyembed as pe
from polyembed.data import TaggedSentence
from polyembed.encoders import Char2Subword
from polyembed.text import piece_surfaces

TOKENIZER = word_piece_tokenizer()
SENTENCES = [["me", "gusta", "la", "cancion"], [], ["songs", "\u200b", "zzz", "gusta"]]
SMALL = {"hidden_size": 8, "num_layers": 1, "num_heads": 2, "readout_size": 16}


def characters() -> Char2Subword:
    torch.manual_seed(0)
    return Char2Subword.for_vocabulary(piece_surfaces(TOKENIZER), 8, **SMALL).eval()


def encoder(name: str = "bert", unit: str = "piece", module=None, **options) -> pe.CharWordEncoder:
    inner = pe.PretrainedWordEncoder(tiny_model(name), TOKENIZER, **options)
    return pe.CharWordEncoder(inner, characters() if module is None else module, unit=unit).eval()


def spelled_model(ours: pe.CharWordEncoder, name: str) -> nn.Module:
    """Return the same model with a table of the rows that the characters give."""
    model = tiny_model(name)
    with torch.no_grad():
        for i, surface in enumerate(piece_surfaces(TOKENIZER)):
            if surface is not None:
                vector = ours.char2subword(ours.char2subword.spell([surface]))[0]
                model.get_input_embeddings().weight[i] = vector
    return model


@pytest.mark.parametrize(
    ("name", "pooling"), [(name, "mean") for name in MODELS] + [("bert", "first")]
)
def test_pieces_are_as_if_the_table_held_their_vectors(name, pooling):
    ours = encoder(name, pooling=pooling, fusion=pe.ScalarMix(4))
    options = {"pooling": pooling, "fusion": pe.ScalarMix(4)}
    table = pe.PretrainedWordEncoder(spelled_model(ours, name), TOKENIZER, **options).eval()
    pieces, found = table.encode(SENTENCES)[0], ours(ours.encode(SENTENCES)[0])
    torch.testing.assert_close(found, table(pieces), atol=1e-5, rtol=1e-4)


def test_words_are_one_unit_each():
    ours = encoder(unit="word")
    found = ours(ours.encode(SENTENCES)[0])
    model, table = tiny_model("bert"), tiny_model("bert").get_input_embeddings().weight
    for row, words in enumerate(SENTENCES):
        texts = [pe.text.surfaces.PieceSurface(word, edge=True) for word in words]
        own = ours.char2subword(ours.char2subword.spell(texts)) if words else table[:0]
        vectors = torch.cat([table[2:3], own, table[3:4]])[None]
        expected = model(inputs_embeds=vectors).last_hidden_state[0, 1:-1]
        torch.testing.assert_close(found[row, : len(words)], expected, atol=1e-5, rtol=1e-4)
        assert not found[row, len(words) :].any()


@pytest.mark.parametrize(
    ("name", "unit"), [("bert", "word"), ("xlm-roberta", "piece"), ("modernbert", "piece")]
)
def test_long_sentences_are_read_in_windows(name, unit):
    """Each window equals the result of the model alone. The limit counts units, not characters."""
    ours = encoder(name, unit, max_length=10)
    words = ["me", "gus", "la", "a", "b", "c", "can", "song"] * 3
    found = ours(ours.encode([words, words[:5]])[0])
    assert found[0].any(-1).all()
    alone = ours(ours.encode([words[:5]])[0])
    torch.testing.assert_close(found[1, :5], alone[0], atol=1e-5, rtol=1e-4)
    start = ours(ours.encode([words[:8]])[0])[0, :4]
    torch.testing.assert_close(found[0, :4], start, atol=1e-5, rtol=1e-4)


def test_words_are_normalised_as_the_tokenizer_does():
    tokenizer = word_piece_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    inner = pe.PretrainedWordEncoder(tiny_model("bert"), tokenizer)
    ours = pe.CharWordEncoder(inner, characters(), unit="word")
    upper, lower = (ours.encode([[word]])[0].piece_ids for word in ("ME", "me"))
    assert torch.equal(upper, lower)


@pytest.mark.parametrize("freeze", ["none", "embeddings", "all"])
def test_characters_learn_through_a_frozen_encoder(freeze):
    ours = encoder(freeze=freeze).train()
    ours.encoder.to(torch.bfloat16 if freeze == "all" else torch.float32)
    ours(ours.encode(SENTENCES)[0]).square().sum().backward()
    assert ours.char2subword.projection.weight.grad.abs().sum() > 0
    weight = next(part for name, part in ours.encoder.model.named_parameters() if "layer.0" in name)
    assert (weight.grad is None) == (freeze == "all")
    table = ours.encoder.model.get_input_embeddings().weight
    assert (table.grad is None) == (freeze != "none")


@pytest.mark.parametrize(("unit", "most"), [("piece", "7 pieces"), ("word", "5 words")])
def test_overflow(unit, most):
    words = ["me"] * 12
    short = encoder(unit=unit, max_length=7, overflow="truncate")
    found = short(short.encode([words])[0])
    assert found.any(-1).tolist() == [[True] * 5 + [False] * 7]
    strict = encoder(unit=unit, max_length=7, overflow="error")
    refused(ValueError, rf"^sentence .* must have at most {most}", strict.encode, [words])


@own_words
@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ValueError, "^unit must be one of 'piece', 'word', got", lambda: encoder(unit="letter")),
        (
            ValueError,
            "^char2subword must give vectors of size 8, got 5$",
            lambda: encoder(module=Char2Subword("abc", 5, **SMALL)),
        ),
        (
            TypeError,
            "^encoder must have a tokenizer, got NoneType$",
            lambda: pe.CharWordEncoder(pe.PretrainedWordEncoder(tiny_model("bert")), characters()),
        ),
    ],
)
def test_bad_input(error, message, call):
    refused(error, message, call)


def test_trains_on_words_that_would_be_too_many_pieces():
    tagger = pe.SequenceTagger(encoder(unit="word", max_length=4, overflow="error"), ["X", "Y"])
    rows = [TaggedSentence(("songs", "cancions"), ("X", "Y"))]
    assert pe.fit(tagger, rows, rows, pe.FitOptions(num_train_epochs=1)).best.number == 1
