"""Models opened by a folder, a name or a file, and folders with missing parts."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from checks import refused
from safetensors.torch import load_file, save_file
from test_pretrained_encoder import SENTENCES, TOKENIZER, encoder
from tiny_models import tiny_model

import polyembed as pe


def saved(folder: Path, name: str = "bert") -> Path:
    for part in (tiny_model(name), TOKENIZER):
        part.save_pretrained(folder)
    return folder


def test_a_folder_or_name_in_place_of_the_model(tmp_path):
    saved(tmp_path)
    ours = encoder(fusion=pe.ScalarMix(4))
    opened = pe.PretrainedWordEncoder(str(tmp_path), fusion=pe.ScalarMix(4)).eval()
    assert torch.equal(opened(opened.encode(SENTENCES)[0]), ours(ours.encode(SENTENCES)[0]))
    assert pe.PretrainedWordEncoder(tmp_path, TOKENIZER).tokenizer is TOKENIZER


def test_threads_open_folders_of_two_precisions(tmp_path):
    """Transformers sets torch's default dtype while it opens a model."""
    dtypes = [torch.bfloat16, torch.float32] * 8
    for dtype in dtypes[:2]:
        encoder().to(dtype).save_pretrained(tmp_path / str(dtype))
    folders = [tmp_path / str(dtype) for dtype in dtypes]
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(pe.PretrainedWordEncoder.from_pretrained, folders))
    assert [{p.dtype for p in one.parameters()} for one in opened] == [{one} for one in dtypes]
    assert torch.get_default_dtype() == torch.float32


def test_a_folder_without_its_tokenizer(tmp_path):
    tiny_model("bert").save_pretrained(tmp_path)
    message = r"^tokenizer must have pieces of words \(give the model's"
    refused(ValueError, message, pe.PretrainedWordEncoder, tmp_path)


def test_missing_weights_are_not_made_up(tmp_path):
    """Transformers would fill missing weights with random numbers."""
    saved(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 4}))
    message = (
        r"^model must have all weights in .*, got none for 16, such as \['encoder.layer.3.attention"
    )
    refused(ValueError, message, pe.PretrainedWordEncoder, tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    weights = load_file(tmp_path / "model.safetensors")
    without = {name: value for name, value in weights.items() if not name.startswith("pooler")}
    save_file(without, tmp_path / "model.safetensors", {"format": "pt"})
    assert pe.PretrainedWordEncoder(tmp_path).max_length == 512, "nothing reads the pooler"


def test_damaged_folders_are_named(tmp_path):
    weights = saved(tmp_path) / "model.safetensors"
    message = r"^model must be a whole folder of a kind that transformers reads, got .* \("
    weights.write_bytes(weights.read_bytes()[:-9])
    refused(ValueError, message + "SafetensorError", pe.PretrainedWordEncoder, tmp_path)


def test_places_that_hold_no_model(tmp_path):
    message = "^model must be a folder or a model's name on the hub, got "
    for place in (tmp_path / "none", ""):
        refused(FileNotFoundError, message, pe.PretrainedWordEncoder, place)
    message = "^model must be a whole folder of a kind that transformers reads, got "
    refused(ValueError, message, pe.PretrainedWordEncoder, tmp_path)
    encoder().save_pretrained(tmp_path / "ours")
    message = r"^model must be a folder of transformers \(from_pretrained opens a folder of"
    refused(ValueError, message, pe.PretrainedWordEncoder, tmp_path / "ours")
