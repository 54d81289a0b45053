"""Small models for the tests of saving, and edits of their folders as by a stranger."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from checks import refused
from torch import nn
from toys import SENTENCES, TAGS, ToyPieces, ToyVectors, toy_lexicon

import polyembed as pe

CORPUS = SENTENCES * 20
UNSEEN = [["songs", "que", "me", "gustaron"], ["cuando"]]


def build_tagger(source: Any = None, pieces: Any = None, *, seed: int = 0) -> pe.SequenceTagger:
    torch.manual_seed(seed)
    lexicon = toy_lexicon()
    sources = [pe.SourceEmbedding(s, lexicon) for s in (source or ToyVectors(3), ToyVectors(5))]
    hme = pe.HierarchicalMetaEmbedding(
        words=pe.MetaEmbedding.self_attention(sources, embedding_dim=7),
        subwords=pe.SpelledEmbedding.from_pieces(pieces or ToyPieces(5), lexicon),
        characters=pe.SpelledEmbedding.from_characters(
            lexicon, pe.CharCNN(lexicon.num_characters, 11)
        ),
    )
    encoder = pe.LSTMSequenceEncoder(hme.embedding_dim, hidden_size=13)
    return pe.SequenceTagger(pe.UniqueWords(hme), TAGS, encoder=encoder).eval()


def sources_of(model: nn.Module) -> list[pe.SourceEmbedding]:
    return [module for module in model.modules() if isinstance(module, pe.SourceEmbedding)]


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit a folder's configuration."""
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8", "surrogatepass"))
    edit(config)
    path.write_text(json.dumps(config))


def reseal(folder: Path) -> None:
    """Update the digests of changed files, as after a deliberate change."""

    def edit(config):
        for name in config["digests"]:
            if (folder / name).is_file():
                config["digests"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()

    change(folder, edit)


def unopened(folder: Path, message: str, error: type[Exception] = ValueError) -> None:
    """Check that opening a tagger's folder raises an error with a matching message."""
    refused(error, message, pe.SequenceTagger.from_pretrained, folder)


def only(folder: Path, pattern: str) -> Path:
    """Return the one file of a folder that matches a pattern."""
    (path,) = folder.glob(pattern)
    return path
