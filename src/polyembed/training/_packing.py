"""Nested inputs as nested dicts: what a trainer of others can move to its device."""

from collections.abc import Mapping
from typing import Any

from polyembed.text.pairs import PairedPieces
from polyembed.text.pieces import Pieces


def pack(value: Any) -> Any:
    """Return nested inputs as nested dicts: trainers rebuild these, and fail at named tuples."""
    if not isinstance(value, tuple):
        return value
    names = getattr(value, "_fields", tuple(map(str, range(len(value)))))
    return {name: pack(part) for name, part in zip(names, value, strict=True)}


def unpack(value: Any) -> Any:
    """Return what `pack` was given."""
    if not isinstance(value, Mapping):
        return value
    parts = {name: unpack(part) for name, part in value.items()}
    for kind in (Pieces, PairedPieces):
        if parts.keys() == set(kind._fields):
            return kind(**parts)
    return tuple(parts.values())
