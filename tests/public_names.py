"""The public surface as text: every name of every ``__all__``, with signatures.

python tests/public_names.py > tests/public_names.txt
"""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator

import polyembed

FAMILIES = [
    importlib.import_module(f"polyembed.{found.name}")
    for found in pkgutil.iter_modules(polyembed.__path__)
    if not found.name.startswith("_")
]


def describe() -> Iterator[str]:
    """Yield one line per name, and methods below the class that defines them."""
    for module in (polyembed, *FAMILIES):
        yield f"# {module.__name__}"
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            # a name that a family also has is described there
            known = module is polyembed and any(
                getattr(family, name, None) is value for family in FAMILIES
            )
            yield from [name] if known else _of(name, value)


def _of(name: str, value: object) -> Iterator[str]:
    if inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__)
        yield f"class {name}({bases}): {_signature(value)}"
        for method, member in sorted(vars(value).items()):
            if method.startswith("_"):
                continue
            plain = inspect.unwrap(
                member.__func__ if isinstance(member, classmethod | staticmethod) else member
            )
            kind = (
                type(member).__name__
                if isinstance(member, classmethod | staticmethod | property)
                else ""
            )
            if inspect.isfunction(plain):
                yield f"    {kind} {method}{_signature(plain)}".replace("     ", "    ")
            elif isinstance(member, property):
                yield f"    property {method}"
    elif callable(value):
        yield f"{name}{_signature(value)}"
    else:
        yield f"{name}: {type(value).__name__}"


def _signature(value: object) -> str:
    """Return names, kinds and defaults of arguments. Annotations are left to mypy."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(?)"
    bare = [
        parameter.replace(annotation=parameter.empty, default=_in_order(parameter.default))
        for parameter in signature.parameters.values()
    ]
    text = str(signature.replace(parameters=bare, return_annotation=signature.empty))
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _in_order(default: object) -> object:
    """Return a frozen set as a sorted tuple, which is the same in every process."""
    return tuple(sorted(default)) if isinstance(default, frozenset) else default


if __name__ == "__main__":
    print("\n".join(describe()))
