"""What every model of texts has in common: batches to train on, predictions for raw words."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack
from itertools import islice
from typing import Any, ClassVar, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from polyembed._checks import check_positive, class_name, must, require
from polyembed._pretrained import PretrainedModule
from polyembed.metrics import MetricName
from polyembed.text.lexicon import UNKNOWN_ID, Lexicon

BATCHES_TOGETHER = 32
"""How many batches are read before they are sorted by length: enough that little is padding."""


class TextModel(PretrainedModule):
    """A model of texts: calling it gives the mean loss to train on, `predict` takes raw words; `fit` trains it.

    A text is a list of words, or several that are read together. Members: `WordTagger` (a tag for each word) and
    `TextClassifier` (a label for each text).
    """

    default_metric: ClassVar[MetricName]

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Tell where inputs must be."""

    @abstractmethod
    def collate(self, items: Sequence[Any]) -> dict[str, Any]:
        """Make a training batch of labelled texts: the arguments of `forward`."""

    def predict(
        self, texts: Iterable[Any], *, batch_size: int = 64, cache_size: int = 50_000, progress: bool | None = False
    ) -> list[Any]:
        """Label raw words, those never seen included, in evaluation mode, on the device that the model is on.

        Words that a lexicon does not hold are added to it, and its embedders compute their vectors, some batches
        together; when they are more than `cache_size` they all go, and when the texts are labelled lexicon, embedders
        and mode are as they were. So two threads must not predict with one model.

        Args:
            texts: Lists of words, or pairs of them for a model of pairs. A tagger gives an empty one no tags.
            batch_size: How many texts are labelled at once, those of like length together.
            cache_size: How many unseen words are kept for later texts.
            progress: Whether to show a progress bar; if None, only on a terminal.

        Returns:
            One label a text, in the order given: a tagger's is a list, a tag for each word.
        """
        return list(self.predict_stream(texts, batch_size=batch_size, cache_size=cache_size, progress=progress))

    def predict_stream(
        self, texts: Iterable[Any], *, batch_size: int = 64, cache_size: int = 50_000, progress: bool | None = False
    ) -> Iterator[Any]:
        """Label texts as they come, as `predict` does, with no more than ``32 * batch_size`` of them in memory.

        Until it is exhausted or closed, the lexicon keeps the unseen words that it met.

        Args:
            texts: As in `predict`; a generator over a file, for instance.
            batch_size: As in `predict`.
            cache_size: As in `predict`.
            progress: As in `predict`.

        Returns:
            One label a text, in the order given, each bucket's when it is asked for.
        """
        check_positive(batch_size=batch_size)
        if isinstance(texts, str):
            raise TypeError(must("texts", "be lists of words", f"the string {texts!r}"))
        if not isinstance(texts, Iterable) and not hasattr(texts, "__getitem__"):  # a Dataset may have that alone
            raise TypeError(must("texts", "be lists of words", class_name(texts)))
        return self._stream(texts, batch_size, cache_size, progress)

    @abstractmethod
    def text_of(self, item: Any) -> Any:
        """Give what `predict` takes of a labelled text."""

    @abstractmethod
    def labels_of(self, item: Any) -> list[str]:
        """Give the right labels of a labelled text: one a word, or one for all."""

    @abstractmethod
    def check_items(self, items: Sequence[Any]) -> None:
        """Raise for labels that cannot be trained on."""

    @abstractmethod
    def signature(self) -> dict[str, Any]:
        """Say in plain values what a checkpoint must agree on, besides shapes."""

    def sentences_of(self, text: Any) -> Sequence[Sequence[str]]:
        """Give the lists of words that a text is made of; itself alone unless there are several."""
        return [text]

    @abstractmethod
    def _vocabularies(self) -> Iterable["Vocabulary"]:
        """List the lexicons, each with the embedders that follow it."""

    @abstractmethod
    def _predict_batch(self, texts: Mapping[int, Any]) -> list[Any]:
        """Label the texts of one batch, given with their places."""

    def _check_texts(self, texts: list[Any], start: int) -> list[Any]:
        """Require texts of the form that `predict` takes; errors count from `start`."""
        return texts

    def _label_of_nothing(self) -> Any:
        """Give the label of a text without words; None if it is labelled like others."""
        return None

    @torch.no_grad()
    def _stream(self, texts: Iterable[Any], batch_size: int, cache_size: int, progress: bool | None) -> Iterator[Any]:
        start = 0
        with ExitStack() as stack:
            vocabularies = [stack.enter_context(vocabulary) for vocabulary in self._vocabularies()]
            for bucket in _buckets(texts, BATCHES_TOGETHER * batch_size, progress):
                yield from self._predict_bucket(bucket, start, vocabularies, batch_size, cache_size)
                start += len(bucket)

    def _predict_bucket(
        self, texts: list[Any], start: int, vocabularies: Sequence["Vocabulary"], batch_size: int, cache_size: int
    ) -> list[Any]:
        """Label texts in evaluation mode, those of like length together."""
        texts = self._check_texts(texts, start)
        lengths = [count_words_of(self.sentences_of(text)) for text in texts]
        found = [None if length else self._label_of_nothing() for length in lengths]
        order = sorted((i for i, label in enumerate(found) if label is None), key=lengths.__getitem__)
        modes = {module: module.training for module in self.modules()}
        self.eval()
        try:
            for vocabulary in vocabularies:
                vocabulary.learn([words for i in order for words in self.sentences_of(texts[i])], cache_size)
            for first in range(0, len(order), batch_size):
                batch = order[first : first + batch_size]
                for i, label in zip(batch, self._predict_batch({start + i: texts[i] for i in batch}), strict=True):
                    found[i] = label
        finally:
            for module, training in modes.items():
                module.training = training
        return found


class Vocabulary:
    """A lexicon and the embedders that follow it, in step from now on, whatever words come and go.

    As a context it forgets at its end the words that were learnt; several may be open, and end in any order.

    Args:
        lexicon: The words; somebody else may have extended it since.
        embedders: Word embedders that were built for it.
    """

    _open: ClassVar[WeakKeyDictionary[Lexicon, list[int]]] = WeakKeyDictionary()
    """The sizes that lexicons go back to: what another has learnt is nothing to build on."""

    def __init__(self, lexicon: Lexicon, embedders: Sequence[nn.Module]) -> None:
        self.lexicon = lexicon
        self.embedders = embedders
        self.size = min([len(lexicon), *self._open.get(lexicon, ())])
        self._follow()

    def __enter__(self) -> Self:
        self._open.setdefault(self.lexicon, []).append(self.size)
        return self

    def __exit__(self, *error: object) -> None:
        self._open[self.lexicon].remove(self.size)
        self.forget()

    def learn(self, sentences: Sequence[Sequence[str]], cache_size: int) -> None:
        """Give the words that the lexicon did not hold a row of their own, whatever it has learnt since."""
        find = self.lexicon.id_of
        unseen = {word for words in sentences for word in words if not UNKNOWN_ID < find(word) < self.size}
        if len(self.lexicon) + len(unseen) > self.size + cache_size:
            self.forget()
        self.lexicon.extend(sorted(unseen))
        self._follow()

    def forget(self) -> None:
        """Drop the words that were learnt."""
        if len(self.lexicon) > self.size:
            self.lexicon.truncate(self.size)
        self._follow()

    def _follow(self) -> None:
        size = len(self.lexicon)
        for embedder in self.embedders:
            mark = getattr(embedder, "lexicon_mark", None)
            if embedder.num_embeddings != size or mark not in (None, self.lexicon.mark(size)):
                embedder.extend(self.lexicon)  # type: ignore[operator]


def check_names(name: str, names: Sequence[str], kind: str) -> tuple[str, ...]:
    """Require different names, at least one, and give them."""
    if isinstance(names, str):
        raise TypeError(must(name, f"be a sequence of {kind} names", f"the string {names!r}"))
    if not isinstance(names, Sequence) or not all(isinstance(each, str) for each in names):
        raise TypeError(must(name, f"be a sequence of {kind} names", f"{class_name(names)} {names!r}"))
    require(len(names) > 0 and len(set(names)) == len(names), name, "be different names, at least one", list(names))
    return tuple(names)


def count_words_of(sentences: Sequence[Sequence[str]]) -> int:
    """Count the words of a text."""
    return sum(map(len, sentences))


def to_device(inputs: Any, device: torch.device) -> Any:
    """Move a model's inputs."""
    if inputs is None or isinstance(inputs, Tensor):
        return None if inputs is None else inputs.to(device)
    parts = [to_device(part, device) for part in inputs]
    return parts if isinstance(inputs, list) else type(inputs)(*parts)


def _buckets(texts: Iterable[Any], size: int, progress: bool | None) -> Iterator[list[Any]]:
    """Read so many texts at a time, counting them on a bar."""
    from tqdm import tqdm

    total = len(texts) if isinstance(texts, Sized) else None
    disable = None if progress is None else not progress  # tqdm's None: off where there is no terminal
    remaining = iter(texts)
    with tqdm(total=total, unit=" texts", leave=False, disable=disable) as bar:
        while bucket := list(islice(remaining, size)):
            yield bucket
            bar.update(len(bucket))
