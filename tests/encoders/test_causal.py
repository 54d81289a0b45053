"""Causal language models as contextual embedders."""

from types import SimpleNamespace

import pytest
import torch
from tiny_models import CAUSAL_MODELS, tiny_model, word_piece_tokenizer

import polyembed as pe

WORDS = ["me", "gusta", "cancion", "song", "songs"]


def build(name: str, **options) -> pe.PretrainedWordEncoder:
    return pe.PretrainedWordEncoder(tiny_model(name), word_piece_tokenizer(), **options).eval()


@pytest.mark.parametrize("name", CAUSAL_MODELS)
def test_later_words_and_padding_change_nothing(name):
    """The model does not keep keys and values."""
    encoder, seen = build(name), []
    encoder.model.register_forward_hook(lambda *found: seen.append(found[-1].past_key_values))
    whole = encoder(encoder.encode([WORDS])[0])
    assert seen == [None]
    for count in range(1, 5):
        batch = encoder(encoder.encode([WORDS[:count], WORDS, []])[0])
        torch.testing.assert_close(batch[0, :count], whole[0, :count])
        assert (batch[2] == 0).all()


def test_the_weights_of_a_gguf_file_are_saved_as_plain_numbers(tmp_path):
    encoder = build("llama")
    encoder.model.config.quantization_config = SimpleNamespace(quant_method="gguf")
    encoder.model.hf_quantizer = object()
    encoder.save_pretrained(tmp_path)
    loaded = pe.PretrainedWordEncoder.from_pretrained(tmp_path)
    pieces, _ = encoder.encode([WORDS])
    assert torch.equal(loaded(pieces), encoder(pieces))
