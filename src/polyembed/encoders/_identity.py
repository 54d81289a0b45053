"""Which contextual embedder made some vectors: a checksum of all that changes them."""

from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from polyembed._checks import class_name
from polyembed._fingerprint import checksum
from polyembed.encoders._transformers import settings_of
from polyembed.encoders.contextual import ContextualEmbedder
from polyembed.encoders.pretrained import PretrainedWordEncoder
from polyembed.saving import Configurable
from polyembed.text.pieces import cut_words, is_sentencepiece

PROBES = ("Aa", "É", "ß", "ﬁ", "a-b", "İ", "ا", "あ", "1,5")
"""Words that tokenizers cut differently: case, accents, ligatures, punctuation, other scripts."""


def encoder_checksum(encoder: ContextualEmbedder) -> str:
    """Return a checksum of all that changes an embedder's vectors: structure, settings, tensors,
    tokenizer.

    Args:
        encoder: Any contextual embedder.

    Returns:
        The same in every process, and where the embedder was saved and loaded.
    """
    parts: list[Any] = [
        repr(encoder),
        {**dict(encoder.named_parameters()), **dict(encoder.named_buffers())},
    ]
    for name, part in encoder.named_modules():
        if isinstance(part, PretrainedWordEncoder):
            parts += [name, part.max_length, settings_of(part.model), _adapters(part.model)]
        if (tokenizer := getattr(part, "tokenizer", None)) is not None:
            parts += [name, _tokenizer(tokenizer)]
    return checksum(parts)


def _adapters(model: nn.Module) -> list[Any]:
    """Return how much each adapter counts in each layer that has some."""
    parts = [
        (name, part)
        for name, part in model.named_modules()
        if isinstance(getattr(part, "scaling", None), dict)
    ]
    return [
        [name, part.scaling, list(part.active_adapters), part.disable_adapters]
        for name, part in parts
    ]


def _tokenizer(tokenizer: Any) -> Any:
    """Return how a tokenizer cuts words."""
    if is_sentencepiece(tokenizer):
        return tokenizer.serialized_model_proto()
    if isinstance(tokenizer, Configurable):
        return _configured(tokenizer)
    if hasattr(tokenizer, "backend_tokenizer"):
        text = tokenizer.backend_tokenizer.to_str()
        return text[
            text.index('"added_tokens"') :
        ]  # the text before is the truncation and padding of its last call
    if not hasattr(tokenizer, "save_vocabulary"):  # of an embedder of the caller's
        return [class_name(tokenizer), sorted(getattr(tokenizer, "get_vocab", dict)().items())]
    files = _files(lambda folder: tokenizer.save_vocabulary(str(folder)))
    return [sorted(tokenizer.get_vocab().items()), files, cut_words([PROBES], tokenizer)]


def _configured(value: Configurable) -> list[Any]:
    """Return an object's constructor call and the content of its files."""
    parts = {
        key: _configured(part) if isinstance(part, Configurable) else part
        for key, part in _arguments(value)
    }
    return [class_name(value), parts, _files(value.write_files)]


def _arguments(value: Configurable) -> Iterable[tuple[str, Any]]:
    try:
        return value.get_config().items()
    except TypeError:  # a part that cannot be saved
        return [("repr", repr(value))]


def _files(write: Callable[[Path], Any]) -> dict[str, bytes]:
    """Return the content of the files that a call writes into a folder."""
    with TemporaryDirectory() as folder:
        write(Path(folder))
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
