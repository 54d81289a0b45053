"""Which layers of an encoder carry over to other languages, and how much each counts in a layer fusion."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from polyembed._checks import class_name, must, require
from polyembed.encoders.fusion import DLFA, LastLayer, LayerAverage, ScalarMix
from polyembed.encoders.laser.words import LaserElmo
from polyembed.experiments.representations import Batch, parallel_cosine, reading
from polyembed.tables import Table


def rank_layers(
    model: nn.Module,
    source: Iterable[Batch],
    targets: Mapping[str, Iterable[Batch]],
    *,
    pooling: Literal["mean", "cls"] = "mean",
) -> Table:
    """Rank an encoder's layers by the cosine of parallel sentences, without any training (Chen & Guo 2022, V.B).

    ``mean_i cos(s_i, t_i)`` at each layer and language (see `parallel_cosine`), less what sentences that are no
    translations of each other have: ``mean_i cos(s_i, t_{i+1})``. Without that difference a layer whose vectors all
    point the same way would rank first.

    Args:
        model: A transformers model.
        source: Batches of sentences; read once for each language, so a list.
        targets: Language -> batches of the translations, row by row.
        pooling: A sentence's vector: the mean of its tokens, or its first token.

    Returns:
        A row a layer, in the order of the average: ``layer`` (0 = embeddings), ``average`` over languages of the
        difference, ``cosine`` averaged, then the difference in each language.

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

    Deviations: the paper compares trained systems by the plain cosine; this looks at the layers of the encoder before
    any training, and takes away what unrelated sentences share.
    """
    source = list(source)
    require(len(targets) > 0, "targets", "hold at least one language", "none")
    cosines, differences = {}, {}
    for language, batches in targets.items():
        batches = list(batches)
        for i, batch in enumerate(batches):
            require(len(batch["input_ids"]) > 1, f"targets[{language!r}][{i}]", "hold at least two sentences", 1)
        paired = parallel_cosine(model, source, batches, pooling=pooling)
        turned = [{name: value.roll(1, 0) for name, value in batch.items()} for batch in batches]
        unpaired = parallel_cosine(model, source, turned, pooling=pooling)
        cosines[language] = paired
        differences[language] = [one - other for one, other in zip(paired, unpaired, strict=True)]
    rows = []
    for layer in range(len(next(iter(cosines.values())))):
        found = [part[layer] for part in differences.values()]
        cosine = sum(part[layer] for part in cosines.values()) / len(cosines)
        rows.append((layer, sum(found) / len(found), cosine, *found))
    rows.sort(key=lambda row: -row[1])
    return Table(("layer", "average", "cosine", *differences), rows, 4)


def layer_weights(
    fusion: nn.Module,
    hidden_states: Sequence[Float[Tensor, "batch seq hidden"]] | None = None,
    mask: Bool[Tensor, "batch seq"] | None = None,
) -> dict[int, Float[Tensor, " weight"]]:
    """Tell how much each layer counts: ``L = gamma * sum_l w_l H_l``.

    `ScalarMix` has ``w = softmax(s)``, and so has `LaserElmo`, of which the embeddings are no layer. `DLFA` weighs the
    lower layer by ``w = AIF.weight((L_1 + L_2) / 2)`` and the last by ``1 - w`` (Chen & Guo 2022, equation 4): a weight
    for each number at each valid position, which depends on what it reads. `LayerAverage` and `LastLayer` are constant.

    Args:
        fusion: A `ScalarMix`, `LaserElmo`, `DLFA`, `LayerAverage` or `LastLayer`.
        hidden_states: The embeddings, then the output of each layer; not needed by the first two.
        mask: True = valid; None = all valid.

    Returns:
        Layer (0 = embeddings) -> its weights: one, or for `DLFA` one a valid position and dimension.

    Raises:
        TypeError: Another module.
        ValueError: No hidden states where they are needed, or of other shapes.

    Example:
        >>> layer_weights(ScalarMix(2))
        {0: tensor([0.5000]), 1: tensor([0.5000])}
        >>> states = [torch.zeros(1, 3, 8) for _ in range(5)]
        >>> {layer: weights.shape for layer, weights in layer_weights(DLFA(8, lower_layer=2), states).items()}
        {2: torch.Size([24]), 4: torch.Size([24])}

    Deviations: none.
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
    fusion.chosen(hidden_states)  # refuses layers that are not there
    found = [layer % (last + 1) for layer in numbers]
    return {layer: torch.tensor([found.count(layer) / len(found)]) for layer in sorted(set(found))}


def _dlfa_weights(fusion: DLFA, hidden_states: Sequence[Tensor], mask: Tensor | None) -> dict[int, Tensor]:
    last = len(hidden_states) - 1
    lower, top = fusion.chosen(hidden_states)
    mean = (lower + top) / 2
    with reading(fusion):
        w = fusion.aif.weight(mean, mask)
        w = w if fusion.weighting == "sigmoid" else mean * w
    w = (w if mask is None else w[mask]).flatten()
    layer = fusion.lower_layer % (last + 1)
    return {last: torch.ones_like(w)} if layer == last else {layer: w, last: 1 - w}
