"""The checker of shape annotations at run time: beartype, for what is annotated with a shape and
nothing else.

mypy checks the other annotations; and many tests hand over wrong arguments on purpose, to read the
library's own message.
"""

from typing import Any, get_args

from beartype import beartype
from jaxtyping import AbstractArray


def has_shape(hint: Any) -> bool:
    """Tell whether an annotation mentions an array's shape."""
    return (isinstance(hint, type) and issubclass(hint, AbstractArray)) or any(
        map(has_shape, get_args(hint))
    )


def checked(function: Any) -> Any:
    """Decorate a function; annotations without a shape are left out."""
    hints = getattr(function, "__annotations__", {})
    for name in [name for name, hint in hints.items() if not has_shape(hint)]:
        del hints[name]
    return beartype(function)
