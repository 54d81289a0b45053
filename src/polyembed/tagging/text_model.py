"""What every model of texts has in common: batches to train on, predictions for raw words."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from polyembed._checks import check_positive, class_name, must, require
from polyembed._pretrained import PretrainedModule
from polyembed.metrics import MetricName
from polyembed.text.lexicon import UNKNOWN_ID, Lexicon


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

    @abstractmethod
    def predict(self, texts: Sequence[Any], *, batch_size: int = 64, cache_size: int = 50_000) -> list[Any]:
        """Label raw words."""

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

    @torch.no_grad()
    def _predict(self, texts: Mapping[int, Any], batch_size: int, cache_size: int) -> dict[int, Any]:
        """Label texts in evaluation mode, those of like length together; nothing of it stays, even if it fails."""
        check_positive(batch_size=batch_size)
        vocabularies = list(self._vocabularies())
        modes = {module: module.training for module in self.modules()}
        found: dict[int, Any] = {}
        self.eval()
        try:
            order = sorted(texts, key=lambda i: count_words_of(self.sentences_of(texts[i])))
            for chunk in _split(order, 16 * batch_size):
                for vocabulary in vocabularies:
                    vocabulary.learn([words for i in chunk for words in self.sentences_of(texts[i])], cache_size)
                for batch in _split(chunk, batch_size):
                    labels = self._predict_batch({i: texts[i] for i in batch})
                    found.update(zip(batch, labels, strict=True))
        finally:
            for vocabulary in vocabularies:
                vocabulary.forget()
            for module, training in modes.items():
                module.training = training
        return found


class Vocabulary:
    """A lexicon and the embedders that follow it, in step from now on, whatever words come and go.

    Args:
        lexicon: The words; somebody else may have extended it since.
        embedders: Word embedders that were built for it.
    """

    def __init__(self, lexicon: Lexicon, embedders: Sequence[nn.Module]) -> None:
        self.lexicon = lexicon
        self.embedders = embedders
        self.size = len(lexicon)
        for embedder in embedders:
            if embedder.num_embeddings != self.size:
                embedder.extend(lexicon)  # type: ignore[operator]

    def learn(self, sentences: Sequence[Sequence[str]], cache_size: int) -> None:
        """Give the words that the lexicon did not hold a row of their own, whatever it has learnt since."""
        find = self.lexicon.id_of
        unseen = {word for words in sentences for word in words if not UNKNOWN_ID < find(word) < self.size}
        if len(self.lexicon) + len(unseen) > self.size + cache_size:
            self.forget()
        if self.lexicon.extend(sorted(unseen)):
            self._follow()

    def forget(self) -> None:
        """Drop the words that were learnt."""
        if len(self.lexicon) > self.size:
            self.lexicon.truncate(self.size)
            self._follow()

    def _follow(self) -> None:
        for embedder in self.embedders:
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


def _split(items: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
