"""The released checkpoints of LASER 1 and 2, read as data: no code in a file is ever run."""

import pickle
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from polyembed._checks import class_name, must, require
from polyembed.text.laser import PieceDictionary

SIZES = ("num_embeddings", "embed_dim", "hidden_size", "num_layers", "padding_idx")
DEFAULTS = {"embed_dim": 320, "hidden_size": 512, "num_layers": 1, "bidirectional": False}
"""The params that a file may leave out, as in the released code."""


class LaserCheckpoint(NamedTuple):
    """The parts of a checkpoint: the params of `SIZES`, the weights and the dictionary."""

    params: dict[str, Any]
    state: dict[str, Tensor]
    dictionary: PieceDictionary


def read_checkpoint(path: Path) -> LaserCheckpoint:
    """Read a checkpoint of a BiLSTM.

    Raises:
        ValueError: If the file is damaged, holds code, or is of another architecture.
    """
    try:
        data = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        rule = "hold tensors and plain data only, as LASER 1 and 2 do (LASER 3 is a Transformer)"
        raise ValueError(must(str(path), rule, str(error).splitlines()[0])) from error
    except Exception as error:  # torch raises many kinds for a damaged file
        got = f"{class_name(error)}: {error}"
        raise ValueError(must(str(path), "be a whole checkpoint", got)) from error
    try:
        params = {**DEFAULTS, **data["params"]}
        state = {k: x.to(torch.float32, copy=True) for k, x in data["model"].items()}
        sizes = {name: int(params[name]) for name in SIZES}
        dictionary = PieceDictionary.from_ids(data["dictionary"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        rule = "be a LASER 1 or 2 checkpoint, with params, model and dictionary"
        raise ValueError(must(str(path), rule, f"{class_name(error)}: {error}")) from error
    both = params["bidirectional"] is True and f"lstm.weight_hh_l{sizes['num_layers'] - 1}" in state
    require(both, str(path), "hold a bidirectional LSTM", sorted(state)[:3])
    return LaserCheckpoint(sizes, state, dictionary)
