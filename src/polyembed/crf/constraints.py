"""Which tags may begin, follow each other and end: the grammar of a tagging scheme."""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Any, Literal, Self

from polyembed._checks import is_count, must, require
from polyembed.crf.scores import ANY_TAG
from polyembed.saving import Configurable

MOST_WORDS = (
    5_000  # that are checked: cycles of 2, 3, 5, 7, ... tags repeat only after their product
)


class Constraints(Configurable):
    """Hard constraints on sequences of tags, for a `CRF`: a sequence that breaks one has
    probability 0.

    Args:
        transitions: ``transitions[i][j]``: whether tag j may follow tag i.
        start: Whether a sequence may begin with tag j; any if None.
        end: Whether a sequence may end with tag i; any if None.

    Raises:
        ValueError: Sizes that do not fit; constraints that leave sentences of some length no
            sequence at all, or whose cycles repeat only after 5,000 words.

    Example:
        >>> Constraints.bio(["O", "B-PER", "I-PER"]).transitions
        ((True, True, False), (True, True, True), (True, True, True))
    """

    def __init__(
        self,
        transitions: Sequence[Sequence[bool]],
        start: Sequence[bool] | None = None,
        end: Sequence[bool] | None = None,
    ) -> None:
        _check_rows(transitions, start, end)
        size = len(transitions)
        require(size > 0, "transitions", "have a row a tag, at least one", "none")
        for i, row in enumerate(transitions):
            require(
                len(row) == size,
                f"transitions[{i}]",
                f"have {size} entries, as there are rows",
                len(row),
            )
        self.transitions = tuple(tuple(map(bool, row)) for row in transitions)
        self.start = (True,) * size if start is None else tuple(map(bool, start))
        self.end = (True,) * size if end is None else tuple(map(bool, end))
        require(len(self.start) == size, "start", f"have {size} entries", len(self.start))
        require(len(self.end) == size, "end", f"have {size} entries", len(self.end))
        length = self._length_without_a_path()
        if length is not None:
            words = f"no sequence of {length} word{'s' * (length > 1)}"
            raise ValueError(must("constraints", "allow a sequence of every length", words))

    @classmethod
    def bio(cls, tags: Sequence[str]) -> Self:
        """Build the grammar of BIO (IOB2): ``I-X`` only after ``B-X`` or ``I-X``.

        Args:
            tags: ``O``, ``B-X`` and ``I-X``, in the order of their ids.

        Returns:
            The constraints.

        Raises:
            ValueError: A tag of another form.
        """
        return cls._from_scheme(tags, "bio", "O, B-X or I-X")

    @classmethod
    def bioes(cls, tags: Sequence[str]) -> Self:
        """Build the grammar of BIOES (IOBES): ``B-X (I-X)* E-X`` or ``S-X``.

        Args:
            tags: ``O``, ``B-X``, ``I-X``, ``E-X`` and ``S-X``, in the order of their ids.

        Returns:
            The constraints.

        Raises:
            ValueError: A tag of another form, or a tag set without a way to tag one word.
        """
        return cls._from_scheme(tags, "bioes", "O, B-X, I-X, E-X or S-X")

    @classmethod
    def _from_scheme(cls, tags: Sequence[str], scheme: Literal["bio", "bioes"], rule: str) -> Self:
        if isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
            raise TypeError(must("tags", "be a sequence of tag names", repr(tags)))
        prefixes = {"bio": "BI", "bioes": "BIES"}[scheme]
        parts = []
        for i, tag in enumerate(tags):
            prefix, dash, kind = tag.partition("-")
            require(
                tag == "O" or (dash == "-" and kind != "" and prefix in [*prefixes]),
                f"tags[{i}]",
                f"be {rule}",
                tag,
            )
            parts.append((prefix, kind))

        def goes_on(prefix: str) -> bool:  # only I and E of the same type may follow
            return scheme == "bioes" and prefix in ("B", "I")

        def may_follow(left: tuple[str, str], right: tuple[str, str]) -> bool:
            if right[0] in ("I", "E"):
                return left[0] in ("B", "I") and left[1] == right[1]
            return not goes_on(left[0])

        return cls(
            [[may_follow(left, right) for right in parts] for left in parts],
            [prefix not in ("I", "E") for prefix, _ in parts],
            [not goes_on(prefix) for prefix, _ in parts],
        )

    @property
    def num_tags(self) -> int:
        """The number of tags."""
        return len(self.transitions)

    def first_violation(self, tags: Sequence[int]) -> int | None:
        """Return the first position at which a sequence breaks the constraints.

        Args:
            tags: Tag ids, -100 where any tag may stand.

        Returns:
            The position, the number of tags if the sequence may not end there, or None if it is
            allowed.

        Raises:
            ValueError: A tag that is not an id of the tag set.
        """
        reached: set[int] = set()
        for i, tag in enumerate(tags):
            known = is_count(tag) and (tag == ANY_TAG or 0 <= tag < self.num_tags)
            require(
                known, f"tags[{i}]", f"be an id in [0, {self.num_tags}) or {ANY_TAG}", repr(tag)
            )
            possible = range(self.num_tags) if tag == ANY_TAG else (tag,)
            reached = {
                this
                for this in possible
                if (
                    self.start[this]
                    if i == 0
                    else any(self.transitions[before][this] for before in reached)
                )
            }
            if not reached:
                return i
        return len(tags) if tags and not any(self.end[tag] for tag in reached) else None

    def _length_without_a_path(self) -> int | None:
        """Return the shortest length without an allowed sequence, from the tags reachable after 1, 2, ... words."""
        after, end, reached = (
            [_bits(row) for row in self.transitions],
            _bits(self.end),
            _bits(self.start),
        )
        seen: set[int] = set()
        while reached not in seen:
            if not reached & end:
                return len(seen) + 1
            rule = f"reach the same set of tags again within {MOST_WORDS} words"
            require(len(seen) < MOST_WORDS, "constraints", rule, "longer cycles")
            seen.add(reached)
            left = f"{reached:b}"[::-1]
            reached = reduce(
                or_, (rows for rows, bit in zip(after, left, strict=False) if bit == "1"), 0
            )
        return None

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        transitions = [list(map(int, row)) for row in self.transitions]  # 0 and 1: short to print
        return {
            "transitions": transitions,
            "start": list(map(int, self.start)),
            "end": list(map(int, self.end)),
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constraints) and self.get_config() == other.get_config()

    def __hash__(self) -> int:
        return hash((self.transitions, self.start, self.end))


def _check_rows(transitions: Any, start: Any, end: Any) -> None:
    """Require sequences of booleans, 0 or 1: a score of -inf would count as True."""
    rows = {f"transitions[{i}]": row for i, row in enumerate(transitions)} | {
        "start": start,
        "end": end,
    }
    for name, row in rows.items():
        if row is not None and not (
            isinstance(row, Sequence) and all(value in (0, 1) for value in row)
        ):
            raise TypeError(must(name, "be a sequence of True and False", repr(row)))


def _bits(row: Iterable[bool]) -> int:
    """Return a set of tags as an integer: bit i is tag i."""
    return int("".join("01"[allowed] for allowed in row)[::-1], 2)
