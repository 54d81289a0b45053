"""Entities in BIO labels: found in them, and written as them."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from polyembed._checks import check_choice, must

EntityMode = Literal["conll", "strict"]

UNTYPED = "_"
"""The type of an entity whose labels are ``B`` and ``I`` alone."""


class Entity(NamedTuple):
    """An entity: its type, and the words ``start <= position < end``."""

    type: str
    start: int
    end: int


def entities(tags: Sequence[str], *, mode: EntityMode = "conll") -> list[Entity]:
    """Find the entities in the labels of one sentence: ``O``, ``B-<type>`` and ``I-<type>``.

    ``"conll"``, as conlleval counts: ``I-x`` after anything but an entity of type x begins one, too.
    ``"strict"``, as IOB2 says: an entity begins with ``B``; an ``I-x`` that does not go on with one of type x
    is in none.

    The type is all that follows the first dash; ``B`` and ``I`` alone have the type `UNTYPED`.

    Args:
        tags: The labels of one sentence.
        mode: ``"conll"`` or ``"strict"``.

    Returns:
        The entities, in order.

    Raises:
        ValueError: If a label has another form, or there is no such mode.

    Example:
        >>> entities(["I-PER", "I-PER", "O", "B-LOC"])
        [Entity(type='PER', start=0, end=2), Entity(type='LOC', start=3, end=4)]
        >>> entities(["I-PER", "I-PER", "O", "B-LOC"], mode="strict")
        [Entity(type='LOC', start=3, end=4)]
    """
    check_choice("mode", mode, ("conll", "strict"))
    found: list[Entity] = []
    open_type: str | None = None
    start = 0
    for position, tag in enumerate(tags):
        prefix, type_ = _parse(tag)
        if prefix == "I" and open_type == type_:
            continue
        if open_type is not None:
            found.append(Entity(open_type, start, position))
        begins = prefix == "B" or (prefix == "I" and mode == "conll")
        open_type, start = (type_ if begins else None), position
    if open_type is not None:
        found.append(Entity(open_type, start, len(tags)))
    return found


def bio_labels(found: Iterable[Entity], length: int) -> list[str]:
    """Write entities that do not overlap as IOB2 labels: what `entities` reads, in either mode.

    Args:
        found: The entities of one sentence, in any order.
        length: How many words the sentence has.

    Returns:
        One label a word.

    Example:
        >>> bio_labels([Entity("LOC", 3, 4), Entity("PER", 0, 2)], 5)
        ['B-PER', 'I-PER', 'O', 'B-LOC', 'O']
    """
    labels = ["O"] * length
    for type_, start, end in found:
        suffix = "" if type_ == UNTYPED else f"-{type_}"
        labels[start:end] = ["B" + suffix] + ["I" + suffix] * (end - start - 1)
    return labels


def _parse(tag: str) -> tuple[str, str]:
    prefix, _, type_ = tag.partition("-")
    if tag != "O" and prefix not in ("B", "I"):
        raise ValueError(must("labels", "be O, B-<type> or I-<type>", repr(tag)))
    return prefix, type_ or UNTYPED
