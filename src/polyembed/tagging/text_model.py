"""The base of all models of texts: batches to train on, predictions for raw words."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from polyembed._batches import BATCHES_TOGETHER, batches_by_length, chunked, progress_bar
from polyembed._checks import check_positive, check_sentences, check_words, require, require_type
from polyembed._views import evaluation_view, shallow_copy
from polyembed.embeddings.embedder import WordEmbedder, require_embedder
from polyembed.saving import PretrainedModule
from polyembed.text.lexicon import Lexicon

CACHED_WORDS = 50_000
"""The number of words whose vectors are kept for later texts of a prediction."""

Predict = Callable[[Any, Mapping[int, Any]], list[Any]]


class TextModel(PretrainedModule):
    """A model of texts: calling it returns the mean loss, `predict` takes raw words.

    A text is a list of words, or a pair of lists. Members: `SequenceTagger`, `TokenClassifier`,
    `VotingEnsemble` (a tag for each word), `SequenceClassifier`, `PairClassifier` (a label for each
    text). `predict` and `predict_stream` do not change the model: any number of threads may call
    them, also on models that share parts.
    """

    embedder: WordEmbedder

    @property
    def device(self) -> torch.device:
        """The device of the parameters, where inputs must be."""
        devices = (value.device for value in self.parameters() if not value.is_meta)
        return next(devices, torch.device("meta"))  # tables that a folder left out are on "meta"

    @property
    def lexicon(self) -> Lexicon | None:
        """The words of a type embedder; None for a contextual or mixed one."""
        return self.embedder.lexicon

    @abstractmethod
    def encode(self, texts: Sequence[Any]) -> tuple[Any, Tensor | None]:
        """Turn words into the inputs of `forward`, and the mask of words."""

    @abstractmethod
    def collate(self, items: Sequence[Any]) -> dict[str, Any]:
        """Build a training batch of labelled texts: the arguments of `forward`."""

    def text_of(self, item: Any) -> Any:
        """Return the text of a labelled text, as `predict` takes it."""
        require_type(hasattr(item, "words"), "a labelled text", "be an object with words", item)
        return item.words

    @abstractmethod
    def labels_of(self, item: Any) -> list[Any]:
        """Return the gold labels of a labelled text: one per word, or a list of its one label."""

    @abstractmethod
    def check_items(self, items: Sequence[Any]) -> None:
        """Raise an error for labels that cannot be trained on."""

    def sentences_of(self, text: Any) -> Sequence[Sequence[str]]:
        """Return the lists of words that a text consists of."""
        return [text]

    def words_of(self, texts: Sequence[Any], start: int = 0) -> set[str]:
        """Return the words that `encode` looks up; errors count texts from `start`."""
        return {word for text in texts for words in self.sentences_of(text) for word in words}

    def with_words(self, words: Iterable[str]) -> Self:
        """Return a model whose lexicon has each of `words`, with the same parameters.

        Args:
            words: Any words, known ones among them; for a tagger with `prepare`, the result of
                `words_of`.

        Returns:
            The new model.
        """
        return shallow_copy(self, embedder=self.embedder.with_words(words))

    def predict(
        self, texts: Iterable[Any], *, batch_size: int = 64, progress: bool | None = False
    ) -> list[Any]:
        """Label raw words in evaluation mode, on the model's device.

        A word that the lexicon lacks gets the same vector as if the lexicon had it.

        Args:
            texts: Lists of words, or pairs of them for a model of pairs. A tagger gives an empty
                list no tags.
            batch_size: The number of texts of similar length that are labelled at once.
            progress: Whether to show a progress bar; if None, only on a terminal.

        Returns:
            A label per text, in the order given; a tagger's label is a list with a tag per word.

        Raises:
            TypeError: If a string is given in place of the texts or of a list of words.
            ValueError: If the scores of a text are NaN, or all labels are forbidden.
        """
        return list(self.predict_stream(texts, batch_size=batch_size, progress=progress))

    def predict_probabilities(
        self, texts: Iterable[Any], *, batch_size: int = 64, progress: bool | None = False
    ) -> list[Tensor]:
        """Compute the probability of each label from raw words; see `predict`.

        Args:
            texts: The texts, as in `predict`.
            batch_size: The number of texts at once, as in `predict`.
            progress: Whether to show a progress bar, as in `predict`.

        Returns:
            A tensor per text, on the CPU: of a tagger ``(word, tag)``, of a classifier
            ``(label,)``, in the order of the model's tags or labels.
        """
        return list(self._stream(texts, batch_size, progress, type(self)._probabilities_of_batch))

    def predict_stream(
        self, texts: Iterable[Any], *, batch_size: int = 64, progress: bool | None = False
    ) -> Iterator[Any]:
        """Label an iterable of texts as `predict` does, with ``32 * batch_size`` texts in memory.

        Args:
            texts: The texts; a generator over a file, for instance.
            batch_size: The number of texts at once, as in `predict`.
            progress: Whether to show a progress bar, as in `predict`.

        Returns:
            An iterator over the labels, one per text, in order.
        """
        return self._stream(texts, batch_size, progress, type(self)._label_batch)

    def _stream(
        self, texts: Iterable[Any], batch_size: int, progress: bool | None, predict: Predict
    ) -> Iterator[Any]:
        """Check the arguments, then yield the results of `predict` for numbered texts."""
        check_positive(batch_size=batch_size)
        require_type(not isinstance(texts, str), "texts", "be an iterable of texts", texts)

        def generate() -> Iterator[Any]:
            start, model = 0, evaluation_view(self)
            knowing, cached = model, set[str]()
            total = len(texts) if isinstance(texts, Sized) else None
            with progress_bar(progress=progress, total=total, unit=" texts") as bar:
                for read in chunked(texts, BATCHES_TOGETHER * batch_size):
                    bucket = self._check_texts(read, start)
                    if len(cached) > CACHED_WORDS:
                        knowing, cached = model, set()
                    words = self.words_of(bucket, start) - cached
                    knowing, cached = knowing.with_words(sorted(words)), cached | words
                    yield from _predicted_bucket(knowing, bucket, start, batch_size, predict)
                    start += len(bucket)
                    bar.update(len(bucket))

        return generate()

    @abstractmethod
    def _label_batch(self, texts: Mapping[int, Any]) -> list[Any]:
        """Label the texts of one batch, given with their numbers."""

    @abstractmethod
    def _probabilities_of_batch(self, texts: Mapping[int, Any]) -> list[Tensor]:
        """Compute the label probabilities of the texts of one batch."""

    def _check_texts(self, texts: Sequence[Any], start: int = 0) -> list[Any]:
        """Return texts of the form that `predict` takes; errors count from `start`."""
        return check_sentences(texts, name="texts", start=start)


@torch.no_grad()
def _predicted_bucket(
    model: TextModel, texts: list[Any], start: int, batch_size: int, predict: Predict
) -> list[Any]:
    """Predict in batches of similar length; `start` is the first text's number in errors."""
    lengths = [sum(map(len, model.sentences_of(text))) for text in texts]
    found: list[Any] = [None] * len(texts)
    for batch in batches_by_length(range(len(texts)), batch_size, lengths.__getitem__):
        for i, one in zip(batch, predict(model, {start + i: texts[i] for i in batch}), strict=True):
            found[i] = one
    return found


def word_features(
    embedder: nn.Module, encoder: nn.Module | None, inputs: Any, mask: Tensor | None
) -> Tensor:
    """Compute the words' vectors in context: ``encoder(embedder(inputs), mask)``."""
    x: Tensor = embedder(inputs)
    require(x.dim() == 3, "inputs", "be a batch of sentences", f"vectors of shape {tuple(x.shape)}")
    return x if encoder is None else encoder(x, mask)


def feature_size(embedder: nn.Module, encoder: nn.Module | None) -> int:
    """Return the size of a word's features, after checking that embedder and encoder fit."""
    require_embedder(embedder)
    dim: Any = embedder.embedding_dim
    if encoder is None:
        return int(dim)
    rule = f"have the embedder's {dim} as its input_size"
    require(encoder.input_size == dim, "encoder", rule, encoder.input_size)
    return int(encoder.embedding_dim)  # type: ignore[arg-type]


def check_names(name: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names after checking that they are different strings, at least one."""
    require_type(not isinstance(names, set | frozenset), name, "have an order", names)
    found = check_words(names, name=name)
    require(0 < len(set(found)) == len(found), name, "be different names, at least one", found)
    return tuple(found)


def to_device(inputs: Any, device: torch.device | str) -> Any:
    """Move inputs, or a whole batch, to a device.

    Args:
        inputs: The result of ``encode`` or ``collate``: tensors, `Pieces`, tuples, lists and dicts
            of them. Other values are not changed.
        device: The device to move to.

    Returns:
        The same structure; tensors that are there already are not copied.

    Example:
        >>> batch = {"inputs": (torch.zeros(2, 3), torch.ones(2, 3)), "mask": None}
        >>> to_device(batch, "meta")["inputs"][0].device
        device(type='meta')
    """
    return tree_map_only(Tensor, lambda x: x.to(device), inputs)
