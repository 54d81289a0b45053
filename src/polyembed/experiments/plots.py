"""Pictures: what sources and layers count, where representations lie, which labels are mistaken, what models cost.

Each function draws on `ax`, or on new axes, and returns them. Words of any script are drawn in an installed font that
has their glyphs; where there is none, they are written in Latin letters or as code points, and a warning says so.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from polyembed._checks import check_choice, class_name, import_optional, must, require
from polyembed.experiments._fonts import legible
from polyembed.experiments.efficiency import EfficiencyReport, Memory, Speed
from polyembed.experiments.representations import project
from polyembed.tables import Table, mean_and_deviation

PICTURES = ("speed", "memory", "score")


MOST_NAMES_INSIDE = 8
"""Of a picture's legend; where there are more, it stands beside the axes."""


def plot_source_attention(
    weights: Float[Tensor, "source word"] | Float[Tensor, "source word weight"],
    words: Sequence[str],
    *,
    sources: Sequence[str],
    ax: Any = None,
    title: str | None = None,
) -> Any:
    """Draw how much each source counts for each word of a meta-embedding (Winata 2021, equation 3).

    A square shows ``mean_d alpha[source, word, d]``. White is an even share, ``1 / sources``; red is more, blue less.

    Args:
        weights: What `MetaEmbedding.attention_weights` gives for a row of ids: ``weights[:, 0]`` of a batch of one.
        words: The words of that row.
        sources: Names of the sources, in the order of the embedders.
        ax: The matplotlib axes to draw on; new ones if None.
        title: For example the system's name.

    Returns:
        The axes; the colour bar stands beside them.

    Raises:
        ValueError: Weights of other shape than words and sources, or that do not sum to 1 over the sources.
        TypeError: Words or sources that are no strings, or one string.
        ImportError: If matplotlib is not installed.

    Example:
        >>> import matplotlib; matplotlib.use("Agg")
        >>> weights = torch.tensor([[0.9, 0.2], [0.1, 0.8]])
        >>> ax = plot_source_attention(weights, ["gusta", "song"], sources=["es", "en"])
        >>> [label.get_text() for label in ax.get_xticklabels()]
        ['gusta', 'song']

    Deviations: the paper has no such picture. Its weights are one a dimension; here a word has their mean.
    """
    _check_names(words=words, sources=sources)
    shares = weights.detach().to("cpu", torch.float64)
    fits = shares.dim() in (2, 3) and shares.shape[:2] == (len(sources), len(words)) and shares.numel() > 0
    axes = f"(source, word) or (source, word, weight) for {len(sources)} sources and {len(words)} words"
    require(fits, "weights", f"have the axes {axes}", f"shape {tuple(weights.shape)}")
    shares = shares.mean(-1) if shares.dim() == 3 else shares
    sums = shares.sum(0)
    off = float((sums - 1).abs().max())
    require(off < 0.02, "weights", "sum to 1 over the sources", [round(value, 3) for value in sums.tolist()[:5]])
    if ax is None:
        ax = _new_axes("plot_source_attention", 0.75 * len(words) + 2.0, 0.5 * len(sources) + 1.5)
    written, style = legible([*words, *sources, title or ""])
    even = 1 / len(sources)
    reach = max(0.01, float((shares - even).abs().max()))
    image = ax.imshow(shares.numpy(), cmap="RdBu_r", aspect="auto", vmin=even - reach, vmax=even + reach)
    ax.set_xticks(range(len(words)), [written[word] for word in words], rotation=40, ha="right", **style)
    ax.set_yticks(range(len(sources)), [written[source] for source in sources], **style)
    ax.figure.colorbar(image, ax=ax, label="attention")
    if title is not None:
        ax.set_title(written[title], **style)
    return ax


def plot_layer_weights(
    weights: Mapping[str, Mapping[int, float | Tensor]], *, ax: Any = None, ylabel: str = "weight"
) -> Any:
    """Draw how much each layer of an encoder counts: a bar for each layer, a colour for each name.

    Args:
        weights: Name -> what `layer_weights` gives: layer -> a number, or many (their mean is drawn, and a line of one
            standard deviation to both sides).
        ax: The matplotlib axes to draw on; new ones if None.
        ylabel: What is drawn.

    Returns:
        The axes.

    Raises:
        ValueError: No name, one without a layer, or weights that are not finite.
        ImportError: If matplotlib is not installed.

    Example:
        >>> import matplotlib; matplotlib.use("Agg")
        >>> ax = plot_layer_weights({"mix": {0: 0.2, 1: 0.3, 2: 0.5}, "DLFA": {1: torch.tensor([0.2, 0.4]), 2: 0.7}})
        >>> [round(float(bar.get_height()), 3) for bar in ax.patches]
        [0.2, 0.3, 0.5, 0.3, 0.7]
    """
    require(len(weights) > 0, "weights", "hold at least one name", "none")
    drawn: dict[str, dict[int, Tensor]] = {}
    for name, part in weights.items():
        require(len(part) > 0, f"weights[{name!r}]", "hold at least one layer", "none")
        drawn[name] = {}
        for layer, value in sorted(part.items()):
            numbers = torch.as_tensor(value).detach().to("cpu", torch.float64).flatten()
            whole = f"weights[{name!r}][{layer}]"
            finite = numbers.numel() > 0 and bool(numbers.isfinite().all())
            require(finite, whole, "be finite", "none" if numbers.numel() == 0 else "NaN or infinity")
            drawn[name][layer] = numbers
    layers = sorted({layer for part in drawn.values() for layer in part})
    if ax is None:
        ax = _new_axes("plot_layer_weights", max(4.0, 0.25 * len(layers) * (len(drawn) + 1) + 1.5), 3.5)
    written, style = legible([*drawn, ylabel])
    width = 0.8 / len(drawn)
    handles = []
    for number, (name, part) in enumerate(drawn.items()):
        places = [layer + (number - (len(drawn) - 1) / 2) * width for layer in part]
        means = [float(numbers.mean()) for numbers in part.values()]
        spreads = [float(numbers.std()) if len(numbers) > 1 else 0.0 for numbers in part.values()]
        lines = {"yerr": spreads, "capsize": 2.0} if any(spreads) else {}
        handles.append(ax.bar(places, means, width, label=written[name], **lines))
    ax.set_xticks(layers)
    ax.set_xlabel("layer (0 = embeddings)")
    ax.set_ylabel(written[ylabel], **style)
    _add_legend(ax, handles, style)
    return ax


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
    for name, part in scores.items():
        some = any(not isinstance(layer, str) for layer in part)
        require(some, f"scores[{name!r}]", "hold at least one layer", "none")
    others = {f"{name}, {other}" for name, part in scores.items() for other in part if isinstance(other, str)}
    ax = _new_axes("plot_layers") if ax is None else ax
    written, style = legible([*scores, *others, ylabel])
    ticks: set[int] = set()
    handles = []
    for name, part in scores.items():
        drawn = {layer: mean_and_deviation(_numbers(value)) for layer, value in part.items()}
        layers = sorted(layer for layer in drawn if not isinstance(layer, str))
        means = [drawn[layer].mean for layer in layers]
        widths = [drawn[layer].deviation or 0.0 for layer in layers]
        (line,) = ax.plot(layers, means, marker="o", label=written[name])
        handles.append(line)
        low, high = ([m + sign * w for m, w in zip(means, widths, strict=True)] for sign in (-1, 1))
        ax.fill_between(layers, low, high, color=line.get_color(), alpha=0.15)
        beside = [layer for layer in drawn if isinstance(layer, str)]
        for other, dashes in zip(beside, cycle(("--", ":", "-.")), strict=False):
            label = written[f"{name}, {other}"]
            handles.append(ax.axhline(drawn[other].mean, color=line.get_color(), linestyle=dashes, label=label))
        ticks.update(layers)
    ax.set_xticks(sorted(ticks))
    ax.set_xlabel("lower layer")
    ax.set_ylabel(written[ylabel], **style)
    _add_legend(ax, handles, style)
    return ax


def plot_representations(
    clouds: Mapping[str, Tensor],
    method: Literal["pca", "umap"] = "pca",
    *,
    seed: int = 0,
    ax: Any = None,
    title: str | None = None,
) -> Any:
    """Draw clouds of points in one plane, such as the representations of two languages (Xia 2021, figures 1 and 3).

    Args:
        clouds: Name -> points in rows, from `representations` for example.
        method: See `project`.
        seed: Of UMAP.
        ax: The matplotlib axes to draw on; new ones if None.
        title: For example the system's name.

    Returns:
        The axes. The plane's directions have no unit, so it has no numbers.

    Raises:
        ValueError: What `project` refuses.
        ImportError: If matplotlib, or umap-learn, is not installed.

    Example:
        >>> import matplotlib; matplotlib.use("Agg")
        >>> ax = plot_representations({"en": torch.randn(5, 7), "qu": torch.randn(3, 7)}, title="XLM-R")
        >>> [len(cloud.get_offsets()) for cloud in ax.collections]
        [5, 3]
    """
    flat = project(list(clouds.values()), method, seed=seed)
    ax = _new_axes("plot_representations", 4.0, 4.0) if ax is None else ax
    written, style = legible([*clouds, title or ""])
    _draw_clouds(ax, [written[name] for name in clouds], flat, None if title is None else written[title], style)
    return ax


def plot_clouds(
    pictures: Mapping[str, Mapping[str, Tensor]],
    method: Literal["pca", "umap"] = "pca",
    *,
    seed: int = 0,
    axes: Any = None,
) -> Any:
    """Draw several `plot_representations` side by side, such as before and after (Xia 2021, figures 1 and 3).

    Args:
        pictures: From a picture's title to its clouds by name; each picture has a plane of its own.
        method: See `project`.
        seed: Of UMAP.
        axes: As many matplotlib axes; a new figure if None.

    Returns:
        The axes.

    Raises:
        ValueError: No picture, axes that are not as many, or what `project` refuses.
        ImportError: If matplotlib, or umap-learn, is not installed.

    Example:
        >>> import matplotlib; matplotlib.use("Agg")
        >>> source, target = torch.randn(5, 7), torch.randn(3, 7)
        >>> axes = plot_clouds({"before": {"en": source, "qu": target}, "after": {"en": target, "qu": target}})
        >>> [ax.get_title() for ax in axes]
        ['before', 'after']
    """
    require(len(pictures) > 0, "pictures", "hold at least one", "none")
    if axes is not None:
        require(len(axes) == len(pictures), "axes", f"be one for each of {len(pictures)} pictures", len(axes))
    flat = {title: project(list(clouds.values()), method, seed=seed) for title, clouds in pictures.items()}
    if axes is None:
        figure = _new_figure("plot_clouds", 4.0 * len(pictures), 4.0)
        axes = figure.subplots(1, len(pictures), squeeze=False)[0]
    written, style = legible([*pictures, *(name for clouds in pictures.values() for name in clouds)])
    for ax, (title, clouds) in zip(axes, pictures.items(), strict=True):
        _draw_clouds(ax, [written[name] for name in clouds], flat[title], written[title], style)
    return axes


def plot_confusion(table: Table, *, ax: Any = None, title: str | None = None) -> Any:
    """Draw a confusion table: a square a pair of labels, darker the larger its share of its row.

    Args:
        table: What `bio_confusion` gives, counts or shares.
        ax: The matplotlib axes to draw on; new ones if None.
        title: For example the system's name.

    Returns:
        The axes.

    Raises:
        ValueError: A table that has not one column for each row.
        ImportError: If matplotlib is not installed.

    Example:
        >>> import matplotlib; matplotlib.use("Agg")
        >>> from polyembed.experiments import bio_confusion
        >>> ax = plot_confusion(bio_confusion([["B-PER", "O"]], [["O", "O"]]), title="MUSE")
        >>> [text.get_text() for text in ax.texts][:3]
        ['0', '0', '1']
    """
    labels = [str(row[0]) for row in table.rows]
    square = len(labels) > 0 and list(table.columns[1:]) == labels
    require(square, "table", "have a row and a column for each label", f"rows {labels}, columns {table.columns[1:]}")
    values = [list(row[1:]) for row in table.rows]
    totals = [sum(row) or 1 for row in values]
    shares = [[value / total for value in row] for row, total in zip(values, totals, strict=True)]
    ax = _new_axes("plot_confusion") if ax is None else ax
    written, style = legible([*labels, title or ""])
    ax.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            text = f"{value:.2f}" if isinstance(value, float) else f"{value:,}"
            ax.text(x, y, text, ha="center", va="center", color="white" if shares[y][x] > 0.5 else "black")
    for ticks in (ax.set_xticks, ax.set_yticks):
        ticks(range(len(labels)), [written[label] for label in labels], **style)
    ax.set_xlabel("predicted")
    ax.set_ylabel(table.columns[0])
    if title is not None:
        ax.set_title(written[title], **style)
    return ax


def plot_efficiency(
    report: EfficiencyReport,
    picture: Literal["speed", "memory", "score"] = "speed",
    *,
    scores: Mapping[str, float] | None = None,
    ax: Any = None,
) -> Any:
    """Draw one of the paper's three pictures: score against parameters, speed or memory against length.

    Args:
        report: What `efficiency_report` gives.
        picture: ``"speed"`` (Winata 2021, figure 3), ``"memory"`` (table 7) or ``"score"`` (figure 2).
        scores: Model -> its score, for ``"score"``; models without one are left out.
        ax: The matplotlib axes to draw on; new ones if None.

    Returns:
        The axes.

    Raises:
        ValueError: Another picture, or scores that are missing or of unknown models.
        ImportError: If matplotlib is not installed.

    Example:
        >>> import matplotlib; matplotlib.use("Agg")
        >>> from polyembed.experiments import Size
        >>> speed = {16: Speed(100.0, 90.0, 110.0, 1600.0, 9, None)}
        >>> sizes, ends = {"HME": Size(10, 5, 1.0, None)}, {"HME": set()}
        >>> report = EfficiencyReport(sizes, {"HME": speed}, {"HME": {}}, ends, (16,), 1, "cpu", 1)
        >>> plot_efficiency(report).get_ylabel()
        'sentences a second'
    """
    check_choice("picture", picture, PICTURES)
    if picture == "score":
        require(bool(scores), "scores", "be given for the picture 'score'", scores)
        odd = sorted(set(scores or ()) - set(report.sizes))
        require(not odd, "scores", f"be of the models {', '.join(report.sizes)}", odd)
    ax = _new_axes("plot_efficiency") if ax is None else ax
    written, style = legible(report.sizes)
    if picture == "score":
        for name, score in (scores or {}).items():
            size = report.sizes[name]
            place = (size.trainable + size.frozen, score)
            ax.scatter(*([value] for value in place))
            ax.annotate(written[name], place, textcoords="offset points", xytext=(4, 4), **style)
        ax.set_xscale("log")
        ax.set_xlabel("parameters")
        ax.set_ylabel("score")
        return ax
    handles, positive = [], False
    for number, name in enumerate(report.sizes):
        found: Mapping[int, Speed | Memory] = (report.speeds if picture == "speed" else report.memories)[name]
        values = {k: v.sentences if isinstance(v, Speed) else v.forward for k, v in found.items()}
        kept = {length: value for length, value in values.items() if value is not None}
        # ten colours, then the same with another marker and line
        look = {"marker": "osD^v"[number // 10 % 5], "linestyle": ("-", "--", ":", "-.")[number // 10 % 4]}
        handles += ax.plot(list(kept), list(kept.values()), label=written[name], **look)
        positive = positive or any(value > 0 for value in kept.values())
    if positive:  # a logarithm has no place for zeros alone, or for nothing
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
    ax.set_xticks(report.lengths, list(map(str, report.lengths)))
    ax.set_xlabel("length")
    ax.set_ylabel("sentences a second" if picture == "speed" else "activation memory, MB")
    _add_legend(ax, handles, style)
    return ax


def _new_figure(feature: str, width: float = 6.4, height: float = 4.8) -> Any:
    """Make a figure that pyplot knows, so that notebooks show it; one that can only be saved if there is no display."""
    pyplot = import_optional("matplotlib.pyplot", pip="matplotlib", feature=feature)
    options = {"figsize": (width, height), "layout": "constrained"}
    try:
        return pyplot.figure(**options)
    except ImportError:  # of the backend
        return import_optional("matplotlib.figure").Figure(**options)


def _new_axes(feature: str, width: float = 6.4, height: float = 4.8) -> Any:
    return _new_figure(feature, width, height).subplots()


def _draw_clouds(
    ax: Any, names: Sequence[str], clouds: Sequence[Tensor], title: str | None, style: Mapping[str, Any]
) -> None:
    handles = []
    for name, points in zip(names, clouds, strict=True):
        handles.append(ax.scatter(points[:, 0].numpy(), points[:, 1].numpy(), s=6, alpha=0.5, label=name))
    ax.set_xticks([])
    ax.set_yticks([])
    if title is not None:
        ax.set_title(title, **style)
    _add_legend(ax, handles, style)


def _add_legend(ax: Any, handles: Sequence[Any], style: Mapping[str, Any]) -> None:
    """Name what was drawn; without the names at hand, matplotlib leaves out those that begin with an underscore."""
    beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if len(handles) > MOST_NAMES_INSIDE else {}
    for text in ax.legend(handles, [handle.get_label() for handle in handles], **beside).get_texts():
        text.set(**style)


def _check_names(**lists: Sequence[str]) -> None:
    """Require lists of strings: one string would pass for the list of its letters."""
    for name, values in lists.items():
        if isinstance(values, str):
            raise TypeError(must(name, "be a list of strings", f"the string {values!r}"))
        for i, value in enumerate(values):
            if not isinstance(value, str):
                raise TypeError(must(f"{name}[{i}]", "be a string", class_name(value)))


def _numbers(value: float | Sequence[float]) -> Sequence[float]:
    return value if isinstance(value, Sequence) else [value]
