"""An exported tagger, run by onnxruntime and NumPy.

This file and `polyembed/crf/numpy_viterbi.py` import no torch: where torch is not installed, copy both beside the
program that serves the tagger.
"""

import importlib
import json
import os
import unicodedata
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

try:
    from polyembed.crf.numpy_viterbi import viterbi
except ImportError:  # copies of the two files, without the package
    from numpy_viterbi import viterbi  # type: ignore[import-not-found, no-redef]

__all__ = ["OnnxTagger"]

MODEL_NAME = "tagger.onnx"
SETTINGS_NAME = "tagger.json"
MARK = "polyembed_settings"
"""The entry of the model's metadata that tells which `tagger.json` belongs to it."""

FORMAT_VERSION = 1
NUM_SPECIAL, UNKNOWN_ID = 2, 1
IGNORE_INDEX = -100

Floats = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class OnnxTagger:
    """A tagger that `export_onnx` wrote: words in, tags out, by onnxruntime and NumPy alone.

    Emissions come from the file ``tagger.onnx``; over a CRF's, `viterbi` finds the best tags, else each word has its
    own best tag. Words that ``tagger.json`` does not list share the vector of the unknown word. A word is looked up
    as the tagger's `Lexicon` did, its normal form and lower case included.

    Args:
        folder: The folder that `export_onnx` wrote.
        session_options: onnxruntime's ``SessionOptions``, such as how many threads; its own choice if None.
        providers: onnxruntime's execution providers.

    Attributes:
        tags: The tag set, in the order of its ids.

    Raises:
        FileNotFoundError: A file of the folder is missing.
        ValueError: A damaged file, a newer format, or two files that were not written together.
        ImportError: onnxruntime is not installed.

    Example:
        >>> OnnxTagger("nowhere")
        Traceback (most recent call last):
        FileNotFoundError: folder must hold tagger.json, got nothing at ...

    Deviations: `SequenceTagger.predict` computes vectors of unseen words; here they are unknown.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        session_options: Any = None,
        providers: Sequence[str] = ("CPUExecutionProvider",),
    ) -> None:
        folder = Path(folder).absolute()
        for name in (SETTINGS_NAME, MODEL_NAME):
            if not (folder / name).is_file():
                raise FileNotFoundError(_must("folder", f"hold {name}", f"nothing at {folder / name}"))
        content = (folder / SETTINGS_NAME).read_bytes()
        settings = _read_settings(folder / SETTINGS_NAME, content)
        self.tags: tuple[str, ...] = tuple(settings["tags"])
        self._normalization: Literal["NFC", "NFD", "NFKC", "NFKD"] | None = settings["normalization"]
        self._lowercase_fallback: bool = settings["lowercase_fallback"]
        self._ids = {word: i for i, word in enumerate(settings["words"], NUM_SPECIAL)}
        self._session = _open(folder / MODEL_NAME, mark_of(content), session_options, list(providers))
        outputs = [output.name for output in self._session.get_outputs()]
        self._scores: list[Floats] = []
        if len(outputs) > 1:
            inputs = {"ids": np.zeros((1, 1), np.int64), "mask": np.ones((1, 1), np.bool_)}
            self._scores = self._session.run(outputs[1:], inputs)

    def encode(self, sentences: Iterable[Iterable[str]]) -> tuple[Ids, Mask]:
        """Turn words into ids, padded to the longest.

        Args:
            sentences: Lists of words.

        Returns:
            ``ids (batch, word)`` and ``mask (batch, word)``, True for a word.

        Raises:
            TypeError: A sentence is not a list of strings.
        """
        return self._encode(_check_sentences(sentences))

    def _encode(self, sentences: list[list[str]]) -> tuple[Ids, Mask]:
        width = max(map(len, sentences), default=0)
        lengths = np.array([len(words) for words in sentences], np.int64)
        mask = np.arange(width) < lengths[:, None]
        ids = np.zeros(mask.shape, np.int64)
        ids[mask] = [self._id_of(word) for words in sentences for word in words]
        return ids, mask

    def _id_of(self, word: str) -> int:
        if self._normalization:
            word = unicodedata.normalize(self._normalization, word)
        found = self._ids.get(word)
        if found is None and self._lowercase_fallback:
            lower = word.lower()
            found = self._ids.get(unicodedata.normalize(self._normalization, lower) if self._normalization else lower)
        return UNKNOWN_ID if found is None else found

    def emissions(self, ids: Ids, mask: Mask) -> Floats:
        """Score each tag at each word.

        Args:
            ids: As `encode` makes them.
            mask: True = a word.

        Returns:
            ``(batch, word, tag)`` float32.
        """
        if ids.ndim != 2 or ids.shape != mask.shape:
            raise ValueError(_must("ids and mask", "have the same axes (batch, word)", f"{ids.shape}, {mask.shape}"))
        if not ids.size:
            return np.zeros((*ids.shape, len(self.tags)), np.float32)
        if ids.min() < 0:  # the runtime counts negative ids from the end
            raise ValueError(_must("ids", "be what encode gives, not negative", ids.min()))
        found: Floats = self._session.run(["emissions"], {"ids": ids, "mask": mask})[0]
        return found

    def decode(self, ids: Ids, mask: Mask) -> Ids:
        """Return the best tags.

        Args:
            ids: As `encode` makes them.
            mask: True = a word; holes are skipped as if they were not there.

        Returns:
            Tag ids ``(batch, word)``, -100 at masked positions, and in rows of which a CRF forbids every path.
        """
        emissions = self.emissions(ids, mask)
        if self._scores:
            transitions, start, end = self._scores
            return viterbi(emissions, mask, transitions, start, end)
        return np.where(mask, emissions.argmax(-1), IGNORE_INDEX)

    def predict(self, sentences: Iterable[Iterable[str]], *, batch_size: int = 64) -> list[list[str]]:
        """Tag raw words.

        Args:
            sentences: Lists of words; an empty one gets no tags.
            batch_size: How many sentences of similar length are tagged at once.

        Returns:
            One list of tag names a sentence, in the order given.

        Raises:
            TypeError: A sentence is not a list of strings.
            ValueError: A sentence whose scores leave it no path.
        """
        if batch_size < 1:
            raise ValueError(_must("batch_size", "be a positive integer", batch_size))
        rows = _check_sentences(sentences)
        found: list[list[str]] = [[] for _ in rows]
        order = sorted((i for i, words in enumerate(rows) if words), key=lambda i: len(rows[i]))
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            decoded = self.decode(*self._encode([rows[i] for i in batch])).tolist()
            for i, row in zip(batch, decoded, strict=True):
                ids = row[: len(rows[i])]
                if IGNORE_INDEX in ids:
                    rule = "have a tag for each word (scores of NaN, or all forbidden, give none)"
                    raise ValueError(_must(f"sentences[{i}]", rule, rows[i]))
                found[i] = [self.tags[tag] for tag in ids]
        return found

    def __repr__(self) -> str:
        return f"OnnxTagger({len(self.tags)} tags, {len(self._ids)} words)"


def mark_of(content: bytes) -> str:
    """Return a checksum of the content of ``tagger.json``."""
    return str(zlib.crc32(content))


def _must(name: str, rule: str, value: object) -> str:
    """Return an error's sentence, as `_checks.must` does, without importing torch."""
    return f"{name} must {rule}, got {value}"


def _check_sentences(sentences: Iterable[Iterable[str]]) -> list[list[str]]:
    """Return lists of words, each iterable read once, after checking them."""
    if isinstance(sentences, str):
        raise TypeError(_must("sentences", "be lists of words", f"the string {sentences!r}"))
    rows = []
    for i, words in enumerate(sentences):
        if isinstance(words, str):
            raise TypeError(_must(f"sentences[{i}]", "be a list of words", f"the string {words!r}"))
        if not isinstance(words, Iterable):
            raise TypeError(_must(f"sentences[{i}]", "be a list of words", type(words).__name__))
        rows.append(list(words))
        for number, word in enumerate(rows[-1]):
            if not isinstance(word, str):
                raise TypeError(_must(f"sentences[{i}][{number}]", "be a string", type(word).__name__))
    return rows


def _read_settings(path: Path, content: bytes) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = json.loads(content.decode("utf-8", "surrogatepass"))
        version = settings["format_version"]
        missing = {"tags", "words", "normalization", "lowercase_fallback"} - set(settings)
    except (UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
        found = f"{type(error).__name__}: {error}"
        raise ValueError(_must(str(path), "hold the settings of an exported tagger", found)) from error
    if type(version) is not int or version > FORMAT_VERSION:
        raise ValueError(_must(str(path), f"have a format_version of at most {FORMAT_VERSION}", repr(version)))
    if missing:
        raise ValueError(
            _must(str(path), "hold the settings of an exported tagger", f"no {', '.join(sorted(missing))}")
        )
    return settings


def _open(path: Path, mark: str, options: Any, providers: list[str]) -> Any:
    try:
        onnxruntime = importlib.import_module("onnxruntime")
    except ImportError as error:
        found = f'{error}. pip install "polyembed[onnx]"'
        raise ImportError(_must("OnnxTagger", "find the package 'onnxruntime'", found)) from error
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # its errors have no class in common
        raise ValueError(_must(str(path), "be a model that onnxruntime can open", error)) from error
    found = session.get_modelmeta().custom_metadata_map.get(MARK)
    if found != mark:
        raise ValueError(_must(str(path), f"be written together with {SETTINGS_NAME}", "one that belongs to another"))
    return session
