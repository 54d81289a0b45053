"""fastText models: vectors of words, and of character n-grams for words that the model has not seen."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from polyembed._checks import check_choice, check_file, check_positive, must, require
from polyembed.saving import VectorFiles
from polyembed.vectors._fasttext_file import Ids, read_fasttext
from polyembed.vectors._fasttext_process import LABELS, run_fasttext
from polyembed.vectors.protocol import Rows, check_words

END_OF_SENTENCE = b"</s>"
# of words spelled at once: bounds the rows held in memory to about 5 MB at 300 dimensions
CHUNK_BYTES = 2_048
FNV_BASIS = np.uint32(2166136261)
FNV_PRIME = np.uint32(16777619)


class FastTextVectors(VectorFiles):
    """Word vectors of a fastText model: the mean of a word's row and the rows of its character
    n-grams.

    ``vector(w) = mean({row(w)} | {row(num_words + fnv1a(g) % bucket) : g in ngrams("<" + w +
    ">")})``, with ``row(w)`` for vocabulary words only, the n-grams of ``min_n`` to ``max_n`` code points (a bare ``<`` or ``>`` is not one), and no n-grams for ``</s>``.
    A word with neither row nor n-grams gets zeros.

    Matrix and dictionary are memory-mapped: the object needs memory for the rows asked for, and 20
    bytes for each word of the vocabulary. It may be pickled and shared with worker processes, which
    open the file themselves.

    Args:
        path: A fastText ``.bin`` (with or without version number) or quantised ``.ftz`` file.

    Raises:
        FileNotFoundError: No file at `path`.
        ValueError: The file is not a whole fastText model, or is newer than version 12; or, of
            `vectors`, a word has NaN or an infinity.

    Example:
        >>> import tempfile
        >>> sentences = [["me", "gusta", "that", "song"]] * 5
        >>> path = Path(tempfile.mkdtemp()) / "tiny.bin"
        >>> vectors = FastTextVectors.train(sentences, path, dim=8, min_count=1, bucket=50)
        >>> vectors.vectors(["song", "songs"]).shape, "song" in vectors, "songs" in vectors
        ((2, 8), True, False)

    Deviations: the fasttext package refuses files without version number and pruned files that are
    not quantised; both are read here, and ``</s>`` has n-grams in the former, as when they were
    trained. Labels of a supervised model are not words here; the package looks for their rows among
    the n-grams.
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset({"path"})

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = check_file(path, where="FastTextVectors.from_pretrained fetches one")
        self._file = read_fasttext(self.path)
        self._unspelled = END_OF_SENTENCE if self._file.version else None

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return self._file.dim

    @property
    def words(self) -> list[str]:
        """The vocabulary, most frequent word first; bytes that are not UTF-8 become lone surrogates."""
        return [word.decode("utf-8", "surrogateescape") for word in self._file.words]

    def __len__(self) -> int:
        return len(self._file.words)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and bool(self._file.words.find([encode_word(word)])[0] >= 0)

    def vectors(self, words: Sequence[str]) -> Rows:
        """Read the words and their n-grams; return float32 rows in their order, ``(len(words), dim)``."""
        check_words(words)
        out = np.zeros((len(words), self.dim), np.float32)
        encoded = [encode_word(word) for word in words]
        chunks = list(_chunks(encoded))
        for chunk in chunks:
            with np.errstate(over="ignore", invalid="ignore"):  # checked below
                self._average(encoded[chunk], out[chunk])
        if len(chunks) > 1:
            self._file.matrix.release()
        for row in np.flatnonzero(~np.isfinite(out).all(1))[:1]:
            raise ValueError(
                must(
                    str(self.path), "hold finite numbers", f"NaN or an infinity for {words[row]!r}"
                )
            )
        return out

    def labels(self, words: Sequence[str], *, k: int = 1) -> list[dict[str, float]]:
        """Classify each word by a supervised model, such as ``lid.176.ftz``, which names the
        language of a text.

        The fasttext package does it, in its own process.

        Args:
            words: Words, or longer texts of one line.
            k: How many labels.

        Returns:
            For each word, its best labels and their probabilities, best first; a label without
            ``__label__``.

        Raises:
            ValueError: A line break or a lone surrogate in a word.
            RuntimeError: The package failed, as it does for a model without labels.
        """
        check_words(words)
        check_positive(k=k)
        for word in words:
            good = "\n" not in word and (encode_word(word) or b"").decode(errors="replace") == word
            require(good, "words", "hold words of one line that UTF-8 can write", repr(word))
        arguments = json.dumps([str(self.path), k])
        found = json.loads(run_fasttext(LABELS, arguments, given=json.dumps(list(words))))
        return [{label.removeprefix("__label__"): value for value, label in each} for each in found]

    def _average(self, words: Sequence[bytes | None], out: Rows) -> None:
        """Write each word's mean over its rows into `out`."""
        owners, rows = self._rows_of(words)
        if not len(rows):
            return
        distinct, index = np.unique(rows, return_inverse=True)
        table = self._file.matrix.rows(distinct)
        bounds = np.searchsorted(owners, np.arange(len(words) + 1))
        # A loop over words, since torch's bags hang in a forked process and numpy's reduceat is
        # slower.
        for i, (start, stop) in enumerate(pairwise(bounds.tolist())):
            if start < stop:
                out[i] = np.add.reduce(table.take(index[start:stop], axis=0), axis=0) / (
                    stop - start
                )

    def _rows_of(self, words: Sequence[bytes | None]) -> tuple[Ids, Ids]:
        """Return the matrix rows that each word averages: the words' indices, ascending, and the rows."""
        ids = self._file.words.find(words)
        known = np.flatnonzero(ids >= 0)
        spelled = [
            i for i, word in enumerate(words) if word is not None and word != self._unspelled
        ]
        if not self._file.max_n or not spelled:
            return known, ids[known]
        owners, hashes = _ngram_hashes(
            [words[i] or b"" for i in spelled], self._file.min_n, self._file.max_n
        )
        owners, ngrams = (
            np.array(spelled)[owners],
            (hashes % np.uint32(self._file.bucket)).astype(np.int64),
        )
        if self._file.kept is not None:
            owners, ngrams = _renumber(owners, ngrams, self._file.kept)
        owners = np.concatenate([known, owners])
        rows = np.concatenate([ids[known], ngrams + len(self._file.words)])
        order = np.argsort(owners, kind="stable")
        return owners[order], rows[order]

    @classmethod
    def train(
        cls,
        sentences: Iterable[Sequence[str]],
        path: str | os.PathLike[str],
        *,
        dim: int = 100,
        model: Literal["skipgram", "cbow"] = "skipgram",
        min_count: int = 5,
        epochs: int = 5,
        bucket: int = 2_000_000,
        min_n: int = 3,
        max_n: int = 6,
        threads: int = 12,
        seed: int = 0,
    ) -> Self:
        """Train a model with the fasttext package, in its own process, save it, and open it.

        The file at `path` appears only when the training has succeeded.

        Args:
            sentences: Lists of words; a word holds no ASCII white space.
            path: Where to save the model, as a ``.bin`` file.
            dim: The length of a vector.
            model: The training objective.
            min_count: Rarer words get no row of their own.
            epochs: Passes over the corpus.
            bucket: Rows for the hashed n-grams.
            min_n: Code points in the shortest n-gram.
            max_n: Code points in the longest n-gram; 0 for none.
            threads: Threads, at least 11: the package (0.9.3) initialises a tenth of the vectors in
                each, rounded down, and leaves the rest undefined. So the result differs a little
                from run to run.
            seed: The seed of the initial vectors.

        Returns:
            The opened model.

        Raises:
            RuntimeError: The package failed.
            ValueError: A word holds white space, or no word occurs `min_count` times.
        """
        from polyembed.vectors.training import train_fasttext

        check_choice("model", model, ("skipgram", "cbow"))
        check_positive(dim=dim, min_count=min_count, epochs=epochs, bucket=bucket)
        require(
            threads >= 11,
            "threads",
            "be at least 11, or the package leaves vectors undefined",
            threads,
        )
        require(min(min_n, max_n) >= 0, "min_n and max_n", "not be negative", (min_n, max_n))
        settings = {
            "model": model,
            "dim": dim,
            "epoch": epochs,
            "minCount": min_count,
            "bucket": bucket,
        }
        settings |= {"minn": min_n, "maxn": max_n, "thread": threads, "seed": seed}
        # Opened before it is moved, since the package does not notice a full disk.
        train_fasttext(sentences, Path(path), settings, check=cls)
        return cls(path)

    @classmethod
    def from_pretrained(
        cls, language: str, *, revision: str | None = None, cache_dir: str | Path | None = None
    ) -> Self:
        """Fetch a model of the public collection for 157 languages, and open it.

        The file is ``model.bin`` of ``facebook/fasttext-<language>-vectors``; several gigabytes for
        most.

        Args:
            language: The language's code, such as ``"es"``.
            revision: Branch, tag or commit of the repository.
            cache_dir: Where downloads are kept; huggingface_hub's default if None.

        Returns:
            The opened model.

        Raises:
            FileNotFoundError: The model is neither in the cache nor within reach.
        """
        import huggingface_hub

        repository, name = f"facebook/fasttext-{language}-vectors", "model.bin"
        try:
            found = huggingface_hub.hf_hub_download(
                repository, name, revision=revision, cache_dir=cache_dir
            )
        # What the hub raises is an OSError: offline; no such repository, file or revision.
        except OSError as error:
            url = f"https://huggingface.co/{repository}/resolve/{revision or 'main'}/{name}"
            got = f"{language!r} ({error}). Fetch {url} by other means and open it with FastTextVectors(path)"
            rule = f"name a model that huggingface_hub can fetch ({name} of {repository})"
            raise FileNotFoundError(must("language", rule, got)) from error
        return cls(found)


def encode_word(word: str) -> bytes | None:
    """Encode a word; None where UTF-8 cannot, for a lone surrogate that does not come from a byte."""
    try:
        return word.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None


def _chunks(words: Sequence[bytes | None]) -> Iterator[slice]:
    """Cut the words into runs of about `CHUNK_BYTES`."""
    start = size = 0
    for stop, word in enumerate(words, 1):
        size += len(word or b"") + 2
        if size >= CHUNK_BYTES or stop == len(words):
            yield slice(start, stop)
            start, size = stop, 0


def _renumber(owners: Ids, ngrams: Ids, kept: npt.NDArray[np.int32]) -> tuple[Ids, Ids]:
    """Drop the n-grams that a pruned model dropped, and number the others as it does."""
    if not len(kept):
        return owners[:0], ngrams[:0]
    place = np.searchsorted(kept[:, 0], ngrams).clip(max=len(kept) - 1)
    found = kept[place, 0] == ngrams
    return owners[found], kept[place[found], 1]


def _ngram_hashes(
    words: Sequence[bytes], min_n: int, max_n: int
) -> tuple[Ids, npt.NDArray[np.uint32]]:
    """Hash the n-grams of every word: the words' indices, ascending, and the hashes in fastText's
    order.

    N-grams grow by one code point at a time, and their hashes by one byte, over all words at once.
    """
    text = np.frombuffer(b"".join(b"<%b>" % word for word in words), np.uint8)
    # fastText hashes signed chars: a byte above 127 enters with its sign extended.
    signed = text.view(np.int8).astype(np.int32).view(np.uint32)
    starts = np.flatnonzero(
        (text & 0xC0) != 0x80
    )  # a code point is one byte and its continuation bytes
    widths = np.diff(starts, append=len(text))
    owners = np.repeat(np.arange(len(words)), [len(word) + 2 for word in words])[starts]
    stops = np.cumsum(np.bincount(owners, minlength=len(words)))
    stop = stops[owners]
    hashes = np.full(len(starts), FNV_BASIS)
    found = [(np.empty(0, np.int64), np.empty(0, np.uint32))]
    alive = np.arange(len(starts))
    for n in range(1, max_n + 1):
        alive = alive[alive + n <= stop[alive]]
        if not len(alive):
            break
        last = alive + n - 1
        for byte in range(widths[last].max()):
            longer = widths[last] > byte
            grown, place = alive[longer], starts[last[longer]] + byte
            hashes[grown] = (hashes[grown] ^ signed[place]) * FNV_PRIME
        if n >= min_n:
            # A bare boundary is not an n-gram.
            whole = (
                alive
                if n > 1
                else alive[(alive + 1 != stop[alive]) & (alive != np.r_[0, stops][owners[alive]])]
            )
            found.append((whole, hashes[whole]))
    begins = np.concatenate([begin for begin, _ in found])
    order = np.argsort(begins, kind="stable")
    return owners[begins[order]], np.concatenate([values for _, values in found])[order]
