"""The encoder of an example: a checkpoint by name or folder, or a small one that is pretrained first."""

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
        help="a name, folder or GGUF file that transformers opens; pretrained here if missing",
    )
    parser.add_argument(
        "--pretrain", nargs="+", metavar="LANG", help="the languages to pretrain on"
    )
    parser.add_argument(
        "--size",
        default="small",
        choices=("tiny", "small", "useful"),
        help="of the encoder pretrained here",
    )
    parser.add_argument(
        "--text",
        type=Path,
        help="a folder of <lang>.txt to pretrain on; the data folder's if missing",
    )
    parser.add_argument("--lines", type=positive, help="of text to pretrain on, of each language")
    parser.add_argument("--max-steps", type=positive, help="of the pretraining")
    parser.add_argument("--cache", type=Path, help="where the pretrained encoder is kept")


def find_model(arguments: argparse.Namespace, languages: Sequence[str]) -> str:
    """Return the checkpoint that was asked for, or pretrain one."""
    if arguments.model:
        return str(arguments.model)
    options = {
        name: getattr(arguments, name) for name in ("text", "lines", "max_steps", "cache", "device")
    }
    return str(small_encoder(arguments.size, languages=arguments.pretrain or languages, **options))


def be_quiet() -> None:
    """Keep transformers from reporting every file that it opens; a head is left out on purpose."""
    from transformers import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def load_encoder(name: str, max_length: int, **options: Any) -> pe.PretrainedWordEncoder:
    """Load an encoder; sentences beyond `max_length` pieces are cut, unless the options say otherwise."""
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
    return pe.PretrainedWordEncoder(*found, **options).float()  # of half precision on disk
