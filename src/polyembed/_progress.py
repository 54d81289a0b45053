"""The progress bar of all long loops."""

from collections.abc import Iterable
from typing import Any


def progress_bar(
    items: Iterable[Any] | None = None, *, progress: bool | None, **options: Any
) -> Any:
    """Return a tqdm bar over `items`, shown if `progress`; None shows it on a terminal only."""
    from tqdm import tqdm

    # with disable=None, tqdm shows no bar without a terminal
    return tqdm(items, disable=None if progress is None else not progress, leave=False, **options)
