"""The one progress bar."""

from collections.abc import Iterable
from typing import Any


def progress_bar(
    items: Iterable[Any] | None = None, *, progress: bool | None, **options: Any
) -> Any:
    """Return a tqdm bar over `items`, shown if `progress`; None shows it on a terminal only."""
    from tqdm import tqdm

    # tqdm's own None: off without a terminal
    return tqdm(items, disable=None if progress is None else not progress, leave=False, **options)
