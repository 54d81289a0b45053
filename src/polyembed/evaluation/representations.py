"""The representations of two languages in an encoder: their states, distances and projections (Xia
2021).
"""

from collections.abc import Iterable, Mapping, Sequence
from threading import get_ident
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from polyembed._checks import check_choice, check_positive, import_optional, require
from polyembed._views import evaluation_view
from polyembed.functional.distances import hausdorff_distance
from polyembed.tagging import to_device
from polyembed.transfer.rtn import encoder_layer, transformed_output

Batch = Mapping[str, Any]


class RepresentationDistances(NamedTuple):
    """Three distances between two clouds of points.

    Attributes:
        hausdorff: The Hausdorff distance (Xia 2021, equations 5 and 6); sensitive to a single
            outlier.
        modified: The Hausdorff distance with means instead of the outer maxima.
        cosine: The mean cosine (a similarity) over all pairs of a source and a target point.
    """

    hausdorff: float
    modified: float
    cosine: float


def collect_hidden_states(
    model: nn.Module,
    batches: Iterable[Batch],
    layer: int | nn.Module,
    level: Literal["token", "cls"] = "token",
    *,
    max_points: int = 50_000,
) -> Float[Tensor, "points hidden"]:
    """Collect a layer's hidden states of all tokens, or of each sentence's first token (``[CLS]``).

    The model runs in evaluation mode without gradients. Padding (``attention_mask``) and sentences
    that are all padding are left out. Inside ``transformed_output(layer, rtn)``, the transformed
    states are collected.

    Args:
        model: A transformers model, or any model that takes ``model(**batch)``, on its device.
        batches: The batches, which are read until `max_points` states are found: shuffle the rows
            first.
        layer: An index into `hidden_states` (see `polyembed.transfer.encoder_layer`), or a module.
        level: ``"token"`` or ``"cls"``.
        max_points: The largest number of states to collect.

    Returns:
        The states, on the CPU.

    Raises:
        ValueError: If the level is unknown, or `batches` is empty.

    Example:
        >>> model = nn.ModuleDict({"table": nn.Embedding(7, 3)})
        >>> model.forward = lambda input_ids, **_: model["table"](input_ids)
        >>> batch = {"input_ids": torch.tensor([[1, 2, 0]]), "attention_mask": torch.tensor([[1,
        ...     1, 0]])}
        >>> collect_hidden_states(model, [batch], model["table"]).shape
        torch.Size([2, 3])
    """
    check_choice("level", level, ("token", "cls"))
    check_positive(max_points=max_points)
    module = layer if isinstance(layer, nn.Module) else encoder_layer(model, layer)
    seen: list[Tensor] = []
    thread = get_ident()
    found: list[Tensor] = []
    count = 0
    device = next(model.parameters()).device

    def watch(states: Tensor) -> Tensor:
        if get_ident() == thread:  # other threads may run the same layer
            seen[:] = [states]  # the last of a layer that runs several times
        return states

    for batch in batches:
        with transformed_output(module, watch), torch.no_grad():  # the view has their hook
            inputs = {name: to_device(value, device) for name, value in batch.items()}
            evaluation_view(model)(**inputs)
        [states] = seen
        mask = batch.get("attention_mask", torch.ones(states.shape[:2])).to(device) != 0
        if level == "cls":  # the first valid position of each sentence alone
            mask &= mask.cumsum(1) == 1
        found.append(states[mask][: max_points - count].cpu())
        count += len(found[-1])
        if count == max_points:
            break
    require(bool(found), "batches", "hold at least one batch", "none")
    return torch.cat(found)


@torch.no_grad()
def representation_distances(
    source: Float[Tensor, "m dim"], target: Float[Tensor, "n dim"], *, chunk: int = 1024
) -> RepresentationDistances:
    """Compute the cosine distances of two clouds of points (Xia 2021, section 4.5).

    Args:
        source: Points in rows, for example from `collect_hidden_states`.
        target: Points in rows.
        chunk: See `polyembed.functional.hausdorff_distance`.

    Returns:
        The three distances.

    Raises:
        ValueError: If points have different sizes, or a cloud has no points.

    Example:
        >>> representation_distances(torch.eye(2), torch.tensor([[2.0, 0.0]]))
        RepresentationDistances(hausdorff=1.0, modified=0.5, cosine=0.5)
    """
    for name, points in (("source", source), ("target", target)):
        some = points.dim() == 2 and len(points) > 0
        require(some, name, "hold points in rows", f"shape {tuple(points.shape)}")
    # the mean over all pairs is the product of the mean directions
    centres = [F.normalize(points.double(), dim=-1).mean(0) for points in (source, target)]
    return RepresentationDistances(
        float(hausdorff_distance(source, target, chunk=chunk)),
        float(hausdorff_distance(source, target, modified=True, chunk=chunk)),
        float(centres[0] @ centres[1]),
    )


def project_2d(
    clouds: Sequence[Float[Tensor, "_ dim"]],
    method: Literal["pca", "umap"] = "pca",
    *,
    seed: int = 0,
) -> list[Float[Tensor, "_ 2"]]:
    """Project several clouds of points together onto one plane.

    PCA projects onto the two directions of the most variance of all points. The entry of each
    direction with the largest absolute value is positive.

    Args:
        clouds: The clouds, each with its points in rows of two or more dimensions.
        method: ``"pca"`` or ``"umap"``.
        seed: The seed of UMAP.

    Returns:
        The projected clouds, ``(points, 2)`` each, in the same order.

    Raises:
        ValueError: If the method is unknown.
        ImportError: If umap-learn is not installed, for UMAP.

    Example:
        >>> [cloud.shape for cloud in project_2d([torch.randn(5, 7), torch.randn(3, 7)])]
        [torch.Size([5, 2]), torch.Size([3, 2])]
    """
    check_choice("method", method, ("pca", "umap"))
    points = torch.cat([cloud.detach().cpu().double() for cloud in clouds])
    if method == "umap":
        umap = import_optional("umap", pip="umap-learn", feature="UMAP")
        near = max(2, min(15, len(points) - 1))  # 15 is UMAP's default
        # with a seed, UMAP runs in one thread
        reducer = umap.UMAP(n_components=2, n_neighbors=near, random_state=seed, n_jobs=1)
        threads = torch.get_num_threads()
        flat = torch.from_numpy(np.asarray(reducer.fit_transform(points.numpy())))
        torch.set_num_threads(threads)  # numba has set it to the number of cores
    else:
        points = points - points.mean(0)
        vectors = torch.linalg.eigh(points.T @ points).eigenvectors  # in rising order of variance
        axes = vectors[:, -2:].flip(1)
        signs = axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
        flat = points @ (axes * signs)
    return list(torch.split(flat, [len(cloud) for cloud in clouds]))
