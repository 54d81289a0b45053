"""Word types and their ids."""

import json
import os
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from polyembed._checks import check_choice, check_file, check_ids, check_mask, check_positive, must, require
from polyembed._pretrained import Configurable
from polyembed.text.spelling import CharacterSpelling, Spelling, spelling_table

PAD_ID = 0
UNKNOWN_ID = 1
NUM_SPECIAL = 2
FORMAT_VERSION = 1
FILE_NAME = "lexicon.json"


class Lexicon(Configurable):
    """Word types and their ids: 0 pads, 1 stands for every unknown word, the types follow.

    The two special ids have no spelling, so a corpus may hold the words ``<pad>`` and ``<unk>`` like any others.
    Words are taken as they are given, combining marks, emoji and zero-width characters included; the empty
    string is nobody's type and gets the unknown id, so that labels never shift. The inventory of characters is
    fixed when the lexicon is built: `extend` adds words, and a character that only they have is unknown.

    Args:
        words: The types, in the order of their ids; repetitions count once.
        characters: The inventory of characters; those of `words` if None.
        lowercase_fallback: Whether a word that is no type is looked up in lower case too.
        normalization: A Unicode normal form for types and look-ups alike, or None.

    Raises:
        TypeError: A sentence is a string instead of a list of words.
        ValueError: An id outside the lexicon, or a file that holds none.

    Example:
        >>> lexicon = Lexicon.from_sentences([["me", "gusta", "that", "song"], ["that", "song"]])
        >>> ids, mask = lexicon.encode([["that", "canción"], ["song"]])
        >>> ids.tolist(), mask.tolist()
        ([[2, 1], [3, 0]], [[True, True], [True, False]])

    Deviations: none.
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset({"path"})

    def __init__(
        self,
        words: Iterable[str],
        *,
        characters: Iterable[str] | None = None,
        lowercase_fallback: bool = False,
        normalization: Literal["NFC", "NFD", "NFKC", "NFKD"] | None = None,
    ) -> None:
        if normalization is not None:
            check_choice("normalization", normalization, ("NFC", "NFD", "NFKC", "NFKD"))
        self.lowercase_fallback = lowercase_fallback
        self.normalization: Literal["NFC", "NFD", "NFKC", "NFKD"] | None = normalization
        self._words: list[str] = []
        self._ids: dict[str, int] = {}
        self._marks: list[int] = [0]
        self.extend(words)
        inventory = sorted(set(chain.from_iterable(self._words))) if characters is None else characters
        self._spelling = CharacterSpelling(inventory)

    @classmethod
    def from_sentences(
        cls,
        sentences: Iterable[Sequence[str]],
        *,
        min_count: int = 1,
        max_size: int | None = None,
        lowercase_fallback: bool = False,
        normalization: Literal["NFC", "NFD", "NFKC", "NFKD"] | None = None,
    ) -> Self:
        """Collect the types of a corpus, the most frequent first, those of one count as they come.

        Args:
            sentences: Lists of words.
            min_count: How often a type must occur.
            max_size: How many types to keep, the special ids not counted.
            lowercase_fallback: As in the class.
            normalization: As in the class.

        Returns:
            The lexicon.

        Raises:
            TypeError: A sentence is a string instead of a list of words.
            ValueError: The corpus holds no word.
        """
        check_positive(min_count=min_count, **({} if max_size is None else {"max_size": max_size}))
        counts: Counter[str] = Counter()
        for sentence in sentences:
            counts.update(_normalize(word, normalization) for word in _check_words(sentence))
        del counts[""]
        require(bool(counts), "sentences", "hold at least one word", "none")
        words = [word for word, count in counts.most_common(max_size) if count >= min_count]
        return cls(words, lowercase_fallback=lowercase_fallback, normalization=normalization)

    def __len__(self) -> int:
        """Count the ids, the two special ones included."""
        return NUM_SPECIAL + len(self._words)

    def __contains__(self, word: str) -> bool:
        """Tell whether the word has an id of its own (by way of lower case, where that is on)."""
        return self.id_of(word) != UNKNOWN_ID

    def __iter__(self) -> Iterator[str]:
        """Iterate over the types in the order of their ids, from id 2 on."""
        return iter(self._words)

    def __repr__(self) -> str:
        return f"Lexicon({len(self._words)} words, {self.num_characters} characters)"

    def words(self, start: int = NUM_SPECIAL) -> list[str]:
        """List the types whose ids are `start` and above.

        Args:
            start: The first id, 2 for all.

        Returns:
            The words, in the order of their ids.
        """
        require(start >= NUM_SPECIAL, "start", f"be at least {NUM_SPECIAL}: special ids have no spelling", start)
        return self._words[start - NUM_SPECIAL :]

    def id_of(self, word: str) -> int:
        """Look one word up.

        Args:
            word: A word.

        Returns:
            Its id, or 1.
        """
        if self.normalization:
            word = unicodedata.normalize(self.normalization, word)
        found = self._ids.get(word)
        if found is None and self.lowercase_fallback:
            found = self._ids.get(_normalize(word.lower(), self.normalization))
        return UNKNOWN_ID if found is None else found

    def encode(
        self, sentences: Sequence[Sequence[str]]
    ) -> tuple[Int[Tensor, "batch word"], Bool[Tensor, "batch word"]]:
        """Turn sentences into ids, padded to the longest.

        Args:
            sentences: Lists of words.

        Returns:
            ``ids (batch, word)`` int64 and ``mask (batch, word)``, True where a word stands.

        Raises:
            TypeError: A sentence is a string instead of a list of words.
        """
        rows = [[self.id_of(word) for word in _check_words(sentence)] for sentence in sentences]
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        width = max(map(len, rows), default=0)
        mask = torch.arange(width) < lengths[:, None]
        ids = torch.zeros(mask.shape, dtype=torch.int64)
        ids[mask] = torch.tensor(list(chain.from_iterable(rows)), dtype=torch.int64)
        return ids, mask

    def decode(self, ids: Int[Tensor, "batch word"], mask: Bool[Tensor, "batch word"] | None = None) -> list[list[str]]:
        """Turn ids back into words.

        Args:
            ids: ``(batch, word)``.
            mask: True = valid; without one, padding ids end up nowhere.

        Returns:
            Lists of words; ``<unk>`` stands for the unknown id, and a valid padding id reads ``<pad>``.
        """
        check_ids("ids", ids)
        check_mask(mask, ids.shape)
        names = ["<pad>", "<unk>", *self._words]
        keep = (ids != PAD_ID) if mask is None else mask
        require(
            not bool(((ids < 0) | (ids >= len(self))).logical_and(keep).any()), "ids", f"be below {len(self)}", "others"
        )
        return [
            [names[i] for i, kept in zip(row, kept_row, strict=True) if kept]
            for row, kept_row in zip(ids.tolist(), keep.tolist(), strict=True)
        ]

    def extend(self, words: Iterable[str]) -> int:
        """Add the words that have no id yet, in order.

        Args:
            words: Words, repetitions and known ones among them as they come.

        Returns:
            How many were new. Embedders follow by their own ``extend(lexicon)``.
        """
        before = len(self._words)
        for word in _check_words(words):
            if not isinstance(word, str):
                raise TypeError(must("a word", "be a string", f"{type(word).__name__} {word!r}"))
            word = _normalize(word, self.normalization)
            if word and word not in self._ids:
                self._ids[word] = NUM_SPECIAL + len(self._words)
                self._words.append(word)
                self._marks.append(zlib.crc32(word.encode("utf-8", "surrogatepass") + b"\0", self._marks[-1]))
        return len(self._words) - before

    def truncate(self, size: int) -> None:
        """Forget the types whose ids are `size` and above, as if they had never been added.

        Args:
            size: What ``len(lexicon)`` shall be; at least 2.
        """
        require(NUM_SPECIAL <= size <= len(self), "size", f"lie in [{NUM_SPECIAL}, {len(self)}]", size)
        for word in self.words(size):
            del self._ids[word]
        del self._words[size - NUM_SPECIAL :]
        del self._marks[size - NUM_SPECIAL + 1 :]

    def mark(self, size: int) -> int:
        """Give a number that tells the first `size` ids' words, in order, from others.

        Args:
            size: How many ids, the special ones included.

        Returns:
            A checksum; embedders know by it whether they were built for this lexicon.
        """
        return self._marks[size - NUM_SPECIAL]

    @property
    def spelling(self) -> CharacterSpelling:
        """The spelling of words by this lexicon's characters."""
        return self._spelling

    @property
    def num_characters(self) -> int:
        """Count the character ids: 0 pads, 1 is unknown, the inventory follows."""
        return self._spelling.num_units

    def spell(self, spelling: Spelling, *, start: int = 0, width: int = 0) -> Int[Tensor, "word unit"]:
        """Spell every type.

        Args:
            spelling: How; `PieceSpelling(bpemb)`, or this lexicon's own ``spelling`` for characters.
            start: The first id to spell.
            width: The least number of columns.

        Returns:
            A table with a row for each id from `start` on: unit ids, padded with 0. The padding's row is empty.
        """
        special: list[list[int]] = [[], spelling.unknown][start:]
        # a type that a sub-word model drops (zero-width characters alone) is spelled like the unknown word
        spelled = [units or spelling.unknown for units in spelling.spell(self.words(max(start, NUM_SPECIAL)))]
        return spelling_table([*special, *spelled], width=width)

    def character_table(self) -> Int[Tensor, "word character"]:
        """Spell every type by its characters: ``spell(self.spelling)``."""
        return self.spell(self._spelling)

    def get_config(self) -> dict[str, Any]:
        """Return nothing: a lexicon is kept in its own file."""
        return {}

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write `lexicon.json` (numbered, should there be several)."""
        number = sum(1 for _ in folder.glob("lexicon*.json"))
        name = f"lexicon-{number}.json" if number else FILE_NAME
        self.save(folder / name)
        return {"path": name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Open the file that `write_files` wrote."""
        return cls.load(config["path"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the lexicon as JSON.

        Args:
            path: The file; replaced when the new one is whole.
        """
        data = {
            "format_version": FORMAT_VERSION,
            "lowercase_fallback": self.lowercase_fallback,
            "normalization": self.normalization,
            "characters": self._spelling.characters,
            "words": self._words,
        }
        path = Path(path)
        draft = path.with_name(path.name + ".draft")
        draft.write_text(json.dumps(data, ensure_ascii=False), "utf-8", "surrogatepass")
        draft.replace(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote.

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
                raise ValueError(must(str(path), f"have a format_version of at most {FORMAT_VERSION}", repr(version)))
            options = {key: data[key] for key in ("characters", "lowercase_fallback", "normalization")}
            lexicon = cls(data["words"], **options)
        except (UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(must(str(path), "hold a saved lexicon", f"{type(error).__name__}: {error}")) from error
        # an id for each, or the rows of every table would shift
        require(lexicon.words() == data["words"], str(path), "hold a saved lexicon", "words that are no types")
        return lexicon


def _normalize(word: str, form: Literal["NFC", "NFD", "NFKC", "NFKD"] | None) -> str:
    return unicodedata.normalize(form, word) if form else word


def _check_words(words: Iterable[str]) -> Iterable[str]:
    if isinstance(words, str):
        raise TypeError(must("a sentence", "be a list of words", f"the string {words!r}"))
    if not isinstance(words, Iterable):
        raise TypeError(must("a sentence", "be a list of words", type(words).__name__))
    return words
