"""An exported tagger, run by onnxruntime and NumPy.

This file and `polyembed/crf/numpy_viterbi.py` import no torch: where torch is not installed, copy
both beside the program that serves the tagger.
"""

import importlib
import json
import os
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

try:
    from polyembed.crf.numpy_viterbi import viterbi
except ImportError:  # copies of the two files, without the package
    from numpy_viterbi import viterbi  # type: ignore[import-not-found, no-redef]

MODEL_NAME = "tagger.onnx"
SETTINGS_NAME = "tagger.json"
FORMAT_VERSION = 3
OUTPUTS = ["emissions", "transitions", "start", "end"]
NUM_SPECIAL, UNKNOWN_ID = 2, 1
IGNORE_INDEX = -100

Floats = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class OnnxTagger:
    """A tagger that `export_onnx` wrote: words in, tags out, by onnxruntime and NumPy alone.

    Over a CRF's emissions, `viterbi` finds the best tags; without a CRF, each word has its own best
    tag. A word is looked up in its normal form and, if the tagger's `Lexicon` has
    `lowercase_fallback`, in lower case, among all words that ``tagger.json`` lists. Words that it
    does not list share the vector of the unknown word.

    Args:
        folder: The folder that `export_onnx` wrote.
        session_options: The ``SessionOptions`` of onnxruntime, such as the number of threads;
            onnxruntime's defaults if None.
        providers: The execution providers of onnxruntime.

    Attributes:
        tags: The tag set, in the order of its ids.

    Raises:
        FileNotFoundError: If a file of the folder is missing.
        ValueError: If ``tagger.json`` is of another format.
        ImportError: If onnxruntime is not installed.

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
                raise FileNotFoundError(f"folder must hold {name}, got nothing at {folder / name}")
        settings = json.loads((folder / SETTINGS_NAME).read_text("utf-8", "surrogatepass"))
        if settings.get("format_version") != FORMAT_VERSION:
            found = f"{settings.get('format_version')}. Export the tagger again"
            raise ValueError(f"{SETTINGS_NAME} must be of format {FORMAT_VERSION}, got {found}")
        self.tags: tuple[str, ...] = tuple(settings["tags"])
        self._normalization: Any = settings["normalization"]
        self._lowercase_fallback: bool = settings["lowercase_fallback"]
        self._ids = {word: i for i, word in enumerate(settings["words"], NUM_SPECIAL)}
        try:
            onnxruntime = importlib.import_module("onnxruntime")
        except ImportError as error:
            raise ImportError("onnxruntime is missing: pip install onnxruntime") from error
        self._session = onnxruntime.InferenceSession(
            str(folder / MODEL_NAME), session_options, providers=list(providers)
        )

    def encode(self, sentences: Iterable[Iterable[str]]) -> tuple[Ids, Mask]:
        """Turn words into ids, padded to the longest sentence.

        Args:
            sentences: Lists of words.

        Returns:
            ``ids (batch, word)`` and ``mask (batch, word)``, True for a word.

        Raises:
            TypeError: If a sentence is not a list of strings.
        """
        rows = _check_sentences(sentences)
        lengths = np.array([len(words) for words in rows], np.int64)
        mask = np.arange(max(map(len, rows), default=0)) < lengths[:, None]  # (batch, word)
        ids = np.zeros(mask.shape, np.int64)
        ids[mask] = [self._id_of(word) for words in rows for word in words]
        return ids, mask

    def scores(self, ids: Ids, mask: Mask) -> list[Floats]:
        """Run the graph.

        Args:
            ids: The ids, as `encode` makes them.
            mask: True = a word.

        Returns:
            The emissions ``(batch, word, tag)`` float32 and, of a CRF, its transitions, start and
            end scores.

        Raises:
            ValueError: If an id is out of range.
        """
        low, count = ids.min(initial=0), len(self._ids) + NUM_SPECIAL
        if low < 0 or ids.max(initial=0) >= count:  # the runtime counts negative ids from the end
            raise ValueError(f"ids must be in [0, {count}), got {low if low < 0 else ids.max()}")
        if not ids.size:
            return [np.zeros((*ids.shape, len(self.tags)), np.float32)]
        outputs: list[Floats] = self._session.run(None, {"ids": ids, "mask": mask})
        return outputs

    def decode(self, ids: Ids, mask: Mask) -> Ids:
        """Return the best tags.

        Args:
            ids: The ids, as `encode` makes them.
            mask: True = a word; masked positions between words are skipped.

        Returns:
            Tag ids ``(batch, word)``, -100 at masked positions, in rows of which a CRF forbids
            every path, and where scores are NaN.
        """
        emissions, *scores = self.scores(ids, mask)
        if scores:
            return viterbi(emissions, mask, *scores)
        sound = emissions.max(-1, initial=-np.inf) > -np.inf  # False for NaN
        return np.where(mask & sound, emissions.argmax(-1), IGNORE_INDEX)

    def predict(
        self, sentences: Iterable[Iterable[str]], *, batch_size: int = 64
    ) -> list[list[str]]:
        """Tag raw words.

        Args:
            sentences: Lists of words; an empty one gets no tags.
            batch_size: The number of sentences of similar length that are tagged at once.

        Returns:
            A list of tag names per sentence, in the order given.

        Raises:
            TypeError: If a sentence is not a list of strings.
            ValueError: If scores are NaN or forbid every path, so that a word has no tag.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size must be a positive integer, got {batch_size}")
        rows = _check_sentences(sentences)
        found: list[list[str]] = [[] for _ in rows]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            decoded = self.decode(*self.encode(rows[i] for i in batch)).tolist()
            for i, row in zip(batch, decoded, strict=True):
                ids = row[: len(rows[i])]
                if IGNORE_INDEX in ids:
                    rule = "have a tag for each word (scores of NaN, or all forbidden, give none)"
                    raise ValueError(f"sentences[{i}] must {rule}, got {rows[i]}")
                found[i] = [self.tags[tag] for tag in ids]
        return found

    def _id_of(self, word: str) -> int:
        found = self._ids.get(self._normalized(word))
        if found is None and self._lowercase_fallback:
            found = self._ids.get(self._normalized(self._normalized(word).lower()))
        return UNKNOWN_ID if found is None else found

    def _normalized(self, word: str) -> str:
        form = self._normalization
        return unicodedata.normalize(form, word) if form else word


def _check_sentences(sentences: Iterable[Iterable[str]]) -> list[list[str]]:
    """Return lists of words, each iterable read once, after checking them."""
    rows = []
    for i, words in enumerate(sentences):
        row = words if isinstance(words, str) else list(words)
        if isinstance(row, str) or not all(isinstance(word, str) for word in row):
            raise TypeError(f"sentences[{i}] must be a list of words, got {row!r}")
        rows.append(row)
    return rows
