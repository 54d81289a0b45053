"""The papers' settings in recipes.toml, and a check of their keys before anything trains."""

import argparse
import inspect
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

RECIPES = tomllib.loads(Path(__file__).with_name("recipes.toml").read_text("utf-8"))


def positive(text: str) -> int:
    """Read a number of at least 1 from the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def check_keys(
    place: str, found: Iterable[str], takes: Callable[..., Any] | None, own: Iterable[str] = ()
) -> None:
    """Exit if a key is neither an argument of `takes` nor one of the program's own keys."""
    known = {*own, *(inspect.signature(takes).parameters if takes else ())}
    for key in found:
        if key not in known:
            raise SystemExit(
                f"recipes.toml: {place} must have keys among {sorted(known)}, got {key!r}"
            )
