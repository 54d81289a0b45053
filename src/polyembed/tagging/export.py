"""A tagger as one graph: for `torch.export`, and as an ONNX file that serves without torch."""

import copy
import json
import os
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from polyembed._checks import class_name, import_optional, must, require
from polyembed._version import __version__
from polyembed.embeddings.embedder import require_lexicon
from polyembed.embeddings.precomputed import BakedEmbedding, bake
from polyembed.encoders import LSTMSequenceEncoder, WideAndDeepEncoder
from polyembed.saving.writing import digest_of as checksum
from polyembed.tagging._recurrent import RecurrentGraph, translations
from polyembed.tagging.decoders import CRFDecoder, Decoder, SoftmaxDecoder
from polyembed.tagging.onnx_tagger import (
    FORMAT_VERSION,
    MODEL_NAME,
    OUTPUTS,
    SETTINGS_NAME,
    digest_of,
)
from polyembed.tagging.tagger import SequenceTagger
from polyembed.text.lexicon import Lexicon

__all__ = ["export_onnx", "export_program"]

AXES = {0: "batch", 1: "word"}


def export_program(tagger: SequenceTagger) -> torch.export.ExportedProgram:
    """Export a tagger over a type embedder by ``torch.export``, for batches of any size and
    sentences of any length.

    ``program.module()(ids, mask)`` gives the emissions ``(batch, word, tag)`` and, of a CRF, its
    transitions, start and end scores, with -inf where its constraints forbid: what
    `polyembed.crf.viterbi` takes. Every word of the lexicon is baked; the tagger is not changed.
    The graph is on the CPU, in float32, in evaluation mode.

    Args:
        tagger: A `SequenceTagger` over a type embedder, baked or not, with a `CRFDecoder` or a
            `SoftmaxDecoder`.

    Returns:
        A program of ``ids (batch, word)`` int64 and ``mask (batch, word)`` bool.

    Raises:
        TypeError: Another model, a contextual embedder, another decoder, or an encoder with
            recurrence that is not `LSTMSequenceEncoder`.

    Example:
        >>> from polyembed import SourceEmbedding
        >>> lexicon = Lexicon(["me", "gusta", "that", "song"])
        >>> words = SourceEmbedding.from_embedding(nn.Embedding(len(lexicon), 8), lexicon)
        >>> tagger = SequenceTagger(words, ["X", "VERB"])
        >>> program = export_program(tagger)
        >>> emissions, transitions, start, end = program.module()(*lexicon.encode([["me", "gusta"], ["song"]] * 5))
        >>> emissions.shape, transitions.shape
        (torch.Size([10, 2, 2]), torch.Size([2, 2]))

    """
    return _export(_Graph(_check_tagger(tagger)))


def export_onnx(
    tagger: SequenceTagger, folder: str | os.PathLike[str], *, words: Iterable[str] = ()
) -> None:
    """Write a tagger over a type embedder as ONNX, for `OnnxTagger` and any other runtime.

    ``tagger.onnx``, with its weights beside it in ``tagger.onnx.data``, takes ``ids`` and
    ``mask (batch, word)`` of any size and gives ``emissions`` and, of a CRF, ``transitions``,
    ``start`` and ``end``, with -inf where its constraints forbid. ``tagger.json`` holds the tags,
    the words in the order of their ids, from id 2 on, and the SHA-256 of each file, which
    `OnnxTagger` checks. Every word of the lexicon is baked, so any type embedder may be below;
    words that are not listed are unknown (id 1) where the file is used. The graph is for the CPU,
    in float32, in evaluation mode.

    Args:
        tagger: A `SequenceTagger` over a type embedder, baked or not, with a `CRFDecoder` or a
            `SoftmaxDecoder`.
        folder: Where to; made if missing. Files are replaced when all are written; a replacement
            that was interrupted is refused by `OnnxTagger`.
        words: Words beyond the lexicon's to be baked too, with the vectors that they would have in
            `predict`.

    Raises:
        TypeError: Another model, a contextual embedder, another decoder, an encoder with recurrence
            that is not `LSTMSequenceEncoder`, or a tagger with `prepare`, since `OnnxTagger` does
            not prepare words.
        ImportError: onnx or onnxscript is not installed.

    Example:
        >>> export_onnx(nn.Linear(2, 3), "folder")
        Traceback (most recent call last):
        TypeError: tagger must be a SequenceTagger (of an ensemble, export each member), got Linear

    """
    _check_tagger(tagger)
    if tagger.prepare is not None:
        rule = "be None: OnnxTagger looks words up as they are (export a SequenceTagger of the same parts without it)"
        raise TypeError(must("tagger.prepare", rule, class_name(tagger.prepare)))
    for package in ("onnx", "onnxscript"):
        import_optional(package, pip='"polyembed[onnx]"', feature="export_onnx")
    if isinstance(words, str):
        raise TypeError(must("words", "be an iterable of words", f"the string {words!r}"))
    folder = Path(folder)
    require(not folder.is_file(), "folder", "not be a file", folder)
    tagger = tagger.with_words(words)
    graph, settings = _Graph(tagger), _settings(tagger.tags, require_lexicon(tagger.embedder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its own calls
        program = torch.onnx.export(
            _export(graph),
            dynamo=True,
            input_names=["ids", "mask"],
            output_names=OUTPUTS if isinstance(tagger.decoder, CRFDecoder) else OUTPUTS[:1],
            dynamic_shapes=(AXES, AXES),
            custom_translation_table=translations(),
            verbose=False,
        )
    assert program is not None
    for node in program.model.graph:
        node.metadata_props.clear()  # traces of the program that exported, with its folders
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as draft:
        program.save(
            Path(draft, MODEL_NAME), external_data=True
        )  # a runtime maps it, and a table may be large
        sums = {path.name: checksum(path) for path in Path(draft).iterdir()}
        settings["checksums"] = {SETTINGS_NAME: digest_of(settings), **sums}
        content = json.dumps(settings, ensure_ascii=False).encode("utf-8", "surrogatepass")
        Path(draft, SETTINGS_NAME).write_bytes(content)
        folder.mkdir(exist_ok=True)
        for path in sorted(Path(draft).iterdir(), reverse=True):  # the checksums last
            path.replace(folder / path.name)


class _Graph(nn.Module):
    """Ids and mask to emissions and, of a CRF, its scores; a copy on the CPU, in float32."""

    def __init__(self, tagger: SequenceTagger) -> None:
        super().__init__()
        embedder = tagger.embedder
        whole = isinstance(embedder, BakedEmbedding) and not embedder.table.num_extended
        table: Tensor = embedder.weight if whole else bake(embedder).weight  # type: ignore[assignment]
        self.table = nn.Parameter(table.detach().to("cpu", torch.float32), requires_grad=False)
        self.encoder = (
            None if tagger.encoder is None else _without_recurrence(_copy(tagger.encoder))
        )
        self.decoder: Decoder = _copy(tagger.decoder)
        self.eval()

    def forward(
        self, ids: Int[Tensor, "batch word"], mask: Bool[Tensor, "batch word"]
    ) -> tuple[Float[Tensor, "..."], ...]:
        vectors = F.embedding(ids, self.table)
        features = vectors if self.encoder is None else self.encoder(vectors, mask)
        emissions = self.decoder.emissions(features, mask)
        if isinstance(self.decoder, CRFDecoder):
            return (emissions, *self.decoder.crf.constrained_scores())
        return (emissions,)


def _without_recurrence(encoder: nn.Module) -> nn.Module:
    """Replace an LSTM, alone or below a linear path, by one operator."""
    if isinstance(encoder, WideAndDeepEncoder) and encoder.encoder is not None:
        encoder.encoder = _without_recurrence(encoder.encoder)
    return RecurrentGraph(encoder) if isinstance(encoder, LSTMSequenceEncoder) else encoder


def _copy(module: nn.Module) -> Any:
    return copy.deepcopy(module).to("cpu", torch.float32)


def _check_tagger(tagger: SequenceTagger) -> SequenceTagger:
    if not isinstance(tagger, SequenceTagger):
        rule = "be a SequenceTagger (of an ensemble, export each member)"
        raise TypeError(must("tagger", rule, class_name(tagger)))
    if tagger.lexicon is None:
        rule = "be a type embedder, of which a table can be baked"
        raise TypeError(
            must("tagger.embedder", rule, f"the contextual {class_name(tagger.embedder)}")
        )
    if not isinstance(tagger.decoder, CRFDecoder | SoftmaxDecoder):
        raise TypeError(
            must(
                "tagger.decoder", "be a CRFDecoder or a SoftmaxDecoder", class_name(tagger.decoder)
            )
        )
    encoder = (
        tagger.encoder.encoder if isinstance(tagger.encoder, WideAndDeepEncoder) else tagger.encoder
    )
    recurrent = encoder is not None and any(
        isinstance(part, nn.RNNBase) for part in encoder.modules()
    )
    if recurrent and not isinstance(encoder, LSTMSequenceEncoder):
        rule = "be None, an LSTMSequenceEncoder or without recurrence, which torch.export takes with a fixed length only"
        raise TypeError(must("tagger.encoder", rule, class_name(tagger.encoder)))
    return tagger


def _export(graph: _Graph) -> torch.export.ExportedProgram:
    ids = torch.zeros(3, 5, dtype=torch.int64)  # any sizes above 1, which torch takes for fixed
    mask = torch.arange(5) < torch.tensor([[5], [2], [0]])
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("word")}
    with torch.no_grad():
        return torch.export.export(graph, (ids, mask), dynamic_shapes=(sizes, sizes))


def _settings(tags: Sequence[str], lexicon: Lexicon) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "polyembed_version": __version__,
        "tags": list(tags),
        "lowercase_fallback": lexicon.lowercase_fallback,
        "normalization": lexicon.normalization,
        "words": lexicon.words(),
    }
