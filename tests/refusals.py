"""What a caller is told of a wrong argument."""

from collections.abc import Callable
from typing import Any

import pytest


def refused(error: type[Exception], message: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Check that a call raises the error, with a message that matches."""
    with pytest.raises(error, match=message):
        call(*arguments, **options)
