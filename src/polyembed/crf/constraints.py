"""The tags that may begin, follow each other and end: the grammar of a tagging scheme."""

from collections.abc import Collection, Sequence
from typing import Any, Self

from polyembed._checks import require
from polyembed.crf.scores import ANY_TAG
from polyembed.metrics import Scheme, split_label
from polyembed.saving import Configurable


class Constraints(Configurable):
    """Hard constraints on sequences of tags, for a `CRF`.

    A sequence that breaks a constraint has probability 0.

    Args:
        transitions: A row per tag: ``transitions[i][j]`` is whether tag j may follow tag i.
        start: Whether a sequence may begin with each tag; all tags may if None.
        end: Whether a sequence may end with each tag; all tags may if None.

    Raises:
        ValueError: If sizes do not fit, or sentences of some length (up to twice the number of
            tags, plus one) have no allowed sequence.

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
        size = len(transitions)
        require(size > 0, "transitions", "have a row per tag, at least one", "none")
        self.transitions = tuple(tuple(map(bool, row)) for row in transitions)
        self.start = (True,) * size if start is None else tuple(map(bool, start))
        self.end = (True,) * size if end is None else tuple(map(bool, end))
        sizes = {len(row) for row in (*self.transitions, self.start, self.end)}
        rule = f"have {size} entries in each row, in start and in end"
        require(sizes == {size}, "constraints", rule, sorted(sizes))
        reached = {tag for tag in range(size) if self.start[tag]}
        for length in range(1, 2 * size + 2):
            alive = any(self.end[tag] for tag in reached)
            found = f"no sequence of {length} word{'s' * (length > 1)}"
            require(alive, "constraints", "allow a sequence of every length", found)
            reached = {j for i in reached for j in range(size) if self.transitions[i][j]}

    @classmethod
    def bio(cls, tags: Sequence[str]) -> Self:
        """Build the grammar of BIO (IOB2): ``I-X`` follows only ``B-X`` or ``I-X``.

        Args:
            tags: The names ``O``, ``B-X`` and ``I-X``, in the order of their ids.

        Returns:
            The constraints.

        Raises:
            ValueError: If a tag has another form, or no tag may begin a sentence.
        """
        return cls._from_scheme(tags, "bio")

    @classmethod
    def bioes(cls, tags: Sequence[str]) -> Self:
        """Build the grammar of BIOES (IOBES): ``B-X (I-X)* E-X`` or ``S-X``.

        Args:
            tags: The names ``O``, ``B-X``, ``I-X``, ``E-X`` and ``S-X``, in the order of their ids.

        Returns:
            The constraints.

        Raises:
            ValueError: If a tag has another form, or no tag is allowed for a sentence of one word.
        """
        return cls._from_scheme(tags, "bioes")

    @classmethod
    def _from_scheme(cls, tags: Sequence[str], scheme: Scheme) -> Self:
        parts = [split_label(tag, scheme) for tag in tags]
        # after these prefixes only an I or E of the same type may follow
        opens = ("B", "I") if scheme == "bioes" else ()

        def may_follow(left: tuple[str, str], right: tuple[str, str]) -> bool:
            if right[0] in ("I", "E"):
                return left[0] in ("B", "I") and left[1] == right[1]
            return left[0] not in opens

        return cls(
            [[may_follow(left, right) for right in parts] for left in parts],
            [prefix not in ("I", "E") for prefix, _ in parts],
            [prefix not in opens for prefix, _ in parts],
        )

    @property
    def num_tags(self) -> int:
        """The number of tags."""
        return len(self.transitions)

    def first_violation(self, tags: Sequence[int | Collection[int]]) -> int | None:
        """Return the first position at which a sequence breaks the constraints.

        Args:
            tags: A tag id per position, a set of the ids allowed there, or -100 for every tag.

        Returns:
            The position; the length of the sequence if only its end is forbidden; or None if the
            sequence is allowed.

        Raises:
            ValueError: If a tag is not an id of the tag set.
        """
        every = set(range(self.num_tags))
        reached: set[int] = set()
        for i, tag in enumerate(tags):
            given = set(tag) if isinstance(tag, Collection) else {tag}
            rule = f"be an id in [0, {self.num_tags}) or {ANY_TAG}"
            require(given <= {ANY_TAG, *every}, f"tags[{i}]", rule, repr(tag))
            here = every if ANY_TAG in given else given
            if i == 0:
                reached = {this for this in here if self.start[this]}
            else:
                moves = self.transitions
                reached = {this for this in here if any(moves[last][this] for last in reached)}
            if not reached:
                return i
        return len(tags) if tags and not any(self.end[tag] for tag in reached) else None

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        # 0 and 1 are short to print
        return {
            "transitions": [list(map(int, row)) for row in self.transitions],
            "start": list(map(int, self.start)),
            "end": list(map(int, self.end)),
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constraints) and self.get_config() == other.get_config()
