"""The layers of an encoder: their ranking by parallel sentences, and their weights in a layer fusion."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from polyembed._checks import class_name, must, require
from polyembed.encoders.fusion import DLFA, LastLayer, LayerAverage, ScalarMix
from polyembed.encoders.laser.words import LaserElmo
from polyembed.experiments._measure import in_mode
from polyembed.experiments.representations import Batch, parallel_cosine
from polyembed.tables import Table


def rank_layers(
    model: nn.Module,
    source: Iterable[Batch],
    targets: Mapping[str, Iterable[Batch]],
    *,
    pooling: Literal["mean", "cls"] = "mean",
) -> Table:
    """Rank an encoder's layers by the cosine of parallel sentences, without any training (Chen & Guo 2022, V.B).

    The score of a layer is ``mean_i cos(s_i, t_i)`` of translations (see `parallel_cosine`) minus
    ``mean_i cos(s_i, t_{i+1})`` of unrelated sentences. Without this difference, a layer whose vectors all have one
    direction would rank first.

    Args:
        model: A transformers model.
        source: Batches of sentences.
        targets: Language -> batches of the translations, row by row.
        pooling: A sentence's vector: the mean of its tokens, or its first token.

    Returns:
        A row for each layer, best first: ``layer`` (0 = embeddings), the ``average`` score over languages, the average
        ``cosine`` of translations, then the score in each language.

    Raises:
        ValueError: No language, batches that do not pair, a batch of one sentence, or another pooling.

    Example:
        >>> import torch
        >>> from transformers import BertConfig, BertModel
        >>> sizes = dict(hidden_size=12, num_hidden_layers=3, num_attention_heads=2, intermediate_size=17)
        >>> model = BertModel(BertConfig(vocab_size=31, **sizes))
        >>> batch = {"input_ids": torch.tensor([[1, 5, 7, 2], [1, 8, 9, 2]])}
        >>> table = rank_layers(model, [batch], {"de": [batch]})
        >>> table.columns, len(table.rows), round(table.rows[0][2], 3)
        (('layer', 'average', 'cosine', 'de'), 4, 1.0)

    Deviations: the paper compares trained systems by the plain cosine of translations.
    """
    source = list(source)
    require(len(targets) > 0, "targets", "hold at least one language", "none")
    cosines, differences = [], {}
    for language, batches in targets.items():
        batches = list(batches)
        for i, batch in enumerate(batches):
            require(len(batch["input_ids"]) > 1, f"targets[{language!r}][{i}]", "hold at least two sentences", 1)
        cosines.append(parallel_cosine(model, source, batches, pooling=pooling))
        turned = [{name: value.roll(1, 0) for name, value in batch.items()} for batch in batches]
        unrelated = parallel_cosine(model, source, turned, pooling=pooling)
        differences[language] = [one - other for one, other in zip(cosines[-1], unrelated, strict=True)]
    layers = zip(zip(*differences.values(), strict=True), zip(*cosines, strict=True), strict=True)
    rows = [(layer, fmean(found), fmean(cosine), *found) for layer, (found, cosine) in enumerate(layers)]
    rows.sort(key=lambda row: -row[1])
    return Table(("layer", "average", "cosine", *differences), rows, 4)


def layer_weights(
    fusion: nn.Module,
    hidden_states: Sequence[Float[Tensor, "batch seq hidden"]] | None = None,
    mask: Bool[Tensor, "batch seq"] | None = None,
) -> dict[int, Float[Tensor, " weight"]]:
    """Return the weight of each layer in a layer fusion: ``L = gamma * sum_l w_l H_l``.

    `ScalarMix` and `LaserElmo` (whose layers start at 1) have ``w = softmax(s)``. `DLFA` weighs the lower layer by
    ``w = AIF.weight((L_1 + L_2) / 2)`` and the last by ``1 - w`` (Chen & Guo 2022, equation 4): one weight for each
    number at each valid position, which depends on the input. `LayerAverage` and `LastLayer` have constant weights.

    Args:
        fusion: A `ScalarMix`, `LaserElmo`, `DLFA`, `LayerAverage` or `LastLayer`.
        hidden_states: The embeddings, then the output of each layer; not needed for the first two.
        mask: True = valid; None = all valid.

    Returns:
        Layer (0 = embeddings) -> its weights: one, or for `DLFA` one for each valid position and dimension.

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
        raise TypeError(must("fusion", "be a layer fusion whose layers have weights", class_name(fusion)))
    require(bool(hidden_states), "hidden_states", f"be given for {class_name(fusion)}", hidden_states)
    assert hidden_states is not None
    last = len(hidden_states) - 1
    if isinstance(fusion, DLFA):
        return _dlfa_weights(fusion, hidden_states, mask)
    numbers = [last] if isinstance(fusion, LastLayer) else fusion.layers
    numbers = list(range(last + 1)) if numbers is None else numbers
    fusion.chosen(hidden_states)  # checks that the layers exist
    found = [layer % (last + 1) for layer in numbers]
    return {layer: torch.tensor([found.count(layer) / len(found)]) for layer in sorted(set(found))}


def _dlfa_weights(fusion: DLFA, hidden_states: Sequence[Tensor], mask: Tensor | None) -> dict[int, Tensor]:
    last = len(hidden_states) - 1
    lower, top = fusion.chosen(hidden_states)
    mean = (lower + top) / 2
    with in_mode(fusion, training=False), torch.no_grad():
        w = fusion.aif.weight(mean, mask)
        w = w if fusion.weighting == "sigmoid" else mean * w
    w = (w if mask is None else w[mask]).flatten()
    layer = fusion.lower_layer % (last + 1)
    return {last: torch.ones_like(w)} if layer == last else {layer: w, last: 1 - w}
