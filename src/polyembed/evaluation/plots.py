"""Pictures of attention, layer weights and representations.

Each function draws on the given axes, or on new ones, and returns the axes. If matplotlib's default
font lacks the script of the words, put fonts that have the script into ``rcParams["font.family"]``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from polyembed._checks import import_optional, require
from polyembed.evaluation.representations import project_2d
from polyembed.tables import mean_and_deviation

MOST_NAMES_INSIDE = 8
"""The number of names in a legend above which it is drawn beside the axes."""

SOURCES_AGREE = 0.02
"""The difference from an even share of attention below which colours stay pale."""


def plot_source_attention(
    weights: Float[Tensor, "source word"] | Float[Tensor, "source word weight"],
    words: Sequence[str],
    *,
    sources: Sequence[str],
    languages: Sequence[str] | None = None,
    ax: Any = None,
    title: str | None = None,
) -> Any:
    """Draw how much each source counts for each word of a meta-embedding (Winata 2021, equation 3).

    A square shows ``mean_d alpha[source, word, d]``. White is an even share, ``1 / sources``; red
    is more, blue less. Where no share is further than 0.02 from even, colours stay pale.

    Args:
        weights: The result of `MetaEmbedding.contributions` for one sentence, ``weights[:, 0]`` of
            a batch; or of `MetaEmbedding.attention_weights`, which differ less between words.
        words: The words of the sentence.
        sources: The names of the sources, in the order of the embedders.
        languages: The language of each word, written above it.
        ax: The matplotlib axes to draw on; new ones if None.
        title: The title, for example the system's name.

    Returns:
        The axes; the colour bar is beside them.

    Raises:
        ValueError: If the shape of `weights` does not fit the words and the sources.
        ImportError: If matplotlib is not installed.

    Example:
        >>> import matplotlib; matplotlib.use("Agg")
        >>> weights = torch.tensor([[0.9, 0.2], [0.1, 0.8]])
        >>> ax = plot_source_attention(weights, ["gusta", "song"], sources=["es", "en"])
        >>> [label.get_text() for label in ax.get_xticklabels()]
        ['gusta', 'song']
    """
    shares = weights.detach().to("cpu", torch.float64)
    size = (len(sources), len(words))
    fits = shares.dim() in (2, 3) and shares.shape[:2] == size and shares.numel() > 0
    found = f"shape {tuple(weights.shape)}"
    require(fits, "weights", f"have the axes (source, word), {size}, and maybe a third", found)
    shares = shares.mean(-1) if shares.dim() == 3 else shares
    width, height = 0.75 * len(words) + 2.0, 0.5 * len(sources) + 1.5
    ax = ax or _new_axes("plot_source_attention", width, height)[0]
    even = 1 / len(sources)
    reach = max(SOURCES_AGREE, float((shares - even).abs().max()))
    image = ax.imshow(
        shares.numpy(), cmap="RdBu_r", aspect="auto", vmin=even - reach, vmax=even + reach
    )
    ax.set_xticks(range(len(words)), words, rotation=40, ha="right")
    ax.set_yticks(range(len(sources)), sources)
    ax.figure.colorbar(image, ax=ax, label="share")
    if languages is not None:
        over = ax.secondary_xaxis("top")
        over.set_xticks(range(len(words)), languages)
        over.tick_params(length=0)
    return _finish(ax, title=title or ax.get_title())


def plot_layer_weights(
    weights: Mapping[str, Mapping[int, float | Tensor]], *, ax: Any = None
) -> Any:
    """Draw the weight of each layer of an encoder: a bar for each layer, a colour for each name.

    Args:
        weights: The weights by name and layer (0 = embeddings). A weight is a number, such as each
            of `ScalarMix.weights`, or several numbers, such as `DLFA.weight`. Several numbers are
            drawn as their mean and a line of one standard deviation in both directions.
        ax: The matplotlib axes to draw on; new ones if None.

    Returns:
        The axes.

    Raises:
        ImportError: If matplotlib is not installed.

    Example:
        >>> import matplotlib; matplotlib.use("Agg")
        >>> ax = plot_layer_weights({"mix": {0: 0.2, 1: 0.3, 2: 0.5},
        ...     "DLFA": {1: torch.tensor([0.2, 0.4]), 2: 0.7}})
        >>> [round(float(bar.get_height()), 3) for bar in ax.patches]
        [0.2, 0.3, 0.5, 0.3, 0.7]
    """
    drawn = {
        name: {
            layer: mean_and_deviation(
                torch.as_tensor(value, dtype=torch.float64).flatten().tolist()
            )
            for layer, value in part.items()
        }
        for name, part in weights.items()
    }
    layers = sorted({layer for part in drawn.values() for layer in part})
    size = max(4.0, 0.25 * len(layers) * (len(drawn) + 1) + 1.5), 3.5
    ax = ax or _new_axes("plot_layer_weights", *size)[0]
    width = 0.8 / len(drawn)
    handles = {}
    for number, (name, found) in enumerate(drawn.items()):
        places = [layer + (number - (len(drawn) - 1) / 2) * width for layer in found]
        spreads = [one.deviation or 0.0 for one in found.values()]
        lines = {"yerr": spreads, "capsize": 2.0} if any(spreads) else {}
        means = [one.mean for one in found.values()]
        handles[name] = ax.bar(places, means, width, label=name, **lines)
    ax.set_xticks(layers)
    return _finish(ax, handles, xlabel="layer (0 = embeddings)", ylabel="weight")


def plot_representations(
    pictures: Mapping[str, Mapping[str, Tensor]],
    method: Literal["pca", "umap"] = "pca",
    *,
    seed: int = 0,
    axes: Any = None,
) -> Any:
    """Draw clouds of points, such as the representations of two languages, side by side (Xia 2021,
    figures 1 and 3).

    Args:
        pictures: The clouds by title and name, with points in rows, for example from
            `collect_hidden_states`. Each picture is projected by itself. Its axes have no numbers,
            since its directions have no unit.
        method: ``"pca"``, the two directions of the most variance of all points, or ``"umap"``.
        seed: The seed of UMAP.
        axes: The matplotlib axes to draw on, one per picture; a new figure if None.

    Returns:
        The axes.

    Raises:
        ValueError: If the numbers of axes and of pictures differ.
        ImportError: If matplotlib is not installed, or umap-learn for UMAP.

    Example:
        >>> import matplotlib; matplotlib.use("Agg")
        >>> source, target = torch.randn(5, 7), torch.randn(3, 7)
        >>> axes = plot_representations({"before": {"en": source, "qu": target},
        ...     "after": {"en": target, "qu": target}})
        >>> [ax.get_title() for ax in axes]
        ['before', 'after']
    """
    count = len(pictures)
    flat = {
        title: project_2d(list(clouds.values()), method, seed=seed)
        for title, clouds in pictures.items()
    }
    if axes is None:
        axes = _new_axes("plot_representations", 4.0 * count, 4.0, count)
    for ax, (title, clouds) in zip(axes, pictures.items(), strict=True):
        points = zip(clouds, flat[title], strict=True)
        handles = {name: ax.scatter(*part.T.numpy(), s=6, alpha=0.5) for name, part in points}
        ax.set_xticks([])
        ax.set_yticks([])
        _finish(ax, handles, title=title)
    return axes


def _new_axes(feature: str, width: float = 6.4, height: float = 4.8, columns: int = 1) -> Any:
    """Return the axes of a new figure that pyplot knows, so that notebooks show them."""
    pyplot = import_optional("matplotlib.pyplot", pip="matplotlib", feature=feature)
    figure = pyplot.figure(figsize=(width, height), layout="constrained")
    return figure.subplots(1, columns, squeeze=False)[0]


def _finish(ax: Any, handles: Mapping[str, Any] | None = None, **texts: str) -> Any:
    """Write the title, the labels and a legend of `handles`, without mathtext."""
    ax.set(**texts)
    if handles is not None:
        many = len(handles) > MOST_NAMES_INSIDE
        beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if many else {}
        ax.legend(list(handles.values()), list(handles), **beside)
    for text in ax.findobj(lambda artist: hasattr(artist, "set_parse_math")):
        text.set_parse_math(False)
    return ax
