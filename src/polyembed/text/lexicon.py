"""Word types and their ids."""

import json
import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Self

from jaxtyping import Bool, Int
from torch import Tensor

from polyembed._checks import (
    check_choice,
    check_positive,
    check_sentences,
    check_words,
    class_name,
    must,
    require,
)
from polyembed.saving import Configurable
from polyembed.text.spelling import CharSpelling, Spelling, pad_rows, spelling_table

PAD_ID = 0
UNKNOWN_ID = 1
NUM_SPECIAL = 2
NormalForm = Literal["NFC", "NFD", "NFKC", "NFKD"]


class Lexicon(Configurable):
    """Word types and their ids: 0 is padding, 1 is every unknown word, the types follow.

    A lexicon never changes. `extended` returns a new one in which every word keeps its id.

    The two special ids have no spelling, so a corpus may contain the words ``<pad>`` and ``<unk>``.
    Words are not changed: combining marks, emoji and zero-width characters stay. The empty string
    is not a type and gets the unknown id, so that labels never shift. An extended lexicon has the
    characters of the first one: a character that only later words have is unknown.

    Args:
        words: The types, in the order of their ids; repetitions count once.
        characters: The inventory of characters; the characters of `words` if None.
        lowercase_fallback: Whether a word that is not a type is looked up in lower case too, among
            the words of the first lexicon: words that were added later do not matter.
        normalization: The Unicode normal form of types and look-ups, or None.

    Raises:
        TypeError: If `words` is a string, or a word is not a string.
        ValueError: If `normalization` is unknown.

    Example:
        >>> lexicon = Lexicon.from_sentences([["me", "gusta", "that", "song"], ["that", "song"]])
        >>> ids, mask = lexicon.encode([["that", "canción"], ["song"]])
        >>> ids.tolist(), mask.tolist()
        ([[2, 1], [3, 0]], [[True, True], [True, False]])
        >>> lexicon.extended(["canción"]).encode([["that", "canción"]])[0].tolist()
        [[2, 6]]
    """

    file_arguments = frozenset({"path"})

    def __init__(
        self,
        words: Iterable[str],
        *,
        characters: Iterable[str] | None = None,
        lowercase_fallback: bool = False,
        normalization: NormalForm | None = None,
    ) -> None:
        if normalization is not None:
            check_choice("normalization", normalization, ("NFC", "NFD", "NFKC", "NFKD"))
        self.lowercase_fallback = lowercase_fallback
        self.normalization = normalization
        self._ids: dict[str, int] = {}  # the first lexicon's, shared by all its extensions
        self._later_ids: dict[str, int] = {}  # the ids that `extended` added
        self._words = self._new_words(words)  # the words of `_ids`
        self._ids = {word: i for i, word in enumerate(self._words, start=NUM_SPECIAL)}
        inventory = sorted(set(chain(*self._words))) if characters is None else characters
        self.spelling = CharSpelling(inventory)

    @classmethod
    def from_sentences(
        cls,
        sentences: Iterable[Sequence[str]],
        *,
        min_count: int = 1,
        max_size: int | None = None,
        lowercase_fallback: bool = False,
        normalization: NormalForm | None = None,
    ) -> Self:
        """Collect the types of a corpus, the most frequent first.

        Types with equal counts have the order of their first appearance.

        Args:
            sentences: Lists of words.
            min_count: The smallest number of occurrences of a type.
            max_size: The largest number of types, without the special ids; no limit if None.
            lowercase_fallback: As in the class.
            normalization: As in the class.

        Returns:
            The lexicon.

        Raises:
            TypeError: If a sentence is a string instead of a list of words.
            ValueError: If the corpus has no word, or `min_count` is not positive.
        """
        check_positive(min_count=min_count)
        counts: Counter[str] = Counter()
        for number, words in enumerate(sentences):
            words = check_words(words, name=f"sentences[{number}]")
            counts.update(_normalize(word, normalization) for word in words)
        del counts[""]
        require(bool(counts), "sentences", "hold at least one word", "none")
        kept = [word for word, count in counts.most_common(max_size) if count >= min_count]
        return cls(kept, lowercase_fallback=lowercase_fallback, normalization=normalization)

    def extended(self, words: Iterable[str]) -> Self:
        """Return a lexicon with more words, in which every word of this one keeps its id.

        Args:
            words: Words in the order of their ids; known words and repetitions are left out.

        Returns:
            The new lexicon; this one if no word is new.

        Raises:
            TypeError: If `words` is a string, or a word is not a string.
        """
        new = self._new_words(words)
        if not new:
            return self
        lexicon = copy(self)
        later = {word: len(self) + i for i, word in enumerate(new)}
        lexicon._later_ids = {**self._later_ids, **later}
        return lexicon

    def extends(self, other: "Lexicon") -> bool:
        """Return whether every id of `other` has the same word, look-up and spelling here."""
        if self._ids is other._ids:  # extensions of one lexicon
            later = list(other._later_ids)
            return list(self._later_ids)[: len(later)] == later
        mine, others = self._data(), other._data()
        words = mine.pop("words")[: len(others["words"])]
        return words == others.pop("words") and mine == others

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Lexicon):
            return NotImplemented
        return self is other or (len(self) == len(other) and self.extends(other))

    def __hash__(self) -> int:
        return hash(len(self))

    def __len__(self) -> int:
        """Return the number of ids, the two special ones included."""
        return NUM_SPECIAL + len(self._ids) + len(self._later_ids)

    def __contains__(self, word: str) -> bool:
        """Return whether the word, or its lower case under `lowercase_fallback`, has an id."""
        return self.id_of(word) != UNKNOWN_ID

    def __iter__(self) -> Iterator[str]:
        """Iterate over the types in the order of their ids, from id 2 on."""
        return chain(self._words, self._later_ids)

    def __repr__(self) -> str:
        return f"Lexicon({len(self) - NUM_SPECIAL} words, {self.num_characters} characters)"

    def words(self, start: int = NUM_SPECIAL) -> list[str]:
        """Return the types whose ids are `start` and above, in the order of their ids."""
        start = max(0, start - NUM_SPECIAL)
        later = list(self._later_ids)[max(0, start - len(self._words)) :]
        return [*self._words[start:], *later]

    def id_of(self, word: str) -> int:
        """Return the id of a word; 1 for an unknown word."""
        word = _normalize(word, self.normalization)
        found = self._ids.get(word) or self._later_ids.get(word)
        if found is None and self.lowercase_fallback:
            found = self._ids.get(_normalize(word.lower(), self.normalization))
        return found or UNKNOWN_ID

    def encode(
        self, sentences: Sequence[Sequence[str]]
    ) -> tuple[Int[Tensor, "batch word"], Bool[Tensor, "batch word"]]:
        """Turn sentences into ids, padded to the longest.

        Args:
            sentences: Lists of words.

        Returns:
            ``ids (batch, word)`` int64 and ``mask (batch, word)``, True for a word.

        Raises:
            TypeError: If a sentence is a string instead of a list of words.
        """
        rows = [[self.id_of(word) for word in words] for words in check_sentences(sentences)]
        ids = pad_rows(rows, PAD_ID)
        return ids, ids != PAD_ID

    @property
    def num_characters(self) -> int:
        """The number of character ids: 0 is padding, 1 is unknown, the inventory follows."""
        return self.spelling.num_units

    def spell(self, spelling: Spelling, *, start: int = 0) -> Int[Tensor, "word unit"]:
        """Spell every type.

        Args:
            spelling: `PieceSpelling(bpemb)`, or this lexicon's own ``spelling`` for characters.
            start: The first id to spell.

        Returns:
            A table with a row for each id from `start` on: unit ids, padded with 0. The padding's
            row is empty. A type without units (zero-width characters alone) is spelled like the
            unknown word.
        """
        special = [[], spelling.unknown][start:]
        spelled = spelling.spell(self.words(max(start, NUM_SPECIAL)))
        return spelling_table([*special, *(units or spelling.unknown for units in spelled)])

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write ``lexicon.json``."""
        return {"path": write_json(folder / "lexicon.json", self._data())}

    def get_config(self) -> dict[str, Any]:
        """Return an empty configuration, since the file holds everything."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Open the file that `write_files` wrote."""
        return cls.load(config["path"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the lexicon as a JSON file."""
        write_json(Path(path), self._data())

    def _data(self) -> dict[str, Any]:
        data = {
            "lowercase_fallback": self.lowercase_fallback,
            "normalization": self.normalization,
            "characters": self.spelling.characters,
            "words": self.words(),
        }
        # loading must know which words are later ones: they are not looked up in lower case
        return {**data, "num_first": len(self._words)} if self.lowercase_fallback else data

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read the file that `save` wrote.

        Args:
            path: The file.

        Returns:
            The lexicon.

        Raises:
            ValueError: If the file does not hold a lexicon.
        """
        try:
            data = dict(read_json(Path(path)))
            words = data.pop("words")
            first = data.pop("num_first", len(words))
            lexicon = cls(words[:first], **data).extended(words[first:])
            # without an id for each word, the rows of every table would shift
            require(lexicon.words() == words, "words", "be different", "repetitions")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            got = f"{class_name(error)}: {error}"
            raise ValueError(must(str(path), "hold a saved lexicon", got)) from error
        return lexicon

    def _new_words(self, words: Iterable[str]) -> list[str]:
        """Return the words without an id, normalized, once each."""
        normalized = dict.fromkeys(_normalize(w, self.normalization) for w in check_words(words))
        return [word for word in normalized if word and word not in self]


def write_json(path: Path, content: Any) -> str:
    """Write a JSON file, and return its name."""
    path.write_text(json.dumps(content, ensure_ascii=False), "utf-8", "surrogatepass")
    return path.name


def read_json(path: Path) -> Any:
    """Read a JSON file that `write_json` wrote."""
    return json.loads(path.read_text("utf-8", "surrogatepass"))


def _normalize(word: str, form: NormalForm | None) -> str:
    return unicodedata.normalize(form, word) if form else word
