"""The layers of an encoder: how near parallel sentences are at each, and their weights in a layer fusion."""

import os
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from polyembed._checks import (
    check_choice,
    check_positive,
    check_sentences,
    class_name,
    must,
    require,
)
from polyembed._views import evaluation_view
from polyembed.encoders.fusion import DLFA, LastLayer, LayerAverage, ScalarMix
from polyembed.encoders.laser.words import LaserElmo
from polyembed.encoders.pretrained import PretrainedWordEncoder
from polyembed.functional.distances import mean_cosine
from polyembed.functional.masking import masked_mean
from polyembed.functional.neighbors import nearest_cosine
from polyembed.tables import Table

COLUMNS = ("layer", "retrieval", "cosine")
"""The columns of a ranking before those of the languages."""


class ParallelScores(NamedTuple):
    """How near sentences and their translations are at one layer.

    Attributes:
        cosine: The mean cosine of a sentence and its translation.
        retrieval: The share of sentences whose translation is the nearest of all sentences of the
            other language, by cosine; the mean of both directions. By chance it is one over the
            number of sentences.
    """

    cosine: float
    retrieval: float


def parallel_cosine(
    encoder: PretrainedWordEncoder | str | os.PathLike[str],
    source: Sequence[Sequence[str]],
    target: Sequence[Sequence[str]],
    *,
    pooling: Literal["mean", "cls"] = "mean",
    center: bool = False,
    batch_size: int = 32,
) -> dict[int | str, ParallelScores]:
    """Compare sentences with their translations at each layer of an encoder, and after its fusion.

    The cosine is ``mean_i cos(s_i, t_i)`` of sentence vectors ``s_i`` and ``t_i`` (Chen & Guo 2022,
    section V.B). It is high also where all vectors have one direction, as in many pretrained
    models; then the translations are not the nearest, and `ParallelScores.retrieval` is low.

    Args:
        encoder: An encoder with its tokenizer, a trained one too (``tagger.embedder``); or what
            `PretrainedWordEncoder` opens: a name, a folder or a GGUF file. It runs in evaluation
            mode, on the device that it is on.
        source: Sentences, lists of words.
        target: Their translations, in the same order.
        pooling: A sentence's vector: the mean of the pieces of its words, without special and
            padding pieces; or ``"cls"``, the first piece of all.
        center: Whether to subtract each language's mean vector first.
        batch_size: Sentences encoded at once.

    Returns:
        Layer (0 = embeddings) -> scores; and ``"fused"`` -> scores of the encoder's fusion, unless
        it is `LastLayer`.

    Raises:
        ValueError: Sentences that do not pair, fewer than two, one without words, another pooling,
            ``"cls"`` of a causal model, whose first piece has seen no other, or a layer with
            vectors that are not finite.
        TypeError: Another module than a `PretrainedWordEncoder`, or one without a tokenizer.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
        >>> rules = Tokenizer(models.WordPiece({"[UNK]": 0, "me": 1, "gus": 2, "##ta": 3}, unk_token="[UNK]"))
        >>> rules.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=rules, unk_token="[UNK]")
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
        >>> model = BertModel(BertConfig(vocab_size=4, **sizes))
        >>> encoder = PretrainedWordEncoder(model, tokenizer, fusion=ScalarMix(3))
        >>> scores = parallel_cosine(encoder, [["me"], ["gusta"]], [["me"], ["gusta"]])
        >>> {layer: (round(score.cosine, 3), score.retrieval) for layer, score in scores.items()}
        {0: (1.0, 1.0), 1: (1.0, 1.0), 2: (1.0, 1.0), 'fused': (1.0, 1.0)}

    Deviations: the paper does not define its sentence vector, and has the cosine alone.
    """
    encoder = _checked(encoder, pooling, batch_size)
    vectors = _sentence_vectors(encoder, "source", source, pooling, batch_size)
    return _compare(
        vectors, _sentence_vectors(encoder, "target", target, pooling, batch_size), "target", center
    )


def rank_layers(
    encoder: PretrainedWordEncoder | str | os.PathLike[str],
    source: Sequence[Sequence[str]],
    targets: Mapping[str, Sequence[Sequence[str]]],
    *,
    pooling: Literal["mean", "cls"] = "mean",
    center: bool = False,
    batch_size: int = 32,
) -> Table:
    """Rank an encoder's layers by how many sentences have their translation as the nearest, without
    any training.

    Args:
        encoder: As in `parallel_cosine`.
        source: Sentences, lists of words.
        targets: Language -> their translations, in the same order.
        pooling: As in `parallel_cosine`.
        center: As in `parallel_cosine`.
        batch_size: As in `parallel_cosine`.

    Returns:
        A row for each layer, and for a fusion ``"fused"``, best first: ``layer`` (0 = embeddings),
        the averages over languages of ``retrieval`` and ``cosine`` (`ParallelScores`), then the
        retrieval of each language.

    Raises:
        ValueError: No language, one with the name of another column, and what `parallel_cosine`
            raises.
        TypeError: Targets that are not a mapping, and what `parallel_cosine` raises.

    Example:
        >>> from transformers import BertConfig, BertModel, BertTokenizer
        >>> tokenizer = BertTokenizer(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "me": 5})
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
        >>> encoder = PretrainedWordEncoder(BertModel(BertConfig(vocab_size=6, **sizes)), tokenizer)
        >>> table = rank_layers(encoder, [["me"], ["you"]], {"es": [["me"], ["te"]]})
        >>> table.columns, len(table.rows), table.rows[0][1]
        (('layer', 'retrieval', 'cosine', 'es'), 3, 1.0)

    Deviations: the paper compares trained systems by the cosine of translations (its table VI):
    ``cosine`` in the row ``"fused"`` of each.
    """
    if not isinstance(targets, Mapping):
        raise TypeError(must("targets", "be a mapping, language -> sentences", class_name(targets)))
    require(len(targets) > 0, "targets", "hold at least one language", "none")
    taken = sorted({*COLUMNS} & {*targets})
    require(not taken, "targets", f"name languages, not {', '.join(COLUMNS)}", taken)
    encoder = _checked(encoder, pooling, batch_size)
    ours = _sentence_vectors(encoder, "source", source, pooling, batch_size)
    found = []
    for language, sentences in targets.items():
        name = f"targets[{language!r}]"
        found.append(
            _compare(
                ours, _sentence_vectors(encoder, name, sentences, pooling, batch_size), name, center
            )
        )
    rows: list[tuple[Any, ...]] = []
    for layer in ours:
        scores = [language[layer] for language in found]
        retrieval = [score.retrieval for score in scores]
        rows.append((layer, fmean(retrieval), fmean(score.cosine for score in scores), *retrieval))
    rows.sort(key=lambda row: (-row[1], -row[2]))
    return Table((*COLUMNS, *targets), rows, 4)


def _checked(encoder: Any, pooling: str, batch_size: int) -> PretrainedWordEncoder:
    """Return the encoder, opened if it is a name."""
    check_choice("pooling", pooling, ("mean", "cls"))
    check_positive(batch_size=batch_size)
    if isinstance(encoder, str | os.PathLike):
        encoder = PretrainedWordEncoder(encoder)
    if not isinstance(encoder, PretrainedWordEncoder):
        rule = "be a PretrainedWordEncoder (of the model and its tokenizer), or a name or folder"
        raise TypeError(must("encoder", rule, class_name(encoder)))
    allowed = pooling == "mean" or not encoder.is_causal
    require(
        allowed,
        "pooling",
        "be 'mean' for a causal model, whose first piece sees no other",
        repr(pooling),
    )
    return encoder


def _sentence_vectors(
    encoder: PretrainedWordEncoder,
    name: str,
    sentences: Iterable[Iterable[str]],
    pooling: str,
    batch_size: int,
) -> dict[int | str, Tensor]:
    """Return the vectors of sentences at each layer, ``(sentence, hidden)``."""
    rows = check_sentences(sentences, name=name)
    require(len(rows) > 1, name, "hold at least two sentences", len(rows))
    empty = next((i for i, words in enumerate(rows) if not words), None)
    require(empty is None, f"{name}[{empty}]", "have a word", "none")
    device = next(encoder.parameters()).device
    view: Any = evaluation_view(encoder)
    found: dict[int | str, list[Tensor]] = {}
    with torch.no_grad():
        for start in range(0, len(rows), batch_size):
            pieces = view.pieces(rows[start : start + batch_size]).to(device)
            states: dict[int | str, Tensor] = dict(
                enumerate(view.hidden_states(pieces, all_layers=True))
            )
            if not isinstance(view.fusion, LastLayer):
                states["fused"] = view.fusion(list(states.values()), pieces.piece_mask)
            for layer, layer_states in states.items():
                x = layer_states.to(torch.promote_types(layer_states.dtype, torch.float32))
                x = x[:, 0] if pooling == "cls" else masked_mean(x, pieces.word_index >= 0)
                found.setdefault(layer, []).append(x.cpu())
    return {layer: torch.cat(parts) for layer, parts in found.items()}


def _compare(
    source: Mapping[int | str, Tensor], target: Mapping[int | str, Tensor], name: str, center: bool
) -> dict[int | str, ParallelScores]:
    """Compare the vectors of sentences and of their translations, at each layer."""
    sizes = [len(vectors[0]) for vectors in (source, target)]
    require(
        sizes[0] == sizes[1],
        name,
        f"hold a translation of each of the {sizes[0]} source sentences",
        sizes[1],
    )
    own = torch.arange(sizes[0])
    found = {}
    for layer in source:
        for side, x in (("source", source), (name, target)):
            require(
                bool(x[layer].isfinite().all()),
                f"layer {layer} of {side}",
                "be finite",
                "NaN or an infinity",
            )
        s, t = (x[layer] - x[layer].mean(0) if center else x[layer] for x in (source, target))
        right = [nearest_cosine(x, y).ids[:, 0] == own for x, y in ((s, t), (t, s))]
        found[layer] = ParallelScores(
            float(mean_cosine(s, t)), float(torch.cat(right).double().mean())
        )
    return found


def layer_weights(
    fusion: nn.Module,
    hidden_states: Sequence[Float[Tensor, "batch seq hidden"]] | None = None,
    mask: Bool[Tensor, "batch seq"] | None = None,
) -> dict[int, Float[Tensor, " weight"]]:
    """Return the weight of each layer in a layer fusion: ``L = gamma * sum_l w_l H_l``.

    `ScalarMix` and `LaserElmo` (whose layers start at 1) have ``w = softmax(s)``. `DLFA` weighs the
    lower layer by ``w = AIF.weight((L_1 + L_2) / 2)`` and the last by ``1 - w`` (Chen & Guo 2022,
    equation 4): one weight for each number at each valid position, which depends on the input.
    `LayerAverage` and `LastLayer` have constant weights.

    Args:
        fusion: A `ScalarMix`, `LaserElmo`, `DLFA`, `LayerAverage` or `LastLayer`.
        hidden_states: The embeddings, then the output of each layer; not needed for the first two.
        mask: True = valid; None = all valid.

    Returns:
        Layer (0 = embeddings) -> its weights: one, or for `DLFA` one for each valid position and
        dimension.

    Raises:
        TypeError: Another module.
        ValueError: Hidden states that are missing or have another shape.

    Example:
        >>> layer_weights(ScalarMix(2))
        {0: tensor([0.5000]), 1: tensor([0.5000])}
        >>> states = [torch.zeros(1, 3, 8) for _ in range(5)]
        >>> {layer: weights.shape for layer, weights in layer_weights(DLFA(8, lower_layer=2), states).items()}
        {2: torch.Size([24]), 4: torch.Size([24])}
    """
    if isinstance(fusion, LaserElmo):
        return dict(enumerate(fusion.mix.weights.detach()[:, None], start=1))
    if isinstance(fusion, ScalarMix):
        return dict(enumerate(fusion.weights.detach()[:, None]))
    if not isinstance(fusion, DLFA | LayerAverage | LastLayer):
        raise TypeError(
            must("fusion", "be a layer fusion whose layers have weights", class_name(fusion))
        )
    given = hidden_states is not None and len(hidden_states) > 0
    require(given, "hidden_states", f"be given for {class_name(fusion)}", hidden_states)
    assert hidden_states is not None
    last = len(hidden_states) - 1
    if isinstance(fusion, DLFA):
        return _dlfa_weights(fusion, hidden_states, mask)
    numbers = [last] if isinstance(fusion, LastLayer) else fusion.layers
    numbers = list(range(last + 1)) if numbers is None else numbers
    fusion.chosen(hidden_states)  # checks that the layers exist
    found = [layer % (last + 1) for layer in numbers]
    return {layer: torch.tensor([found.count(layer) / len(found)]) for layer in sorted(set(found))}


def _dlfa_weights(
    fusion: DLFA, hidden_states: Sequence[Tensor], mask: Tensor | None
) -> dict[int, Tensor]:
    last = len(hidden_states) - 1
    lower, top = fusion.chosen(hidden_states)
    mean = (lower + top) / 2
    with torch.no_grad():
        w = evaluation_view(fusion).aif.weight(mean, mask)
        w = w if fusion.weighting == "sigmoid" else mean * w
    w = (w if mask is None else w[mask]).flatten()
    layer = fusion.lower_layer % (last + 1)
    return {last: torch.ones_like(w)} if layer == last else {layer: w, last: 1 - w}
