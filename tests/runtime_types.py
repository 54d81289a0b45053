"""The run-time checker of shape annotations: beartype, for annotations with a shape alone.

mypy checks the other annotations. In addition, many tests pass wrong arguments on purpose, to read
the library's own message.
"""

from typing import Any, get_args

from beartype import beartype
from jaxtyping import AbstractArray


def has_shape(hint: Any) -> bool:
    """Return whether an annotation mentions an array's shape."""
    return (isinstance(hint, type) and issubclass(hint, AbstractArray)) or any(
        map(has_shape, get_args(hint))
    )


def checked(function: Any) -> Any:
    """Decorate a function with beartype, after removal of its annotations without a shape."""
    hints = getattr(function, "__annotations__", {})
    for name in [name for name, hint in hints.items() if not has_shape(hint)]:
        del hints[name]
    return beartype(function)
