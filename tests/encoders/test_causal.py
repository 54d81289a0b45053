"""Causal language models as contextual embedders."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import CAUSAL_MODELS, MODELS, tiny_model, word_piece_tokenizer
from torch import nn
from transformers import AutoModel, AutoTokenizer

import polyembed as pe

WORDS = ["me", "gusta", "cancion", "song", "songs"]
gguf = pytest.importorskip("gguf", reason="GGUF files need the package gguf")


def build(name: str, **options) -> pe.PretrainedWordEncoder:
    return pe.PretrainedWordEncoder(tiny_model(name), word_piece_tokenizer(), **options).eval()


@pytest.mark.parametrize("name", CAUSAL_MODELS)
def test_a_word_is_its_last_piece(name: str) -> None:
    encoder = build(name)
    assert encoder.pooling == "last"
    pieces, _ = encoder.encode([WORDS])
    expected = encoder.model(pieces.piece_ids).last_hidden_state[0]
    last = [
        max(p for p, owner in enumerate(pieces.word_index[0].tolist()) if owner == word)
        for word in range(5)
    ]
    torch.testing.assert_close(encoder(pieces)[0], expected[last])


@pytest.mark.parametrize("name", CAUSAL_MODELS)
def test_later_words_and_padding_change_nothing(name: str) -> None:
    encoder = build(name)
    whole = encoder(encoder.encode([WORDS])[0])
    for count in range(1, 5):
        batch = encoder(encoder.encode([WORDS[:count], WORDS, []])[0])
        torch.testing.assert_close(batch[0, :count], whole[0, :count])
        assert (batch[2] == 0).all()


@pytest.mark.parametrize("name", CAUSAL_MODELS)
def test_all_layers_and_saving(name: str, tmp_path: Path) -> None:
    encoder = build(name, fusion=pe.ScalarMix(4))
    pieces, _ = encoder.encode([WORDS])
    encoder.save_pretrained(tmp_path)
    loaded = pe.PretrainedWordEncoder.from_pretrained(tmp_path)
    assert loaded.pooling == "last"
    assert torch.equal(loaded(loaded.encode([WORDS])[0]), encoder(pieces))
    states = encoder.hidden_states(pieces)
    assert len(states) == 4


@pytest.mark.parametrize("name", MODELS)
def test_models_that_read_both_ways_have_the_first_piece(name: str) -> None:
    assert build(name).pooling == "first"


def test_causal_by_name_alone() -> None:
    from transformers import XLNetConfig, XLNetModel

    xlnet = XLNetModel(XLNetConfig(vocab_size=23, d_model=8, n_layer=1, n_head=2, d_inner=11))
    gemma = tiny_model("gemma3", use_bidirectional_attention=True)
    for model in (xlnet, gemma):
        encoder = pe.PretrainedWordEncoder(model, word_piece_tokenizer()).eval()
        assert encoder.pooling == "first"
        short, long = (
            encoder(encoder.encode([words])[0])[0, 0] for words in (["me"], ["me", "song"])
        )
        assert not torch.allclose(short, long)  # the first word sees the next one


@pytest.mark.parametrize("name", CAUSAL_MODELS)
def test_no_keys_and_values_are_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = build(name)
    seen = []
    encoder.model.register_forward_hook(
        lambda module, inputs, found: seen.append(found.past_key_values)
    )
    encoder(encoder.encode([WORDS])[0])
    assert seen == [None]


def write_gguf(model: nn.Module, path: Path) -> None:
    """Write a Llama in llama.cpp's layout: its names, and queries and keys with the halves of a head interleaved."""
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([*"abcdefghijklmnopqrstu", "\u0120", "ab"])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    names = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}
    names |= {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
    names |= {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    for name, value in model.state_dict().items():
        parts, rows = name.split("."), value.numpy().astype(np.float32)
        if parts[-2] in ("q_proj", "k_proj"):
            heads = len(rows) // config.head_dim
            rows = rows.reshape(heads, 2, -1, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)
        short = {"embed_tokens": "token_embd", "norm": "output_norm"}.get(parts[0])
        writer.add_tensor(
            f"{short or f'blk.{parts[1]}.{names[parts[-2]]}'}.weight", np.ascontiguousarray(rows)
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_gguf(tmp_path: Path) -> None:
    """The recipe of the documentation: transformers opens the file."""
    model = tiny_model("llama", head_dim=4)
    write_gguf(model, tmp_path / "tiny.gguf")
    options = {"gguf_file": "tiny.gguf"}
    opened = AutoModel.from_pretrained(tmp_path, **options)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path, **options)
    encoder = pe.PretrainedWordEncoder(opened, tokenizer, freeze="all")
    pieces, _ = encoder.encode([["cab", "bad"]])
    expected = pe.PretrainedWordEncoder(model, tokenizer)(pieces)
    torch.testing.assert_close(encoder(pieces), expected, atol=1e-4, rtol=1e-4)
    encoder.save_pretrained(tmp_path / "saved")
    loaded = pe.PretrainedWordEncoder.from_pretrained(tmp_path / "saved")
    assert torch.equal(loaded(pieces), encoder(pieces))
