"""The vectors of a frozen contextual embedder on disk: computed once, read in every epoch."""

import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from io import FileIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyembed._checks import (
    check_file,
    check_positive,
    check_sentences,
    class_name,
    is_count,
    must,
    require,
)
from polyembed._fingerprint import sync, try_lock
from polyembed._progress import progress_bar
from polyembed._views import evaluation_view
from polyembed.encoders._identity import encoder_checksum
from polyembed.encoders.contextual import ContextualEmbedder
from polyembed.encoders.pooling import pool_words
from polyembed.encoders.pretrained import PretrainedWordEncoder

STORE_NAME, INDEX_NAME, FEATURES_NAME, LOCK_NAME = "store.json", "index.bin", "features.bin", "lock"
FORMAT_VERSION = 2
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
RECORD = np.dtype([("key", "V16"), ("length", "<u4"), ("crc", "<u4")])
"""What the index holds of a sentence: a digest of its words, their number, and the CRC-32 of its rows."""

BATCHES_TOGETHER = 16
"""How many batches are sorted by length together."""


def cache_features(
    encoder: ContextualEmbedder,
    sentences: Iterable[Sequence[str]],
    folder: str | os.PathLike[str],
    *,
    layers: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float16,
    batch_size: int = 32,
    progress: bool | None = None,
) -> "FeatureStore":
    """Run a frozen contextual embedder once over sentences, and write its vectors of words into a
    folder.

    After a kill or a full disk, the same call continues. Sentences that the folder holds are not
    computed again, so development and test sentences can be added later. `CachedEmbedder` reads the
    folder.

    Args:
        encoder: The embedder; it runs in evaluation mode, on the device that it is on.
        sentences: Lists of words; a generator will do.
        folder: A folder for these features only; made if missing.
        layers: Layers of a `PretrainedWordEncoder`, counted as `hidden_states` is (0 = embeddings,
            -1 = the last), of which each word's pieces are pooled as the encoder pools them; if
            None, the encoder's own vectors.
        dtype: Of the numbers on disk: float16, bfloat16 or float32.
        batch_size: How many sentences of similar length run at once.
        progress: Whether to show a progress bar; if None, only on a terminal.

    Returns:
        The store, which holds every sentence.

    Raises:
        ValueError: A folder that holds features of another encoder, layers or dtype, or whose files
            are not a store's; a layer that the encoder does not have; numbers beyond the range of
            `dtype`.
        TypeError: Layers of an encoder without any, or a string instead of a list of words.
        RuntimeError: Another process writes to the folder.
        OSError: The folder cannot be written to.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
        >>> from polyembed import PretrainedWordEncoder
        >>> rules = Tokenizer(models.WordPiece({"[UNK]": 0, "me": 1, "gus": 2, "##ta": 3}, unk_token="[UNK]"))
        >>> rules.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
        >>> model = BertModel(BertConfig(vocab_size=4, **sizes))
        >>> encoder = PretrainedWordEncoder(model, PreTrainedTokenizerFast(tokenizer_object=rules, unk_token="[UNK]"))
        >>> with TemporaryDirectory() as folder:
        ...     store = cache_features(encoder, [["me", "gusta"], ["me"]], folder, layers=[1, 2])
        ...     store.get(["me", "gusta"]).shape
        torch.Size([2, 2, 8])
    """
    check_positive(batch_size=batch_size)
    check_layers(encoder, layers)
    name = next((name for name, known in DTYPES.items() if known is dtype), None)
    require(
        name is not None, "dtype", f"be one of {', '.join(map(str, DTYPES.values()))}", repr(dtype)
    )
    path = Path(folder)
    described = {
        "format_version": FORMAT_VERSION,
        "encoder": encoder_checksum(encoder),
        "layers": None if layers is None else list(layers),
        "dtype": name,
        "dim": encoder.embedding_dim,
    }
    path.mkdir(parents=True, exist_ok=True)
    with (path / LOCK_NAME).open("ab") as lock:
        if not try_lock(lock):
            raise RuntimeError(
                f"{path} must be written by one process at a time, and another one writes to it now"
            )
        _describe(path, described)
        view: ContextualEmbedder = evaluation_view(encoder)
        with (
            (path / INDEX_NAME).open("ab", 0) as index,
            (path / FEATURES_NAME).open("ab", 0) as features,
        ):
            writer = _Writer(path, index, features, _row_bytes(described))
            bar = progress_bar(sentences, progress=progress, unit=" sentences")
            for bucket in _buckets(bar, BATCHES_TOGETHER * batch_size):
                missing = [
                    words for words in dict.fromkeys(bucket) if _key(words) not in writer.held
                ]
                missing.sort(key=len)
                for start in range(0, len(missing), batch_size):
                    batch = missing[start : start + batch_size]
                    for words, rows in zip(
                        batch, compute_features(view, batch, layers), strict=True
                    ):
                        writer.add(words, _as_stored(rows, dtype, words))
                    writer.flush()
    return FeatureStore(path)


class FeatureStore:
    """The vectors of words in sentences that `cache_features` wrote: memory-mapped, read by any
    number of threads.

    A sentence that was half written when a process was killed counts as missing. Do not shorten the
    files while a store
    is open: reading a memory map beyond its file's end kills the process.

    Args:
        folder: The folder of `cache_features`.

    Attributes:
        folder: The folder.
        layers: The layers of the encoder that were stored; None for the encoder's own vectors.
        dtype: Of the numbers on disk.
        embedding_dim: The size of a vector.
        encoder_checksum: Of the encoder that made the vectors.

    Raises:
        FileNotFoundError: A folder without a store.
        ValueError: A store of another format, or a damaged one.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).absolute()
        found = _read_description(self.folder)
        self.layers: list[int] | None = found["layers"]
        self.dtype = DTYPES[found["dtype"]]
        self.embedding_dim: int = found["dim"]
        self.encoder_checksum: str = found["encoder"]
        path, row_bytes = check_file(self.folder / FEATURES_NAME, name="folder"), _row_bytes(found)
        records = _whole_records(self.folder / INDEX_NAME, path.stat().st_size // row_bytes)
        size = int(records["length"].sum(dtype=np.int64))
        self._rows = (
            np.memmap(path, np.uint8, "r", shape=(size, row_bytes))
            if size
            else np.zeros((0, row_bytes), "u1")
        )
        self._places, start = dict[bytes, tuple[int, int, int]](), 0
        for key, length, crc in records.tolist():
            self._places[key] = (start, length, crc)
            start += length

    @property
    def num_layers(self) -> int:
        """How many vectors each word has."""
        return 1 if self.layers is None else len(self.layers)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, words: Sequence[str]) -> bool:
        return _key(_checked_words(words)) in self._places

    def get(self, words: Sequence[str]) -> Tensor | None:
        """Read the vectors of one sentence's words.

        Args:
            words: The sentence, cut into words as it was when it was stored.

        Returns:
            A copy, ``(word, layer, embedding_dim)`` in the dtype of the store; None for a sentence
            that it lacks.

        Raises:
            ValueError: The numbers were changed on disk.
            TypeError: A string instead of a list of words, or words that are not strings.
        """
        place = self._places.get(_key(_checked_words(words)))
        if place is None:
            return None
        length = place[1]
        content = self._checked(*place).tobytes()
        rows = (
            torch.frombuffer(bytearray(content), dtype=self.dtype)
            if content
            else torch.empty(0, dtype=self.dtype)
        )
        return rows.view(length, self.num_layers, self.embedding_dim)

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Compute how every number is distributed over all words; the first call reads the whole
        store.

        Words without pieces, which have zeros in all layers, do not count.

        Returns:
            The means and the standard deviations, ``(layer, embedding_dim)`` each. A deviation
            below 1e-4 of the layer's median deviation is rounding error; 1 is returned in its
            place.

        Raises:
            ValueError: The numbers were changed on disk.
        """
        mean, deviation = self._statistics
        return mean.clone(), deviation.clone()

    @cached_property
    def _statistics(self) -> tuple[Tensor, Tensor]:
        for place in self._places.values():
            self._checked(*place)
        shape = (self.num_layers, self.embedding_dim)
        total, squares = (
            torch.zeros(shape, dtype=torch.float64),
            torch.zeros(shape, dtype=torch.float64),
        )
        count = 0
        for rows in self._chunks():
            total += rows.sum(0)
            count += len(rows)
        mean = total / max(1, count)
        for rows in self._chunks():
            squares += (rows - mean).square().sum(0)
        deviation = (squares / max(1, count)).sqrt()
        return mean, torch.where(
            deviation > 1e-4 * deviation.median(-1, keepdim=True).values, deviation, 1.0
        )

    def _checked(self, start: int, length: int, crc: int) -> np.ndarray:
        """Return the bytes of one sentence's rows; refuse changed ones."""
        rows = self._rows[start : start + length]
        advice = "other bytes (remove the folder to start anew)"
        require(
            zlib.crc32(rows.tobytes()) == crc,
            str(self.folder),
            "hold the vectors that were written",
            advice,
        )
        return rows

    def _chunks(self) -> Iterator[Tensor]:
        """Yield the vectors of words that have pieces."""
        size = max(1, (1 << 24) // self._rows.shape[1])
        for start in range(0, len(self._rows), size):
            rows = torch.from_numpy(self._rows[start : start + size].copy()).view(self.dtype)
            rows = rows.view(-1, self.num_layers, self.embedding_dim)
            yield rows[(rows != 0).any(-1).any(-1)].double()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.folder,)

    def __repr__(self) -> str:
        return f"FeatureStore({str(self.folder)!r})"


def compute_features(
    encoder: ContextualEmbedder, sentences: Sequence[Sequence[str]], layers: Sequence[int] | None
) -> list[Tensor]:
    """Run an embedder over one batch.

    Args:
        encoder: The embedder, in evaluation mode.
        sentences: Lists of words.
        layers: As in `cache_features`.

    Returns:
        The vectors of each sentence, ``(word, layer, embedding_dim)`` on the CPU.
    """
    device = next((value.device for value in encoder.parameters()), torch.device("cpu"))
    pieces = encoder.encode(sentences)[0].to(device)
    with torch.no_grad():
        if layers is None:
            found = encoder(pieces)[:, :, None]
        else:
            assert isinstance(encoder, PretrainedWordEncoder)
            states = encoder.hidden_states(pieces, all_layers=True)
            for layer in layers:
                rule = f"be among the {len(states)} hidden states (0 to {len(states) - 1})"
                require(-len(states) <= layer < len(states), "layers", rule, layer)
            count = pieces.count_words()
            chosen = [
                pool_words(states[i], pieces.word_index, count, pooling=encoder.pooling)
                for i in layers
            ]
            found = torch.stack(chosen, 2)
    rows = found.cpu()
    return [rows[i, : len(words)] for i, words in enumerate(sentences)]


def check_layers(encoder: ContextualEmbedder, layers: Sequence[int] | None) -> None:
    """Require a contextual embedder, and layers that it may have."""
    if not isinstance(encoder, ContextualEmbedder):
        raise TypeError(must("encoder", "be a contextual embedder", class_name(encoder)))
    if layers is None:
        return
    if not isinstance(encoder, PretrainedWordEncoder):
        raise TypeError(
            must("layers", "be None: only a PretrainedWordEncoder has layers", class_name(encoder))
        )
    good = (
        not isinstance(layers, str | int)
        and len(layers) > 0
        and all(is_count(layer) for layer in layers)
    )
    require(good, "layers", "be a list of whole numbers", repr(layers))


class _Writer:
    """Appends rows to the features, then records to the index; a record never reaches the disk before its rows."""

    def __init__(self, folder: Path, index: FileIO, features: FileIO, row_bytes: int) -> None:
        self.folder, self.index, self.features = folder, index, features
        records = _whole_records(
            folder / INDEX_NAME, os.fstat(features.fileno()).st_size // row_bytes
        )
        index.truncate(records.nbytes)  # what a killed call left half written
        features.truncate(int(records["length"].sum(dtype=np.int64)) * row_bytes)
        self.held = {bytes(key) for key in records["key"]}
        self.rows: list[bytes] = []
        self.records: list[tuple[bytes, int, int]] = []

    def add(self, words: Sequence[str], rows: bytes) -> None:
        """Append the rows of a sentence."""
        self.rows.append(rows)
        self.records.append((_key(words), len(words), zlib.crc32(rows)))
        self.held.add(_key(words))

    def flush(self) -> None:
        """Write through to the disk."""
        records = np.array(self.records, RECORD).tobytes()
        for file, content in ((self.features, b"".join(self.rows)), (self.index, records)):
            remaining = memoryview(content)
            try:
                while remaining:
                    remaining = remaining[file.write(remaining) :]
                os.fsync(file.fileno())
            except OSError as error:
                raise OSError(
                    error.errno, f"{self.folder} could not be written to: {error.strerror}"
                ) from error
        self.rows, self.records = [], []


def _describe(folder: Path, described: dict[str, Any]) -> None:
    """Write what a folder holds; if it holds sentences already, require that they are of the same kind."""
    path, index = folder / STORE_NAME, folder / INDEX_NAME
    require(
        path.exists() or not index.exists(),
        str(folder),
        f"hold {STORE_NAME} beside its features",
        "none",
    )
    if path.exists():
        found = _read_description(folder)
        if found == described:
            return
        if index.exists() and index.stat().st_size:
            advice = "those of another one (remove the folder, or choose another)"
            require(
                found["encoder"] == described["encoder"],
                str(folder),
                "hold features of this encoder",
                advice,
            )
            name = next(name for name in described if found[name] != described[name])
            got = f"{found[name]!r} (remove the folder, or choose another)"
            raise ValueError(must(f"{path}: {name}", f"be {described[name]!r}", got))
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(described, indent=2) + "\n")
    sync(draft)
    draft.replace(path)
    sync(folder)


def _read_description(folder: Path) -> dict[str, Any]:
    """Read and check the description of a store."""
    path = folder / STORE_NAME
    if not path.is_file():
        got = f"{folder} without {STORE_NAME}"
        raise FileNotFoundError(must("folder", "hold features (cache_features writes them)", got))
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(must(str(path), "be JSON", f"{class_name(error)}: {error}")) from error
    keys = ("format_version", "encoder", "layers", "dtype", "dim")
    good = isinstance(found, dict) and all(key in found for key in keys)
    require(good, str(path), f"be an object with {', '.join(keys)}", repr(found)[:200])
    version, layers, dim = found["format_version"], found["layers"], found["dim"]
    rule = f"have the format version {FORMAT_VERSION} (remove the folder to start anew)"
    require(version == FORMAT_VERSION, str(path), rule, repr(version))
    require(
        isinstance(found["dtype"], str) and found["dtype"] in DTYPES,
        str(path),
        f"have a dtype of {sorted(DTYPES)}",
        repr(found["dtype"]),
    )
    good = layers is None or (
        isinstance(layers, list) and 0 < len(layers) < 1000 and all(map(is_count, layers))
    )
    require(good, str(path), "list layers by number", repr(layers)[:200])
    require(is_count(dim) and 0 < dim < 1 << 20, str(path), "have the size of a vector", repr(dim))
    require(
        isinstance(found["encoder"], str),
        str(path),
        "have the encoder's checksum",
        found["encoder"],
    )
    return found


def _whole_records(path: Path, num_rows: int) -> np.ndarray:
    """Read the records of an index whose rows are all on disk; the rest of the index was half written."""
    content = check_file(path, name="folder").read_bytes()
    records = np.frombuffer(content, RECORD, len(content) // RECORD.itemsize)
    ends = np.cumsum(records["length"], dtype=np.int64)
    return records[: int(np.searchsorted(ends, num_rows, "right"))]


def _row_bytes(described: dict[str, Any]) -> int:
    """Return the size of a word's numbers on disk."""
    return (
        len(described["layers"] or [0])
        * int(described["dim"])
        * DTYPES[described["dtype"]].itemsize
    )


def _as_stored(rows: Tensor, dtype: torch.dtype, words: Sequence[str]) -> bytes:
    """Return the bytes of a sentence's vectors."""
    stored = rows.to(dtype).contiguous()
    if not bool(stored.isfinite().all()):
        advice = f"largest number {rows.abs().amax().item():.3g} in the sentence {list(words)[:8]}"
        rule = f"have finite vectors in {dtype} (dtype=torch.float32 has the widest range)"
        raise ValueError(must("encoder", rule, advice))
    return stored.view(torch.uint8).numpy().tobytes()


def _checked_words(words: Sequence[str]) -> Sequence[str]:
    """Require a list of words."""
    if isinstance(words, str):
        raise TypeError(must("words", "be a list of words", f"the string {words!r}"))
    wrong = [class_name(word) for word in words if not isinstance(word, str)]
    if wrong:
        raise TypeError(must("words", "be strings", wrong[0]))
    return words


def _key(words: Sequence[str]) -> bytes:
    """Return a digest of a sentence that depends on where its words end."""
    content = "".join(f"{len(word)}:{word}" for word in words)
    return blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _buckets(sentences: Iterable[Sequence[str]], size: int) -> Iterator[list[tuple[str, ...]]]:
    """Yield some sentences at a time."""
    remaining, start = iter(sentences), 0
    while bucket := list(islice(remaining, size)):
        yield [tuple(words) for words in check_sentences(bucket, start=start)]
        start += len(bucket)
