"""Byte pairs as fastBPE merges them: the tokenisation of LASER 1."""

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from polyembed._checks import class_name, require
from polyembed.text.laser import (
    SPECIAL,
    CutText,
    LaserTokenizer,
    MosesRules,
    PieceDictionary,
    check_share,
    flatten_words,
    read_json,
    write_json,
)

END_OF_WORD = "</w>"
CONTINUES = "@@"
UNKNOWN = "\0"  # a token that no text holds: control characters become spaces


class FastBPETokenizer(LaserTokenizer):
    """LASER 1's tokenisation: Moses, then fastBPE's byte pairs (Artetxe and Schwenk 2019).

    The steps for a whole sentence: control characters to spaces, Moses' punctuation normalisation,
    Moses' tokenisation, `transform`, lower case, byte pairs. Words that are split already skip
    Moses' tokenisation, and one word stays one word. Pieces outside `vocabulary` are split again,
    merge by merge, as fastBPE does.

    Args:
        merges: Pairs of pieces in the order of merging; the last piece of a word ends in ``</w>``.
        dictionary: The ids of the pieces; pieces that do not end their word end in ``@@``.
        vocabulary: The pieces that may result, as fastBPE's vocabulary file lists them; if None,
            all of `dictionary`.
        language: A two-letter code, for Moses' rules.
        transform: A function that is applied to the tokenised text before lower-casing. LASER 1
            romanises Greek there, and splits Chinese (jieba) and Japanese (MeCab) into words. To be
            saved it must be a `Configurable`.

    Raises:
        ValueError: If fastBPE would not have written the merges, or the dictionary has other pieces
            than they make.
        ImportError: If sacremoses is not installed.

    Example:
        >>> dictionary = PieceDictionary.from_pieces(["son@@", "g", "can@@", "c@@"])
        >>> merges = [("o", "n"), ("s", "on"), ("a", "n"), ("c", "an")]
        >>> pieces = FastBPETokenizer(merges, dictionary).pieces([["Song"]])
        >>> pieces.piece_ids.tolist(), pieces.word_index.tolist()
        ([[4, 5, 2]], [[0, 0, -1]])

    Deviations: sacremoses replaces Moses' Perl scripts, with the quotes of LASER's (Moses 4.0).
    Words that are split already are normalised one by one, so rules that look across words (a quote
    before a comma) do not apply to them.
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset({"merges"})

    def __init__(
        self,
        merges: Iterable[tuple[str, str]],
        dictionary: PieceDictionary,
        *,
        vocabulary: Collection[str] | None = None,
        language: str = "en",
        transform: Callable[[str], str] | None = None,
    ) -> None:
        from tokenizers import models

        super().__init__()
        self.merges = _check_merges(merges)
        self.dictionary = dictionary
        self.vocabulary = None if vocabulary is None else sorted(vocabulary)
        self.language = language
        self.transform = transform
        self._moses = MosesRules(language)
        named = {p.removesuffix(CONTINUES) for p in dictionary.pieces() if p not in SPECIAL}
        alphabet = sorted(name for name in named if len(name) == 1)
        made = itertools.chain.from_iterable((a, b, a + b) for a, b in self.merges)
        ends = (character + END_OF_WORD for character in alphabet)
        tokens = list(dict.fromkeys([UNKNOWN, *alphabet, *ends, *made]))
        self._ids = self._outcomes(tokens)
        self._model: Any = models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=self.merges,
            unk_token=UNKNOWN,
            end_of_word_suffix=END_OF_WORD,
        )

    def cut_word(self, word: str) -> list[int]:
        """Return the ids of one word."""
        parts = self._finish(self._moses.prepare(word)).split()
        return [i for part in parts for i in self._merge(part)]

    def cut_text(self, text: str) -> CutText:
        """Cut a whole text."""
        words = self._finish(" ".join(self._moses.tokenize(self._moses.prepare(text)))).split()
        return flatten_words([self._merge(word) for word in words])

    def _finish(self, text: str) -> str:
        return (text if self.transform is None else self.transform(text)).lower()

    def _merge(self, word: str) -> list[int]:
        return [i for token in self._model.tokenize(word) for i in self._ids[token.id]]

    def _outcomes(self, tokens: Sequence[str]) -> list[list[int]]:
        """Return each token's id, or the ids of the allowed pieces that it was merged from."""
        parts = {a + b: (a, b) for a, b in self.merges}  # a later merge wins, as in fastBPE
        allowed = frozenset(self.vocabulary or self.dictionary.pieces())
        known = {_name(token) for token in tokens}
        pieces = [piece for piece in self.dictionary.pieces() if piece not in SPECIAL]
        made = PieceDictionary.from_pieces(sorted(known))
        check_share(made, pieces, "hold the pieces that the merges make")

        def outcome(token: str) -> list[int]:
            names, waiting = [], [token]
            while waiting:
                name = _name(part := waiting.pop())
                if name in allowed or part not in parts:
                    names.append(name)
                else:
                    waiting += reversed(parts[part])
            return self.dictionary.ids(names)

        unknown = [self.dictionary.unknown_id]
        return [unknown if token == UNKNOWN else outcome(token) for token in tokens]

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments except the merges, which are a file."""
        config = super().get_config()
        del config["merges"]
        return config

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write the merges."""
        return {"merges": write_json(folder / "merges.json", self.merges)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the tokeniser from its files."""
        return cls(read_json(config.pop("merges")), **config)

    def __repr__(self) -> str:
        return f"{class_name(self)}({len(self.merges)} merges, {self.dictionary!r})"


def _check_merges(merges: Iterable[Sequence[str]]) -> list[tuple[str, str]]:
    """Require pairs of pieces, each pair once: fastBPE stops at a second one."""
    found: dict[tuple[str, str], None] = {}
    rule = f"be two new pieces, of which only the second may end in {END_OF_WORD!r}"
    for place, pair in enumerate(map(tuple, merges)):
        ends = [piece.endswith(END_OF_WORD) for piece in pair]
        sound = len(pair) == 2 and all(pair) and not ends[0] and pair[1] != END_OF_WORD
        require(sound and pair not in found, f"merges[{place}]", rule, pair)
        found[pair[0], pair[1]] = None
    return list(found)


def _name(token: str) -> str:
    """Return a token's name in the dictionary."""
    return token.removesuffix(END_OF_WORD) if token.endswith(END_OF_WORD) else token + CONTINUES
