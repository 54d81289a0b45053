"""LASER's encoder against the released recipe in plain PyTorch, and against checkpoints that are none."""

import argparse
import os
import pickle

import oracles
import pytest
import torch
from checks import refused
from laser_files import OPTIONS, SIZES, parts, small_encoder, write_checkpoint
from toys import own_words, toy_bpe_tokenizer

from polyembed.encoders import LaserEncoder

SENTENCES = [
    ["me", "gust@@", "a"],
    [],
    ["song"] * 11,
    ["gu@@", "none of these", "s@@", "c@@", "x"],
    ["me"],
]


def padded(rows: list[list[int]], *, left: bool = False) -> torch.Tensor:
    width = max(map(len, rows))
    filler = [[1] * (width - len(row)) for row in rows]
    return torch.tensor([f + row if left else row + f for row, f in zip(rows, filler, strict=True)])


def ids_of(sentences: list[list[str]]) -> list[list[int]]:
    dictionary = toy_bpe_tokenizer().dictionary
    return [[*dictionary.ids(pieces), dictionary.end_id] for pieces in sentences]


@pytest.fixture
def checkpoint(tmp_path):
    return write_checkpoint(tmp_path / "laser.pt")


@pytest.mark.parametrize("left", [False, True])
def test_the_numbers_of_the_released_recipe(checkpoint, left: bool) -> None:
    expected, states = oracles.laser_sentences(checkpoint, SENTENCES)
    encoder = LaserEncoder.from_checkpoint(checkpoint)
    assert not encoder.training
    ids = padded(ids_of(SENTENCES), left=left)
    torch.testing.assert_close(encoder(ids), expected, atol=1e-6, rtol=0)
    last = encoder.hidden_states(ids)[-1]
    assert torch.equal(last, encoder.last_hidden_state(ids))
    for row, found in enumerate(last):
        torch.testing.assert_close(found[ids[row] != 1], states[row], atol=1e-6, rtol=0)
        assert not found[ids[row] == 1].any()


def test_all_layers_are_those_of_an_lstm_cut_short() -> None:
    encoder = small_encoder()
    ids = padded(ids_of(SENTENCES))
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        encoder.embed_tokens(ids), (ids != 1).sum(1), batch_first=True, enforce_sorted=False
    )
    found = encoder.hidden_states(ids)
    assert [x.shape[-1] for x in found] == [5, 6, 6, 6]
    torch.testing.assert_close(found[0], encoder.embed_tokens(ids) * (ids != 1)[..., None])
    for layers in (1, 2, 3):
        lstm = torch.nn.LSTM(5, 3, layers, bidirectional=True, batch_first=True)
        lstm.load_state_dict({name: encoder.lstm.state_dict()[name] for name in lstm.state_dict()})
        expected = torch.nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)[0]
        torch.testing.assert_close(found[layers], expected, atol=1e-6, rtol=0)


def test_a_mask_may_have_holes() -> None:
    encoder = small_encoder().double()
    ids = torch.tensor([[4, 7, 9, 5, 2]])
    mask = torch.tensor([[True, False, True, False, True]])
    torch.testing.assert_close(encoder(ids, mask), encoder(ids[mask][None]))
    states = encoder.hidden_states(ids, mask)
    for layer, whole in zip(encoder.hidden_states(ids[mask][None]), states, strict=True):
        torch.testing.assert_close(whole[mask], layer[0])
        assert not whole[~mask].any()


def test_parameters_have_the_released_names() -> None:
    names = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]
    expected = [
        f"lstm.{name}_l{layer}{end}"
        for layer in range(5)
        for end in ("", "_reverse")
        for name in names
    ]
    assert list(LaserEncoder(7, 2, 1).state_dict()) == ["embed_tokens.weight", *expected]
    assert LaserEncoder(7).lstm.weight_ih_l4_reverse.shape == (2048, 1024)


def test_a_checkpoint_brings_its_dictionary(checkpoint) -> None:
    encoder = LaserEncoder.from_checkpoint(checkpoint)
    assert encoder.dictionary.pieces() == toy_bpe_tokenizer().dictionary.pieces()
    assert "num_embeddings=23, embedding_dim=5, hidden_size=3, num_layers=3, padding_idx=1" in repr(
        encoder
    )
    assert all(parameter.requires_grad for parameter in encoder.parameters())


def test_special_pieces_may_be_missing_from_a_checkpoint(tmp_path) -> None:
    ids = {piece: i for piece, i in parts()["dictionary"].items() if i > 3}
    encoder = LaserEncoder.from_checkpoint(write_checkpoint(tmp_path / "x.pt", dictionary=ids))
    assert encoder.dictionary.pieces()[:4] == ["<s>", "<pad>", "</s>", "<unk>"]


def test_half_precision_and_old_files_are_read(tmp_path, checkpoint) -> None:
    half = {name: value.half() for name, value in parts()["model"].items()}
    found = LaserEncoder.from_checkpoint(write_checkpoint(tmp_path / "half.pt", model=half))
    assert {value.dtype for value in found.state_dict().values()} == {torch.float32}
    torch.save(parts(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    old = LaserEncoder.from_checkpoint(tmp_path / "old.pt")
    ids = padded(ids_of(SENTENCES))
    assert torch.equal(old(ids), LaserEncoder.from_checkpoint(checkpoint)(ids))


def test_weights_that_share_memory_are_parted(tmp_path) -> None:
    state = parts()["model"]
    bias = torch.ones(1).expand(12)
    shared = {**state, "lstm.bias_ih_l0": bias, "lstm.bias_hh_l0": bias}
    encoder = LaserEncoder.from_checkpoint(write_checkpoint(tmp_path / "x.pt", model=shared))
    encoder.save_pretrained(tmp_path / "saved")
    with torch.no_grad():
        encoder.lstm.bias_ih_l0[0] = 7.0
    assert encoder.lstm.bias_ih_l0.tolist() == [7.0] + [1.0] * 11
    assert encoder.lstm.bias_hh_l0.tolist() == [1.0] * 12


class Attack:
    def __reduce__(self):
        return os.system, ("touch /tmp/never-run",)


@pytest.mark.parametrize("new", [True, False])
def test_code_in_a_checkpoint_is_never_run(tmp_path, new: bool, monkeypatch) -> None:
    ran = []
    torch.save(
        {**parts(), "extra": Attack()}, tmp_path / "x.pt", _use_new_zipfile_serialization=new
    )
    monkeypatch.setattr(os, "system", ran.append)
    with pytest.raises(
        ValueError,
        match=r"x\.pt must hold tensors and plain data only, as LASER 1 and 2 do .*, got",
    ):
        LaserEncoder.from_checkpoint(tmp_path / "x.pt")
    (tmp_path / "bare.pt").write_bytes(pickle.dumps(Attack()))
    refused(ValueError, r"bare\.pt must ", LaserEncoder.from_checkpoint, tmp_path / "bare.pt")
    assert ran == []


def test_laser_3_is_refused(tmp_path) -> None:
    state = {"encoder.layers.0.self_attn.k_proj.weight": torch.ones(2, 2)}
    config = argparse.Namespace(arch="laser_transformer")
    torch.save({"cfg": config, "model": state}, tmp_path / "laser3.pt")
    text = r"\(LASER 3 is a Transformer\), got "
    refused(ValueError, text, LaserEncoder.from_checkpoint, tmp_path / "laser3.pt")


def without(key: str) -> dict:
    return {name: value for name, value in parts()["model"].items() if name != key}


PARAMS = {**SIZES, **OPTIONS}
ORDER = r"dictionary must number its pieces 0, 1, 2, ..., each once"


def sized(**changes: object) -> dict:
    return {
        "params": {name: size for name, size in {**PARAMS, **changes}.items() if size != "absent"}
    }


def weights(**changes: object) -> dict:
    return {"model": {**without(""), **{f"lstm.{name}": value for name, value in changes.items()}}}


def named(**changes: object) -> dict:
    return {"dictionary": {**parts()["dictionary"], **changes}}


KIND, PARTS = r"be a LASER 1 or 2 checkpoint", r"hold parts that fit together, got "
BAD = [  # what a checkpoint holds, and what is said of it
    ({"params": None}, KIND),
    ({"dictionary": None}, KIND),
    ({"model": [1]}, KIND),
    ({"params": {**OPTIONS}}, KIND + r".*KeyError: 'num_embeddings'"),
    (weights(bias_hh_l0=3), KIND),
    (sized(padding_idx=None), KIND),
    (sized(bidirectional=False), r"hold a bidirectional LSTM, got "),
    ({"params": SIZES}, r"hold a bidirectional LSTM, got "),
    (sized(num_layers=10**9), r"hold a bidirectional LSTM, got "),
    # the released sizes are taken where none are said
    (sized(embed_dim="absent"), PARTS + r"[\s\S]*size mismatch for embed_tokens.weight"),
    (sized(hidden_size="absent"), PARTS + r"[\s\S]*size mismatch"),
    (sized(num_layers="absent"), PARTS + r"[\s\S]*Unexpected key"),
    ({"model": without("lstm.bias_hh_l1")}, PARTS + r"[\s\S]*Missing key.*lstm.bias_hh_l1"),
    (weights(weight_hr_l0=torch.ones(2)), PARTS + r"[\s\S]*Unexpected key.*lstm.weight_hr_l0"),
    (weights(bias_hh_l0=torch.ones(11)), PARTS + r"[\s\S]*size mismatch for lstm.bias_hh_l0"),
    (sized(num_embeddings=10**15), PARTS + r"dictionary must hold 1000000000000000 pieces, got 23"),
    (named(more=23), PARTS + r"dictionary must hold 23 pieces, got 24"),
    (named(me=99), rf"{ORDER}, got other ids"),
    (named(me=9), ORDER),
    ({"dictionary": {"me": "4"}}, r"not supported between instances"),
    (sized(padding_idx=0), PARTS + r"padding_idx must be the dictionary's 1"),
]


@pytest.mark.parametrize(("changes", "text"), BAD)
def test_bad_checkpoints_are_refused(tmp_path, changes: dict, text: str) -> None:
    refused(
        ValueError,
        text,
        LaserEncoder.from_checkpoint,
        write_checkpoint(tmp_path / "x.pt", **changes),
    )


def test_damaged_and_missing_files(tmp_path, checkpoint) -> None:
    content = checkpoint.read_bytes()
    for name, data in {
        "cut": content[: len(content) // 2],
        "empty": b"",
        "text": b"no checkpoint",
    }.items():
        (tmp_path / name).write_bytes(data)
        refused(ValueError, rf"{name} must ", LaserEncoder.from_checkpoint, tmp_path / name)
    torch.save(torch.ones(2), tmp_path / "tensor")
    with pytest.raises(ValueError, match=r"with params, model and dictionary, got "):
        LaserEncoder.from_checkpoint(tmp_path / "tensor")
    with pytest.raises(
        FileNotFoundError, match=r"nothing at .*absent\.pt\. See polyembed\.vectors\.fetch_laser"
    ):
        LaserEncoder.from_checkpoint(tmp_path / "absent.pt")


@own_words
def test_bad_arguments_are_refused() -> None:
    refused(
        ValueError, r"^num_layers must be a positive integer, got 0$", LaserEncoder, 7, num_layers=0
    )
    refused(ValueError, r"^padding_idx must be in \[0, 7\), got 7$", LaserEncoder, 7, padding_idx=7)
    for wrong in (None, True, 1.0):
        refused(
            ValueError,
            rf"^padding_idx must be in \[0, 7\), got {wrong}$",
            LaserEncoder,
            7,
            padding_idx=wrong,
        )
    dictionary = toy_bpe_tokenizer().dictionary
    refused(
        ValueError,
        r"^dictionary must hold 7 pieces, got 23$",
        LaserEncoder,
        7,
        dictionary=dictionary,
    )
    with pytest.raises(ValueError, match=r"^padding_idx must be the dictionary's 1, got 0$"):
        LaserEncoder(23, padding_idx=0, dictionary=dictionary)
