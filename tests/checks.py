"""Two checks that many tests make: that a call is refused, and how large its tensors are."""

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


def refused(
    error: type[Exception], message: str, call: Callable[..., Any], *arguments: Any, **options: Any
) -> None:
    """Check that a call raises the error, with a message that matches."""
    with pytest.raises(error, match=message):
        call(*arguments, **options)


class Largest(TorchDispatchMode):
    """Records the number of elements of the largest tensor that an operation returns."""

    size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            self.size = max(self.size, tensor.numel() if isinstance(tensor, Tensor) else 0)
        return result
