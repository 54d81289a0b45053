"""Word types and their ids."""

import json
import os
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from polyembed._checks import (
    check_choice,
    check_file,
    check_ids,
    check_mask,
    check_positive,
    must,
    require,
)
from polyembed.saving import Configurable
from polyembed.text.spelling import CharSpelling, Spelling, spelling_table

PAD_ID = 0
UNKNOWN_ID = 1
NUM_SPECIAL = 2
FORMAT_VERSION = 1
FILE_NAME = "lexicon.json"

NormalForm = Literal["NFC", "NFD", "NFKC", "NFKD"]
Words = TypeVar("Words")


class Lexicon(Configurable):
    """Word types and their ids: 0 is padding, 1 is every unknown word, the types follow.

    A lexicon never changes. `extended` returns a new one in which every word keeps its id.

    The two special ids have no spelling, so a corpus may contain the words ``<pad>`` and ``<unk>``.
    Words are not
    changed: combining marks, emoji and zero-width characters stay. The empty string is not a type
    and gets the unknown id, so that labels never shift. An extended lexicon has the characters of
    the first one: a character that only later words have is unknown.

    Args:
        words: The types, in the order of their ids; repetitions count once.
        characters: The inventory of characters; the characters of `words` if None.
        lowercase_fallback: Whether a word that is not a type is looked up in lower case too, among
            the words of the first lexicon: words that were added later do not matter.
        normalization: The Unicode normal form of types and look-ups, or None.

    Raises:
        TypeError: A string instead of a list of words, or a word that is not a string.

    Example:
        >>> lexicon = Lexicon.from_sentences([["me", "gusta", "that", "song"], ["that", "song"]])
        >>> ids, mask = lexicon.encode([["that", "canción"], ["song"]])
        >>> ids.tolist(), mask.tolist()
        ([[2, 1], [3, 0]], [[True, True], [True, False]])
        >>> lexicon.extended(["canción"]).encode([["that", "canción"]])[0].tolist()
        [[2, 6]]
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset({"path"})

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
        self.normalization: NormalForm | None = normalization
        self._ids: dict[str, int] = {}  # of the first lexicon, shared by all its extensions
        self._later_ids: dict[str, int] = {}  # added by `extended`
        self._words = self._new_words(words)  # those of `_ids`
        self._ids = {word: i for i, word in enumerate(self._words, start=NUM_SPECIAL)}
        inventory = (
            sorted(set(chain.from_iterable(self._words))) if characters is None else characters
        )
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
        """Collect the types of a corpus, the most frequent first; of one count, in the order of
        appearance.

        Args:
            sentences: Lists of words.
            min_count: How often a type must occur.
            max_size: The most types, the special ids not counted.
            lowercase_fallback: As in the class.
            normalization: As in the class.

        Returns:
            The lexicon.

        Raises:
            TypeError: A sentence is a string instead of a list of words.
            ValueError: The corpus has no word.
        """
        check_positive(min_count=min_count, **({} if max_size is None else {"max_size": max_size}))
        counts: Counter[str] = Counter()
        for sentence in sentences:
            counts.update(_normalize(word, normalization) for word in check_sentence(sentence))
        del counts[""]
        require(bool(counts), "sentences", "hold at least one word", "none")
        words = [word for word, count in counts.most_common(max_size) if count >= min_count]
        return cls(words, lowercase_fallback=lowercase_fallback, normalization=normalization)

    def extended(self, words: Iterable[str]) -> "Lexicon":
        """Return a lexicon with more words, in which every word of this one keeps its id.

        Args:
            words: Words in the order of their ids; known words and repetitions are left out.

        Returns:
            The new lexicon; this one if no word is new.

        Raises:
            TypeError: A string instead of a list of words, or a word that is not a string.
        """
        new = self._new_words(words)
        if not new:
            return self
        lexicon = copy(self)
        lexicon.__dict__.pop("checksum", None)
        lexicon._later_ids = {
            **self._later_ids,
            **{word: len(self) + i for i, word in enumerate(new)},
        }
        return lexicon

    def extends(self, other: "Lexicon") -> bool:
        """Return whether every id of `other` has the same word here, looked up and spelled in the same way."""
        if self._ids is other._ids:  # extensions of one lexicon
            later = list(other._later_ids)
            return list(self._later_ids)[: len(later)] == later
        words, others = self.words(), other.words()
        return words[: len(others)] == others and self._options() == other._options()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Lexicon):
            return NotImplemented
        return self is other or (len(self) == len(other) and self.extends(other))

    def __hash__(self) -> int:
        return hash((len(self), *self._words[:1]))

    def __len__(self) -> int:
        """Return the number of ids, the two special ones included."""
        return NUM_SPECIAL + len(self._ids) + len(self._later_ids)

    def __contains__(self, word: str) -> bool:
        """Return whether the word has an id, or its lower case where `lowercase_fallback` is on."""
        return self.id_of(word) != UNKNOWN_ID

    def __iter__(self) -> Iterator[str]:
        """Iterate over the types in the order of their ids, from id 2 on."""
        return chain(self._words, self._later_ids)

    def __repr__(self) -> str:
        return f"Lexicon({len(self) - NUM_SPECIAL} words, {self.num_characters} characters)"

    def words(self, start: int = NUM_SPECIAL) -> list[str]:
        """Return the types whose ids are `start` and above, in the order of their ids."""
        require(
            start >= NUM_SPECIAL,
            "start",
            f"be at least {NUM_SPECIAL}: special ids have no spelling",
            start,
        )
        first = start - NUM_SPECIAL
        later = list(self._later_ids)
        return (
            [*self._words[first:], *later]
            if first < len(self._words)
            else later[first - len(self._words) :]
        )

    def id_of(self, word: str) -> int:
        """Return the id of a word, or 1."""
        if self.normalization and isinstance(word, str):
            word = unicodedata.normalize(self.normalization, word)
        found = self._find(word)
        return UNKNOWN_ID if found is None else found

    def _find(self, word: str) -> int | None:
        found = self._ids.get(word)
        if found is None:
            found = self._later_ids.get(word)
        if found is None and not isinstance(word, str):
            raise TypeError(must("a word", "be a string", f"{type(word).__name__} {word!r}"))
        if found is None and self.lowercase_fallback:
            found = self._ids.get(_normalize(word.lower(), self.normalization))
        return found

    def encode(
        self, sentences: Sequence[Sequence[str]]
    ) -> tuple[Int[Tensor, "batch word"], Bool[Tensor, "batch word"]]:
        """Turn sentences into ids, padded to the longest.

        Args:
            sentences: Lists of words.

        Returns:
            ``ids (batch, word)`` int64 and ``mask (batch, word)``, True for a word.

        Raises:
            TypeError: A sentence is a string instead of a list of words.
        """
        if not isinstance(sentences, Iterable):
            raise TypeError(must("sentences", "be lists of words", type(sentences).__name__))
        rows = [
            [self.id_of(word) for word in check_sentence(words)]
            for words in check_sentence(sentences)
        ]
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        width = max(map(len, rows), default=0)
        mask = torch.arange(width) < lengths[:, None]
        ids = torch.zeros(mask.shape, dtype=torch.int64)
        ids[mask] = torch.tensor(list(chain.from_iterable(rows)), dtype=torch.int64)
        return ids, mask

    def decode(
        self, ids: Int[Tensor, "batch word"], mask: Bool[Tensor, "batch word"] | None = None
    ) -> list[list[str]]:
        """Turn ids back into words.

        Args:
            ids: ``(batch, word)``.
            mask: True = valid; if None, every id but the padding's.

        Returns:
            Lists of words, with ``<unk>`` for the unknown id and ``<pad>`` for a valid padding id.

        Raises:
            ValueError: A valid id outside the lexicon.
        """
        check_ids("ids", ids)
        check_mask(mask, ids.shape)
        names = ["<pad>", "<unk>", *self]
        keep = (ids != PAD_ID) if mask is None else mask
        outside = ids[((ids < 0) | (ids >= len(self))) & keep]
        require(not len(outside), "ids", f"lie in [0, {len(self)})", outside.tolist())
        return [
            [names[i] for i, kept in zip(row, kept_row, strict=True) if kept]
            for row, kept_row in zip(ids.tolist(), keep.tolist(), strict=True)
        ]

    @cached_property
    def checksum(self) -> int:
        """A number that differs, almost surely, for other words, another order or other options."""
        text = "\0".join([*map(str, self._options()), *self])
        return zlib.crc32(text.encode("utf-8", "surrogatepass"))

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
            row is empty.
        """
        special: list[list[int]] = [[], spelling.unknown][start:]
        # a type that a sub-word model drops (zero-width characters alone) is spelled like the
        # unknown word
        spelled = [
            units or spelling.unknown
            for units in spelling.spell(self.words(max(start, NUM_SPECIAL)))
        ]
        return spelling_table([*special, *spelled])

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write `lexicon.json`, numbered if there are several."""
        number = sum(1 for _ in folder.glob("lexicon*.json"))
        name = f"lexicon-{number}.json" if number else FILE_NAME
        self.save(folder / name)
        return {"path": name}

    def get_config(self) -> dict[str, Any]:
        """Return an empty configuration: the file has all of it."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Open the file that `write_files` wrote."""
        return cls.load(config["path"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the lexicon as JSON; an older file is replaced when the new one is whole."""
        data = {
            "format_version": FORMAT_VERSION,
            "lowercase_fallback": self.lowercase_fallback,
            "normalization": self.normalization,
            "characters": self.spelling.characters,
            "words": self.words(),
        }
        path = Path(path)
        draft = path.with_name(path.name + ".draft")
        draft.write_text(json.dumps(data, ensure_ascii=False), "utf-8", "surrogatepass")
        draft.replace(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read the file that `save` wrote.

        Args:
            path: The file, or a saved module's folder.

        Returns:
            The lexicon.

        Raises:
            FileNotFoundError: No such file.
            ValueError: The file is not a lexicon, or of a newer format.
        """
        path = Path(path)
        path = check_file(path / FILE_NAME if path.is_dir() else path)
        try:
            data = json.loads(path.read_text("utf-8", "surrogatepass"))
            version = data["format_version"]
            if not isinstance(version, int) or version > FORMAT_VERSION:
                raise ValueError(
                    must(
                        str(path),
                        f"have a format_version of at most {FORMAT_VERSION}",
                        repr(version),
                    )
                )
            options = {
                key: data[key] for key in ("characters", "lowercase_fallback", "normalization")
            }
            lexicon = cls(data["words"], **options)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if isinstance(error, ValueError) and str(path) in str(error):
                raise
            raise ValueError(
                must(str(path), "hold a saved lexicon", f"{type(error).__name__}: {error}")
            ) from error
        # without an id for each word, the rows of every table would shift
        require(
            lexicon.words() == data["words"],
            str(path),
            "hold a saved lexicon",
            "words that are not types",
        )
        return lexicon

    def _options(self) -> tuple[object, ...]:
        return (
            self.lowercase_fallback,
            self.normalization,
            self.spelling.characters,
            self.spelling.max_length,
        )

    def _new_words(self, words: Iterable[str]) -> list[str]:
        """Return the words without an id, normalized, once each."""
        new: dict[str, None] = {}
        for word in check_sentence(words):
            word = _normalize(word, self.normalization) if isinstance(word, str) else word
            if self._find(word) is None and word:
                new[word] = None
        return list(new)


def _normalize(word: str, form: NormalForm | None) -> str:
    return unicodedata.normalize(form, word) if form else word


def check_sentence(words: Iterable[Words]) -> Iterable[Words]:
    """Return the words after checking that they are not a string."""
    if isinstance(words, str):
        raise TypeError(must("a sentence", "be a list of words", f"the string {words!r}"))
    if not isinstance(words, Iterable):
        raise TypeError(must("a sentence", "be a list of words", type(words).__name__))
    return words
