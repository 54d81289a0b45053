"""Nearest neighbours across two spaces of vectors.

The similarities of all pairs do not fit into memory for vocabularies of 200,000 words, so the
searches compute them in blocks.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyembed._checks import check_dim, check_last_dim, check_positive
from polyembed.functional.alignment import unit

CPU_BLOCK = 8 << 20  # similarities held at once: 32 MB in float32, which mostly stay in the cache
DEVICE_BLOCK = 64 << 20  # the same on a GPU, where starting a kernel costs more
# scores per group: larger groups leave more candidates, smaller groups more maxima to compare
GROUP = 16


class Nearest(NamedTuple):
    """The scores and rows of the best keys of each query, the best first."""

    scores: Float[Tensor, "query k"]
    ids: Int[Tensor, "query k"]


def csls(x: Float[Tensor, "n dim"], y: Float[Tensor, "m dim"], k: int = 10) -> Float[Tensor, "n m"]:
    """Score all pairs by cross-domain similarity local scaling (Lample 2018, equation 3).

    ``csls(x_i, y_j) = 2 cos(x_i, y_j) - r(x_i) - r(y_j)``, where ``r(x_i)`` is the mean cosine of
    ``x_i`` with its `k` nearest rows of `y`, and ``r(y_j)`` the mean cosine of ``y_j`` with its `k`
    nearest rows of `x`. The scaling lowers the scores of hubs, which are vectors near to
    everything. All pairs are held in memory; `nearest_csls` searches large spaces.

    Args:
        x: Vectors of any length, ``(n, dim)``.
        y: Vectors, ``(m, dim)``.
        k: The size of a neighbourhood; all rows where there are fewer.

    Returns:
        Scores between -4 and 4, ``(n, m)``.

    Raises:
        ValueError: If shapes do not fit, or `k` is below 1.
        TypeError: If vectors are not floating point.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> csls(x, x, k=1)
        tensor([[ 0., -2.],
                [-2.,  0.]])
    """
    _check({"x": x, "y": y}, k=k)
    with torch.autocast(x.device.type, enabled=False):
        similarity = unit(x) @ unit(y).mT
    near_x, near_y = (
        _mean(rows.topk(min(k, rows.shape[1]), 1).values) for rows in (similarity, similarity.mT)
    )
    return (2 * similarity - near_x[:, None] - near_y).to(x.dtype)


def nearest_cosine(
    queries: Float[Tensor, "n dim"], keys: Float[Tensor, "m dim"], k: int = 1
) -> Nearest:
    """Return the `k` keys with the largest cosine to each query, in blocks.

    The order of equal scores is not defined. NaN comes before all numbers, as in `torch.topk`.

    Args:
        queries: Vectors of any length, ``(n, dim)``.
        keys: Vectors, ``(m, dim)``.
        k: The number of keys per query; all keys where there are fewer.

    Returns:
        The cosines and the rows of the keys, the best first, without a gradient.

    Raises:
        ValueError: If shapes do not fit, or `k` is below 1.
        TypeError: If vectors are not floating point.

    Example:
        >>> keys = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
        >>> nearest_cosine(torch.tensor([[2.0, 3.0]]), keys).ids
        tensor([[1]])
    """
    _check({"queries": queries, "keys": keys}, k=k)
    with torch.no_grad():
        found = _search(unit(queries), unit(keys), k)
        return Nearest(found.scores.to(queries.dtype), found.ids)


def nearest_csls(
    queries: Float[Tensor, "n dim"],
    keys: Float[Tensor, "m dim"],
    k: int = 1,
    *,
    neighborhood: int = 10,
    space: Float[Tensor, "s dim"] | None = None,
) -> Nearest:
    """Return the `k` keys with the largest `csls` to each query, in blocks.

    The order of equal scores is not defined. NaN in one key, or in one vector of the queries'
    space, makes all scores NaN.

    Args:
        queries: Vectors of any length, ``(n, dim)``.
        keys: Vectors, ``(m, dim)``.
        k: The number of keys per query; all keys where there are fewer.
        neighborhood: The size of a neighbourhood, the ``k`` of `csls`.
        space: The vectors among which the keys have their neighbourhoods, ``(s, dim)``, the queries
            included; the queries alone if None.

    Returns:
        The scores of `csls` and the rows of the keys, the best first, without a gradient.

    Raises:
        ValueError: If shapes do not fit, or a count is below 1.
        TypeError: If vectors are not floating point.

    Example:
        >>> queries = torch.tensor([[1.0, 0.0], [0.8, 0.6]])
        >>> keys = torch.tensor([[0.9, 0.3], [0.5, 0.9]])  # the first is near to both
        >>> nearest_cosine(queries, keys).ids.flatten(), nearest_csls(queries, keys,
        ...     neighborhood=2).ids.flatten()
        (tensor([0, 0]), tensor([0, 1]))
    """
    _check({"queries": queries, "keys": keys}, k=k, neighborhood=neighborhood)
    if space is not None:
        _check({"keys": keys, "space": space})
    with torch.no_grad():
        x, y = unit(queries), unit(keys)
        hubness = _neighborhood(y, x if space is None else unit(space), neighborhood)
        found = _search(x, y, k, hubness=hubness)
        scores = found.scores - _neighborhood(x, y, neighborhood)[:, None]
        return Nearest(scores.to(queries.dtype), found.ids)


def mutual_csls(
    x: Float[Tensor, "n dim"], y: Float[Tensor, "m dim"], *, neighborhood: int = 10
) -> Int[Tensor, "pair 2"]:
    """Pair the rows that are each other's nearest by `csls` (Lample 2018, section 2.3), in blocks.

    Args:
        x: Vectors of any length, ``(n, dim)``.
        y: Vectors, ``(m, dim)``.
        neighborhood: The size of a neighbourhood, the ``k`` of `csls`.

    Returns:
        The pairs of a row of `x` and a row of `y`, ``(pair, 2)``, in the order of `x`; each row is
        in at most one pair.

    Raises:
        ValueError: If shapes do not fit, or `neighborhood` is below 1.
        TypeError: If vectors are not floating point.

    Example:
        >>> x = torch.tensor([[1.0, 0.1], [0.1, 1.0], [0.9, 0.0]])
        >>> mutual_csls(x, torch.tensor([[0.0, 2.0], [2.0, 0.0]]), neighborhood=1)
        tensor([[1, 0],
                [2, 1]])
    """
    _check({"x": x, "y": y}, neighborhood=neighborhood)
    if not len(x) or not len(y):
        return torch.zeros((0, 2), dtype=torch.int64, device=x.device)
    with torch.no_grad():
        a, b = unit(x), unit(y)
        forth = _search(a, b, 1, hubness=_neighborhood(b, a, neighborhood)).ids[:, 0]
        back = _search(b, a, 1, hubness=_neighborhood(a, b, neighborhood)).ids[:, 0]
        rows = torch.arange(len(x), device=x.device)
        mutual = back[forth] == rows
        return torch.stack([rows[mutual], forth[mutual]], 1)


def _check(spaces: dict[str, Tensor], **counts: int) -> None:
    """Check two spaces of vectors, named after the arguments, and counts."""
    first = next(iter(spaces.values()))
    for name, x in spaces.items():
        check_dim(name, x, 2, "n, dim")
        check_last_dim(name, x, first.shape[-1], first)
    check_positive(**counts)


def _mean(similarity: Tensor) -> Tensor:
    """Average each row, ``(n)``; an empty row gives 0."""
    return similarity.sum(1) / max(1, similarity.shape[1])


def _neighborhood(x: Tensor, y: Tensor, k: int) -> Tensor:
    """Average the `k` largest cosines of unit vectors, block by block."""
    return _mean(_search(x, y, k).scores)


def _search(queries: Tensor, keys: Tensor, k: int, *, hubness: Tensor | None = None) -> Nearest:
    """Return the `k` largest of ``q . key``, or of ``2 q . key - hubness[key]``, block by block."""
    k = min(k, len(keys))
    scores = queries.new_empty(len(queries), k)
    ids = torch.empty_like(scores, dtype=torch.int64)
    if k == 0:
        return Nearest(scores, ids)
    bias, scale = (queries.new_zeros(1), 1) if hubness is None else (-hubness, 2)
    size = CPU_BLOCK if queries.device.type == "cpu" else DEVICE_BLOCK
    length = max(1, min(len(queries), size // len(keys)))
    memory = queries.new_empty(length, len(keys))  # one buffer for all blocks
    for start in range(0, len(queries), length):
        block = memory[: len(queries) - start]
        rows = slice(start, start + len(block))
        torch.addmm(bias, queries[rows], keys.mT, alpha=scale, out=block)
        scores[rows], ids[rows] = _top(block, k)
    return Nearest(scores, ids)


def _top(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the `k` largest of each row as `torch.topk` does, faster where rows are long.

    The rows are cut into groups. The `k` largest are in the `k` groups with the largest maxima, and
    maxima cost a fraction of a selection.
    """
    num_groups = scores.shape[1] // GROUP
    if k > num_groups:
        top = scores.topk(k, 1)
        return top.values, top.indices
    whole = GROUP * num_groups
    # group g holds the places g, g + num_groups, ...
    groups = torch.unflatten(scores[:, :whole], 1, (GROUP, num_groups))
    best = groups.amax(1).topk(k, 1, sorted=False).indices
    candidates = groups.gather(2, best[:, None].expand(-1, GROUP, -1)).flatten(1)
    values, place = torch.cat([candidates, scores[:, whole:]], 1).topk(k, 1)
    inside = place < GROUP * k
    step, group = place // k, best.gather(1, place % k)
    return values, torch.where(inside, step * num_groups + group, place - GROUP * k + whole)
