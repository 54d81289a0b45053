"""The public LASER encoders with their tokenisation."""

import os
from typing import Literal, NamedTuple

from polyembed.encoders.laser.encoder import LaserEncoder
from polyembed.text.fastbpe import FastBPETokenizer
from polyembed.text.laser import (
    LaserTokenizer,
    SentencePieceTokenizer,
    open_sentencepiece,
)
from polyembed.vectors.laser import fetch_laser, read_merges, read_pieces


class LaserRelease(NamedTuple):
    """A public encoder, in evaluation mode, and its tokeniser; unpack it into any LASER word embedder."""

    encoder: LaserEncoder
    tokenizer: LaserTokenizer


def load_laser(
    version: Literal["laser1", "laser2"] = "laser2",
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    language: str = "en",
) -> LaserRelease:
    """Load a public LASER encoder with its tokenisation; files that the cache lacks are downloaded.

    Args:
        version: ``"laser1"`` or ``"laser2"``.
        cache_dir: As in `polyembed.vectors.fetch_laser`.
        language: A two-letter code, for Moses' rules.

    Returns:
        Encoder and tokeniser: ``LaserTop(*load_laser("laser2"))``.

    Raises:
        FileNotFoundError: A file is missing and cannot be downloaded.
        ValueError: A damaged file.
    """
    files = fetch_laser(version, cache_dir=cache_dir)
    encoder = LaserEncoder.from_checkpoint(files.checkpoint)
    dictionary = encoder.dictionary
    assert dictionary is not None  # a checkpoint has one
    tokenizer: LaserTokenizer
    if version == "laser2":
        tokenizer = SentencePieceTokenizer(
            open_sentencepiece(files.pieces), dictionary, language=language
        )
    else:
        vocabulary = read_pieces(files.vocabulary)
        tokenizer = FastBPETokenizer(
            read_merges(files.pieces), dictionary, vocabulary=vocabulary, language=language
        )
    return LaserRelease(encoder, tokenizer)
