"""Where an encoder puts the sentences of two languages: how far apart, in numbers and in pictures (Xia 2021)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from polyembed._checks import (
    check_choice,
    check_last_dim,
    check_positive,
    class_name,
    import_optional,
    must,
    require,
)
from polyembed.functional.distances import hausdorff_distance, mean_cosine, modified_hausdorff_distance
from polyembed.functional.masking import masked_mean
from polyembed.transfer.layers import encoder_layer
from polyembed.transfer.rtn import transformed_output

Batch = Mapping[str, Any]


class CloudDistances(NamedTuple):
    """How far apart two clouds of points are.

    Attributes:
        hausdorff: Equations 5 and 6 of Xia 2021; one outlier decides.
        modified: The same with means in place of the outer maxima.
        cosine: The mean cosine over all pairs of a source and a target point.
    """

    hausdorff: float
    modified: float
    cosine: float


class Correlation(NamedTuple):
    """How two quantities go together, each between -1 and 1.

    Attributes:
        pearson: Linearly.
        spearman: By their ranks.
    """

    pearson: float
    spearman: float


def representations(
    model: nn.Module,
    batches: Iterable[Batch],
    layer: int | nn.Module,
    level: Literal["token", "cls"] = "token",
    *,
    max_points: int = 50_000,
) -> Float[Tensor, "points hidden"]:
    """Collect hidden states of a layer: of each token, or of each sentence's first, ``[CLS]``.

    The model runs in eval mode, without gradients. Padding, where a batch has an ``attention_mask``, is left out, and
    so is a sentence that is all padding. With ``transformed_output(layer, rtn)`` around the call, the transformed
    states are collected.

    Args:
        model: A transformers model, or any that takes ``model(**batch)``, on its device.
        batches: Read until there are enough points: shuffle rows before.
        layer: A number as `hidden_states` counts (see `polyembed.transfer.encoder_layer`), or a module.
        level: Which states.
        max_points: How many at most.

    Returns:
        The states, on the CPU.

    Raises:
        ValueError: Another level, or nothing to read.
        TypeError: A batch that is no mapping.

    Example:
        >>> model = nn.ModuleDict({"table": nn.Embedding(7, 3)})
        >>> model.forward = lambda input_ids, **_: model["table"](input_ids)
        >>> batch = {"input_ids": torch.tensor([[1, 2, 0]]), "attention_mask": torch.tensor([[1, 1, 0]])}
        >>> representations(model, [batch], model["table"]).shape
        torch.Size([2, 3])
    """
    check_choice("level", level, ("token", "cls"))
    check_positive(max_points=max_points)
    module = encoder_layer(model, layer) if isinstance(layer, int) else layer
    seen: list[Tensor] = []
    found: list[Tensor] = []
    count = 0

    def watch(states: Tensor) -> Tensor:
        seen.append(states)
        return states

    with reading(model):
        for batch in batches:
            seen.clear()
            with transformed_output(module, watch):
                model(**_to_device(model, batch))
            states = seen[-1]
            mask = _mask(batch, states)
            points = states[mask] if level == "token" else _firsts(states, mask)[mask.any(1)]
            found.append(points[: max_points - count].cpu())
            count += len(found[-1])
            if count == max_points:
                break
    require(bool(found), "batches", "hold at least one batch", "none")
    return torch.cat(found)


def cloud_distances(
    source: Float[Tensor, "m dim"], target: Float[Tensor, "n dim"], *, chunk: int = 1024
) -> CloudDistances:
    """Compare two clouds of points by cosine, in bounded memory (Xia 2021, section 4.5).

    Args:
        source: Points, from `representations` for example.
        target: Points.
        chunk: See `polyembed.functional.hausdorff_distance`.

    Returns:
        Three measures.

    Raises:
        ValueError: Points of different sizes, or a cloud without any.

    Example:
        >>> cloud_distances(torch.eye(2), torch.tensor([[2.0, 0.0]]))
        CloudDistances(hausdorff=1.0, modified=0.5, cosine=0.5)
    """
    for name, points in (("source", source), ("target", target)):
        require(points.dim() == 2 and len(points) > 0, name, "hold points in rows", f"shape {tuple(points.shape)}")
    check_last_dim("target", target, source.shape[-1])
    # the mean over all pairs is the product of the mean directions
    centres = [F.normalize(points.double(), dim=-1).mean(0) for points in (source, target)]
    return CloudDistances(
        float(hausdorff_distance(source, target, chunk=chunk)),
        float(modified_hausdorff_distance(source, target, chunk=chunk)),
        float(centres[0] @ centres[1]),
    )


def parallel_cosine(
    model: nn.Module,
    source: Iterable[Batch],
    target: Iterable[Batch],
    *,
    pooling: Literal["mean", "cls"] = "mean",
) -> list[float]:
    """Average the cosine of parallel sentences at each layer (Chen and Guo 2022, section V.B).

    ``mean_i cos(s_i, t_i)`` of sentence vectors ``s_i`` and ``t_i``. The higher, the less a layer's output depends on
    the language; it ranks layers for layer fusion.

    Args:
        model: A transformers model.
        source: Batches of sentences.
        target: Batches of their translations, row by row.
        pooling: A sentence's vector: the mean of its tokens, or its first token.

    Returns:
        One number for each of ``hidden_states``: the embeddings first.

    Raises:
        ValueError: Batches that do not pair, none, or another pooling.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> sizes = dict(hidden_size=12, num_hidden_layers=3, num_attention_heads=2, intermediate_size=17)
        >>> model = BertModel(BertConfig(vocab_size=31, **sizes))
        >>> batch = {"input_ids": torch.tensor([[1, 5, 7, 2]])}
        >>> [round(value, 3) for value in parallel_cosine(model, [batch], [batch])]
        [1.0, 1.0, 1.0, 1.0]

    Deviations: the paper does not say which embedding of a sentence it takes.
    """
    check_choice("pooling", pooling, ("mean", "cls"))
    totals: list[float] = []
    rows = 0
    with reading(model):
        for one, other in zip_longest(source, target):
            missing = "source" if one is None else "target"
            require(one is not None and other is not None, missing, "hold a batch for each of the other's", "fewer")
            vectors = [_sentences(model, batch, pooling) for batch in (one, other)]
            sizes = [len(layers[0]) for layers in vectors]
            require(sizes[0] == sizes[1], "target", f"hold {sizes[0]} translations in this batch", sizes[1])
            cosines = [float(mean_cosine(s, t)) * sizes[0] for s, t in zip(*vectors, strict=True)]
            totals = [a + b for a, b in zip(totals or [0.0] * len(cosines), cosines, strict=True)]
            rows += sizes[0]
    require(rows > 0, "source", "hold at least one sentence", "none")
    return [total / rows for total in totals]


def gain_correlation(gains: Sequence[float], drops: Sequence[float]) -> Correlation:
    """Correlate over targets what a method gains with how far the distance drops (Xia 2021, section 4.5).

    Args:
        gains: For each target, its score less the baseline's.
        drops: For each target, the baseline's distance less the method's.

    Returns:
        Both correlations; of the ranks, ties share their mean.

    Raises:
        ValueError: Fewer than two targets, other numbers of them, or a quantity that is the same for all or not finite.

    Example:
        >>> gain_correlation([2.1, 0.3, 1.0], [0.4, 0.1, 0.2])
        Correlation(pearson=0.99..., spearman=1.0)

    Deviations: the paper says 0.4 for NER, not of which kind.
    """
    require(len(gains) == len(drops), "drops", f"be one for each of {len(gains)} gains", len(drops))
    require(len(gains) > 1, "gains", "be of two targets or more", len(gains))
    both = []
    for name, values in (("gains", gains), ("drops", drops)):
        both.append(np.asarray(values, dtype=np.float64))
        require(bool(np.isfinite(both[-1]).all()), name, "be finite", list(values))
        require(len(set(values)) > 1, name, "differ between targets", values[0])
    ranks = [(np.sum(x[:, None] > x, axis=1) + np.sum(x[:, None] >= x, axis=1)) / 2 for x in both]
    return Correlation(*(float(np.corrcoef(x, y)[0, 1]) for x, y in (both, ranks)))


def project(
    clouds: Sequence[Float[Tensor, "_ dim"]], method: Literal["pca", "umap"] = "pca", *, seed: int = 0
) -> list[Float[Tensor, "_ 2"]]:
    """Lay several clouds of points into one plane, together.

    PCA: onto the two directions of the most variance of all points, each turned so that its largest entry is positive.

    Args:
        clouds: Points in rows, of two dimensions or more.
        method: How; UMAP bends the space.
        seed: Of UMAP.

    Returns:
        As many clouds, of two coordinates.

    Raises:
        ValueError: Another method, no cloud, or clouds of other dimensions or with points that are not finite.
        ImportError: UMAP without the package umap-learn.

    Example:
        >>> [cloud.shape for cloud in project([torch.randn(5, 7), torch.randn(3, 7)])]
        [torch.Size([5, 2]), torch.Size([3, 2])]
    """
    check_choice("method", method, ("pca", "umap"))
    require(len(clouds) > 0, "clouds", "hold at least one", "none")
    shapes = [tuple(cloud.shape) for cloud in clouds]
    alike = all(len(shape) == 2 and shape[1] == shapes[0][-1] > 1 for shape in shapes)
    require(alike, "clouds", "hold points in rows, all of as many dimensions, two or more", f"shapes {shapes}")
    points = torch.cat([cloud.detach().cpu().double() for cloud in clouds])
    require(bool(points.isfinite().all()), "clouds", "be finite", "NaN or infinity")
    if method == "umap":
        umap = import_optional("umap", pip="umap-learn", feature="UMAP")
        near = max(2, min(15, len(points) - 1))  # 15 is its default
        reducer = umap.UMAP(n_components=2, n_neighbors=near, random_state=seed, n_jobs=1)  # a seed means one job
        flat = torch.from_numpy(np.asarray(reducer.fit_transform(points.numpy())))
    else:
        points = points - points.mean(0)
        axes = torch.linalg.eigh(points.T @ points).eigenvectors[:, -2:].flip(1)  # in rising order of variance
        signs = axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
        flat = points @ (axes * signs)
    return list(torch.split(flat, [len(cloud) for cloud in clouds]))


@contextmanager
def reading(model: nn.Module) -> Iterator[None]:
    """Run a model for its output alone; afterwards each of its modules is in the mode that it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _to_device(model: nn.Module, batch: Batch) -> dict[str, Any]:
    if not isinstance(batch, Mapping):
        raise TypeError(must("each batch", "be a mapping to the model's arguments", class_name(batch)))
    device = next(model.parameters()).device
    return {name: value.to(device) if isinstance(value, Tensor) else value for name, value in batch.items()}


def _mask(batch: Batch, states: Tensor) -> Tensor:
    """Give the valid positions of a batch, True = valid."""
    if states.dim() != 3:
        raise ValueError(must("layer", "give states of the axes (batch, seq, hidden)", f"shape {tuple(states.shape)}"))
    mask = batch.get("attention_mask")
    if mask is None:
        return torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
    return torch.as_tensor(mask, device=states.device) != 0


def _sentences(model: nn.Module, batch: Batch, pooling: str) -> list[Tensor]:
    """Give sentence vectors at each layer."""
    layers = model(**_to_device(model, batch), output_hidden_states=True).hidden_states
    mask = _mask(batch, layers[0])
    if pooling == "mean":
        return [masked_mean(states, mask) for states in layers]
    return [_firsts(states, mask) for states in layers]


def _firsts(states: Tensor, mask: Tensor) -> Tensor:
    """Take each sentence's first valid position."""
    return states[torch.arange(len(mask)), mask.int().argmax(1)]
