"""A tagger as one graph: for `torch.export`, and as an ONNX file that runs without torch."""

import copy
import json
import os
import warnings
from collections.abc import Iterable
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from polyembed._checks import check_words, import_optional, require_type
from polyembed.embeddings.embedder import require_lexicon
from polyembed.embeddings.precomputed import bake
from polyembed.tagging.decoders import CRFDecoder, check_decoder
from polyembed.tagging.onnx_tagger import FORMAT_VERSION, MODEL_NAME, OUTPUTS, SETTINGS_NAME
from polyembed.tagging.tagger import SequenceTagger


def export_program(tagger: SequenceTagger) -> torch.export.ExportedProgram:
    """Export a tagger over a type embedder by ``torch.export``, for batches of any size.

    ``program.module()(ids, mask)`` gives the emissions ``(batch, word, tag)`` and, of a CRF, its
    transitions, start and end scores, with -inf where its constraints forbid: the arguments of
    `polyembed.crf.viterbi`. Every word of the lexicon is baked; the tagger is not changed. The
    graph is on the CPU, in float32, in evaluation mode.

    Args:
        tagger: A `SequenceTagger` over a type embedder, baked or not, with a `CRFDecoder` or a
            `SoftmaxDecoder`.

    Returns:
        A program that takes ``ids (batch, word)`` int64 and ``mask (batch, word)`` bool.

    Raises:
        TypeError: If the model is not a `SequenceTagger`; if its embedder is contextual; if its
            decoder is of another class; or if its encoder is recurrent, because `torch.export`
            unrolls recurrence to one length.

    Example:
        >>> from polyembed import Lexicon, SourceEmbedding
        >>> lexicon = Lexicon(["me", "gusta", "that", "song"])
        >>> words = SourceEmbedding.from_embedding(nn.Embedding(len(lexicon), 8), lexicon)
        >>> program = export_program(SequenceTagger(words, ["X", "VERB"]))
        >>> inputs = lexicon.encode([["me", "gusta"], ["song"]] * 5)
        >>> emissions, transitions, start, end = program.module()(*inputs)
        >>> emissions.shape, transitions.shape
        (torch.Size([10, 2, 2]), torch.Size([2, 2]))
    """
    ids = torch.zeros(3, 5, dtype=torch.int64)  # sizes above 1: torch takes 0 and 1 as fixed
    mask = torch.arange(5) < torch.tensor([[5], [2], [0]])
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("word")}
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        return torch.export.export(_Graph(tagger), (ids, mask), dynamic_shapes=(sizes, sizes))


def export_onnx(
    tagger: SequenceTagger, folder: str | os.PathLike[str], *, words: Iterable[str] = ()
) -> None:
    """Write a tagger over a type embedder as ONNX, for `OnnxTagger` and any other runtime.

    ``tagger.onnx``, with its weights beside it in ``tagger.onnx.data``, is the graph of
    `export_program`. ``tagger.json`` holds the tags and the words in the order of their ids, from
    id 2 on. Words that it does not list are unknown (id 1) where the file is used.

    Args:
        tagger: A `SequenceTagger`, as for `export_program`.
        folder: The folder to write to; it is made if it is missing.
        words: Words to bake in addition to the lexicon's, with the vectors that they have in
            `predict`.

    Raises:
        TypeError: If `export_program` does not take the tagger, or the tagger has `prepare`, since
            `OnnxTagger` does not prepare words.
        ImportError: If onnx or onnxscript is not installed.

    Example:
        >>> export_onnx(nn.Linear(2, 3), "folder")
        Traceback (most recent call last):
        TypeError: tagger must be a SequenceTagger (of an ensemble, export each member), got Linear
    """
    _check_tagger(tagger)
    rule = "be None, since OnnxTagger looks words up as they are"
    require_type(tagger.prepare is None, "tagger.prepare", rule, tagger.prepare)
    for package in ("onnx", "onnxscript"):
        import_optional(package, feature="export_onnx")
    tagger = tagger.with_words(check_words(words))
    lexicon = require_lexicon(tagger.embedder)
    settings = {
        "format_version": FORMAT_VERSION,
        "tags": tagger.tags,
        "lowercase_fallback": lexicon.lowercase_fallback,
        "normalization": lexicon.normalization,
        "words": lexicon.words(),
    }
    axes = {0: "batch", 1: "word"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own warnings about its own calls
        program = torch.onnx.export(
            export_program(tagger),
            dynamo=True,
            input_names=["ids", "mask"],
            output_names=OUTPUTS if isinstance(tagger.decoder, CRFDecoder) else OUTPUTS[:1],
            dynamic_shapes=(axes, axes),
            verbose=False,
        )
    assert program is not None
    for node in program.model.graph:
        node.metadata_props.clear()  # traces of the program that exported, with its folders
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    program.save(folder / MODEL_NAME, external_data=True)  # a runtime maps the large table
    content = json.dumps(settings, ensure_ascii=False)
    (folder / SETTINGS_NAME).write_text(content, "utf-8", "surrogatepass")


class _Graph(nn.Module):
    """A copy of a tagger on the CPU in float32: ids and mask to emissions and a CRF's scores."""

    def __init__(self, tagger: SequenceTagger) -> None:
        _check_tagger(tagger)
        super().__init__()
        table: Tensor = bake(tagger.embedder).weight
        self.table = nn.Parameter(table.detach(), requires_grad=False)
        self.encoder = copy.deepcopy(tagger.encoder)
        self.decoder = copy.deepcopy(tagger.decoder)
        self.to("cpu", torch.float32).eval()

    def forward(
        self, ids: Int[Tensor, "batch word"], mask: Bool[Tensor, "batch word"]
    ) -> tuple[Float[Tensor, "..."], ...]:
        vectors = F.embedding(ids, self.table)
        features = vectors if self.encoder is None else self.encoder(vectors, mask)
        emissions = self.decoder.emissions(features, mask)
        if isinstance(self.decoder, CRFDecoder):
            return (emissions, *self.decoder.crf.constrained_scores())
        return (emissions,)


def _check_tagger(tagger: SequenceTagger) -> None:
    """Require a tagger whose graph can take batches of any size."""
    rule = "be a SequenceTagger (of an ensemble, export each member)"
    require_type(isinstance(tagger, SequenceTagger), "tagger", rule, tagger)
    rule = "be a type embedder, of which a table can be baked"
    require_type(tagger.lexicon is not None, "tagger.embedder", rule, tagger.embedder)
    check_decoder("tagger.decoder", tagger.decoder)
    parts = () if tagger.encoder is None else tagger.encoder.modules()
    recurrent = any(isinstance(part, nn.RNNBase) for part in parts)
    rule = "be without recurrence, which torch.export unrolls to one length"
    require_type(not recurrent, "tagger.encoder", rule, tagger.encoder)
