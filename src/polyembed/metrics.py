"""Scores of predicted tags against gold tags: entity F1, accuracy, and both per class.

All functions take one list of labels per sentence. A word whose gold label is None does not count:
it is left out of the gold and of the predicted labels. Where the gold label is a set of names, each
name is right; a prediction outside the set is compared with the set's first name in the alphabet.
Names are chosen word by word, so that a part of an entity whose type is half known can count as an
entity. A ratio whose denominator is 0 is 0.0.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Literal, NamedTuple

from polyembed._checks import check_choice, must, require

__all__ = [
    "UNTYPED",
    "Entity",
    "EntityMode",
    "Labels",
    "MetricName",
    "Scheme",
    "Scores",
    "accuracy",
    "entities",
    "entity_f1",
    "macro_f1",
    "per_class",
    "per_tag",
]

EntityMode = Literal["conll", "strict"]
Scheme = Literal["bio", "iob1", "bioes", "bilou"]
SCHEMES: dict[Scheme, tuple[str, ...]] = {
    "bio": ("B", "I"),
    "iob1": ("B", "I"),
    "bioes": ("B", "I", "E", "S"),
    "bilou": ("B", "I", "L", "U"),
}
"""The prefixes of each scheme: begin, inside and, if the scheme has them, end and single."""

UNTYPED = "_"
"""The type of an entity whose labels are ``B`` and ``I`` alone."""


class Entity(NamedTuple):
    """An entity: its type, and the words ``start <= position < end``."""

    type: str
    start: int
    end: int


def entities(
    tags: Sequence[str], *, mode: EntityMode = "conll", scheme: Scheme = "bio"
) -> list[Entity]:
    """Return the entities in the labels of one sentence: ``O``, ``B-<type>`` and ``I-<type>``.

    The mode ``"conll"`` counts as conlleval does: an ``I-x`` that does not follow an entity of type
    x also begins an entity, so IOB1 is read too. The mode ``"strict"`` follows IOB2: an entity
    begins with ``B``, and an ``I-x`` that does not continue an entity of type x belongs to no
    entity.

    In BIOES an entity of one word is ``S-<type>``, and a longer one begins with ``B`` and ends with
    ``E``; in BILOU these are ``U`` and ``L``. Both are read strictly: a label that breaks the
    scheme belongs to no entity.

    The type is everything after the first dash; ``B`` and ``I`` alone have the type `UNTYPED`.

    Args:
        tags: The labels of one sentence.
        mode: The mode of BIO, ``"conll"`` or ``"strict"``; other schemes have none.
        scheme: ``"bio"`` (IOB2), ``"iob1"``, ``"bioes"`` or ``"bilou"``.

    Returns:
        The entities, in order.

    Raises:
        ValueError: If a label is not of the scheme, or the mode or the scheme is unknown.

    Example:
        >>> entities(["I-PER", "I-PER", "O", "B-LOC"])
        [Entity(type='PER', start=0, end=2), Entity(type='LOC', start=3, end=4)]
        >>> entities(["I-PER", "I-PER", "O", "B-LOC"], mode="strict")
        [Entity(type='LOC', start=3, end=4)]
        >>> entities(["B-PER", "E-PER", "O", "S-LOC"], scheme="bioes")
        [Entity(type='PER', start=0, end=2), Entity(type='LOC', start=3, end=4)]
    """
    check_choice("mode", mode, ("conll", "strict"))
    check_choice("scheme", scheme, SCHEMES)
    begin, inside, *last = SCHEMES[scheme]  # last: the end and the single word, if any
    begins = {begin, *last[1:]}
    if not last and (mode == "conll" or scheme == "iob1"):
        begins.add(inside)
    found: list[Entity] = []
    open_type: str | None = None
    start = 0
    for position, tag in enumerate([*tags, "O"]):
        prefix, type_ = split_label(tag, scheme)
        if prefix not in (inside, *last[:1]) or open_type != type_:
            if open_type is not None and not last:
                found.append(Entity(open_type, start, position))
            open_type, start = (type_ if prefix in begins else None), position
        if prefix in last and open_type is not None:
            found.append(Entity(type_, start, position + 1))
            open_type = None
    return found


def bio_labels(found: Iterable[Entity], length: int, scheme: Scheme = "bio") -> list[str]:
    """Return the labels of entities that do not overlap; `entities` reads them back.

    Args:
        found: The entities of one sentence, in any order.
        length: The number of words of the sentence.
        scheme: ``"bio"`` (IOB2), ``"bioes"`` or ``"bilou"``.

    Returns:
        One label for each word.

    Example:
        >>> bio_labels([Entity("LOC", 3, 4), Entity("PER", 0, 2)], 5)
        ['B-PER', 'I-PER', 'O', 'B-LOC', 'O']
    """
    labels = ["O"] * length
    for type_, start, end in found:
        suffix = "" if type_ == UNTYPED else f"-{type_}"
        parts = ["B", *"I" * (end - start - 1)]
        if len(SCHEMES[scheme]) > 2:
            last, single = SCHEMES[scheme][2:]
            parts[-1] = last if len(parts) > 1 else single
        labels[start:end] = [part + suffix for part in parts]
    return labels


def scheme_of(labels: Iterable[str]) -> Scheme | None:
    """Return the scheme of a set of labels, read off their letters; None if they mark no entities.

    IOB1 and BIO have the same letters; both are read as BIO. Letters alone are a scheme where ``B``
    and ``I`` are among them; otherwise some label must have a type.

    Args:
        labels: The labels that occur.

    Returns:
        The scheme's name.

    Example:
        >>> scheme_of(["O", "B-PER", "I-PER"]), scheme_of(["NOUN", "VERB"])
        ('bio', None)
    """
    names = {*labels} - {"O"}
    letters = {name.partition("-")[0] for name in names}
    found = (scheme for scheme, known in SCHEMES.items() if letters <= {*known})
    # E and O alone, or B, E and O, are labels of their own: languages, ends of sentences
    return next(found, None) if {"B", "I"} <= letters or "-" in "".join(names) else None


def to_iob2(tags: Sequence[str], *, scheme: Scheme = "iob1") -> tuple[str, ...]:
    """Convert the labels of one sentence from IOB1, IOB2, BIOES or BILOU to IOB2 (BIO).

    In IOB1 an entity begins with ``I``, and with ``B`` only directly after an entity of the same
    type; CoNLL-2003's English and German files are written so. An ``I-x`` that does not continue an
    entity of type x becomes ``B-x``; every other label is kept. The entities, as conlleval counts
    them, are the same before and after. In BIOES and BILOU, labels that break the scheme become
    ``O``.

    Args:
        tags: The labels of one sentence.
        scheme: The scheme of `tags`: ``"iob1"`` or ``"bio"``, ``"bioes"`` or ``"bilou"``.

    Returns:
        One label for each of `tags`; `tags` itself, as a tuple, if it already is IOB2.

    Raises:
        TypeError: If `tags` is a string.
        ValueError: If a label is not of the scheme.

    Example:
        >>> to_iob2(["I-PER", "I-PER", "B-PER", "O", "I-LOC"])
        ('B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC')
    """
    if isinstance(tags, str):
        raise TypeError(must("tags", "be the labels of a sentence", f"the string {tags!r}"))
    labels = list(tags)
    return tuple(bio_labels(entities(labels, scheme=scheme), len(labels)))


def split_label(label: str, scheme: Scheme = "bio") -> tuple[str, str]:
    """Split a label into its prefix, such as ``B`` or ``O``, and the type."""
    prefix, _, type_ = label.partition("-")
    if label != "O" and prefix not in SCHEMES[scheme]:
        *first, last = (f"{letter}-<type>" for letter in SCHEMES[scheme])
        rule = f"be O, {', '.join(first)} or {last}"
        raise ValueError(
            must(
                "labels",
                rule,
                f"{label!r} (scheme= names another scheme; accuracy takes any labels)",
            )
        )
    return prefix, type_ or UNTYPED


def check_labels(given: Mapping[str, Sequence[Sequence[Any]]], *, empty: bool = True) -> None:
    """Require as many sentences and labels of all as of the first; unless `empty`, some label."""
    first, gold = next(iter(given.items()))
    require(empty or any(map(len, gold)), first, "hold at least one sentence with a label", "none")
    for name, sentences in given.items():
        rule = f"have as many sentences as {first}, {len(gold)}"
        require(len(sentences) == len(gold), name, rule, len(sentences))
        for index, (right, labels) in enumerate(zip(gold, sentences, strict=True)):
            place = f"{name}[{index}]"
            if isinstance(labels, str) or hasattr(labels, "requires_grad"):
                found = f"the {'string' if isinstance(labels, str) else 'tensor'} {labels!r}"
                raise TypeError(must(place, "be the labels of a sentence", found))
            rule = f"have as many labels as {first}[{index}], {len(right)}"
            require(len(labels) == len(right), place, rule, len(labels))


Labels = Sequence[Sequence[str]]
"""The labels of the words of each sentence; a list of one label for a text that has one."""

GoldLabels = Sequence[Sequence[Any]]
"""The right labels; None where one is not known, a set of names where any of them is right."""

MetricName = Literal["f1", "accuracy", "macro_f1"]
"""Entity micro-F1, accuracy, or the mean F1 of the labels."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Counts, and precision, recall and F1 computed from them.

    With `correct` things that are both among the `predicted` and among the `support` of the gold
    standard,

        precision = correct / predicted,  recall = correct / support,
        f1 = 2 * correct / (predicted + support),

    each 0.0 where the denominator is 0.

    Args:
        correct: The number of predictions that are right.
        predicted: The number of things that were predicted.
        support: The number of things in the gold standard.

    Example:
        >>> scores = Scores(correct=1, predicted=2, support=4)
        >>> scores.precision, scores.recall, round(scores.f1, 3)
        (0.5, 0.25, 0.333)
    """

    correct: int
    predicted: int
    support: int

    @property
    def precision(self) -> float:
        """The share of the predictions that are right."""
        return _ratio(self.correct, self.predicted)

    @property
    def recall(self) -> float:
        """The share of the gold standard that was found."""
        return _ratio(self.correct, self.support)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return _ratio(2 * self.correct, self.predicted + self.support)


def entity_f1(
    gold: GoldLabels, predicted: Labels, *, mode: EntityMode = "conll", scheme: Scheme = "bio"
) -> Scores:
    """Score entities over all sentences (micro average): an entity is right if its type and both
    its ends are.

    ``"conll"`` scores as conlleval does, and seqeval by default; ``"strict"`` scores as seqeval
    with ``mode="strict", scheme=IOB2``. ``scheme="bioes"`` and ``"bilou"`` score as seqeval with
    ``IOBES`` and ``BILOU``. See `entities`.

    Args:
        gold: The right labels of each sentence.
        predicted: The predicted labels of each sentence.
        mode: The mode of BIO, ``"conll"`` or ``"strict"``; other schemes have none.
        scheme: The scheme of the labels; see `entities`.

    Returns:
        The scores; without any entity all three ratios are 0.0.

    Raises:
        TypeError: If the labels are not one sequence for each sentence.
        ValueError: If the lengths differ, or a label is not of the scheme.

    Example:
        >>> gold = [["B-PER", "I-PER", "O"], ["B-LOC"]]
        >>> entity_f1(gold, [["B-PER", "O", "O"], ["B-LOC"]]).f1
        0.5
    """
    return sum_of(per_class(gold, predicted, mode=mode, scheme=scheme))


def per_class(
    gold: GoldLabels, predicted: Labels, *, mode: EntityMode = "conll", scheme: Scheme = "bio"
) -> dict[str, Scores]:
    """Score entities for each entity type; see `entity_f1`.

    Args:
        gold: The right labels of each sentence.
        predicted: The predicted labels of each sentence.
        mode: The mode of BIO, ``"conll"`` or ``"strict"``; other schemes have none.
        scheme: The scheme of the labels; see `entities`.

    Returns:
        The scores of each type that occurs in `gold` or `predicted`, by name.

    Raises:
        TypeError: If the labels are not one sequence for each sentence.
        ValueError: If the lengths differ, or a label is not of the scheme.

    Example:
        >>> per_class([["B-PER", "B-LOC"]], [["B-PER", "B-PER"]])["PER"]
        Scores(correct=1, predicted=2, support=1)
    """
    return _by_name(gold, predicted, partial(entities, mode=mode, scheme=scheme))


def accuracy(gold: GoldLabels, predicted: Labels) -> float:
    """Return the share of words whose label is right; 0.0 without words.

    Args:
        gold: The right labels of each sentence.
        predicted: The predicted labels of each sentence.

    Returns:
        The share, in [0, 1].

    Raises:
        TypeError: If the labels are not one sequence for each sentence.
        ValueError: If the lengths differ.

    Example:
        >>> accuracy([["DET", "NOUN"], ["VERB"]], [["DET", "VERB"], ["VERB"]])
        0.6666666666666666
    """
    return sum_of(per_tag(gold, predicted)).recall


def macro_f1(gold: GoldLabels, predicted: Labels) -> float:
    """Return the unweighted mean of the labels' F1; 0.0 without labels.

    ``1 / |L| sum_{l in L} f1_l`` over the labels ``L`` that occur in `gold` or `predicted`, as
    scikit-learn's macro average.

    Args:
        gold: The right labels of each sentence; a list of one label for a text that has one.
        predicted: The predicted labels of each sentence.

    Returns:
        The mean, in [0, 1].

    Raises:
        TypeError: If the labels are not one sequence for each sentence.
        ValueError: If the lengths differ.

    Example:
        >>> macro_f1([["good"], ["good"], ["bad"]], [["good"], ["good"], ["good"]])
        0.4
    """
    scores = per_tag(gold, predicted).values()
    return sum(score.f1 for score in scores) / len(scores) if scores else 0.0


def per_tag(gold: GoldLabels, predicted: Labels) -> dict[str, Scores]:
    """Score each label by itself, word by word.

    Args:
        gold: The right labels of each sentence.
        predicted: The predicted labels of each sentence.

    Returns:
        The scores of each label that occurs in `gold` or `predicted`, by name.

    Raises:
        TypeError: If the labels are not one sequence for each sentence.
        ValueError: If the lengths differ.

    Example:
        >>> per_tag([["DET", "NOUN"]], [["DET", "DET"]])
        {'DET': Scores(correct=1, predicted=2, support=1), 'NOUN': Scores(correct=0, predicted=0,
        support=1)}
    """
    return _by_name(gold, predicted, lambda labels: zip(labels, count(), strict=False))


def settled(gold: Any, predicted: str | None = None) -> Any:
    """Return one name for a set of right labels: the prediction if in the set, else the first."""
    if not isinstance(gold, set | frozenset):
        return gold
    return predicted if predicted in gold else min(gold)


def _by_name(
    gold: GoldLabels, predicted: Labels, things: Callable[[list[str]], Iterable[tuple[Any, ...]]]
) -> dict[str, Scores]:
    """Score the things of each name; `things` finds them in labels, their names first."""
    check_labels({"gold": gold, "predicted": predicted})
    correct, guessed, support = Counter[str](), Counter[str](), Counter[str]()
    for right, guess in zip(gold, predicted, strict=True):
        known = [(one, other) for one, other in zip(right, guess, strict=True) if one is not None]
        there = {*things([settled(one, other) for one, other in known])}
        thought = {*things([other for _, other in known])}
        for counts, found in ((correct, there & thought), (guessed, thought), (support, there)):
            counts.update(name for name, *_ in found)
    names = sorted(guessed.keys() | support.keys())
    return {name: Scores(correct[name], guessed[name], support[name]) for name in names}


def sum_of(scores: Mapping[str, Scores]) -> Scores:
    """Return the scores of all names together."""
    counts = ((one.correct, one.predicted, one.support) for one in scores.values())
    return Scores(*map(sum, zip((0, 0, 0), *counts, strict=True)))


def _ratio(numerator: int, denominator: int) -> float:
    return numerator / denominator if denominator else 0.0
