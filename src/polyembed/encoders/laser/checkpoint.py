"""The released checkpoints of LASER 1 and 2, read as data: no code in a file is ever run."""

import mmap
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from polyembed._checks import check_positive, class_name, must, require
from polyembed.encoders._bilstm import WEIGHTS
from polyembed.text.laser import PieceDictionary

PARTS = ("params", "model", "dictionary")
SIZES = ("num_embeddings", "embed_dim", "hidden_size", "num_layers", "padding_idx")
OPTIONS = (
    "bidirectional",
    "left_pad",
    "padding_value",
)  # the last two only describe how a batch was padded
DEFAULTS = {
    "embed_dim": 320,
    "hidden_size": 512,
    "num_layers": 1,
    "bidirectional": False,
}  # of the released code
TRANSFORMER_NAME = "self_attn"  # part of the weights' names in LASER 3


class LaserCheckpoint(NamedTuple):
    """A checkpoint whose parts fit together: the params of `SIZES`, the weights and the dictionary."""

    params: dict[str, Any]
    state: dict[str, Tensor]
    dictionary: PieceDictionary


def read_checkpoint(path: Path) -> LaserCheckpoint:
    """Read a checkpoint, and require the sizes of a BiLSTM, exactly its weights, and a dictionary
    of its pieces.

    Args:
        path: The file.

    Returns:
        Its parts.

    Raises:
        ValueError: Another file, another architecture, or parts that do not fit.
    """
    data = _load(path)
    params, state = _check_checkpoint(str(path), data)
    try:
        dictionary = PieceDictionary.from_ids(data["dictionary"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
    count = params["num_embeddings"]
    require(
        len(dictionary) == count,
        str(path),
        f"have a dictionary of its {count} embeddings",
        len(dictionary),
    )
    return LaserCheckpoint(params, state, dictionary)


def _load(path: Path) -> dict[str, Any]:
    try:
        data = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        _refuse_transformer(path)
        rule = "hold tensors and plain data only; nothing in it was run"
        raise ValueError(must(str(path), rule, str(error).splitlines()[0])) from error
    except Exception as error:  # torch raises many kinds for a damaged file
        raise ValueError(
            must(str(path), "be a whole checkpoint", f"{class_name(error)}: {error}")
        ) from error
    named = isinstance(data, dict) and isinstance(data.get("model"), dict)
    if named and any(TRANSFORMER_NAME in str(name) for name in data["model"]):
        _refuse_transformer(path)
    require(
        isinstance(data, dict) and all(name in data for name in PARTS),
        str(path),
        f"be a LASER 1 or 2 checkpoint, with {', '.join(PARTS)}",
        sorted(map(str, data)) if isinstance(data, dict) else class_name(data),
    )
    return dict(data)


def _refuse_transformer(path: Path) -> None:
    """Raise if the file's bytes name the weights of a Transformer, without unpickling."""
    if not path.stat().st_size:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(TRANSFORMER_NAME.encode()) >= 0:
            raise ValueError(
                must(
                    str(path), "be a LASER 1 or 2 checkpoint (a BiLSTM)", "LASER 3 (a Transformer)"
                )
            )


def _check_checkpoint(
    name: str, data: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Require the sizes of a BiLSTM, and exactly its weights; return both."""
    params, state = data["params"], data["model"]
    require(
        isinstance(params, dict) and isinstance(state, dict),
        name,
        "hold its params and weights as tables",
        "none",
    )
    params = {**DEFAULTS, **params}
    foreign = sorted(set(map(str, params)) - {*SIZES, *OPTIONS})
    require(not foreign, name, f"have no params beside {', '.join((*SIZES, *OPTIONS))}", foreign)
    missing = [size for size in SIZES if size not in params]
    require(not missing, name, f"have the params {', '.join(SIZES)}", f"none of {missing}")
    check_positive(**{f"{name}: {size}": params[size] for size in SIZES[:-1]})
    require(params["bidirectional"] is True, name, "hold a bidirectional LSTM", "one direction")
    hidden = params["hidden_size"]
    shapes = {"embed_tokens.weight": (params["num_embeddings"], params["embed_dim"])}
    for layer in range(
        min(params["num_layers"], len(state))
    ):  # the file's own claim may be any number
        size = 2 * hidden if layer else params["embed_dim"]
        for end in ("", "_reverse"):
            four = [(4 * hidden, size), (4 * hidden, hidden), (4 * hidden,), (4 * hidden,)]
            shapes |= {
                f"lstm.{part}_l{layer}{end}": shape
                for part, shape in zip(WEIGHTS, four, strict=True)
            }
    lacks, extra = sorted(set(shapes) - set(state)), sorted(map(str, set(state) - set(shapes)))
    require(
        not lacks and not extra,
        name,
        "hold the weights of its LSTM",
        f"missing {lacks}, unexpected {extra}",
    )
    for key, shape in shapes.items():
        value = state[key]
        sound = (
            isinstance(value, Tensor) and value.is_floating_point() and tuple(value.shape) == shape
        )
        sound = sound and value.layout == torch.strided and not value.is_meta
        got = tuple(value.shape) if isinstance(value, Tensor) else class_name(value)
        require(sound, f"{name}: {key}", f"be dense floating point of shape {shape}", got)
    return params, state
