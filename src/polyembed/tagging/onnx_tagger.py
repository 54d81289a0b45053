"""An exported tagger, run by onnxruntime and NumPy.

This file and `polyembed/crf/numpy_viterbi.py` import no torch: where torch is not installed, copy
both beside the program that serves the tagger.
"""

import hashlib
import importlib
import json
import os
import unicodedata
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
DATA_NAME = "tagger.onnx.data"
SETTINGS_NAME = "tagger.json"
FORMAT_VERSION = 2
OUTPUTS = ["emissions", "transitions", "start", "end"]
NUM_SPECIAL, UNKNOWN_ID = 2, 1
IGNORE_INDEX = -100

Floats = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class OnnxTagger:
    """A tagger that `export_onnx` wrote: words in, tags out, by onnxruntime and NumPy alone.

    Emissions come from the file ``tagger.onnx``; over a CRF's, `viterbi` finds the best tags, else
    each word has its own best tag. Words that ``tagger.json`` does not list share the vector of the
    unknown word. A word is looked up as the tagger's `Lexicon` did, its normal form and lower case
    included.

    Args:
        folder: The folder that `export_onnx` wrote.
        session_options: onnxruntime's ``SessionOptions``, such as how many threads; its own choice
            if None.
        providers: onnxruntime's execution providers.

    Attributes:
        tags: The tag set, in the order of its ids.

    Raises:
        FileNotFoundError: A file of the folder is missing.
        ValueError: A damaged file, another format, or files that were not written together.
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
        for name in (SETTINGS_NAME, MODEL_NAME, DATA_NAME):
            if not (folder / name).is_file():
                raise FileNotFoundError(
                    _must("folder", f"hold {name}", f"nothing at {folder / name}")
                )
        settings = _read_settings(folder / SETTINGS_NAME)
        _verify(folder, settings)
        self.tags: tuple[str, ...] = tuple(settings["tags"])
        self._normalization: Literal["NFC", "NFD", "NFKC", "NFKD"] | None = settings[
            "normalization"
        ]
        self._lowercase_fallback: bool = settings["lowercase_fallback"]
        self._ids = {word: i for i, word in enumerate(settings["words"], NUM_SPECIAL)}
        self._session = _open(folder / MODEL_NAME, session_options, list(providers))
        last = NUM_SPECIAL + len(settings["words"]) - 1
        self._scores = _scores(self._session, folder / MODEL_NAME, last, len(self.tags))

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
            found = self._ids.get(
                unicodedata.normalize(self._normalization, lower) if self._normalization else lower
            )
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
            raise ValueError(
                _must(
                    "ids and mask", "have the same axes (batch, word)", f"{ids.shape}, {mask.shape}"
                )
            )
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
            Tag ids ``(batch, word)``, -100 at masked positions, in rows of which a CRF forbids
            every path, and where scores are NaN.
        """
        emissions = self.emissions(ids, mask)
        if self._scores:
            transitions, start, end = self._scores
            return viterbi(emissions, mask, transitions, start, end)
        sound = emissions.max(-1) > -np.inf  # not so of NaN
        return np.where(mask & sound, emissions.argmax(-1), IGNORE_INDEX)

    def predict(
        self, sentences: Iterable[Iterable[str]], *, batch_size: int = 64
    ) -> list[list[str]]:
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


def digest_of(settings: dict[str, Any]) -> str:
    """Return the SHA-256 of the settings of ``tagger.json``, without its checksums."""
    content = json.dumps({**settings, "checksums": None}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


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
                raise TypeError(
                    _must(f"sentences[{i}][{number}]", "be a string", type(word).__name__)
                )
    return rows


def _read_settings(path: Path) -> dict[str, Any]:
    rule = "hold the settings of an exported tagger"
    try:
        settings: dict[str, Any] = json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
        version = settings["format_version"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise ValueError(_must(str(path), rule, f"{type(error).__name__}: {error}")) from error
    if type(version) is not int or version != FORMAT_VERSION:
        found = f"{version!r}. Export the tagger again, with the version of polyembed that opens it"
        raise ValueError(_must(str(path), f"have the format_version {FORMAT_VERSION}", found))
    missing = {"tags", "words", "normalization", "lowercase_fallback", "checksums"} - set(settings)
    if missing:
        raise ValueError(_must(str(path), rule, f"no {', '.join(sorted(missing))}"))
    tags = settings["tags"]
    valid = {
        "tags": _is_list_of_strings(tags) and len(set(tags)) == len(tags) > 0,
        "words": _is_list_of_strings(settings["words"]),
        "normalization": settings["normalization"] in (None, "NFC", "NFD", "NFKC", "NFKD"),
        "lowercase_fallback": isinstance(settings["lowercase_fallback"], bool),
        "checksums": isinstance(settings["checksums"], dict),
    }
    for name, is_valid in valid.items():
        if not is_valid:
            raise ValueError(_must(str(path), rule, f"{name} {str(settings[name])[:100]}"))
    return settings


def _is_list_of_strings(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(item, str) for item in found)


def _verify(folder: Path, settings: dict[str, Any]) -> None:
    """Check that every file is the one that was exported."""
    for name in (SETTINGS_NAME, MODEL_NAME, DATA_NAME):
        if name == SETTINGS_NAME:
            found = digest_of(settings)
        else:
            with (folder / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        saved = settings["checksums"].get(name)
        if found != saved:
            advice = (
                "It is damaged or of another export: copy the folder or export the tagger again"
            )
            rule = f"have the SHA-256 {str(saved)[:64]} of {SETTINGS_NAME}"
            raise ValueError(_must(str(folder / name), rule, f"{found}. {advice}"))


def _open(path: Path, options: Any, providers: list[str]) -> Any:
    try:
        onnxruntime = importlib.import_module("onnxruntime")
    except ImportError as error:
        found = f'{error}. pip install "polyembed[onnx]"'
        raise ImportError(_must("OnnxTagger", "find the package 'onnxruntime'", found)) from error
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # its errors have no class in common
        raise ValueError(_must(str(path), "be a model that onnxruntime can open", error)) from error


def _scores(session: Any, path: Path, last: int, num_tags: int) -> list[Floats]:
    """Return the scores of a CRF, after running the model once on the last word."""
    rule = f"take {last + 1} ids and score {num_tags} tags, as {SETTINGS_NAME} lists them"
    names = [output.name for output in session.get_outputs()]
    inputs = {"ids": np.full((1, 1), last, np.int64), "mask": np.ones((1, 1), np.bool_)}
    try:
        found: list[Floats] = session.run(None, inputs)
    except Exception as error:  # its errors have no class in common
        raise ValueError(_must(str(path), rule, error)) from error
    shapes = dict(zip(names, map(np.shape, found), strict=True))
    expected = dict(
        zip(
            OUTPUTS, [(1, 1, num_tags), (num_tags, num_tags), (num_tags,), (num_tags,)], strict=True
        )
    )
    if shapes not in (expected, {OUTPUTS[0]: expected[OUTPUTS[0]]}):
        raise ValueError(_must(str(path), rule, f"outputs {shapes}"))
    return found[1:]
