"""BIO labels: finding entities in them, writing entities as them, and the checks of labelled sentences."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from polyembed._checks import check_choice, must, require

EntityMode = Literal["conll", "strict"]

UNTYPED = "_"
"""The type of an entity whose labels are ``B`` and ``I`` alone."""


class Entity(NamedTuple):
    """An entity: its type, and the words ``start <= position < end``."""

    type: str
    start: int
    end: int


def entities(tags: Sequence[str], *, mode: EntityMode = "conll") -> list[Entity]:
    """Return the entities in the labels of one sentence: ``O``, ``B-<type>`` and ``I-<type>``.

    ``"conll"``, as conlleval counts: ``I-x`` after anything but an entity of type x also begins
    one. ``"strict"``, as IOB2 says: an entity begins with ``B``; an ``I-x`` that does not continue
    an entity of type x belongs to no entity.

    The type is everything after the first dash; ``B`` and ``I`` alone have the type `UNTYPED`.

    Args:
        tags: The labels of one sentence.
        mode: ``"conll"`` or ``"strict"``.

    Returns:
        The entities, in order.

    Raises:
        ValueError: If a label has another form, or the mode is unknown.

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
        prefix, type_ = split_label(tag)
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
    """Return IOB2 labels of entities that do not overlap; `entities` reads them back in either
    mode.

    Args:
        found: The entities of one sentence, in any order.
        length: How many words the sentence has.

    Returns:
        One label for each word.

    Example:
        >>> bio_labels([Entity("LOC", 3, 4), Entity("PER", 0, 2)], 5)
        ['B-PER', 'I-PER', 'O', 'B-LOC', 'O']
    """
    labels = ["O"] * length
    for type_, start, end in found:
        suffix = "" if type_ == UNTYPED else f"-{type_}"
        labels[start:end] = ["B" + suffix] + ["I" + suffix] * (end - start - 1)
    return labels


def iob2(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the IOB2 (BIO) labels of one sentence, of labels in IOB1 or IOB2.

    In IOB1 an entity begins with ``I``, and with ``B`` only directly after an entity of its own
    type; CoNLL-2003's English and German files are written so. An ``I-x`` that does not continue an
    entity of type x becomes ``B-x``; every other label is kept. The entities, as conlleval counts
    them, are the same before and after.

    Args:
        tags: The labels of one sentence.

    Returns:
        One label for each of `tags`; `tags` itself, as a tuple, if it already is IOB2.

    Raises:
        TypeError: If `tags` is a string.
        ValueError: If a label is not ``O``, ``B-<type>`` or ``I-<type>``.

    Example:
        >>> iob2(["I-PER", "I-PER", "B-PER", "O", "I-LOC"])
        ('B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC')
    """
    if isinstance(tags, str):
        raise TypeError(must("tags", "be the labels of a sentence", f"the string {tags!r}"))
    labels = []
    open_type: str | None = None
    for tag in tags:
        prefix, type_ = split_label(tag)
        labels.append(f"B{tag[1:]}" if prefix == "I" and type_ != open_type else tag)
        open_type = None if prefix == "O" else type_
    return tuple(labels)


def split_label(label: str) -> tuple[str, str]:
    """Split a label into ``B``, ``I`` or ``O`` and the type."""
    prefix, _, type_ = label.partition("-")
    if label != "O" and prefix not in ("B", "I"):
        raise ValueError(must("labels", "be O, B-<type> or I-<type>", repr(label)))
    return prefix, type_ or UNTYPED


def check_labels(
    gold: Sequence[Sequence[str | None]],
    *,
    empty: bool = True,
    **predicted: Sequence[Sequence[str]],
) -> None:
    """Require one label of each system for each label of `gold`; without `empty`, at least one label."""
    require(
        empty or any(len(right) for right in gold),
        "gold",
        "hold at least one sentence with a label",
        "none",
    )
    for name, sentences in {"gold": gold, **predicted}.items():
        rule = f"have as many sentences as gold, {len(gold)}"
        require(len(sentences) == len(gold), name, rule, len(sentences))
        for index, (right, labels) in enumerate(zip(gold, sentences, strict=True)):
            if isinstance(labels, str):
                raise TypeError(
                    must(
                        f"{name}[{index}]", "be the labels of a sentence", f"the string {labels!r}"
                    )
                )
            rule = f"have as many labels as gold[{index}], {len(right)}"
            require(len(labels) == len(right), f"{name}[{index}]", rule, len(labels))
