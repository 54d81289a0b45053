"""fastText models, read through a memory map."""

import json
import mmap
import os
import re
import struct
import subprocess
import sys
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn, Self

import numpy as np
import numpy.typing as npt

from polyembed._checks import check_choice, check_file, check_positive, must, require
from polyembed.vectors.protocol import FileSource, Rows

MAGIC = 793712314  # the first four bytes of a file since version 11; older files start with `dim`
NEWEST_VERSION = 12
SUPERVISED = 3
END_OF_SENTENCE = b"</s>"
CHUNK_BYTES = 2_048  # of words spelled at once: bounds the rows held in memory to some 5 MB at 300 dimensions
FNV_BASIS = np.uint32(2166136261)
FNV_PRIME = np.uint32(16777619)
NUM_CENTROIDS = 256

# By the compiled module, since the package's own train_unsupervised refuses a seed.
TRAINING = """
import json, sys
from fasttext.FastText import fasttext, model_name
arguments, settings = fasttext.args(), json.loads(sys.argv[1])
settings["model"] = getattr(model_name, settings["model"])
for name, value in settings.items():
    setattr(arguments, name, value)
model = fasttext.fasttext()
fasttext.train(model, arguments)
model.saveModel(arguments.output)
"""

# An entry is a word, a zero byte, its count and its type. What is no entry swallows the rest of the file, so
# that a broken dictionary ends the scan instead of restarting it at every byte.
ENTRY = re.compile(rb"([^\0]*+)\0.{8}[\0\1]|.+", re.DOTALL)
WHITE_SPACE = re.compile(r"[ \n\r\t\v\f\0]")

Ids = npt.NDArray[np.int64]


class FastTextVectors(FileSource):
    """Word vectors of a fastText model: the mean of a word's row and the rows of its character n-grams.

    ``vector(w) = mean({row(w)} | {row(num_words + fnv1a(g) % bucket) : g in ngrams("<" + w + ">")})``, with
    ``row(w)`` for vocabulary words only, the n-grams of ``min_n`` to ``max_n`` code points (a bare ``<`` or
    ``>`` is none), and ``</s>`` never spelled. A word with neither row nor n-grams gets zeros.

    Matrix and dictionary stay on disk: the memory needed is that of the rows asked for, and 20 bytes a word of the
    vocabulary. The object may be pickled and shared with worker processes, which open the file themselves.

    Args:
        path: A fastText ``.bin`` (with or without version number) or quantised ``.ftz`` file.

    Raises:
        FileNotFoundError: There is no file at `path`.
        ValueError: The file is no whole fastText model, or newer than version 12.

    Example:
        >>> import tempfile
        >>> sentences = [["me", "gusta", "that", "song"]] * 5
        >>> path = Path(tempfile.mkdtemp()) / "tiny.bin"
        >>> vectors = FastTextVectors.train(sentences, path, dim=8, min_count=1, bucket=50)
        >>> vectors.vectors(["song", "songs"]).shape, "song" in vectors, "songs" in vectors
        ((2, 8), True, False)

    Deviations: the fasttext package refuses files without version number and pruned files that are not
    quantised; both are read here, and ``</s>`` is spelled for the former, as when they were trained. Labels
    of a supervised model are not words here; the package looks for their rows among the n-grams.
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset({"path"})

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = check_file(path, where="FastTextVectors.from_pretrained fetches one")
        cursor = _Cursor(self._path)
        version, self._dim, supervised, bucket, min_n, max_n = _read_arguments(cursor)
        # Supervised models before version 12 store n-gram lengths that they did not train with.
        self._max_n = 0 if bucket == 0 or (supervised and version < 12) else max_n
        self._min_n, self._bucket = min_n, bucket
        self._unspelled = END_OF_SENTENCE if version else None
        words, pruned = _read_dictionary(cursor, version)
        self._words = words
        self._kept = None if pruned is None else pruned[np.argsort(pruned[:, 0])]
        quantized = bool(cursor.unpack("<?")[0]) if version else False
        self._matrix = _read_matrix(cursor, quantized)
        num_ngrams = len(pruned) if pruned is not None else bucket if self._max_n else 0
        if self._matrix.dim != self._dim or self._matrix.num_rows < len(words) + num_ngrams:
            cursor.fail("matrix and dictionary do not fit together")
        _read_matrix(cursor, bool(cursor.unpack("<?")[0]) and quantized if version else False)

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return self._dim

    @property
    def words(self) -> list[str]:
        """The vocabulary, most frequent word first; bytes that are not UTF-8 become lone surrogates."""
        return [word.decode("utf-8", "surrogateescape") for word in self._words]

    def __len__(self) -> int:
        return len(self._words)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and bool(self._words.find([_encode(word)])[0] >= 0)

    def files(self) -> dict[str, Path]:
        """Name the file on disk.

        Returns:
            ``{"path": the model}``.
        """
        return {"path": self._path}

    def vectors(self, words: Sequence[str]) -> Rows:
        """Look up and spell the vectors of `words`.

        Args:
            words: The words, repetitions allowed.

        Returns:
            Float32 rows in the order of `words`, ``(len(words), dim)``.
        """
        out = np.zeros((len(words), self._dim), np.float32)
        encoded = [_encode(word) for word in words]
        chunks = list(_chunks(encoded))
        for chunk in chunks:
            self._average(encoded[chunk], out[chunk])
        if len(chunks) > 1:
            self._matrix.release()
        return out

    def _average(self, words: Sequence[bytes | None], out: Rows) -> None:
        """Write each word's mean over its rows into `out`; what it takes is gone before the next words."""
        owners, rows = self._rows_of(words)
        if not len(rows):
            return
        distinct, index = np.unique(rows, return_inverse=True)
        table = self._matrix.rows(distinct)
        bounds = np.searchsorted(owners, np.arange(len(words) + 1))
        # A loop over words, since torch's bags hang in a forked process and numpy's reduceat is slower.
        for i, (start, stop) in enumerate(pairwise(bounds.tolist())):
            if start < stop:
                out[i] = np.add.reduce(table.take(index[start:stop], axis=0), axis=0) / (stop - start)

    def _rows_of(self, words: Sequence[bytes | None]) -> tuple[Ids, Ids]:
        """Give the matrix rows whose mean each word is: the words' indices, ascending, and the rows."""
        ids = self._words.find(words)
        known = np.flatnonzero(ids >= 0)
        spelled = [i for i, word in enumerate(words) if word is not None and word != self._unspelled]
        if not self._max_n or not spelled:
            return known, ids[known]
        owners, hashes = _ngram_hashes([words[i] or b"" for i in spelled], self._min_n, self._max_n)
        owners, ngrams = np.array(spelled)[owners], (hashes % np.uint32(self._bucket)).astype(np.int64)
        if self._kept is not None:
            owners, ngrams = self._renumber(owners, ngrams)
        owners = np.concatenate([known, owners])
        rows = np.concatenate([ids[known], ngrams + len(self._words)])
        order = np.argsort(owners, kind="stable")
        return owners[order], rows[order]

    def _renumber(self, owners: Ids, ngrams: Ids) -> tuple[Ids, Ids]:
        """Drop the n-grams that a pruned model dropped, and number the others as it does."""
        assert self._kept is not None
        if not len(self._kept):
            return owners[:0], ngrams[:0]
        place = np.searchsorted(self._kept[:, 0], ngrams).clip(max=len(self._kept) - 1)
        kept = self._kept[place, 0] == ngrams
        return owners[kept], self._kept[place[kept], 1]

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
        """Train a model with the fasttext package, in a process of its own, save it, and open it.

        The file appears at `path` when it is whole, or not at all.

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
            threads: Threads, at least 11: the package (0.9.3) initialises a tenth of the vectors in each, rounded
                down, and leaves the rest undefined. So the result differs a little from run to run.
            seed: The seed of the initial vectors.

        Returns:
            The opened model.

        Raises:
            RuntimeError: The package gave up.
            ValueError: A word holds white space, or no word occurs `min_count` times.
        """
        check_choice("model", model, ("skipgram", "cbow"))
        check_positive(dim=dim, min_count=min_count, epochs=epochs, bucket=bucket)
        require(threads >= 11, "threads", "be at least 11, or the package leaves vectors undefined", threads)
        require(min(min_n, max_n) >= 0, "min_n and max_n", "not be negative", (min_n, max_n))
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".training-") as folder:
            corpus, trained = Path(folder, "corpus.txt"), Path(folder, "model.bin")
            counts = _write_corpus(sentences, corpus)
            rule = f"hold a word that occurs at least {min_count} times"
            require(any(count >= min_count for count in counts.values()), "sentences", rule, f"{counts.total()} words")
            settings: dict[str, str | int] = {"model": model, "dim": dim, "epoch": epochs, "minCount": min_count}
            settings |= {"bucket": bucket, "minn": min_n, "maxn": max_n, "thread": threads, "seed": seed}
            _run_training(corpus, trained, settings)
            cls(trained)  # the package does not notice a full disk
            trained.replace(path)
        return cls(path)

    @classmethod
    def from_pretrained(
        cls, language: str, *, revision: str | None = None, cache_dir: str | Path | None = None
    ) -> Self:
        """Fetch a model of the public collection for 157 languages, and open it.

        The file is ``model.bin`` of ``facebook/fasttext-<language>-vectors``; several gigabytes for most.

        Args:
            language: The language's code, such as ``"es"``.
            revision: Branch, tag or commit of the repository.
            cache_dir: Where downloads are kept; huggingface_hub's place if None.

        Returns:
            The opened model.

        Raises:
            FileNotFoundError: The model is neither in the cache nor within reach.
        """
        import huggingface_hub

        repository, name = f"facebook/fasttext-{language}-vectors", "model.bin"
        try:
            found = huggingface_hub.hf_hub_download(repository, name, revision=revision, cache_dir=cache_dir)
        # What the hub raises is an OSError: offline; no such repository, file or revision.
        except OSError as error:
            url = f"https://huggingface.co/{repository}/resolve/{revision or 'main'}/{name}"
            got = f"{language!r} ({error}). Fetch {url} by other means and open it with FastTextVectors(path)"
            rule = f"name a model that huggingface_hub can fetch ({name} of {repository})"
            raise FileNotFoundError(must("language", rule, got)) from error
        return cls(found)


class _Cursor:
    """A position in a mapped file, with errors that name the file."""

    def __init__(self, path: Path) -> None:
        self.path, self.position = path, 0
        with path.open("rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            if not self.size:
                self.fail("empty")
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def fail(self, what: str) -> NoReturn:
        raise ValueError(must("path", "name a whole fastText .bin or .ftz file", f"{self.path} ({what})"))

    def need(self, size: int) -> int:
        """Step over `size` bytes and return where they start."""
        start = self.position
        if size < 0 or size > self.size - start:
            self.fail(f"{size} bytes expected at byte {start} of {self.size}")
        self.position += size
        return start

    def unpack(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack_from(layout, self.data, self.need(struct.calcsize(layout)))

    def array(self, dtype: str, *shape: int) -> npt.NDArray[Any]:
        """Map an array; nothing is read, and no more than the file is ever promised."""
        if min(shape) < 0:
            self.fail(f"a size of {min(shape)} before byte {self.position}")
        count = int(np.prod(shape, dtype=object))
        start = self.need(count * np.dtype(dtype).itemsize)
        return np.frombuffer(self.data, dtype, count, start).reshape(shape)


def _read_arguments(cursor: _Cursor) -> tuple[int, int, bool, int, int, int]:
    """Read version (0 for a file without), dim, supervised, bucket, min_n and max_n."""
    (dim,), version = cursor.unpack("<i"), 0
    if dim == MAGIC:
        version, dim = cursor.unpack("<2i")
        if not 0 < version <= NEWEST_VERSION:
            cursor.fail(f"version {version}; this library reads up to {NEWEST_VERSION}")
    *_, loss, model, bucket, min_n, max_n, _, _ = cursor.unpack("<11id")
    if dim <= 0 or bucket < 0 or not 1 <= loss <= 4 or not 1 <= model <= 3:
        cursor.fail(f"no fastText header: dim {dim}, loss {loss}, model {model}, bucket {bucket}")
    return version, dim, model == SUPERVISED, bucket, min_n, max_n


class _Words:
    """The words as they stand in the file, found by their hashes: some 20 bytes each, where a dict takes 130."""

    def __init__(self, data: mmap.mmap, starts: Ids, hashes: Ids) -> None:
        order = np.argsort(hashes, kind="stable")
        self._data, self._starts = data, starts
        self._ids, self._hashes = order.astype(np.int32), hashes[order]

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[bytes]:
        for start in self._starts.tolist():
            yield self._data[start : self._data.find(b"\0", start)]

    def find(self, words: Sequence[bytes | None]) -> Ids:
        """Give each word's id, or -1."""
        hashes = np.fromiter(map(hash, words), np.int64, len(words))
        begins, ends = (np.searchsorted(self._hashes, hashes, side) for side in ("left", "right"))
        found = np.full(len(words), -1)
        for i in np.flatnonzero(begins < ends).tolist():
            for place in self._ids[begins[i] : ends[i]].tolist():
                start, entry = self._starts[place], (words[i] or b"") + b"\0"
                if words[i] is not None and self._data[start : start + len(entry)] == entry:
                    found[i] = place
        return found


def _read_dictionary(cursor: _Cursor, version: int) -> tuple[_Words, npt.NDArray[np.int32] | None]:
    """Read the words, without the labels, and the (n-gram, row) pairs of a pruned model."""
    size, num_words, num_labels, _ = cursor.unpack("<3iq")
    num_pruned = cursor.unpack("<q")[0] if version else -1
    if min(size, num_words, num_labels) < 0 or size != num_words + num_labels:
        cursor.fail(f"a dictionary of {size} entries, {num_words} of them words and {num_labels} labels")
    starts, hashes = array("q"), array("q")
    match = None
    for match in islice(ENTRY.finditer(cursor.data, cursor.position), size):
        starts.append(match.start())
        hashes.append(hash(match[1]))
    if len(starts) < size or (match is not None and match[1] is None):
        cursor.fail(f"a dictionary of {len(starts)} of {size} entries")
    if match is not None:
        cursor.position = match.end()
    words = _Words(cursor.data, *(np.array(numbers[:num_words], np.int64) for numbers in (starts, hashes)))
    if num_pruned < 0:
        return words, None
    pruned = cursor.array("<i4", num_pruned, 2)
    if num_pruned and not 0 <= pruned[:, 1].min() <= pruned[:, 1].max() < num_pruned:
        cursor.fail("an n-gram without a row")
    return words, pruned


def _read_matrix(cursor: _Cursor, quantized: bool) -> "_Matrix":
    if quantized:
        return _QuantizedMatrix(cursor)
    num_rows, dim = cursor.unpack("<2q")
    return _Matrix(cursor, num_rows, dim)


class _Matrix:
    """Float rows in the file."""

    def __init__(self, cursor: _Cursor, num_rows: int, dim: int) -> None:
        self.num_rows, self.dim = num_rows, dim
        # As bytes: floats in a file are not aligned, and numpy would copy them all before it takes a row.
        self._bytes = cursor.array("u1", num_rows, dim * 4)
        self._file = cursor.data

    def rows(self, ids: Ids) -> Rows:
        return np.take(self._bytes, ids, axis=0).view("<f4")

    def release(self) -> None:
        """Stop counting the file's pages that were read as memory of this process; they stay cached."""
        if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            self._file.madvise(mmap.MADV_DONTNEED)


class _QuantizedMatrix(_Matrix):
    """Rows as codes of a product quantiser: each slice of a row is one of 256 centroids."""

    def __init__(self, cursor: _Cursor) -> None:
        self._file = cursor.data
        has_norms, self.num_rows, self.dim, num_codes = cursor.unpack("<?qqi")
        (self._codes, self._slices), self._norms = self._read_codes(cursor, num_codes, self.dim), None
        if has_norms:
            norms = cursor.array("u1", self.num_rows, 1)
            self._norms = norms, _read_centroids(cursor, 1)[0]

    def _read_codes(self, cursor: _Cursor, num_codes: int, dim: int) -> tuple[npt.NDArray[np.uint8], list[Rows]]:
        codes = cursor.array("u1", num_codes)
        slices = _read_centroids(cursor, dim)
        if num_codes != self.num_rows * len(slices):
            cursor.fail(f"{num_codes} codes for {self.num_rows} rows of {len(slices)}")
        return codes.reshape(self.num_rows, len(slices)), slices

    def rows(self, ids: Ids) -> Rows:
        codes = self._codes[ids]
        rows = np.concatenate([centroids[codes[:, i]] for i, centroids in enumerate(self._slices)], axis=1)
        if self._norms is not None:
            codes, norms = self._norms
            rows *= norms[codes[ids, 0]]
        return rows


def _read_centroids(cursor: _Cursor, dim: int) -> list[Rows]:
    """Read a product quantiser of vectors of length `dim`: the 256 centroids of each slice."""
    stored_dim, num_slices, width, last_width = cursor.unpack("<4i")
    widths = [width] * (num_slices - 1) + [last_width] if 0 < num_slices <= dim else []
    if stored_dim != dim or sum(widths) != dim or min(widths) <= 0:
        cursor.fail(f"a quantiser of {stored_dim} dimensions in {num_slices} slices of {width}")
    # A copy, since floats in a file are not aligned; it is small.
    return [cursor.array("<f4", NUM_CENTROIDS, width).astype(np.float32) for width in widths]


def _encode(word: str) -> bytes | None:
    """Encode a word, or return None where UTF-8 cannot: a lone surrogate that no byte stands behind."""
    try:
        return word.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None


def _chunks(words: Sequence[bytes | None]) -> Iterator[slice]:
    """Cut the words into runs of some `CHUNK_BYTES`."""
    start = size = 0
    for stop, word in enumerate(words, 1):
        size += len(word or b"") + 2
        if size >= CHUNK_BYTES or stop == len(words):
            yield slice(start, stop)
            start, size = stop, 0


def _ngram_hashes(words: Sequence[bytes], min_n: int, max_n: int) -> tuple[Ids, npt.NDArray[np.uint32]]:
    """Hash the n-grams of every word: the words' indices, ascending, and the hashes in fastText's order.

    N-grams grow by one code point at a time, and their hashes by one byte, over all words at once.
    """
    text = np.frombuffer(b"".join(b"<%b>" % word for word in words), np.uint8)
    # fastText hashes signed chars: a byte above 127 enters with its sign extended.
    signed = text.view(np.int8).astype(np.int32).view(np.uint32)
    starts = np.flatnonzero((text & 0xC0) != 0x80)  # a code point is one byte and its continuation bytes
    widths = np.diff(starts, append=len(text))
    owners = np.repeat(np.arange(len(words)), [len(word) + 2 for word in words])[starts]
    stops = np.cumsum(np.bincount(owners, minlength=len(words)))
    stop = stops[owners]
    hashes = np.full(len(starts), FNV_BASIS)
    found: list[tuple[Ids, npt.NDArray[np.uint32]]] = []
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
            # A bare boundary is no n-gram.
            whole = alive if n > 1 else alive[(alive + 1 != stop[alive]) & (alive != np.r_[0, stops][owners[alive]])]
            found.append((whole, hashes[whole]))
    if not found:
        return np.empty(0, np.int64), np.empty(0, np.uint32)
    begins = np.concatenate([begin for begin, _ in found])
    order = np.argsort(begins, kind="stable")
    return owners[begins[order]], np.concatenate([values for _, values in found])[order]


def _run_training(corpus: Path, trained: Path, settings: dict[str, str | int]) -> None:
    """Train and save in a process of its own.

    An exit of the package must not concern the caller's process.
    """
    label = "\n"  # what begins a label for the package: nothing that a word can begin with
    settings = {**settings, "input": corpus.name, "output": trained.name, "verbose": 0, "label": label}
    done = subprocess.run(
        [sys.executable, "-P", "-c", TRAINING, json.dumps(settings)],
        cwd=corpus.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        said = done.stderr.strip().rpartition("\n")[2]
        raise RuntimeError(must("the fasttext package", "finish its training", f"{done.returncode} ({said})"))


def check_sentence(sentence: Sequence[str]) -> Sequence[str]:
    """Require what a text file with one sentence a line can hold: a list of words without white space."""
    if isinstance(sentence, str):
        raise TypeError(must("sentences", "be lists of words", f"the string {sentence!r}"))
    for word in sentence:
        require(not WHITE_SPACE.search(word), "sentences", "hold words without white space", repr(word))
        require(_encode(word) is not None, "sentences", "hold words that UTF-8 can write", repr(word))
    return sentence


def _write_corpus(sentences: Iterable[Sequence[str]], path: Path) -> Counter[str]:
    """Write one sentence a line, and count the words."""
    counts: Counter[str] = Counter()
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        for sentence in map(check_sentence, sentences):
            counts.update(filter(None, sentence))
            file.write(" ".join(sentence) + "\n")
    return counts
