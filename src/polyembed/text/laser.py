"""LASER's pieces: their ids, and LASER 2's tokenisation by SentencePiece."""

import itertools
import unicodedata
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from polyembed._checks import (
    check_sentences,
    check_words,
    class_name,
    import_optional,
    must,
    require,
)
from polyembed.saving import Configurable
from polyembed.text.lexicon import read_json, write_json
from polyembed.text.pieces import Pieces, pad_pieces

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
WORD_START = "▁"
MOST_KNOWN = 100_000  # the number of words above which their kept pieces are forgotten
MOSES_4 = {"‘": '"', "‚": '"', "’": '"', "\u00a0«\u00a0": ' "', "\u00a0»\u00a0": '" '}
"""The rules of Moses 4.0, which prepared LASER's text; sacremoses has a later version's rules."""


class PieceDictionary(Configurable):
    """Pieces and their ids, fairseq's ``<s>``, ``<pad>``, ``</s>`` and ``<unk>`` among them.

    Args:
        pieces: All pieces in the order of their ids, the four special ones included, at any place.

    Attributes:
        padding_id: The id of ``<pad>``.
        end_id: The id of ``</s>``, which ends every sentence.
        unknown_id: The id of ``<unk>``, for all other pieces.

    Raises:
        ValueError: If a special piece is missing, or a piece occurs twice.
        TypeError: If a piece is not a string.

    Example:
        >>> dictionary = PieceDictionary.from_pieces(["can@@", "ción"])
        >>> len(dictionary), dictionary.ids(["can@@", "ción", "song"])
        (6, [4, 5, 3])
    """

    file_arguments = frozenset({"pieces"})

    def __init__(self, pieces: Iterable[str]) -> None:
        pieces = check_words(pieces, name="pieces")
        self._ids = {piece: i for i, piece in enumerate(pieces)}
        require(len(self) == len(pieces), "pieces", "occur once each", "repetitions")
        missing = [piece for piece in SPECIAL if piece not in self]
        require(not missing, "pieces", f"hold {', '.join(SPECIAL)}", f"none of {missing}")
        self.padding_id, self.end_id, self.unknown_id = (self._ids[piece] for piece in SPECIAL[1:])

    @classmethod
    def from_pieces(cls, pieces: Iterable[str]) -> Self:
        """Build a dictionary with the special pieces first, as fairseq reads a file of pieces."""
        return cls(dict.fromkeys([*SPECIAL, *pieces]))

    @classmethod
    def from_ids(cls, ids: Mapping[str, int]) -> Self:
        """Build a dictionary from a checkpoint's table of ids.

        Args:
            ids: The id of each piece: the numbers 0 to n - 1, each once. A missing special piece
                gets fairseq's id if no other piece has this id.

        Returns:
            The dictionary.

        Raises:
            ValueError: If ids are missing or occur twice.
        """
        taken = set(ids.values())
        free = {p: i for i, p in enumerate(SPECIAL) if i not in taken}
        found = {**free, **ids}
        whole = sorted(found.values()) == list(range(len(found)))
        require(whole, "dictionary", "number its pieces 0, 1, 2, ..., each once", "other ids")
        return cls(sorted(found, key=found.__getitem__))

    def __len__(self) -> int:
        """Return the number of ids, special ones included."""
        return len(self._ids)

    def __contains__(self, piece: str) -> bool:
        """Return whether a piece has its own id."""
        return piece in self._ids

    def ids(self, pieces: Sequence[str]) -> list[int]:
        """Return the id of each piece, `unknown_id` for strings outside the dictionary."""
        return [self._ids.get(piece, self.unknown_id) for piece in pieces]

    def pieces(self) -> list[str]:
        """Return all pieces in the order of their ids."""
        return list(self._ids)

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write the pieces."""
        return {"pieces": write_json(folder / "pieces.json", self.pieces())}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the dictionary from its file."""
        return cls(read_json(config["pieces"]))

    def __repr__(self) -> str:
        return f"{class_name(self)}({len(self)} pieces)"


class CutText(NamedTuple):
    """A text in pieces.

    Attributes:
        ids: The dictionary's ids, without the end of the sentence.
        owners: The number of each piece's word, counted from 0.
    """

    ids: list[int]
    owners: list[int]


class LaserTokenizer(Configurable):
    """A tokenizer that cuts text into the pieces of a LASER encoder.

    Every sentence ends in ``</s>``, which belongs to no word. A subclass defines how one word and
    one text are cut.

    Attributes:
        dictionary: The ids of the pieces.
    """

    dictionary: PieceDictionary

    def __init__(self) -> None:
        self._known: dict[str, list[int]] = {}  # Moses' rules are the slowest step

    @abstractmethod
    def cut_word(self, word: str) -> list[int]:
        """Return the ids of one word; the empty list for a word that the preparation drops."""

    @abstractmethod
    def cut_text(self, text: str) -> CutText:
        """Cut a whole text, as LASER's own tools do."""

    def pieces(self, sentences: Sequence[Sequence[str]]) -> Pieces:
        """Cut sentences of words, each word by itself, so that labels never shift.

        A word that the preparation drops (a control character, the empty string) gets the unknown
        piece.

        Args:
            sentences: Lists of words.

        Returns:
            The pieces, on the CPU.

        Raises:
            TypeError: If a string is in place of a list of words, or a word is not a string.
        """
        sentences = check_sentences(sentences)
        known = self._known
        if len(known) > MOST_KNOWN:
            known = self._known = {}  # a new dict, since another thread may be reading the old one
        for word in itertools.chain.from_iterable(sentences):
            if word not in known:
                known[word] = self.cut_word(word) or [self.dictionary.unknown_id]
        cut = [flatten_words([known[word] for word in words]) for words in sentences]
        return self.join(cut)._replace(num_words=max(map(len, sentences), default=0))

    def text_pieces(self, texts: Sequence[str]) -> Pieces:
        """Cut whole sentences, as LASER's own tools do.

        Args:
            texts: The sentences.

        Returns:
            The pieces, on the CPU; `word_index` counts the words of the tokenisation.

        Raises:
            TypeError: If `texts` is a single string, or an item is not a string.
        """
        return self.join(map(self.cut_text, check_words(texts, name="texts")))

    def join(self, sentences: Iterable[CutText]) -> Pieces:
        """Return one batch of cut sentences, each ended by ``</s>``."""
        cut = list(sentences)
        rows = [[*one.ids, self.dictionary.end_id] for one in cut]
        return pad_pieces(rows, [[*one.owners, -1] for one in cut], self.dictionary.padding_id)


class SentencePieceTokenizer(LaserTokenizer):
    """LASER 2's tokenisation: Moses' punctuation, lower case, SentencePiece.

    Control characters become spaces first. The ids are the dictionary's, looked up by the piece's
    name; the model's own ids are not used.

    Args:
        model: A ``SentencePieceProcessor``.
        dictionary: The ids of the pieces. If None, fairseq's special pieces come first, then the
            model's pieces in their order.
        language: The two-letter code of the language whose Moses rules apply.
        lowercase: Whether to lower-case text, which LASER 2 needs.

    Raises:
        ValueError: If the dictionary has less than half of the model's pieces.
        ImportError: If sacremoses is not installed.

    Example:
        >>> import sentencepiece
        >>> model = sentencepiece.SentencePieceProcessor(model_file="laser2.spm")  # doctest: +SKIP
        >>> SentencePieceTokenizer(model).pieces([["me", "gusta"]])  # doctest: +SKIP

    Deviations: words that are split already are normalised one by one, so rules that look across
    words (a quote before a comma) do not apply to them. Whole sentences are cut as by the
    laser_encoders package (0.0.2).
    """

    file_arguments = frozenset({"model"})

    def __init__(
        self,
        model: Any,
        dictionary: PieceDictionary | None = None,
        *,
        language: str = "en",
        lowercase: bool = True,
    ) -> None:
        super().__init__()
        ids = (i for i in range(len(model)) if not (model.is_control(i) or model.is_unknown(i)))
        pieces = [model.id_to_piece(i) for i in ids]
        self.model = model
        self.dictionary = dictionary or PieceDictionary.from_pieces(pieces)
        self.language = language
        self.lowercase = lowercase
        self._moses = MosesRules(language)
        check_share(self.dictionary, pieces, "hold the model's pieces")

    def cut_word(self, word: str) -> list[int]:
        """Return the ids of one word."""
        return self.dictionary.ids(self._encode(word))

    def cut_text(self, text: str) -> CutText:
        """Cut a whole text."""
        pieces = self._encode(text)
        starts = (int(p.startswith(WORD_START) or not i) for i, p in enumerate(pieces))
        owners = [start - 1 for start in itertools.accumulate(starts)]
        return CutText(self.dictionary.ids(pieces), owners)

    def _encode(self, text: str) -> list[str]:
        text = self._moses.prepare(text)
        return list(self.model.encode(text.lower() if self.lowercase else text, out_type=str))

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write the SentencePiece model."""
        (folder / "sentencepiece.model").write_bytes(self.model.serialized_model_proto())
        return {"model": "sentencepiece.model"}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the tokeniser from its files."""
        return cls(open_sentencepiece(config.pop("model")), **config)


def open_sentencepiece(path: Path) -> Any:
    """Return the ``SentencePieceProcessor`` of a file; an error names the file."""
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor()
    try:
        model.LoadFromSerializedProto(path.read_bytes())
    except RuntimeError as error:
        raise ValueError(must(str(path), "be a SentencePiece model", error)) from error
    return model


def check_share(known: PieceDictionary | set[str], pieces: Sequence[str], rule: str) -> None:
    """Require that at least half of the pieces are known, unlike the pieces of another model."""
    found = sum(piece in known for piece in pieces)
    require(2 * found >= len(pieces), "dictionary", rule, f"{found} of {len(pieces)}")


def flatten_words(words: Sequence[Sequence[int]]) -> CutText:
    """Join the ids of words, with the number of each id's word."""
    owners = [place for place, ids in enumerate(words) for _ in ids]
    return CutText(list(itertools.chain.from_iterable(words)), owners)


class MosesRules:
    """Moses' rules for one language, from sacremoses, as changed by `MOSES_4`.

    Args:
        language: The two-letter code of the language.
    """

    def __init__(self, language: str) -> None:
        moses = import_optional("sacremoses", feature="LASER's tokenisation")
        self._normalizer = moses.MosesPunctNormalizer(lang=language)
        self._normalizer.substitutions = [
            (found, MOSES_4.get(found, becomes))
            for found, becomes in self._normalizer.substitutions
        ]
        self._tokenizer = moses.MosesTokenizer(lang=language)

    def prepare(self, text: str) -> str:
        """Replace control characters (category C) by spaces, normalise punctuation; keep case."""
        visible = (" " if unicodedata.category(c)[0] == "C" else c for c in text)
        return str(self._normalizer.normalize("".join(visible)))

    def tokenize(self, text: str) -> list[str]:
        """Split a prepared text into words and punctuation."""
        return list(self._tokenizer.tokenize(text, escape=False))
