"""Small checkpoints in the layout of the released ones."""

import math
from pathlib import Path
from typing import Any

import torch
from toys import toy_bpe_tokenizer

from polyembed.encoders import LaserEncoder

SIZES = {"num_embeddings": 23, "embed_dim": 5, "hidden_size": 3, "num_layers": 3, "padding_idx": 1}
OPTIONS = {"bidirectional": True, "left_pad": True, "padding_value": -math.inf}


def small_encoder(seed: int = 0) -> LaserEncoder:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LaserEncoder(
            23, 5, 3, num_layers=3, dictionary=toy_bpe_tokenizer().dictionary
        ).eval()


def parts(**changes: Any) -> dict[str, Any]:
    """Return the parts of a checkpoint; `changes` replace parts, and a change to None drops one."""
    encoder = small_encoder()
    ids = {piece: i for i, piece in enumerate(encoder.dictionary.pieces())}
    whole = {
        "params": {**SIZES, **OPTIONS},
        "model": dict(encoder.state_dict()),
        "dictionary": ids,
        **changes,
    }
    return {name: part for name, part in whole.items() if part is not None}


def write_checkpoint(path: Path, **changes: Any) -> Path:
    torch.save(parts(**changes), path)
    return path
