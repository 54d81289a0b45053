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

    Over a CRF's emissions, `viterbi` finds the best tags; over others each word has its own best
    tag. Words that ``tagger.json`` does not list share the vector of the unknown word. A word is
    looked up as the tagger's `Lexicon` did, with its normal form and lower case.

    Args:
        folder: The folder that `export_onnx` wrote.
        session_options: The ``SessionOptions`` of onnxruntime, such as the number of threads; its
            own choice if None.
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
                found = f"nothing at {folder / name}"
                raise FileNotFoundError(_must("folder", f"hold {name}", found))
        content = (folder / SETTINGS_NAME).read_bytes()
        settings = json.loads(content.decode("utf-8", "surrogatepass"))
        if settings.get("format_version") != FORMAT_VERSION:
            found = f"{settings.get('format_version')}. Export the tagger again"
            raise ValueError(_must(SETTINGS_NAME, f"be of format {FORMAT_VERSION}", found))
        self.tags: tuple[str, ...] = tuple(settings["tags"])
        self._normalization: Any = settings["normalization"]
        self._lowercase_fallback: bool = settings["lowercase_fallback"]
        self._ids = {word: i for i, word in enumerate(settings["words"], NUM_SPECIAL)}
        try:
            onnxruntime = importlib.import_module("onnxruntime")
        except ImportError as error:
            found = f'{error}. pip install "polyembed[onnx]"'
            raise ImportError(_must("OnnxTagger", "find onnxruntime", found)) from error
        self._session = onnxruntime.InferenceSession(
            str(folder / MODEL_NAME), session_options, providers=list(providers)
        )

    def encode(self, sentences: Iterable[Iterable[str]]) -> tuple[Ids, Mask]:
        """Turn words into ids, padded to the longest.

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

    def emissions(self, ids: Ids, mask: Mask) -> Floats:
        """Score each tag at each word.

        Args:
            ids: The ids, as `encode` makes them.
            mask: True = a word.

        Returns:
            ``(batch, word, tag)`` float32.

        Raises:
            ValueError: If the shapes differ, or an id is negative.
        """
        return self._run(ids, mask)[0]

    def decode(self, ids: Ids, mask: Mask) -> Ids:
        """Return the best tags.

        Args:
            ids: The ids, as `encode` makes them.
            mask: True = a word; holes are skipped as if they were not there.

        Returns:
            Tag ids ``(batch, word)``, -100 at masked positions, in rows of which a CRF forbids
            every path, and where scores are NaN.
        """
        emissions, *scores = self._run(ids, mask)
        if scores:
            return viterbi(emissions, mask, *scores)
        sound = emissions.max(-1, initial=-np.inf) > -np.inf  # not so of NaN
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
            ValueError: If the scores of a sentence leave it no path.
        """
        rows = _check_sentences(sentences)
        found: list[list[str]] = [[] for _ in rows]
        order = sorted((i for i, words in enumerate(rows) if words), key=lambda i: len(rows[i]))
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            decoded = self.decode(*self.encode(rows[i] for i in batch)).tolist()
            for i, row in zip(batch, decoded, strict=True):
                ids = row[: len(rows[i])]
                if IGNORE_INDEX in ids:
                    rule = "have a tag for each word (scores of NaN, or all forbidden, give none)"
                    raise ValueError(_must(f"sentences[{i}]", rule, rows[i]))
                found[i] = [self.tags[tag] for tag in ids]
        return found

    def _run(self, ids: Ids, mask: Mask) -> list[Floats]:
        """Run the model: emissions and, of a CRF, its scores."""
        if ids.ndim != 2 or ids.shape != mask.shape:
            found = f"{ids.shape}, {mask.shape}"
            raise ValueError(_must("ids and mask", "have the same axes (batch, word)", found))
        if not ids.size:
            return [np.zeros((*ids.shape, len(self.tags)), np.float32)]
        if ids.min() < 0:  # the runtime counts negative ids from the end
            raise ValueError(_must("ids", "be what encode gives, not negative", ids.min()))
        outputs: list[Floats] = self._session.run(None, {"ids": ids, "mask": mask})
        return outputs

    def _id_of(self, word: str) -> int:
        found = self._ids.get(self._normalized(word))
        if found is None and self._lowercase_fallback:
            found = self._ids.get(self._normalized(self._normalized(word).lower()))
        return UNKNOWN_ID if found is None else found

    def _normalized(self, word: str) -> str:
        form = self._normalization
        return unicodedata.normalize(form, word) if form else word

    def __repr__(self) -> str:
        return f"OnnxTagger({len(self.tags)} tags, {len(self._ids)} words)"


def _must(name: str, rule: str, value: object) -> str:
    """Return an error's sentence, as `_checks.must` does, without importing torch."""
    return f"{name} must {rule}, got {value}"


def _check_sentences(sentences: Iterable[Iterable[str]]) -> list[list[str]]:
    """Return lists of words, each iterable read once, after checking them."""
    if isinstance(sentences, str):
        raise TypeError(_must("sentences", "be lists of words", f"the string {sentences!r}"))
    rows = []
    for i, words in enumerate(sentences):
        if isinstance(words, str) or not isinstance(words, Iterable):
            found = repr(words) if isinstance(words, str) else type(words).__name__
            raise TypeError(_must(f"sentences[{i}]", "be a list of words", found))
        rows.append(list(words))
        for number, word in enumerate(rows[-1]):
            if not isinstance(word, str):
                name = f"sentences[{i}][{number}]"
                raise TypeError(_must(name, "be a string", type(word).__name__))
    return rows
