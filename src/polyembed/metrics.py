"""Scores of predicted tags against gold tags: entity F1, accuracy, and both per class.

All take one list of labels for each sentence. A word whose gold label is None does not count: it is
left out of the gold and of the predicted labels. A ratio whose denominator is 0 is 0.0.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from polyembed._checks import check_choice, must, require

__all__ = [
    "UNTYPED",
    "Entity",
    "EntityMode",
    "Labels",
    "MetricName",
    "Scores",
    "accuracy",
    "entities",
    "entity_f1",
    "macro_f1",
    "per_class",
    "per_tag",
]

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


def to_iob2(tags: Sequence[str]) -> tuple[str, ...]:
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
        >>> to_iob2(["I-PER", "I-PER", "B-PER", "O", "I-LOC"])
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


Labels = Sequence[Sequence[str]]
"""The labels of the words of each sentence; a list of one label for a text that has one."""

GoldLabels = Sequence[Sequence[str | None]]
"""The right labels; None where one is not known."""

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
        correct: How many predictions are right.
        predicted: How many things were predicted.
        support: How many things there are in the gold standard.

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


def entity_f1(gold: GoldLabels, predicted: Labels, *, mode: EntityMode = "conll") -> Scores:
    """Score entities over all sentences (micro average): one is right if its type and both its ends
    are.

    ``"conll"`` gives what seqeval gives by default and conlleval, ``"strict"`` what seqeval gives
    with ``mode="strict", scheme=IOB2``; see `entities`.

    Args:
        gold: The right labels of each sentence.
        predicted: The predicted labels of each sentence.
        mode: ``"conll"`` or ``"strict"``.

    Returns:
        The scores; without any entity all three ratios are 0.0.

    Raises:
        TypeError: If the labels are not one sequence for each sentence.
        ValueError: If the lengths differ, a label is not BIO, or the mode is unknown.

    Example:
        >>> gold = [["B-PER", "I-PER", "O"], ["B-LOC"]]
        >>> entity_f1(gold, [["B-PER", "O", "O"], ["B-LOC"]]).f1
        0.5
    """
    check_choice("mode", mode, ("conll", "strict"))
    scores = per_class(gold, predicted, mode=mode).values()
    return Scores(
        correct=sum(score.correct for score in scores),
        predicted=sum(score.predicted for score in scores),
        support=sum(score.support for score in scores),
    )


def per_class(
    gold: GoldLabels, predicted: Labels, *, mode: EntityMode = "conll"
) -> dict[str, Scores]:
    """Score entities for each entity type; see `entity_f1`.

    Args:
        gold: The right labels of each sentence.
        predicted: The predicted labels of each sentence.
        mode: ``"conll"`` or ``"strict"``.

    Returns:
        The scores of each type that occurs in either, by name.

    Raises:
        TypeError: If the labels are not one sequence for each sentence.
        ValueError: If the lengths differ, a label is not BIO, or the mode is unknown.

    Example:
        >>> per_class([["B-PER", "B-LOC"]], [["B-PER", "B-PER"]])["PER"]
        Scores(correct=1, predicted=2, support=1)
    """
    check_choice("mode", mode, ("conll", "strict"))
    correct, guessed, support = Counter[str](), Counter[str](), Counter[str]()
    for right, guess in _known(gold, predicted):
        there, thought = entities(right, mode=mode), entities(guess, mode=mode)
        support.update(entity.type for entity in there)
        guessed.update(entity.type for entity in thought)
        correct.update(entity.type for entity in set(there) & set(thought))
    return _by_name(correct, guessed, support)


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
    scores = per_tag(gold, predicted).values()
    return _ratio(sum(score.correct for score in scores), sum(score.support for score in scores))


def macro_f1(gold: GoldLabels, predicted: Labels) -> float:
    """Return the unweighted mean of the labels' F1; 0.0 without labels.

    ``1 / |L| sum_{l in L} f1_l`` over the labels ``L`` that occur in either, as scikit-learn's
    macro average.

    Args:
        gold: The right labels of each sentence; of a text with one label, a list of it.
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
        The scores of each label that occurs in either, by name.

    Raises:
        TypeError: If the labels are not one sequence for each sentence.
        ValueError: If the lengths differ.

    Example:
        >>> per_tag([["DET", "NOUN"]], [["DET", "DET"]])
        {'DET': Scores(correct=1, predicted=2, support=1), 'NOUN': Scores(correct=0, predicted=0,
        support=1)}
    """
    correct, guessed, support = Counter[str](), Counter[str](), Counter[str]()
    for right, guess in _known(gold, predicted):
        support.update(right)
        guessed.update(guess)
        correct.update(label for label, other in zip(right, guess, strict=True) if label == other)
    return _by_name(correct, guessed, support)


def _known(gold: GoldLabels, predicted: Labels) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the gold and predicted labels of each sentence, without the words of unknown gold label."""
    check_labels(gold, predicted=predicted)
    for right, guess in zip(gold, predicted, strict=True):
        kept = [(one, other) for one, other in zip(right, guess, strict=True) if one is not None]
        yield [one for one, _ in kept], [other for _, other in kept]


def _by_name(
    correct: Counter[str], predicted: Counter[str], support: Counter[str]
) -> dict[str, Scores]:
    names = sorted(predicted.keys() | support.keys())
    return {name: Scores(correct[name], predicted[name], support[name]) for name in names}


def _ratio(numerator: int, denominator: int) -> float:
    return numerator / denominator if denominator else 0.0
