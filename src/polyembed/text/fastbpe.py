"""Byte pairs as fastBPE merges them: the tokenisation of LASER 1."""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Self

from polyembed._checks import class_name, require
from polyembed.text.laser import (
    SPECIAL,
    CutText,
    LaserTokenizer,
    MosesRules,
    PieceDictionary,
    check_share,
    flatten_words,
)
from polyembed.text.lexicon import read_json, write_json

END_OF_WORD = "</w>"
CONTINUES = "@@"
UNKNOWN = "\0"  # a token that no text holds: control characters become spaces


class FastBPETokenizer(LaserTokenizer):
    """LASER 1's tokenisation: Moses, then fastBPE's byte pairs (Artetxe and Schwenk 2019).

    A whole sentence goes through these steps: control characters become spaces; then come Moses'
    punctuation normalisation, Moses' tokenisation, `transform`, lower case and byte pairs. A
    sentence that is given as words skips Moses' tokenisation, and each word stays one word. Pieces
    outside `vocabulary` are split again, merge by merge, as fastBPE does.

    Args:
        merges: The pairs of pieces, in the order of merging; the last piece of a word ends in
            ``</w>``.
        dictionary: The ids of the pieces; pieces that do not end their word end in ``@@``.
        vocabulary: The pieces that may result, as fastBPE's vocabulary file lists them; if None,
            all of `dictionary`.
        language: The two-letter code of the language whose Moses rules apply.
        transform: A function that is applied to the tokenised text before lower-casing. LASER 1
            romanises Greek at this step, and splits Chinese (jieba) and Japanese (MeCab) into
            words. A tokenizer with a transform can be saved if the transform is a `Configurable`.

    Raises:
        ValueError: If a merge is not a pair of pieces, or the merges make less than half of the
            dictionary's pieces.
        ImportError: If sacremoses is not installed.

    Example:
        >>> dictionary = PieceDictionary.from_pieces(["son@@", "g", "can@@", "c@@"])
        >>> merges = [("o", "n"), ("s", "on"), ("a", "n"), ("c", "an")]
        >>> pieces = FastBPETokenizer(merges, dictionary).pieces([["Song"]])
        >>> pieces.piece_ids.tolist(), pieces.word_index.tolist()
        ([[4, 5, 2]], [[0, 0, -1]])

    Deviations: sacremoses replaces Moses' Perl scripts, with the quotation marks of LASER's
    version, Moses 4.0. Words that are split already are normalised one by one, so rules that look
    across words (a quote before a comma) do not apply to them.
    """

    file_arguments = frozenset({"merges"})

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
        self.merges = list(merges)
        rule = f"be two pieces, of which only the second may end in {END_OF_WORD!r}"
        for place, pair in enumerate(self.merges):
            sound = len(pair) == 2 and all(pair) and not pair[0].endswith(END_OF_WORD)
            require(sound, f"merges[{place}]", rule, pair)
        self.dictionary = dictionary
        self.vocabulary = None if vocabulary is None else sorted(vocabulary)
        self.language = language
        self.transform = transform
        self._moses = MosesRules(language)
        pieces = [piece for piece in dictionary.pieces() if piece not in SPECIAL]
        names = [piece.removesuffix(CONTINUES) for piece in pieces]
        letters = [name for name in names if len(name) == 1]
        ends = [letter + END_OF_WORD for letter in letters]
        made = [part for a, b in self.merges for part in (a, b, a + b)]
        tokens = list(dict.fromkeys([UNKNOWN, *letters, *ends, *made]))
        check_share(set(map(_name, tokens)), pieces, "hold the pieces that the merges make")
        parts = {a + b: (a, b) for a, b in self.merges}  # a later merge wins, as in fastBPE
        allowed = frozenset(dictionary.pieces() if self.vocabulary is None else self.vocabulary)

        def outcome(token: str) -> list[str]:
            """Return a token, or the allowed pieces that it was merged from."""
            if _name(token) in allowed or token not in parts:
                return [_name(token)]
            return [name for part in parts[token] for name in outcome(part)]

        self._ids = [dictionary.ids(outcome(token)) for token in tokens]
        self._model = models.BPE(
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

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write the merges."""
        return {"merges": write_json(folder / "merges.json", self.merges)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the tokeniser from its files."""
        return cls(map(tuple, read_json(config.pop("merges"))), **config)

    def __repr__(self) -> str:
        return f"{class_name(self)}({len(self.merges)} merges, {self.dictionary!r})"


def _name(token: str) -> str:
    """Return a token's name in the dictionary."""
    return token.removesuffix(END_OF_WORD) if token.endswith(END_OF_WORD) else token + CONTINUES
