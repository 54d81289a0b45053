"""The encoder of an example: a checkpoint, or a small encoder that is pretrained first.

A checkpoint is given by its name, its folder or its GGUF file.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _recipes import positive
from small_encoder import small_encoder

import polyembed as pe


def add_encoder_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        help="the encoder: a name, folder or GGUF file that transformers opens; if missing, an "
        "encoder is pretrained here",
    )
    parser.add_argument(
        "--pretrain", nargs="+", metavar="LANG", help="the languages to pretrain on"
    )
    parser.add_argument(
        "--size",
        default="small",
        choices=("tiny", "small", "useful"),
        help="the size of the encoder that is pretrained here",
    )
    parser.add_argument(
        "--text",
        type=Path,
        help="a folder of <lang>.txt or <lang>.txt.xz to pretrain on; the data folder's if missing",
    )
    parser.add_argument(
        "--lines", type=positive, help="the largest number of lines of each language to pretrain on"
    )
    parser.add_argument(
        "--max-steps",
        type=positive,
        help="the number of steps of the pretraining; the recipe's epochs if missing",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        help="the folder of the pretrained encoder; runs/small_encoder/<hash of the settings> if "
        "missing",
    )


def find_model(arguments: argparse.Namespace, languages: Sequence[str]) -> str:
    """Return the checkpoint that was asked for, or pretrain one."""
    if arguments.model:
        return str(arguments.model)
    options = {
        name: getattr(arguments, name) for name in ("text", "lines", "max_steps", "cache", "device")
    }
    return str(small_encoder(arguments.size, languages=arguments.pretrain or languages, **options))


def be_quiet() -> None:
    """Switch off the progress bars and warnings of transformers.

    One of the warnings is that a head is left out, which is intended here.
    """
    from transformers import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def load_encoder(name: str, max_length: int, **options: Any) -> pe.PretrainedWordEncoder:
    """Load an encoder in float32.

    Sentences of more than `max_length` pieces are truncated, unless the options say otherwise.
    """
    be_quiet()
    path = Path(name)
    found: tuple[Any, ...] = (name,)
    if path.suffix == ".gguf":
        from transformers import AutoModel, AutoTokenizer

        found = tuple(
            kind.from_pretrained(path.parent, gguf_file=path.name)
            for kind in (AutoModel, AutoTokenizer)
        )
    options = {"overflow": "truncate", "max_length": max_length, **options}
    return pe.PretrainedWordEncoder(*found, **options).float()  # may be half precision on disk
