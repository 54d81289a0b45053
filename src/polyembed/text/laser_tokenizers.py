"""The tokenisations of LASER 1 (byte pairs in fastBPE's format) and LASER 2 (SentencePiece), as `Pieces`."""

import itertools
import unicodedata
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from polyembed._checks import class_name, import_optional, must, require
from polyembed.saving import Configurable
from polyembed.text.piece_dictionary import PieceDictionary, free_name
from polyembed.text.pieces import Pieces, check_words, pad_pieces

WORD_START = "▁"
MOST_KNOWN = 100_000  # words whose pieces are kept from one batch to the next
MOSES_4 = {"‘": '"', "‚": '"', "’": '"', "\u00a0«\u00a0": ' "', "\u00a0»\u00a0": '" '}
"""Rules of Moses 4.0, which LASER's text went through; sacremoses has those of a later version."""
MODEL_NAME = "sentencepiece-{}.model"


class CutText(NamedTuple):
    """A text in pieces.

    Attributes:
        ids: The dictionary's ids, without the end of the sentence.
        owners: The word of each piece, counted from 0.
    """

    ids: list[int]
    owners: list[int]


class LaserTokenizer(Configurable):
    """Text to the pieces that a LASER encoder reads: each sentence's pieces, then ``</s>``, which
    belongs to no word.

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
            Pieces on the CPU.

        Raises:
            TypeError: A string in place of a list of words, or words that are not strings.
        """
        sentences = check_words(sentences)
        known = self._known
        if len(known) > MOST_KNOWN:
            known = self._known = {}  # a new one, since another thread may be reading the old
        for word in itertools.chain.from_iterable(sentences):
            if word not in known:
                known[word] = self.cut_word(word) or [self.dictionary.unknown_id]
        cut = [flatten_words([known[word] for word in words]) for words in sentences]
        return self.join(cut)._replace(num_words=max(map(len, sentences), default=0))

    def text_pieces(self, texts: Sequence[str]) -> Pieces:
        """Cut whole sentences, as LASER's own tools do.

        Args:
            texts: Sentences.

        Returns:
            Pieces on the CPU; `word_index` counts the words of the tokenisation.

        Raises:
            TypeError: A single string, or an item that is not a string.
        """
        return self.join(map(self.cut_text, check_texts(texts)))

    def join(self, sentences: Iterable[CutText]) -> Pieces:
        """Return one batch of cut sentences, each ended by ``</s>``."""
        ended = [([*ids, self.dictionary.end_id], [*owners, -1]) for ids, owners in sentences]
        rows, owners = [ids for ids, _ in ended], [owners for _, owners in ended]
        return pad_pieces(rows, owners, self.dictionary.padding_id)


class SentencePieceTokenizer(LaserTokenizer):
    """LASER 2's tokenisation: control characters to spaces, Moses' punctuation, lower case,
    SentencePiece.

    Ids are the dictionary's, looked up by the piece's name; the model's own ids are not used.

    Args:
        model: A ``SentencePieceProcessor``.
        dictionary: The ids of the pieces; if None, the special pieces of fairseq, then the model's
            in their order.
        language: A two-letter code, for Moses' rules.
        lowercase: Whether to lower-case text, which LASER 2 needs.

    Raises:
        ValueError: A dictionary of another model's pieces.
        TypeError: No SentencePiece model, no dictionary.
        ImportError: No sacremoses.

    Example:
        >>> import sentencepiece
        >>> model = sentencepiece.SentencePieceProcessor(model_file="laser2.spm")  # doctest: +SKIP
        >>> SentencePieceTokenizer(model).pieces([["me", "gusta"]])  # doctest: +SKIP

    Deviations: words that are split already are normalised one by one, so rules that look across
    words (a quote before a comma) do not apply to them. Whole sentences are cut as by the
    laser_encoders package (0.0.2).
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset({"model"})

    def __init__(
        self,
        model: Any,
        dictionary: PieceDictionary | None = None,
        *,
        language: str = "en",
        lowercase: bool = True,
    ) -> None:
        if not hasattr(model, "serialized_model_proto"):
            raise TypeError(must("model", "be a SentencePieceProcessor", class_name(model)))
        super().__init__()
        pieces = [
            model.id_to_piece(i)
            for i in range(len(model))
            if not (model.is_control(i) or model.is_unknown(i))
        ]
        self.model = model
        self.dictionary = (
            PieceDictionary.from_pieces(pieces)
            if dictionary is None
            else check_dictionary(dictionary)
        )
        self.language = language
        self.lowercase = lowercase
        self._moses = MosesRules(language)
        found = sum(piece in self.dictionary for piece in pieces)
        require(
            2 * found >= len(pieces),
            "dictionary",
            "hold the model's pieces",
            f"{found} of {len(pieces)}",
        )

    def cut_word(self, word: str) -> list[int]:
        """Return the ids of one word."""
        return self.dictionary.ids(self._encode(word))

    def cut_text(self, text: str) -> CutText:
        """Cut a whole text."""
        pieces = self._encode(text)
        starts = itertools.accumulate(
            int(piece.startswith(WORD_START) or place == 0) for place, piece in enumerate(pieces)
        )
        return CutText(self.dictionary.ids(pieces), [start - 1 for start in starts])

    def _encode(self, text: str) -> list[str]:
        text = self._moses.prepare(text)
        return list(self.model.encode(text.lower() if self.lowercase else text, out_type=str))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments except the model, which is a file."""
        config = super().get_config()
        del config["model"]
        return config

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write the SentencePiece model."""
        name = free_name(folder, MODEL_NAME)
        (folder / name).write_bytes(self.model.serialized_model_proto())
        return {"model": name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the tokeniser from its files."""
        return cls(open_sentencepiece(config.pop("model")), **config)


def open_sentencepiece(path: Path) -> Any:
    """Load a SentencePiece model.

    Args:
        path: The file.

    Returns:
        A ``SentencePieceProcessor``.

    Raises:
        ValueError: A file that is not a SentencePiece model.
    """
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor()
    try:
        model.LoadFromSerializedProto(
            path.read_bytes()
        )  # from bytes: for a path the package reports every fault alike
    except RuntimeError as error:
        raise ValueError(must(str(path), "be a SentencePiece model", error)) from error
    return model


def check_texts(texts: Iterable[str]) -> list[str]:
    """Require strings, and return them as a list, since an iterator can be read only once."""
    if isinstance(texts, str):
        raise TypeError(must("texts", "be a sequence of sentences", f"the string {texts!r}"))
    texts = list(texts)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(must(f"texts[{place}]", "be a string", class_name(text)))
    return texts


def check_dictionary(dictionary: PieceDictionary) -> PieceDictionary:
    """Require a `PieceDictionary`, and return it."""
    if not isinstance(dictionary, PieceDictionary):
        raise TypeError(must("dictionary", "be a PieceDictionary", class_name(dictionary)))
    return dictionary


def flatten_words(words: Sequence[Sequence[int]]) -> CutText:
    """Join the ids of words, with the number of each id's word."""
    owners = [place for place, ids in enumerate(words) for _ in ids]
    return CutText(list(itertools.chain.from_iterable(words)), owners)


class MosesRules:
    """The first steps of LASER's tokenisation: Moses' rules for one language, from sacremoses, with
    `MOSES_4`.

    Args:
        language: A two-letter code.
    """

    def __init__(self, language: str) -> None:
        moses = import_optional(
            "sacremoses", pip="polyembed[laser]", feature="LASER's tokenisation"
        )
        self._normalizer = moses.MosesPunctNormalizer(lang=language)
        rules = self._normalizer.substitutions
        self._normalizer.substitutions = [
            (found, MOSES_4.get(found, becomes)) for found, becomes in rules
        ]
        self._tokenizer = moses.MosesTokenizer(lang=language)

    def prepare(self, text: str) -> str:
        """Replace control characters (Unicode's category C) by spaces, and normalise punctuation; keeps case."""
        visible = "".join(
            " " if unicodedata.category(character)[0] == "C" else character for character in text
        )
        return str(self._normalizer.normalize(visible))

    def tokenize(self, text: str) -> list[str]:
        """Split a prepared text into words and punctuation."""
        return list(self._tokenizer.tokenize(text, escape=False))
