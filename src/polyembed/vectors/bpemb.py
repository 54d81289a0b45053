"""BPEmb: sub-word vectors and the SentencePiece models that they were trained with."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from polyembed._checks import check_file, check_positive, class_name, must, require
from polyembed.saving import VectorFiles
from polyembed.vectors._download import DOWNLOAD_ERRORS, download
from polyembed.vectors.protocol import Rows, check_words
from polyembed.vectors.textfile import read_header

BASE_URL = "https://bpemb.h-its.org/"
MODEL_NAME = "{lang}/{lang}.wiki.bpe.vs{vocab_size}.model"
VECTORS_NAME = "{lang}/{lang}.wiki.bpe.vs{vocab_size}.d{dim}.w2v.bin"
LANGUAGE = re.compile(r"[a-z0-9_-]+")
MAX_HEADER = 64  # bytes


class BPEmbVectors(VectorFiles):
    """Vectors of SentencePiece pieces, and words as the mean of theirs.

    ``vector(w) = mean(table[i] for i in piece_ids(w))``; a word without pieces gets zeros. Words
    are prepared
    as the BPEmb models expect: lower-cased, each digit replaced by 0. Where digits are letters, as
    in romanised Arabic ("3arabi", "7abibi"), that changes the word: set ``preprocess=False``.

    A language's files are looked for in `cache_dir` and fetched if missing. Alternatively, name two
    files of your own, or take the files of a `bpemb.BPEmb` by `from_bpemb`. The bpemb package opens
    the files.

    Args:
        lang: A Wikipedia code such as ``"es"``, or ``"multi"``.
        vocab_size: The number of pieces of the language's model.
        dim: The length of the language's vectors.
        model_file: A SentencePiece model, instead of a language.
        vectors_file: Its pieces' vectors, word2vec's binary (``.bin``) or text format.
        cache_dir: Where downloads are kept; ``~/.cache/bpemb``, as the bpemb package has it, if
            None.
        preprocess: Whether to lower-case words and replace digits.

    Raises:
        FileNotFoundError: A file is missing and cannot be fetched.
        ValueError: The files are damaged, or do not belong together; or both a language and files
            are given.

    Example:
        >>> vectors = BPEmbVectors("es", vocab_size=10000, dim=100)  # doctest: +SKIP
        >>> vectors.pieces("Zaragoza2021")  # doctest: +SKIP
        ['▁zaragoza', '0000']

    Deviations: the bpemb package downloads without checking certificates, and falls back to another
    vocabulary size where a language lacks the one asked for. Here certificates are checked and
    nothing is replaced. Rows follow their pieces' names, where the package trusts the order of the
    file.
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
        if lang is not None and model_file is None and vectors_file is None:
            folder = Path(cache_dir) if cache_dir is not None else Path.home() / ".cache" / "bpemb"
            model_file, vectors_file = _download(lang, vocab_size, dim, folder)
        elif lang is not None or model_file is None or vectors_file is None:
            given = {"lang": lang, "model_file": model_file, "vectors_file": vectors_file}
            raise ValueError(
                must("lang", "be given, or else both model_file and vectors_file", given)
            )
        self.model_file = check_file(model_file, name="model_file")
        self.vectors_file = check_file(vectors_file, name="vectors_file")
        self.preprocess = preprocess
        self._bpemb = _open_model(self.model_file, self.vectors_file)
        model = self._bpemb.spm
        try:
            pieces = [model.id_to_piece(i) for i in range(len(model))]
        except UnicodeDecodeError as error:
            raise _not_a_model(self.model_file, error) from error
        names, table = _read_vectors(self.vectors_file)
        self._table = table[_order(pieces, names, self.model_file, self.vectors_file)]

    @classmethod
    def from_bpemb(cls, bpemb: Any) -> Self:
        """Open the files of a `bpemb.BPEmb` again, with its choice of preprocessing.

        Args:
            bpemb: The object; not one of ``segmentation_only``, which has no vectors.

        Returns:
            Its vectors; a padding row that it added is left out.

        Raises:
            TypeError: Something without the names of both files.
        """
        if not (hasattr(bpemb, "model_file") and hasattr(bpemb, "emb_file")):
            raise TypeError(must("bpemb", "be a bpemb.BPEmb with vectors", class_name(bpemb)))
        return cls(
            model_file=bpemb.model_file, vectors_file=bpemb.emb_file, preprocess=bpemb.do_preproc
        )

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
        """Train a byte-pair SentencePiece model and skip-gram vectors of its pieces, as BPEmb was
        made.

        A piece that the corpus does not use gets zeros.

        Args:
            sentences: Lists of words.
            folder: Where to save ``pieces.model`` and ``pieces.vec``; both appear when both are
                whole.
            vocab_size: The number of pieces; fewer where the corpus has no more.
            dim: The length of a vector.
            epochs: Passes over the corpus.
            threads: As in `FastTextVectors.train`.
            seed: The seed of the initial vectors.
            preprocess: Whether to lower-case words and replace digits.

        Returns:
            The opened model.

        Raises:
            ValueError: The sentences have no word, or more characters than `vocab_size`.
        """
        from bpemb import BPEmb

        from polyembed.vectors.training import check_sentence, train_pieces

        prepare = BPEmb.preprocess if preprocess else str
        corpus = [" ".join(map(prepare, words)) for words in map(check_sentence, sentences)]
        options = {
            "vocab_size": vocab_size,
            "dim": dim,
            "epochs": epochs,
            "threads": threads,
            "seed": seed,
        }
        model_file, vectors_file = train_pieces(corpus, Path(folder), **options)
        return cls(model_file=model_file, vectors_file=vectors_file, preprocess=preprocess)

    def arguments(self) -> dict[str, Any]:
        """Return the call that opens the same files without a network."""
        return {name: getattr(self, name) for name in ("model_file", "vectors_file", "preprocess")}

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
        """The id of the unknown piece."""
        return int(self._bpemb.spm.unk_id())

    @property
    def table(self) -> Rows:
        """The vectors of the pieces in the order of their ids, float32, ``(num_pieces, dim)``."""
        return self._table

    def pieces(self, word: str) -> list[str]:
        """Cut a word into pieces, of which the first starts with ``▁``.

        Args:
            word: The word.

        Returns:
            Its pieces; none for the empty string, or for a lone surrogate, which is not text.
        """
        return list(self._bpemb.spm.encode(self._prepared(word), out_type=str))

    def piece_ids(self, words: Sequence[str]) -> list[list[int]]:
        """Cut words into the ids of their pieces.

        Args:
            words: The words, repetitions allowed.

        Returns:
            A list of ids per word, empty where `pieces` is.
        """
        check_words(words)
        return [
            list(ids)
            for ids in self._bpemb.spm.encode(
                [self._prepared(word) for word in words], out_type=int
            )
        ]

    def vectors(self, words: Sequence[str]) -> Rows:
        """Average the vectors of each word's pieces; return float32 rows, ``(len(words), dim)``."""
        out = np.zeros((len(words), self.dim), np.float32)
        for i, ids in enumerate(self.piece_ids(words)):
            if ids:
                out[i] = self._table[ids].mean(0)
        return out

    def _prepared(self, word: str) -> str:
        try:
            word.encode()
        except UnicodeEncodeError:
            return ""
        return str(self._bpemb.preprocess(word)) if self.preprocess else word


def _open_model(model_file: Path, vectors_file: Path) -> Any:
    """Open a SentencePiece model by the bpemb package, without its vectors."""
    from bpemb import BPEmb

    try:
        return BPEmb(model_file=model_file, emb_file=vectors_file, segmentation_only=True)
    except (RuntimeError, OSError) as error:
        raise _not_a_model(model_file, error) from error


def _not_a_model(path: Path, error: Exception) -> ValueError:
    return ValueError(must("model_file", "name a SentencePiece model", f"{path} ({error})"))


def _read_vectors(path: Path) -> tuple[list[str], Rows]:
    """Read a word2vec file by the bpemb package, after checking that the file can hold what its header promises."""
    from bpemb.util import load_word2vec_file

    rule, size = "name a whole word2vec .bin or text file", path.stat().st_size
    with path.open("rb") as file:
        num_rows, dim = read_header(file.readline(MAX_HEADER).strip()) or (0, 0)
    # A row takes at least a separator, and four bytes a number, or two where numbers are text.
    fits = num_rows * dim > 0 and num_rows * (dim * (4 if path.suffix == ".bin" else 2) + 1) <= size
    require(fits, "vectors_file", rule, f"{path} ({size} bytes for {num_rows} rows of {dim})")
    try:
        loaded = load_word2vec_file(path)
    except (EOFError, ValueError) as error:
        raise ValueError(must("vectors_file", rule, f"{path} ({error})")) from error
    finite = bool(np.isfinite(loaded.vectors).all())
    require(finite, "vectors_file", "hold finite numbers", f"NaN or an infinity in {path}")
    return list(loaded.index_to_key), loaded.vectors


def _order(pieces: list[str], names: list[str], model_file: Path, vectors_file: Path) -> list[int]:
    """Return the vectors' row of each piece."""
    rule = f"hold the vectors of the pieces of model_file {model_file}"
    counts = f"{len(names)} rows for {len(pieces)} pieces in {vectors_file}"
    require(len(pieces) == len(names), "vectors_file", rule, counts)
    rows = {name: row for row, name in enumerate(names)}
    if all(piece in rows for piece in pieces):
        return [rows[piece] for piece in pieces]
    # A few names may be damaged. Then only the order can tell the rows, and most names must agree
    # with it.
    same = sum(piece == name for piece, name in zip(pieces, names, strict=True))
    require(
        same > len(pieces) // 2, "vectors_file", rule, f"{same} of {len(pieces)} in {vectors_file}"
    )
    return list(range(len(pieces)))


def _download(lang: str, vocab_size: int, dim: int, cache_dir: Path) -> tuple[Path, Path]:
    """Return a language's two files, fetched where the cache lacks them."""
    require(
        LANGUAGE.fullmatch(lang) is not None, "lang", "be a Wikipedia code or 'multi'", repr(lang)
    )
    base = BASE_URL + ("multi/" if lang == "multi" else "")
    names = [
        name.format(lang=lang, vocab_size=vocab_size, dim=dim)
        for name in (MODEL_NAME, VECTORS_NAME)
    ]
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
            raise FileNotFoundError(
                must("lang", rule, f"{lang!r} ({error}). {advice}, and {call}")
            ) from error
    return paths[0], paths[1]
