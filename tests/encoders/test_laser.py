"""LASER's encoder against the released recipe in plain PyTorch, and on wrong checkpoints."""

import argparse
import os

import oracles
import pytest
import torch
from checks import refused
from laser_files import OPTIONS, SIZES, parts, small_encoder, write_checkpoint
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from toys import toy_bpe_tokenizer

from polyembed.encoders import LaserEncoder

SENTENCES = [
    ["me", "gust@@", "a"],
    [],
    ["song"] * 11,
    ["gu@@", "none of these", "s@@", "c@@", "x"],
    ["me"],
]


def padded_ids(side: str = "right") -> torch.Tensor:
    dictionary = toy_bpe_tokenizer().dictionary
    rows = [torch.tensor([*dictionary.ids(row), dictionary.end_id]) for row in SENTENCES]
    return pad_sequence(rows, batch_first=True, padding_value=1, padding_side=side)


@pytest.fixture
def checkpoint(tmp_path):
    return write_checkpoint(tmp_path / "laser.pt")


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_numbers_of_the_released_recipe(checkpoint, side):
    expected, states = oracles.laser_sentences(checkpoint, SENTENCES)
    encoder = LaserEncoder.from_checkpoint(checkpoint)
    assert not encoder.training
    assert encoder.dictionary.pieces() == toy_bpe_tokenizer().dictionary.pieces()
    ids = padded_ids(side)
    torch.testing.assert_close(encoder(ids), expected, atol=1e-6, rtol=0)
    last = encoder.hidden_states(ids)[-1]
    assert torch.equal(last, encoder.last_hidden_state(ids))
    for row, found in enumerate(last):
        torch.testing.assert_close(found[ids[row] != 1], states[row], atol=1e-6, rtol=0)
        assert not found[ids[row] == 1].any()


def test_all_layers_are_those_of_encoders_cut_short():
    encoder, ids = small_encoder(), padded_ids()
    states = encoder.hidden_states(ids)
    torch.testing.assert_close(states[0], encoder.embed_tokens(ids) * (ids != 1)[..., None])
    for layers in (1, 2, 3):
        short = LaserEncoder(23, 5, 3, num_layers=layers)
        short.load_state_dict(encoder.state_dict(), strict=False)
        torch.testing.assert_close(states[layers], short.last_hidden_state(ids))


def test_parameters_have_the_released_names():
    names = list(nn.LSTM(2, 1, 5, bidirectional=True).state_dict())
    expected = ["embed_tokens.weight", *(f"lstm.{name}" for name in names)]
    assert list(LaserEncoder(7, 2, 1).state_dict()) == expected
    assert LaserEncoder(7).lstm.weight_ih_l4_reverse.shape == (2048, 1024)


def test_half_precision_and_missing_special_pieces_are_read(tmp_path, checkpoint):
    half = {name: value.half() for name, value in parts()["model"].items()}
    ids = {piece: i for piece, i in parts()["dictionary"].items() if i > 3}
    path = write_checkpoint(tmp_path / "half.pt", model=half, dictionary=ids)
    encoder, other = map(LaserEncoder.from_checkpoint, (path, checkpoint))
    assert encoder.dictionary.pieces() == other.dictionary.pieces()
    for name, value in other.state_dict().items():
        assert torch.equal(value.half().float(), encoder.state_dict()[name])


class Attack:
    def __reduce__(self):
        return os.system, ("touch /tmp/never-run",)


@pytest.mark.parametrize("new", [True, False])
def test_code_in_a_checkpoint_is_never_run(tmp_path, new, monkeypatch):
    ran, path = [], tmp_path / "x.pt"
    torch.save({**parts(), "extra": Attack()}, path, _use_new_zipfile_serialization=new)
    monkeypatch.setattr(os, "system", ran.append)
    message = r"x\.pt must hold tensors and plain data only, as LASER 1 and 2 do .*, got"
    refused(ValueError, message, LaserEncoder.from_checkpoint, path)
    assert ran == []


KIND, PARTS = r"be a whole LASER 1 or 2 checkpoint", r"hold parts that fit together, got [\s\S]*"
BAD = [  # the changed parts of a checkpoint, and the expected error
    ({"params": None}, KIND),
    (
        {"params": {**SIZES, **OPTIONS, "embed_dim": 320}},
        PARTS + "size mismatch for embed_tokens.weight",
    ),
    (
        {"model": {k: x for k, x in parts()["model"].items() if k != "lstm.bias_hh_l1"}},
        PARTS + "Missing key.*lstm.bias_hh_l1",
    ),
    ({"dictionary": {"me": 99}}, "dictionary must number its pieces 0, 1, 2, ..., each once"),
    (
        {"cfg": argparse.Namespace(arch="laser_transformer")},
        r"tensors and plain data only.*\(LASER 3 is a Transformer\), got ",
    ),
]


@pytest.mark.parametrize(("changes", "text"), BAD)
def test_bad_checkpoints_are_refused(tmp_path, changes, text):
    path = write_checkpoint(tmp_path / "x.pt", **changes)
    refused(ValueError, text, LaserEncoder.from_checkpoint, path)


def test_damaged_and_missing_files(tmp_path, checkpoint):
    content = checkpoint.read_bytes()
    for data in (content[: len(content) // 2], b"", b"no checkpoint"):
        checkpoint.write_bytes(data)
        refused(ValueError, r"laser\.pt must ", LaserEncoder.from_checkpoint, checkpoint)
    message = r"nothing at .*absent\.pt\. See polyembed\.vectors\.fetch_laser"
    refused(FileNotFoundError, message, LaserEncoder.from_checkpoint, tmp_path / "absent.pt")
