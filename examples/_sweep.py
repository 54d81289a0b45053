"""Which lower layer to fuse with the last: one training per layer, seed and system."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from polyembed.encoders import LastLayer
from polyembed.evaluation import Corpus, run_code_switched, run_zero_shot
from polyembed.tables import Table, mean_and_deviation

LAST_LAYER = "last layer"


class Sweep(NamedTuple):
    """The result of `sweep_layers`.

    Attributes:
        table: A table with a row per fusion. After the name of the fusion and its number of
            parameters, there is a column per average, then a column per language.
        scores: The scores by column and fusion, one score per seed. The key of a fusion is its
            lower layer, or its name.
        best: The lower layer with the highest mean in each column. It is chosen on test, as in the
            paper, so a comparison with it is not fair.
    """

    table: Table
    scores: dict[str, dict[int | str, list[float]]]
    best: dict[str, int]


def sweep_layers(
    build: Callable[[nn.Module, Any, int], Any],
    source: Corpus,
    targets: Sequence[Corpus],
    options: Any,
    *,
    layers: Sequence[int],
    fusion: Callable[[int], nn.Module],
    beside: Mapping[str, Callable[[], nn.Module]],
    family: Collection[str] | None = None,
    **rest: Any,
) -> Sweep:
    """Train with each lower layer fused into the last, and test on all languages (Chen & Guo 2022).

    The table has the rows of the paper's table II, and a row for each fusion of `beside`. `family`
    splits the average as in the paper's table III.
    """
    makers: dict[int | str, Callable[[], nn.Module]] = {LAST_LAYER: LastLayer, **beside}
    makers |= {layer: lambda layer=layer: fusion(layer) for layer in layers}
    names = {key: key if isinstance(key, str) else f"D_{key}" for key in makers}
    systems = {
        names[key]: lambda train, seed, make=make: build(make(), train, seed)
        for key, make in makers.items()
    }
    if targets:
        found = run_zero_shot(systems, source, targets, options, **rest)
    else:
        found = run_code_switched(systems, [source], options, **rest)
    languages = [source.language, *(corpus.language for corpus in targets)]
    columns = {"average": languages} if targets else {}
    if family is not None:
        columns["family"] = [name for name in languages if name in family]
        columns["rest"] = [name for name in languages if name not in family]
    columns |= {name: [name] for name in languages}

    def means(system: str, members: Sequence[str]) -> list[float]:
        parts = [found.scores(system, language) for language in members]
        return [sum(part[seed] for part in parts) / len(parts) for seed in parts[0]]

    scores = {
        column: {key: means(name, members) for key, name in names.items()}
        for column, members in columns.items()
    }
    rows = [
        (
            name,
            sum(value.numel() for value in makers[key]().parameters()),
            *(mean_and_deviation(part[key]) for part in scores.values()),
        )
        for key, name in names.items()
    ]
    best = {
        column: max(layers, key=lambda layer, part=part: sum(part[layer]))
        for column, part in scores.items()
    }
    return Sweep(
        Table(("system", "parameters of the fusion", *scores), rows, digits=4), scores, best
    )
