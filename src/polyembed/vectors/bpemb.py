"""BPEmb: sub-word vectors and the SentencePiece models that they were trained with."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from polyembed._checks import check_file, check_positive, must, require
from polyembed.vectors._download import DOWNLOAD_ERRORS, download
from polyembed.vectors.protocol import FileSource, Rows
from polyembed.vectors.textfile import TextVectors

BASE_URL = "https://bpemb.h-its.org/"
MODEL_NAME = "{lang}/{lang}.wiki.bpe.vs{vocab_size}.model"
VECTORS_NAME = "{lang}/{lang}.wiki.bpe.vs{vocab_size}.d{dim}.w2v.bin"
LANGUAGE = re.compile(r"[a-z0-9_-]+")
DIGIT = re.compile(r"\d")
MAX_HEADER = 64  # bytes


class BPEmbVectors(FileSource):
    """Vectors of SentencePiece pieces, and words as the mean of theirs.

    ``vector(w) = mean(table[i] for i in piece_ids(w))``; a word without pieces gets zeros. Words are prepared
    as the BPEmb models expect: lower-cased, each digit replaced by 0.

    A language's files are looked for in `cache_dir` and fetched if missing; or name two files of your own.

    Args:
        lang: A Wikipedia code such as ``"es"``, or ``"multi"``.
        vocab_size: The number of pieces of the language's model.
        dim: The length of the language's vectors.
        model_file: A SentencePiece model, instead of a language.
        vectors_file: Its pieces' vectors, word2vec's binary (``.bin``) or text format.
        cache_dir: Where downloads are kept; ``~/.cache/bpemb``, as the bpemb package has it, if None.
        preprocess: Whether to lower-case words and replace digits.

    Raises:
        FileNotFoundError: A file is missing and cannot be fetched.
        ValueError: The files are damaged, or do not belong together; or both a language and files are given.

    Example:
        >>> vectors = BPEmbVectors("es", vocab_size=10000, dim=100)  # doctest: +SKIP
        >>> vectors.pieces("Zaragoza2021")  # doctest: +SKIP
        ['▁zaragoza', '0000']

    Deviations: the bpemb package downloads without checking certificates, and falls back to another
    vocabulary size where a language lacks the one asked for; here certificates are checked and nothing is
    replaced. Rows follow their pieces' names, where the package trusts the order of the file.
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset({"model_file", "vectors_file"})

    def __init__(
        self,
        lang: str | None = None,
        *,
        vocab_size: int = 10000,
        dim: int = 100,
        model_file: str | os.PathLike[str] | None = None,
        vectors_file: str | os.PathLike[str] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        preprocess: bool = True,
    ) -> None:
        check_positive(vocab_size=vocab_size, dim=dim)
        self._call: dict[str, Any] = {}
        if lang is not None and model_file is None and vectors_file is None:
            found = _download(lang, vocab_size, dim, Path(cache_dir or Path.home() / ".cache" / "bpemb"))
            self._call = {"lang": lang, "vocab_size": vocab_size, "dim": dim}
            if cache_dir is not None:
                self._call["cache_dir"] = str(cache_dir)
            self._model_file, self._vectors_file = found
        elif lang is None and model_file is not None and vectors_file is not None:
            self._model_file = check_file(model_file, name="model_file")
            self._vectors_file = check_file(vectors_file, name="vectors_file")
        else:
            given = {"lang": lang, "model_file": model_file, "vectors_file": vectors_file}
            raise ValueError(must("lang", "be given, or else both model_file and vectors_file", given))
        self._preprocess = preprocess
        self._model, pieces = _load_model(self._model_file)
        names, self._table = _load_vectors(self._vectors_file)
        self._table = self._table[_order(pieces, names, self._model_file, self._vectors_file)]

    @classmethod
    def train(
        cls,
        sentences: Iterable[Sequence[str]],
        folder: str | os.PathLike[str],
        *,
        vocab_size: int = 10000,
        dim: int = 100,
        epochs: int = 5,
        threads: int = 12,
        seed: int = 0,
        preprocess: bool = True,
    ) -> Self:
        """Train a byte-pair SentencePiece model and skip-gram vectors of its pieces, as BPEmb was made.

        A piece that the corpus does not use gets zeros.

        Args:
            sentences: Lists of words.
            folder: Where to save ``pieces.model`` and ``pieces.vec``; both appear when both are whole.
            vocab_size: The number of pieces; fewer where the corpus has no more.
            dim: The length of a vector.
            epochs: Passes over the corpus.
            threads: As in `FastTextVectors.train`.
            seed: The seed of the initial vectors.
            preprocess: Whether to lower-case words and replace digits.

        Returns:
            The opened model.

        Raises:
            ValueError: There is no word, or fewer pieces asked for than there are characters.
        """
        from polyembed.vectors.fasttext import check_sentence
        from polyembed.vectors.train_pieces import train_pieces

        prepare = (lambda word: DIGIT.sub("0", word.lower())) if preprocess else str
        corpus = [" ".join(map(prepare, words)) for words in map(check_sentence, sentences)]
        options = {"vocab_size": vocab_size, "dim": dim, "epochs": epochs, "threads": threads, "seed": seed}
        model_file, vectors_file = train_pieces(corpus, Path(folder), **options)
        return cls(model_file=model_file, vectors_file=vectors_file, preprocess=preprocess)

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return int(self._table.shape[1])

    @property
    def num_pieces(self) -> int:
        """The number of pieces."""
        return len(self._table)

    @property
    def unknown_id(self) -> int:
        """The id of the piece that stands for what has none."""
        return int(self._model.unk_id())

    @property
    def table(self) -> Rows:
        """The vectors of the pieces in the order of their ids, float32, ``(num_pieces, dim)``."""
        return self._table

    def pieces(self, word: str) -> list[str]:
        """Cut a word into pieces; the first starts with ``▁``.

        Args:
            word: The word.

        Returns:
            Its pieces; none for the empty string, and for what is not text (a lone surrogate).
        """
        prepared = self._prepare(word)
        return [] if prepared is None else list(self._model.encode(prepared, out_type=str))

    def piece_ids(self, words: Sequence[str]) -> list[list[int]]:
        """Cut words into the ids of their pieces.

        Args:
            words: The words, repetitions allowed.

        Returns:
            A list of ids per word, empty where `pieces` is.
        """
        prepared = [self._prepare(word) or "" for word in words]
        return [list(ids) for ids in self._model.encode(prepared, out_type=int)]

    def vectors(self, words: Sequence[str]) -> Rows:
        """Average the vectors of each word's pieces.

        Args:
            words: The words, repetitions allowed.

        Returns:
            Float32 rows in the order of `words`, ``(len(words), dim)``.
        """
        out = np.zeros((len(words), self.dim), np.float32)
        for i, ids in enumerate(self.piece_ids(words)):
            if ids:
                out[i] = self._table[ids].mean(0)
        return out

    def files(self) -> dict[str, Path]:
        """Name the files on disk.

        Returns:
            ``{"model_file": the SentencePiece model, "vectors_file": its pieces' vectors}``.
        """
        return {"model_file": self._model_file, "vectors_file": self._vectors_file}

    def get_config(self) -> dict[str, Any]:
        """Give the constructor arguments other than the files.

        Returns:
            ``preprocess``; a language is contained in its files.
        """
        return {"preprocess": self._preprocess}

    def __repr__(self) -> str:
        if not self._call:
            return super().__repr__()
        arguments = ", ".join(f"{name}={value!r}" for name, value in {**self._call, **self.get_config()}.items())
        return f"{type(self).__name__}({arguments})"

    def _prepare(self, word: str) -> str | None:
        try:
            word.encode()
        except UnicodeEncodeError:
            return None
        return DIGIT.sub("0", word.lower()) if self._preprocess else word


def _load_model(path: Path) -> tuple[Any, list[str]]:
    """Open a SentencePiece model and list its pieces."""
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor()
    try:
        # From bytes: the package words a missing file and a broken one alike.
        model.LoadFromSerializedProto(path.read_bytes())
        pieces = [model.id_to_piece(i) for i in range(len(model))]
    except (RuntimeError, UnicodeDecodeError) as error:
        raise ValueError(must("model_file", "name a SentencePiece model", f"{path} ({error})")) from error
    return model, pieces


def _load_vectors(path: Path) -> tuple[list[str], Rows]:
    """Read all names and rows of a word2vec file."""
    if path.suffix != ".bin":
        text = TextVectors(path, header=True)
        names = text.words
        return names, text.vectors(names)
    with path.open("rb") as file:
        header = file.readline(MAX_HEADER).split()
        if len(header) != 2 or not all(field.isdigit() for field in header):
            _not_vectors(path, "no header of rows and dim")
        num_rows, dim = map(int, header)
        data = file.read()
    names, position = [], 0
    # A row takes at least a separator and its numbers: a header promises no more memory than the file has.
    if not num_rows or not dim or num_rows * (dim * 4 + 1) > len(data):
        _not_vectors(path, f"{len(data)} bytes for {num_rows} rows of {dim}")
    table = np.empty((num_rows, dim), np.float32)
    for i in range(num_rows):
        space = data.find(b" ", position)
        if space < 0 or len(data) - space - 1 < dim * 4:
            _not_vectors(path, f"{i} whole rows of {num_rows}")
        names.append(data[position:space].lstrip(b"\n").decode("utf-8", "replace"))
        table[i] = np.frombuffer(data, "<f4", dim, space + 1)
        position = space + 1 + dim * 4
    return names, table


def _not_vectors(path: Path, what: str) -> NoReturn:
    raise ValueError(must("vectors_file", "name a whole word2vec .bin or text file", f"{path} ({what})"))


def _order(pieces: list[str], names: list[str], model_file: Path, vectors_file: Path) -> list[int]:
    """Give the vectors' row of each piece."""
    rule = f"hold the vectors of the pieces of model_file {model_file}"
    counts = f"{len(names)} rows for {len(pieces)} pieces in {vectors_file}"
    require(len(pieces) == len(names), "vectors_file", rule, counts)
    rows = {name: row for row, name in enumerate(names)}
    if all(piece in rows for piece in pieces):
        return [rows[piece] for piece in pieces]
    # A few names may be damaged, and then the order is all there is; most of them never are.
    same = sum(piece == name for piece, name in zip(pieces, names, strict=True))
    shared = f"{same} of {len(pieces)} in {vectors_file}"
    require(same > len(pieces) // 2, "vectors_file", rule, shared)
    return list(range(len(pieces)))


def _download(lang: str, vocab_size: int, dim: int, cache_dir: Path) -> tuple[Path, Path]:
    """Return a language's two files, fetched where the cache lacks them."""
    require(LANGUAGE.fullmatch(lang) is not None, "lang", "be a Wikipedia code or 'multi'", repr(lang))
    base = BASE_URL + ("multi/" if lang == "multi" else "")
    names = [name.format(lang=lang, vocab_size=vocab_size, dim=dim) for name in (MODEL_NAME, VECTORS_NAME)]
    urls = [base + names[0], base + names[1] + ".tar.gz"]
    paths = [cache_dir / name for name in names]
    for url, path in zip(urls, paths, strict=True):
        if path.exists():
            continue
        try:
            download(url, path)
        except DOWNLOAD_ERRORS as error:
            rule = f"name a language that BPEmb has with vocab_size {vocab_size} and dim {dim}, within reach"
            advice = f"Fetch {urls[0]} and {urls[1]} by other means, unpack the latter"
            call = "open them with BPEmbVectors(model_file=..., vectors_file=...)"
            raise FileNotFoundError(must("lang", rule, f"{lang!r} ({error}). {advice}, and {call}")) from error
    return paths[0], paths[1]
