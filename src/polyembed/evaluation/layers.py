"""The layers of an encoder, ranked by the distance of parallel sentences at each layer."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from polyembed._batches import chunked
from polyembed._checks import check_positive, require
from polyembed._views import evaluation_view
from polyembed.encoders import LastLayer, PretrainedWordEncoder
from polyembed.functional import masked_mean, nearest_cosine
from polyembed.functional.masking import widened
from polyembed.tables import Table


def rank_layers(
    encoder: PretrainedWordEncoder,
    source: Sequence[Sequence[str]],
    targets: Mapping[str, Sequence[Sequence[str]]],
    *,
    center: bool = False,
    batch_size: int = 32,
) -> Table:
    """Rank an encoder's layers by the share of sentences whose translation is the nearest.

    A sentence's vector is the mean of the pieces of its words, without special pieces. For the
    vectors ``s_i`` of sentences and ``t_i`` of their translations, there are two scores:

    - ``cosine = mean_i cos(s_i, t_i)`` (Chen & Guo 2022, section V.B). It is high also where all
      vectors have one direction, as in many pretrained models. Then the translations are not the
      nearest, and ``retrieval`` is low.
    - ``retrieval``, the share of sentences whose translation is the nearest of all sentences of the
      other language, by cosine; the mean of both directions. By chance it is one over the number of
      sentences. A repeated sentence has several equal translations, of which one counts.

    No training is needed.

    Args:
        encoder: An encoder with its tokenizer, such as the embedder of a trained tagger. It runs in
            evaluation mode, on the device that it is on.
        source: The sentences, lists of words.
        targets: The translations of the sentences into each language, in the same order.
        center: Whether to subtract each language's mean vector first.
        batch_size: The number of sentences that are encoded at once.

    Returns:
        A table with a row per layer, and a row ``"fused"`` for a fusion other than `LastLayer`, the
        best row first. Its columns are ``layer`` (0 = embeddings), the averages over languages of
        ``retrieval`` and ``cosine``, then the retrieval of each language.

    Raises:
        ValueError: If there are fewer than two sentences, no language, another number of
            translations, or a sentence without words.

    Example:
        >>> from transformers import BertConfig, BertModel, BertTokenizer
        >>> tokenizer = BertTokenizer(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3,
        ...     "[MASK]": 4, "me": 5})
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
        ...     "intermediate_size": 8}
        >>> encoder = PretrainedWordEncoder(BertModel(BertConfig(vocab_size=6, **sizes)), tokenizer)
        >>> table = rank_layers(encoder, [["me"], ["you"]], {"es": [["me"], ["te"]]})
        >>> table.columns, len(table.rows), table.rows[0][1]
        (('layer', 'retrieval', 'cosine', 'es'), 3, 1.0)

    Deviations: the paper does not define its sentence vector, and has the cosine alone. Its table
    VI compares trained systems by this cosine, here ``cosine`` in the row ``"fused"`` of each
    system.
    """
    check_positive(batch_size=batch_size)
    require(bool(targets), "targets", "hold a language", "none")
    require(len(source) > 1, "source", "hold at least two sentences", len(source))
    rule = f"hold a translation of each of the {len(source)} sentences"
    for language, sentences in targets.items():
        require(len(sentences) == len(source), f"targets[{language!r}]", rule, len(sentences))
    own = torch.arange(len(source))
    ours = _sentence_vectors(encoder, source, center, batch_size)
    cosines: dict[int | str, list[float]] = {layer: [] for layer in ours}
    retrieved: dict[int | str, list[float]] = {layer: [] for layer in ours}
    for sentences in targets.values():
        theirs = _sentence_vectors(encoder, sentences, center, batch_size)
        for layer, s in ours.items():
            t = theirs[layer]
            right = [nearest_cosine(x, y).ids[:, 0] == own for x, y in ((s, t), (t, s))]
            retrieved[layer].append(float(torch.cat(right).double().mean()))
            cosines[layer].append(float(torch.cosine_similarity(s, t).mean()))
    rows: list[tuple[Any, ...]] = [
        (layer, fmean(found), fmean(cosines[layer]), *found) for layer, found in retrieved.items()
    ]
    rows.sort(key=lambda row: (-row[1], -row[2]))
    return Table(("layer", "retrieval", "cosine", *targets), rows, digits=4)


@torch.no_grad()
def _sentence_vectors(
    encoder: PretrainedWordEncoder,
    sentences: Sequence[Sequence[str]],
    center: bool,
    batch_size: int,
) -> dict[int | str, Tensor]:
    """Return the vectors of sentences, ``(sentence, hidden)``, at each layer and at the fusion."""
    empty = [i for i, words in enumerate(sentences) if not len(words)]
    require(not empty, "sentences", "have a word each", f"none in those at {empty[:5]}")
    device = next(encoder.parameters()).device
    view = evaluation_view(encoder)
    found: dict[int | str, list[Tensor]] = {}
    for batch in chunked(sentences, batch_size):
        pieces = view.pieces(batch).to(device)
        states: dict[int | str, Tensor] = dict(
            enumerate(view.hidden_states(pieces, all_layers=True))
        )
        if not isinstance(view.fusion, LastLayer):
            states["fused"] = view.fusion(list(states.values()), pieces.piece_mask)
        for layer, x in states.items():  # (sentence, piece, hidden)
            means = masked_mean(widened(x), pieces.word_index >= 0)  # (sentence, hidden)
            found.setdefault(layer, []).append(means.cpu())
    vectors = {layer: torch.cat(parts) for layer, parts in found.items()}
    return {layer: x - x.mean(0) if center else x for layer, x in vectors.items()}
