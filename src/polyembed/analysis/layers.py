"""Which layers of an encoder carry over to other languages: by sentences and their translations, and in a picture."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any, Literal

from torch import nn

from polyembed._checks import import_optional, require
from polyembed.analysis.representations import Batch, parallel_cosine
from polyembed.tables import Table, mean_and_deviation


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


def plot_layers(
    scores: Mapping[str, Mapping[int | str, float | Sequence[float]]], *, ax: Any = None, ylabel: str = "score"
) -> Any:
    """Draw scores against layers, a line for each name.

    Args:
        scores: Name -> layer -> a number, or one number a seed (their mean is drawn, and a band of one standard
            deviation), as the ``scores`` of a `SweepResult`. What has a name in the place of a layer is a broken line.
        ax: The matplotlib axes to draw on; new ones if None.
        ylabel: What is drawn.

    Returns:
        The axes.

    Raises:
        ValueError: No name, or one without a layer.
        ImportError: If matplotlib is not installed.

    Example:
        >>> import matplotlib; matplotlib.use("Agg")
        >>> ax = plot_layers({"de": {"last layer": 0.61, 1: [0.58, 0.62], 2: [0.62, 0.64]}})
        >>> ax.get_xlabel(), ax.lines[0].get_label(), [round(float(y), 2) for y in ax.lines[0].get_ydata()]
        ('lower layer', 'de', [0.6, 0.63])
    """
    require(len(scores) > 0, "scores", "hold at least one name", "none")
    if ax is None:
        ax = import_optional("matplotlib.pyplot", pip="matplotlib", feature="plot_layers").subplots()[1]
    ticks: set[int] = set()
    for name, part in scores.items():
        drawn = {layer: mean_and_deviation(_numbers(value)) for layer, value in part.items()}
        layers = sorted(layer for layer in drawn if not isinstance(layer, str))
        require(len(layers) > 0, f"scores[{name!r}]", "hold at least one layer", "none")
        means = [drawn[layer].mean for layer in layers]
        widths = [drawn[layer].deviation or 0.0 for layer in layers]
        (line,) = ax.plot(layers, means, marker="o", label=name)
        low, high = ([m + sign * w for m, w in zip(means, widths, strict=True)] for sign in (-1, 1))
        ax.fill_between(layers, low, high, color=line.get_color(), alpha=0.15)
        others = [layer for layer in drawn if isinstance(layer, str)]
        for other, style in zip(others, cycle(("--", ":", "-.")), strict=False):
            ax.axhline(drawn[other].mean, color=line.get_color(), linestyle=style, label=f"{name}, {other}")
        ticks.update(layers)
    ax.set_xticks(sorted(ticks))
    ax.set_xlabel("lower layer")
    ax.set_ylabel(ylabel)
    ax.legend()
    return ax


def _numbers(value: float | Sequence[float]) -> Sequence[float]:
    return value if isinstance(value, Sequence) else [value]
