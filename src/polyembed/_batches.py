"""Batches of long inputs, and the progress bar of all long loops."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")

BATCHES_TOGETHER = 32
"""The number of batches that are read before they are sorted by length, to save padding."""


def chunked(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of `size` values; the last list may be shorter."""
    rest = iter(values)
    while chunk := list(islice(rest, size)):
        yield chunk


def batches_by_length(
    values: Iterable[T], size: int, length: Callable[[T], int]
) -> Iterator[list[T]]:
    """Yield batches of values of similar length, sorted among `BATCHES_TOGETHER` batches."""
    for pool in chunked(values, BATCHES_TOGETHER * size):
        yield from chunked(sorted(pool, key=length), size)


def progress_bar(
    items: Iterable[Any] | None = None, *, progress: bool | None, **options: Any
) -> Any:
    """Return a tqdm bar over `items`, shown if `progress`; None shows it on a terminal only."""
    from tqdm import tqdm

    # with disable=None, tqdm shows no bar without a terminal
    return tqdm(items, disable=None if progress is None else not progress, leave=False, **options)
