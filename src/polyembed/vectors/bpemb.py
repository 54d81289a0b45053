"""BPEmb: sub-word vectors and the SentencePiece models that they were trained with."""

import io
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from polyembed._checks import check_file, check_positive, check_words, must, require
from polyembed.saving import VectorFiles
from polyembed.text.pieces import UNREADABLE
from polyembed.vectors.fasttext import FastTextVectors
from polyembed.vectors.laser import fetch
from polyembed.vectors.protocol import Rows
from polyembed.vectors.textfile import TextVectors, Word2VecBinaryVectors

BASE_URL = "https://bpemb.h-its.org/"


class BPEmbVectors(VectorFiles):
    """Vectors of SentencePiece pieces; a word's vector is the mean of its pieces' vectors.

    ``vector(w) = mean(table[i] for i in piece_ids(w))``; a word without pieces gets zeros. Words
    are prepared as the BPEmb models expect: lower-cased, each digit replaced by 0. Where digits
    serve as letters, as in romanised Arabic ("3arabi", "7abibi"), this changes the word: set
    ``preprocess=False``.

    `from_pretrained` fetches the files of a language. The bpemb package opens the model; the
    attributes ``model_file`` and ``emb_file`` of a `bpemb.BPEmb` name its files.

    Args:
        model_file: The file of a SentencePiece model.
        vectors_file: The file of the pieces' vectors in the order of their ids, in word2vec's
            binary (``.bin``) or text format.
        preprocess: Whether to lower-case words and replace digits.

    Attributes:
        dim: The length of a vector.
        num_pieces: The number of pieces.
        unknown_id: The id of the unknown piece.
        table: The vectors of the pieces in the order of their ids, float32, ``(num_pieces, dim)``.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If the files are damaged or do not belong together.

    Example:
        >>> vectors = BPEmbVectors.from_pretrained("es", dim=100)  # doctest: +SKIP
        >>> vectors.pieces("Zaragoza2021")  # doctest: +SKIP
        ['▁zaragoza', '0000']

    Deviations: the bpemb package downloads without checking certificates, and falls back to another
    vocabulary size where a language lacks the one asked for. Here certificates are checked, and a
    missing size is an error.
    """

    file_arguments = frozenset({"model_file", "vectors_file"})

    def __init__(
        self,
        model_file: str | os.PathLike[str],
        vectors_file: str | os.PathLike[str],
        *,
        preprocess: bool = True,
    ) -> None:
        from bpemb import BPEmb

        self.model_file = check_file(model_file, name="model_file")
        self.vectors_file = check_file(vectors_file, name="vectors_file")
        self.preprocess = preprocess
        try:
            self._bpemb = BPEmb(
                model_file=self.model_file, emb_file=self.vectors_file, segmentation_only=True
            )
            pieces = _names(self._bpemb.spm)
        except (RuntimeError, OSError, UnicodeDecodeError) as error:
            got = f"{self.model_file} ({error})"
            raise ValueError(must("model_file", "name a SentencePiece model", got)) from error
        reader = Word2VecBinaryVectors if self.vectors_file.suffix == ".bin" else TextVectors
        names, self.table = reader(self.vectors_file).table()
        self.num_pieces, self.dim = self.table.shape
        self.unknown_id = int(self._bpemb.spm.unk_id())
        same = sum(map(str.__eq__, pieces, names))  # a few names are damaged in the public files
        rule = f"hold the vectors of the pieces of model_file {self.model_file}, in their order"
        fits = len(names) == len(pieces) and same > len(pieces) // 2
        got = f"{len(names)} rows for {len(pieces)} pieces, {same} of one name, in {vectors_file}"
        require(fits, "vectors_file", rule, got)
        finite = bool(np.isfinite(self.table).all())
        require(finite, str(vectors_file), "hold finite numbers", "NaN or an infinity")

    @classmethod
    def from_pretrained(
        cls,
        lang: str,
        *,
        vocab_size: int = 10000,
        dim: int = 100,
        cache_dir: str | os.PathLike[str] | None = None,
        preprocess: bool = True,
    ) -> Self:
        """Open the public files of a language, which are fetched where the cache lacks them.

        Args:
            lang: A Wikipedia code such as ``"es"``, or ``"multi"``.
            vocab_size: The number of pieces.
            dim: The length of a vector.
            cache_dir: The folder of downloaded files; if None, ``~/.cache/bpemb``, as in the bpemb
                package.
            preprocess: Whether to lower-case words and replace digits.

        Returns:
            The opened vectors.

        Raises:
            FileNotFoundError: If a file is not in the cache and cannot be fetched, for example
                because the language does not have this size.
        """
        check_positive(vocab_size=vocab_size, dim=dim)
        folder = Path(cache_dir or Path.home() / ".cache" / "bpemb")
        stem = f"{lang}/{lang}.wiki.bpe.vs{vocab_size}"
        model, vectors = f"{stem}.model", f"{stem}.d{dim}.w2v.bin"
        base = BASE_URL + ("multi/" if lang == "multi" else "")
        model_file = fetch(base + model, folder / model)
        vectors_file = fetch(f"{base}{vectors}.tar.gz", folder / vectors)
        return cls(model_file, vectors_file, preprocess=preprocess)

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
        """Train a byte-pair SentencePiece model and skip-gram vectors of its pieces.

        BPEmb was made in this way. A piece that the corpus does not use gets zeros.

        Args:
            sentences: Lists of words; words that are not text (with a lone surrogate) are left out.
            folder: Where to save ``pieces.model`` and ``pieces.vec``.
            vocab_size: The number of pieces; a small corpus yields fewer.
            dim: The length of a vector.
            epochs: The number of passes over the corpus.
            threads: The number of threads, at least 11 (see `FastTextVectors.train`).
            seed: The seed of the initial vectors.
            preprocess: Whether to lower-case words and replace digits.

        Returns:
            The opened model.

        Raises:
            ValueError: If the sentences have no word, or more characters than `vocab_size`.
        """
        import sentencepiece
        from bpemb import BPEmb

        check_positive(vocab_size=vocab_size, dim=dim)
        prepare = BPEmb.preprocess if preprocess else str
        texts = (
            " ".join(word for word in check_words(words) if not UNREADABLE.search(word))
            for words in sentences
        )
        corpus = [prepare(text) for text in texts if text]
        require(len(corpus) > 0, "sentences", "hold at least one word", "none")
        content = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(corpus),
                model_writer=content,
                model_type="bpe",
                vocab_size=vocab_size,
                max_sentence_length=2**30,  # its limit; longer texts would be left out
                hard_vocab_limit=False,
                num_threads=threads,
                minloglevel=3,
            )
        except RuntimeError as error:
            rule = "leave room for the corpus's characters"
            raise ValueError(must("vocab_size", rule, f"{vocab_size} ({error})")) from error
        model = sentencepiece.SentencePieceProcessor(model_proto=content.getvalue())
        names = _names(model)
        with tempfile.TemporaryDirectory() as draft:
            vectors = FastTextVectors.train(
                model.encode(corpus, out_type=str),
                Path(draft, "vectors.bin"),
                dim=dim,
                min_count=1,
                epochs=epochs,
                bucket=1,
                min_n=0,
                max_n=0,
                threads=threads,
                seed=seed,
            )
            rows = zip(names, vectors.vectors(names).tolist(), strict=True)
        lines = (f"{name} {' '.join(f'{value:.6g}' for value in row)}\n" for name, row in rows)
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pieces.vec").write_text(f"{len(names)} {dim}\n{''.join(lines)}", "utf-8")
        (folder / "pieces.model").write_bytes(content.getvalue())
        return cls(folder / "pieces.model", folder / "pieces.vec", preprocess=preprocess)

    def pieces(self, word: str) -> list[str]:
        """Cut a word into pieces, of which the first starts with ``▁``.

        Args:
            word: The word.

        Returns:
            Its pieces; none for the empty string or a word with a lone surrogate, which is not
            text.
        """
        return list(self._bpemb.spm.encode(self._prepared(word), out_type=str))

    def piece_ids(self, words: Sequence[str]) -> list[list[int]]:
        """Cut words into the ids of their pieces.

        Args:
            words: The words, repetitions allowed.

        Returns:
            One list of ids per word, empty for a word without pieces.
        """
        texts = [self._prepared(word) for word in check_words(words)]
        return list(self._bpemb.spm.encode(texts, out_type=int))

    def vectors(self, words: Sequence[str]) -> Rows:
        """Return the means of the words' pieces as float32, ``(len(words), dim)``."""
        found = self.piece_ids(words)
        out = np.zeros((len(found), self.dim), np.float32)
        for i, ids in enumerate(found):
            if ids:
                out[i] = self.table[ids].mean(0)
        return out

    def _prepared(self, word: str) -> str:
        word = "" if UNREADABLE.search(word) else word
        return str(self._bpemb.preprocess(word)) if self.preprocess else word


def _names(model: Any) -> list[str]:
    """Return the pieces of a SentencePiece model in the order of their ids."""
    return [model.id_to_piece(i) for i in range(len(model))]
