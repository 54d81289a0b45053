"""The tokenisations of LASER 1 (byte pairs in fastBPE's format) and LASER 2 (SentencePiece), as `Pieces`."""

import itertools
import json
import unicodedata
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from torch import nn

from polyembed._checks import class_name, import_optional, must, require
from polyembed._pretrained import Configurable, repr_call
from polyembed.text.piece_dictionary import SPECIAL, PieceDictionary, check_pieces, read_json
from polyembed.text.pieces import Pieces, check_words, pad_pieces

END_OF_WORD = "</w>"
CONTINUES = "@@"
WORD_START = "▁"
MOST_KNOWN = 100_000  # words whose pieces are kept from one batch to the next
MOSES_4 = {"‘": '"', "‚": '"', "’": '"', "\u00a0«\u00a0": ' "', "\u00a0»\u00a0": '" '}
"""Rules of the Moses that LASER's text went through (4.0), where sacremoses has those of a later one."""
UNKNOWN = "\0"  # a token that no text holds: control characters become spaces
MERGES_NAME = "merges-{}.json"
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
    """Text to the pieces that a LASER encoder reads: each sentence's pieces, then ``</s>``, which is of no word.

    Attributes:
        dictionary: The ids of the pieces.
    """

    dictionary: PieceDictionary

    def __init__(self) -> None:
        self._known: dict[str, list[int]] = {}  # Moses' rules take longer than everything else here

    @abstractmethod
    def cut_word(self, word: str) -> list[int]:
        """Cut one word into ids; none for a word that the preparation drops."""

    @abstractmethod
    def cut_text(self, text: str) -> CutText:
        """Cut a whole text, as LASER's own tools do."""

    def pieces(self, sentences: Sequence[Sequence[str]]) -> Pieces:
        """Cut sentences of words, each word by itself, so that labels never shift.

        A word that the preparation drops (a control character, the empty string) gets the unknown piece.

        Args:
            sentences: Lists of words.

        Returns:
            Pieces on the CPU, with the number of each one's word.

        Raises:
            TypeError: A string in the place of a list of words, or words that are no strings.
        """
        sentences = check_words(sentences)
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
        for word in itertools.chain.from_iterable(sentences):
            if word not in self._known:
                self._known[word] = self.cut_word(word) or [self.dictionary.unknown_id]
        return self.join(_flatten([self._known[word] for word in words]) for words in sentences)

    def text_pieces(self, texts: Sequence[str]) -> Pieces:
        """Cut whole sentences, as LASER's own tools do.

        Args:
            texts: Sentences.

        Returns:
            Pieces on the CPU, with the number of each one's word as the tokenisation counts them.

        Raises:
            TypeError: One string instead of several, or what is no string.
        """
        return self.join(map(self.cut_text, check_texts(texts)))

    def join(self, sentences: Iterable[CutText]) -> Pieces:
        """Lay cut sentences side by side, each ended by ``</s>``.

        Args:
            sentences: What `cut_text` gave.

        Returns:
            Pieces on the CPU.
        """
        ended = [([*ids, self.dictionary.end_id], [*owners, -1]) for ids, owners in sentences]
        rows, owners = [ids for ids, _ in ended], [owners for _, owners in ended]
        return pad_pieces(rows, owners, self.dictionary.padding_id)


class FastBPETokenizer(LaserTokenizer):
    """LASER 1's tokenisation: Moses, then byte pairs merged as fastBPE merges them (Artetxe and Schwenk 2019).

    A whole sentence goes through this: control characters become spaces, Moses' punctuation normalisation, Moses'
    tokenisation, `transform`, lower case, byte pairs. Words that are split already skip Moses' tokenisation, and what
    the preparation makes of one word stays one word. Pieces outside `vocabulary` are taken apart again, merge by merge,
    as fastBPE does.

    Args:
        merges: Pairs of pieces in the order of merging; the last piece of a word ends in ``</w>``.
        dictionary: The ids of the pieces; ``@@`` marks those that a word goes on after.
        vocabulary: The pieces that may come out, as fastBPE's vocabulary file lists them; those of `dictionary` if
            None.
        language: A two-letter code, for Moses' rules.
        transform: Applied to the tokenised text before lower-casing. LASER 1 romanises Greek there, and cuts Chinese
            (jieba) and Japanese (MeCab) into words: give a function that does. To be saved it must be a
            `Configurable` without weights.

    Raises:
        ValueError: Merges that fastBPE would not have written, a dictionary of other pieces.
        TypeError: Merges that are no pairs of strings, no dictionary, a `transform` that cannot be called.
        ImportError: No sacremoses.

    Example:
        >>> dictionary = PieceDictionary.from_pieces(["son@@", "g", "can@@", "c@@"])
        >>> merges = [("o", "n"), ("s", "on"), ("a", "n"), ("c", "an")]
        >>> pieces = FastBPETokenizer(merges, dictionary).pieces([["Song"]])
        >>> pieces.piece_ids.tolist(), pieces.word_index.tolist()
        ([[4, 5, 2]], [[0, 0, -1]])

    Deviations: sacremoses stands in for Moses' Perl scripts, with the quotes of LASER's (Moses 4.0). Words that are
    split already are normalised one by one, so rules that look across words (a quote before a comma) do not apply to
    them.
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
        self.dictionary = _check_dictionary(dictionary)
        self.vocabulary = None if vocabulary is None else sorted(check_pieces(vocabulary, name="vocabulary"))
        if not (transform is None or callable(transform)):
            raise TypeError(must("transform", "be a function from text to text", class_name(transform)))
        self.language = language
        self.transform = transform
        self._moses = MosesRules(language)
        characters = {piece.removesuffix(CONTINUES) for piece in dictionary.pieces() if piece not in SPECIAL}
        alphabet = sorted(character for character in characters if len(character) == 1)
        tokens = dict.fromkeys([UNKNOWN, *alphabet, *(character + END_OF_WORD for character in alphabet)])
        tokens.update(dict.fromkeys(itertools.chain.from_iterable((a, b, a + b) for a, b in self.merges)))
        self._ids = self._outcomes(list(tokens))
        self._model = _bpe_model({token: i for i, token in enumerate(tokens)}, self.merges)

    def cut_word(self, word: str) -> list[int]:
        """Cut one word."""
        text = self._moses.prepare(word)
        return list(itertools.chain.from_iterable(self._merge(part) for part in self._finish(text).split()))

    def cut_text(self, text: str) -> CutText:
        """Cut a whole text."""
        words = self._finish(" ".join(self._moses.tokenize(self._moses.prepare(text)))).split()
        return _flatten([self._merge(word) for word in words])

    def _finish(self, text: str) -> str:
        return (text if self.transform is None else self.transform(text)).lower()

    def _merge(self, word: str) -> list[int]:
        return list(itertools.chain.from_iterable(self._ids[token.id] for token in self._model.tokenize(word)))

    def _outcomes(self, tokens: Sequence[str]) -> list[list[int]]:
        """Give the pieces that each token comes out as: itself, or what it was merged from."""
        parts = {first + second: (first, second) for first, second in self.merges}  # of two ways the later, as fastBPE
        allowed = frozenset(self.dictionary.pieces() if self.vocabulary is None else self.vocabulary)
        known = {_name(token) for token in tokens}
        pieces = [piece for piece in self.dictionary.pieces() if piece not in SPECIAL]
        found = sum(piece in known for piece in pieces)
        rule = "hold the pieces that the merges make"
        require(2 * found >= len(pieces), "dictionary", rule, f"{found} of {len(pieces)} among its own")

        def outcome(token: str) -> list[int]:
            names, waiting = [], [token]
            while waiting:
                name = _name(part := waiting.pop())
                if name in allowed or part not in parts:
                    names.append(name)
                else:
                    waiting += reversed(parts[part])
            return self.dictionary.ids(names)

        return [outcome(token) if token != UNKNOWN else [self.dictionary.unknown_id] for token in tokens]

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, but for the merges."""
        if isinstance(self.transform, nn.Module):  # its weights would be in no file
            rule = "have no weights, where the tokeniser is to be saved"
            raise TypeError(must("transform", rule, class_name(self.transform)))
        options = {"vocabulary": self.vocabulary, "language": self.language, "transform": self.transform}
        return {"dictionary": self.dictionary, **options}

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write the merges."""
        name = MERGES_NAME.format(sum(1 for _ in folder.glob(MERGES_NAME.format("*"))))
        (folder / name).write_text(json.dumps(self.merges, ensure_ascii=False), "utf-8")
        return {"merges": name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the tokeniser from its files."""
        return cls(read_json(config.pop("merges")), **config)

    def __repr__(self) -> str:
        return f"{class_name(self)}({len(self.merges)} merges, {self.dictionary!r}, language={self.language!r})"


class SentencePieceTokenizer(LaserTokenizer):
    """LASER 2's tokenisation: spaces for controls, Moses' punctuation normalisation, lower case, SentencePiece.

    The model's own numbers count for nothing: each piece gets its id by its name.

    Args:
        model: A ``SentencePieceProcessor``.
        dictionary: The ids of the pieces; if None, the special pieces of fairseq, then the model's in their order.
        language: A two-letter code, for Moses' rules.
        lowercase: Whether to put text in lower case, which LASER 2 needs.

    Raises:
        ValueError: A dictionary of another model's pieces.
        TypeError: No SentencePiece model, no dictionary.
        ImportError: No sacremoses.

    Example:
        >>> import sentencepiece
        >>> model = sentencepiece.SentencePieceProcessor(model_file="laser2.spm")  # doctest: +SKIP
        >>> SentencePieceTokenizer(model).pieces([["me", "gusta"]])  # doctest: +SKIP

    Deviations: none from the laser_encoders package (0.0.2) for whole sentences. Words that are split already are
    normalised one by one, so rules that look across words (a quote before a comma) do not apply to them.
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset({"model"})

    def __init__(
        self, model: Any, dictionary: PieceDictionary | None = None, *, language: str = "en", lowercase: bool = True
    ) -> None:
        if not hasattr(model, "serialized_model_proto"):
            raise TypeError(must("model", "be a SentencePieceProcessor", class_name(model)))
        super().__init__()
        pieces = [model.id_to_piece(i) for i in range(len(model)) if not (model.is_control(i) or model.is_unknown(i))]
        self.model = model
        self.dictionary = PieceDictionary.from_pieces(pieces) if dictionary is None else _check_dictionary(dictionary)
        self.language = language
        self.lowercase = lowercase
        self._moses = MosesRules(language)
        found = sum(piece in self.dictionary for piece in pieces)
        require(2 * found >= len(pieces), "dictionary", "hold the model's pieces", f"{found} of {len(pieces)}")

    def cut_word(self, word: str) -> list[int]:
        """Cut one word."""
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
        """Return the constructor's arguments, but for the model."""
        return {"dictionary": self.dictionary, "language": self.language, "lowercase": self.lowercase}

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write the SentencePiece model."""
        name = MODEL_NAME.format(sum(1 for _ in folder.glob(MODEL_NAME.format("*"))))
        (folder / name).write_bytes(self.model.serialized_model_proto())
        return {"model": name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the tokeniser from its files."""
        return cls(open_sentencepiece(config.pop("model")), **config)

    def __repr__(self) -> str:
        options = {"language": self.language, "lowercase": self.lowercase}
        return repr_call(self, dictionary=self.dictionary, **options)


def open_sentencepiece(path: Path) -> Any:
    """Open a SentencePiece model.

    Args:
        path: The file.

    Returns:
        A ``SentencePieceProcessor``.

    Raises:
        ValueError: The file is none.
    """
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor()
    try:
        model.LoadFromSerializedProto(path.read_bytes())  # from bytes: the package words all faults alike
    except RuntimeError as error:
        raise ValueError(must(str(path), "be a SentencePiece model", error)) from error
    return model


def check_texts(texts: Iterable[str]) -> list[str]:
    """Require strings, and give them: the caller goes on with these, since some texts can be read only once."""
    if isinstance(texts, str):
        raise TypeError(must("texts", "be a sequence of sentences", f"the string {texts!r}"))
    texts = list(texts)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(must(f"texts[{place}]", "be a string", class_name(text)))
    return texts


class MosesRules:
    """What LASER does to text first: Moses' rules for one language, as sacremoses has them, but for `MOSES_4`.

    Args:
        language: A two-letter code.
    """

    def __init__(self, language: str) -> None:
        moses = import_optional("sacremoses", pip="polyembed[laser]", feature="LASER's tokenisation")
        self._normalizer = moses.MosesPunctNormalizer(lang=language)
        rules = self._normalizer.substitutions
        self._normalizer.substitutions = [(found, MOSES_4.get(found, becomes)) for found, becomes in rules]
        self._tokenizer = moses.MosesTokenizer(lang=language)

    def prepare(self, text: str) -> str:
        """Put spaces for control characters, and normalise punctuation.

        Args:
            text: Any string.

        Returns:
            Text that can be written down, its case kept.
        """
        return str(self._normalizer.normalize(_without_controls(text)))

    def tokenize(self, text: str) -> list[str]:
        """Split a prepared text into words and punctuation.

        Args:
            text: What `prepare` gave.

        Returns:
            Tokens.
        """
        return list(self._tokenizer.tokenize(text, escape=False))


def _flatten(words: Sequence[Sequence[int]]) -> CutText:
    """Put words' pieces one after the other."""
    owners = [place for place, ids in enumerate(words) for _ in ids]
    return CutText(list(itertools.chain.from_iterable(words)), owners)


def _bpe_model(ids: dict[str, int], merges: list[tuple[str, str]]) -> Any:
    from tokenizers import models

    return models.BPE(vocab=ids, merges=merges, unk_token=UNKNOWN, end_of_word_suffix=END_OF_WORD)


def _check_dictionary(dictionary: PieceDictionary) -> PieceDictionary:
    if not isinstance(dictionary, PieceDictionary):
        raise TypeError(must("dictionary", "be a PieceDictionary", class_name(dictionary)))
    return dictionary


def _check_merges(merges: Iterable[Sequence[str]]) -> list[tuple[str, str]]:
    """Require pairs of pieces, each pair once: fastBPE stops at a second one."""
    found: dict[tuple[str, str], None] = {}
    rule = f"be two pieces, of which only the second may end in {END_OF_WORD!r}"
    for place, pair in enumerate(merges):
        name = f"merges[{place}]"
        if isinstance(pair, str) or not all(isinstance(piece, str) for piece in pair):
            raise TypeError(must(name, "be a pair of strings", repr(pair)))
        sound = len(pair) == 2 and all(pair) and not pair[0].endswith(END_OF_WORD) and pair[1] != END_OF_WORD
        require(sound, name, rule, tuple(pair))
        first, second = pair
        require((first, second) not in found, name, "be a pair that did not come before", (first, second))
        found[first, second] = None
    return list(found)


def _name(token: str) -> str:
    """Name a token as the dictionary does."""
    return token.removesuffix(END_OF_WORD) if token.endswith(END_OF_WORD) else token + CONTINUES


def _without_controls(text: str) -> str:
    """Put a space for everything in Unicode's category C: controls, formats, surrogates, places kept free."""
    return "".join(" " if unicodedata.category(character)[0] == "C" else character for character in text)
