"""fastText models: vectors of words, and of character n-grams for words that the model lacks."""

import os
import tempfile
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from polyembed._checks import check_choice, check_file, check_positive, check_words, must, require
from polyembed.saving import VectorFiles
from polyembed.vectors._fasttext_file import FastTextFile
from polyembed.vectors.protocol import Rows, Vocabulary
from polyembed.vectors.words import Ids, encode_word, release

END_OF_SENTENCE = b"</s>"
CHUNK = 200  # words spelled at once, about 5 MB of rows at 300 dimensions
FNV_BASIS = np.uint32(2166136261)
FNV_PRIME = np.uint32(16777619)


class FastTextVectors(Vocabulary, VectorFiles):
    """Word vectors of a fastText model: the mean of a word's row and of its n-grams' rows.

    ``vector(w) = mean({row(w)} | {row(num_words + fnv1a(g) % bucket) : g in ngrams("<" + w +
    ">")})``, with ``row(w)`` for vocabulary words only, the n-grams of ``min_n`` to ``max_n`` code
    points (a bare ``<`` or ``>`` is not an n-gram), and no n-grams for ``</s>``. A word with
    neither row nor n-grams gets zeros.

    Matrix and dictionary are memory-mapped: the object needs memory for the rows of a look-up, and
    about 28 bytes per word of the vocabulary. Worker processes open the file themselves.

    Args:
        path: A fastText ``.bin`` file, with or without version number. A quantised ``.ftz`` has
            `labels` but no vectors here.

    Raises:
        FileNotFoundError: If `path` is not a file.
        ValueError: If the file is not a whole fastText model, or is newer than version 12.

    Example:
        >>> import tempfile
        >>> sentences = [["me", "gusta", "that", "song"]] * 5
        >>> path = Path(tempfile.mkdtemp()) / "tiny.bin"
        >>> vectors = FastTextVectors.train(sentences, path, dim=8, min_count=1, bucket=50)
        >>> vectors.vectors(["song", "songs"]).shape, "song" in vectors, "songs" in vectors
        ((2, 8), True, False)

    Deviations: the fasttext package refuses files without version number. They are read here, and
    ``</s>`` has n-grams in them, as when they were trained. Labels of a supervised model are not
    words here; the package looks for the labels' rows among the n-grams.
    """

    file_arguments = frozenset({"path"})

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = check_file(path, where="FastTextVectors.from_pretrained fetches one")
        self._file = FastTextFile(self.path)
        self.dim = self._file.dim

    @property
    def words(self) -> list[str]:
        """The vocabulary, most frequent word first; bytes that are not UTF-8 are surrogates."""
        return list(self._file.words)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and bool(self._file.words.find([encode_word(word)])[0] >= 0)

    def vectors(self, words: Sequence[str]) -> Rows:
        """Return the means of the words' rows as float32, ``(len(words), dim)``."""
        words = check_words(words)
        out = np.zeros((len(words), self.dim), np.float32)
        encoded = [encode_word(word) for word in words]
        for start in range(0, len(words), CHUNK):
            chunk = slice(start, start + CHUNK)
            with np.errstate(over="ignore", invalid="ignore"):  # SourceEmbedding checks the sums
                self._average(encoded[chunk], out[chunk])
        if len(words) > CHUNK:
            release(self._file.data)
        return out

    def labels(self, words: Sequence[str], *, k: int = 1) -> list[dict[str, float]]:
        """Classify words by a supervised model, such as ``lid.176.ftz``, which names languages.

        The fasttext package computes the probabilities; it reads the whole file into memory.

        Args:
            words: Words, or longer texts of one line.
            k: The number of labels per word.

        Returns:
            For each word, its best labels, without ``__label__``, and their probabilities, best
            first.

        Raises:
            ValueError: If a word has a line break, or the model has no labels.
        """
        found = []
        for word in check_words(words):
            require("\n" not in word, "words", "hold words of one line", repr(word))
            text = word.encode(errors="ignore").decode()  # the package takes no lone surrogate
            best = self._classifier.predict(text + "\n", k, 0.0, "strict")
            found.append({label.removeprefix("__label__"): value for value, label in best})
        return found

    @cached_property
    def _classifier(self) -> Any:
        """The compiled model, needed since the package's Python ``predict`` fails under NumPy 2."""
        from fasttext.FastText import fasttext

        model = fasttext.fasttext()
        model.loadModel(str(self.path))
        return model

    def _average(self, words: Sequence[bytes], out: Rows) -> None:
        """Write each word's mean over its rows into `out`."""
        owners, rows = self._rows_of(words)
        distinct, index = np.unique(rows, return_inverse=True)
        table = self._file.rows(distinct)
        bounds = np.searchsorted(owners, np.arange(len(words) + 1))
        # A loop over words: torch's bags hang in a forked process, and NumPy's reduceat is slower.
        for i, (start, stop) in enumerate(pairwise(bounds.tolist())):
            if start < stop:
                total = np.add.reduce(table.take(index[start:stop], axis=0), axis=0)
                out[i] = total / (stop - start)

    def _rows_of(self, words: Sequence[bytes]) -> tuple[Ids, Ids]:
        """Return the place of each averaged row's word, ascending, and the number of the row."""
        file = self._file
        ids = file.words.find(words)
        known = np.flatnonzero(ids >= 0)
        unspelled = END_OF_SENTENCE if file.version else None
        spelled = [i for i, word in enumerate(words) if word != unspelled]
        if not file.max_n or not spelled:
            return known, ids[known]
        owners, hashes = _ngram_hashes([words[i] for i in spelled], file.min_n, file.max_n)
        owners = np.array(spelled)[owners]
        ngrams = (hashes % np.uint32(file.bucket)).astype(np.int64)
        owners = np.concatenate([known, owners])
        rows = np.concatenate([ids[known], ngrams + len(file.words)])
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
        """Train a model with the fasttext package, save it, and open it.

        The file at `path` appears only when the training has succeeded.

        Args:
            sentences: Lists of words without white space.
            path: The ``.bin`` file in which the model is saved.
            dim: The length of a vector.
            model: The training objective.
            min_count: The number of occurrences from which on a word has its own row.
            epochs: The number of passes over the corpus.
            bucket: The number of rows for the hashed n-grams.
            min_n: The number of code points in the shortest n-gram.
            max_n: The number of code points in the longest n-gram; 0 for no n-grams.
            threads: The number of threads, at least 11: each thread of the package (0.9.3)
                initialises a tenth of the vectors, rounded down, and the rest stays undefined.
                Because of the threads, the result differs a little from run to run.
            seed: The seed of the initial vectors.

        Returns:
            The opened model.

        Raises:
            RuntimeError: If the package meets NaN.
            ValueError: If a word has white space, or no word occurs `min_count` times.
        """
        from fasttext.FastText import fasttext, model_name

        check_choice("model", model, ("skipgram", "cbow"))
        check_positive(dim=dim, min_count=min_count, epochs=epochs, bucket=bucket)
        rule = "be at least 11, or the package leaves vectors undefined"
        require(threads >= 11, "threads", rule, threads)
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".training-") as folder:
            corpus, trained = Path(folder, "corpus.txt"), Path(folder, "model.bin")
            with corpus.open("wb") as file:
                for sentence in map(check_words, sentences):
                    for word in sentence:
                        good = set(" \n\r\t\v\f\0").isdisjoint(word)
                        rule = "hold words without white space"
                        require(good, "sentences", rule, repr(word))
                    file.write(encode_word(" ".join(sentence)) + b"\n")
            settings, compiled = fasttext.args(), fasttext.fasttext()  # the Python call has no seed
            settings.input = str(corpus)
            settings.model = getattr(model_name, model)
            settings.dim = dim
            settings.epoch = epochs
            settings.minCount = min_count
            settings.bucket = bucket
            settings.minn = min_n
            settings.maxn = max_n
            settings.thread = threads
            settings.seed = seed
            settings.verbose = 0
            settings.label = "\n"  # a prefix that no word can have
            fasttext.train(compiled, settings)
            compiled.saveModel(str(trained))
            found = cls(trained).words  # opened, as the package does not notice a full disk
            known = len(found) > (END_OF_SENTENCE.decode() in found)  # fastText counts it per line
            require(known, "sentences", f"hold a word {min_count} times (min_count)", "none")
            trained.replace(path)
        return cls(path)

    @classmethod
    def from_pretrained(
        cls, language: str, *, revision: str | None = None, cache_dir: str | Path | None = None
    ) -> Self:
        """Fetch a model of the public collection for 157 languages, and open it.

        The file is ``model.bin`` of ``facebook/fasttext-<language>-vectors``, for most languages
        several gigabytes.

        Args:
            language: The language's code, such as ``"es"``.
            revision: The branch, tag or commit of the repository.
            cache_dir: The folder of downloaded files; huggingface_hub's default if None.

        Returns:
            The opened model.

        Raises:
            FileNotFoundError: If the model is not in the cache and cannot be fetched.
        """
        import huggingface_hub

        name = f"facebook/fasttext-{language}-vectors"
        try:
            found = huggingface_hub.hf_hub_download(
                name, "model.bin", revision=revision, cache_dir=cache_dir
            )
        # The hub's errors are OSErrors: no connection, or no such repository, file or revision.
        except OSError as error:
            url = f"https://huggingface.co/{name}/resolve/{revision or 'main'}/model.bin"
            advice = f"Fetch {url} by other means and open it with FastTextVectors(path)"
            rule = f"name a model that huggingface_hub can fetch ({name})"
            got = f"{language!r} ({error}). {advice}"
            raise FileNotFoundError(must("language", rule, got)) from error
        return cls(found)


def _ngram_hashes(
    words: Sequence[bytes], min_n: int, max_n: int
) -> tuple[Ids, npt.NDArray[np.uint32]]:
    """Return the place of each n-gram's word, ascending, and the hashes, in fastText's order.

    N-grams grow by one code point at a time, and their hashes by one byte, over all words at once.
    """
    text = np.frombuffer(b"".join(b"<%b>" % word for word in words), np.uint8)
    # fastText hashes signed chars: a byte above 127 enters with its sign extended.
    signed = text.view(np.int8).astype(np.int32).view(np.uint32)
    starts = np.flatnonzero((text & 0xC0) != 0x80)  # of code points: (letter,)
    widths = np.diff(starts, append=len(text))  # bytes of each letter: (letter,)
    owners = np.repeat(np.arange(len(words)), [len(word) + 2 for word in words])[starts]
    stops = np.cumsum(np.bincount(owners, minlength=len(words)))  # letters up to the word's end
    stop = stops[owners]  # (letter,)
    hashes = np.full(len(starts), FNV_BASIS)  # of the n-gram that begins at each letter
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
        whole = alive
        if n == 1:  # a bare boundary is not an n-gram
            whole = alive[(alive + 1 != stop[alive]) & (alive != np.r_[0, stops][owners[alive]])]
        if n >= min_n:
            found.append((whole, hashes[whole]))
    begins = np.concatenate([begin for begin, _ in found])
    order = np.argsort(begins, kind="stable")
    return owners[begins[order]], np.concatenate([values for _, values in found])[order]
