"""Views of modules: other settings over the same parameters, for work that must not change the
module itself.
"""

from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any, TypeVar

from torch import nn

Module = TypeVar("Module", bound=nn.Module)


def shallow_copy(module: Module, **changes: Any) -> Module:
    """Return a copy that shares a module's parameters, buffers and children, except the `changes`.

    Hooks that are added to the copy, as transformers adds some at the first call, do not reach the
    module.

    Args:
        module: Any module; it is not changed.
        **changes: Attributes, children or parameters that the copy has instead.

    Returns:
        The copy, which is not compiled. Adding or replacing a child or a parameter of the copy does
        not change the module.
    """
    copy = module.__new__(type(module))
    for name, value in vars(module).items():  # the copy gets its own registries, also of hooks
        own = name.startswith("_") and isinstance(value, dict)
        # accelerate's `forward`, with hooks or without
        if isinstance(value, MethodType) and value.__self__ is module:
            value = MethodType(value.__func__, copy)
        if isinstance(value, partial) and value.args[:1] and value.args[0] is module:
            value = partial(value.func, copy, *value.args[1:], **value.keywords)
        vars(copy)[name] = value.copy() if own else value
    vars(copy).pop("_compiled_call_impl", None)  # which would call the module
    for name, value in changes.items():
        setattr(copy, name, value)
    return copy


def copied_tree(module: Module, change: Callable[[nn.Module], None]) -> Module:
    """Return a shallow copy of a module and of all modules inside it, each changed.

    Args:
        module: Any module; it is not changed.
        change: A function that changes a copy in place.

    Returns:
        The copy, which shares every parameter and buffer. What ``torch.compile`` has wrapped is
        not compiled in the copy, since it would call the module itself.
    """
    copies: dict[nn.Module, nn.Module] = {}

    def view(part: nn.Module) -> nn.Module:
        part = getattr(part, "_orig_mod", part)  # of torch.compile
        if part not in copies:
            copies[part] = copy = shallow_copy(part)
            change(copy)
            for name, child in part._modules.items():
                copy._modules[name] = None if child is None else view(child)
        return copies[part]

    return view(module)  # type: ignore[return-value]


def evaluation_view(module: Module) -> Module:
    """Return an evaluation-mode view of a module, so that threads may train and predict at once.

    Args:
        module: Any module.

    Returns:
        The module itself where all of it is in evaluation mode; else a copy that shares every
        parameter and buffer.
    """
    if not any(part.training for part in module.modules()):
        return module

    return copied_tree(module, lambda copy: setattr(copy, "training", False))
