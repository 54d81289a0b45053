"""Byte pairs as fastBPE merges them: the tokenisation of LASER 1."""

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import nn

from polyembed._checks import class_name, must, require
from polyembed.text.laser_tokenizers import (
    CutText,
    LaserTokenizer,
    MosesRules,
    check_dictionary,
    flatten_words,
)
from polyembed.text.piece_dictionary import (
    SPECIAL,
    PieceDictionary,
    check_pieces,
    read_json,
    write_json,
)

END_OF_WORD = "</w>"
CONTINUES = "@@"
UNKNOWN = "\0"  # a token that no text holds: control characters become spaces
MERGES_NAME = "merges-{}.json"


class FastBPETokenizer(LaserTokenizer):
    """LASER 1's tokenisation: Moses, then byte pairs merged as fastBPE merges them (Artetxe and
    Schwenk 2019).

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
        transform: Applied to the tokenised text before lower-casing. LASER 1 romanises Greek there,
            and splits Chinese (jieba) and Japanese (MeCab) into words: pass a function that does.
            To be saved it must be a `Configurable` without weights.

    Raises:
        ValueError: Merges that fastBPE would not have written, a dictionary of other pieces.
        TypeError: Merges that are not pairs of strings, no dictionary, a `transform` that cannot be
            called.
        ImportError: No sacremoses.

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
        super().__init__()
        self.merges = _check_merges(merges)
        self.dictionary = check_dictionary(dictionary)
        self.vocabulary = (
            None if vocabulary is None else sorted(check_pieces(vocabulary, name="vocabulary"))
        )
        if not (transform is None or callable(transform)):
            raise TypeError(
                must("transform", "be a function from text to text", class_name(transform))
            )
        self.language = language
        self.transform = transform
        self._moses = MosesRules(language)
        characters = {
            piece.removesuffix(CONTINUES) for piece in dictionary.pieces() if piece not in SPECIAL
        }
        alphabet = sorted(character for character in characters if len(character) == 1)
        tokens = dict.fromkeys(
            [UNKNOWN, *alphabet, *(character + END_OF_WORD for character in alphabet)]
        )
        tokens.update(
            dict.fromkeys(itertools.chain.from_iterable((a, b, a + b) for a, b in self.merges))
        )
        self._ids = self._outcomes(list(tokens))
        self._model = _bpe_model({token: i for i, token in enumerate(tokens)}, self.merges)

    def cut_word(self, word: str) -> list[int]:
        """Return the ids of one word."""
        text = self._moses.prepare(word)
        return list(
            itertools.chain.from_iterable(self._merge(part) for part in self._finish(text).split())
        )

    def cut_text(self, text: str) -> CutText:
        """Cut a whole text."""
        words = self._finish(" ".join(self._moses.tokenize(self._moses.prepare(text)))).split()
        return flatten_words([self._merge(word) for word in words])

    def _finish(self, text: str) -> str:
        return (text if self.transform is None else self.transform(text)).lower()

    def _merge(self, word: str) -> list[int]:
        return list(
            itertools.chain.from_iterable(
                self._ids[token.id] for token in self._model.tokenize(word)
            )
        )

    def _outcomes(self, tokens: Sequence[str]) -> list[list[int]]:
        """Return the ids for each token: its own, or the ids of the allowed pieces that it was merged from."""
        parts = {
            first + second: (first, second) for first, second in self.merges
        }  # a later merge wins, as in fastBPE
        allowed = frozenset(
            self.dictionary.pieces() if self.vocabulary is None else self.vocabulary
        )
        known = {_name(token) for token in tokens}
        pieces = [piece for piece in self.dictionary.pieces() if piece not in SPECIAL]
        found = sum(piece in known for piece in pieces)
        rule = "hold the pieces that the merges make"
        require(
            2 * found >= len(pieces), "dictionary", rule, f"{found} of {len(pieces)} among its own"
        )

        def outcome(token: str) -> list[int]:
            names, waiting = [], [token]
            while waiting:
                name = _name(part := waiting.pop())
                if name in allowed or part not in parts:
                    names.append(name)
                else:
                    waiting += reversed(parts[part])
            return self.dictionary.ids(names)

        return [
            outcome(token) if token != UNKNOWN else [self.dictionary.unknown_id] for token in tokens
        ]

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments except the merges, which are a file."""
        if isinstance(self.transform, nn.Module):  # its weights would be in no file
            raise TypeError(
                must(
                    "transform",
                    "have no weights for the tokeniser to be saved",
                    class_name(self.transform),
                )
            )
        config = super().get_config()
        del config["merges"]
        return config

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write the merges."""
        return {"merges": write_json(folder, MERGES_NAME, self.merges)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the tokeniser from its files."""
        return cls(read_json(config.pop("merges")), **config)

    def __repr__(self) -> str:
        return f"{class_name(self)}({len(self.merges)} merges, {self.dictionary!r}, language={self.language!r})"


def _bpe_model(ids: dict[str, int], merges: list[tuple[str, str]]) -> Any:
    from tokenizers import models

    return models.BPE(vocab=ids, merges=merges, unk_token=UNKNOWN, end_of_word_suffix=END_OF_WORD)


def _check_merges(merges: Iterable[Sequence[str]]) -> list[tuple[str, str]]:
    """Require pairs of pieces, each pair once: fastBPE stops at a second one."""
    found: dict[tuple[str, str], None] = {}
    rule = f"be two pieces, of which only the second may end in {END_OF_WORD!r}"
    for place, pair in enumerate(merges):
        name = f"merges[{place}]"
        if isinstance(pair, str) or not all(isinstance(piece, str) for piece in pair):
            raise TypeError(must(name, "be a pair of strings", repr(pair)))
        sound = (
            len(pair) == 2
            and all(pair)
            and not pair[0].endswith(END_OF_WORD)
            and pair[1] != END_OF_WORD
        )
        require(sound, name, rule, tuple(pair))
        first, second = pair
        require(
            (first, second) not in found,
            name,
            "be a pair that did not come before",
            (first, second),
        )
        found[first, second] = None
    return list(found)


def _name(token: str) -> str:
    """Return a token's name in the dictionary."""
    return token.removesuffix(END_OF_WORD) if token.endswith(END_OF_WORD) else token + CONTINUES
