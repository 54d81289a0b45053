"""What every model of texts has in common: batches to train on, predictions for raw words."""

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import islice
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from polyembed._checks import check_positive, class_name, is_count, must, require
from polyembed._views import evaluation_view, shallow_copy
from polyembed.embeddings.embedder import require_embedder
from polyembed.functional.losses import IGNORE_INDEX
from polyembed.metrics import MetricName
from polyembed.saving import PretrainedModule
from polyembed.text.lexicon import Lexicon
from polyembed.text.pieces import Pieces

BATCHES_TOGETHER = 32
"""How many batches are read before they are sorted by length, so that little is padding."""


class TextModel(PretrainedModule):
    """A model of texts: calling it returns the mean loss, `predict` takes raw words, `fit` trains
    it.

    A text is a list of words, or a pair of lists. Members: `SequenceTagger`, `TokenClassifier`,
    `VotingEnsemble` (a tag for each word), `SequenceClassifier`, `PairClassifier` (a label for each
    text). `predict` and `predict_stream` do not change the model: any number of threads may call
    them, also on models that share parts.
    """

    default_metric: ClassVar[MetricName]
    item_fields: ClassVar[tuple[str, ...]]  # of a labelled text

    @property
    def device(self) -> torch.device:
        """The device of the parameters, where inputs must be."""
        return next(self.parameters()).device

    @property
    def lexicon(self) -> Lexicon | None:
        """The words of a type embedder; None for a contextual or mixed one."""
        found: Lexicon | None = self.embedder.lexicon  # type: ignore[union-attr, assignment]
        return found

    @abstractmethod
    def encode(self, texts: Sequence[Any]) -> tuple[Any, Tensor | None]:
        """Turn words into the inputs of `forward`, and the mask of words."""

    @abstractmethod
    def collate(self, items: Sequence[Any]) -> dict[str, Any]:
        """Build a training batch of labelled texts: the arguments of `forward`."""

    @abstractmethod
    def text_of(self, item: Any) -> Any:
        """Return the text of a labelled text, as `predict` takes it."""

    @abstractmethod
    def labels_of(self, item: Any) -> Sequence[str | None]:
        """Return the gold labels of a labelled text: one a word, None where it is not known, or one for all."""

    @abstractmethod
    def check_items(self, items: Sequence[Any]) -> None:
        """Raise an error for labels that cannot be trained on."""

    def sentences_of(self, text: Any) -> Sequence[Sequence[str]]:
        """Return the lists of words that a text consists of."""
        return [text]

    def words_of(self, texts: Sequence[Any], start: int = 0) -> set[str]:
        """Return the words that `encode` looks up; errors count texts from `start`."""
        return {word for text in texts for sentence in self.sentences_of(text) for word in sentence}

    def with_words(self, words: Iterable[str]) -> Self:
        """Return a model whose lexicon has each of `words`; it shares every parameter with this
        one.

        Args:
            words: Any words, known ones among them; of a tagger with `prepare`, what `words_of`
                returns.

        Returns:
            The new model.
        """
        return shallow_copy(self, embedder=self.embedder.with_words(words))  # type: ignore[union-attr, operator]

    def predict(
        self,
        texts: Iterable[Any],
        *,
        batch_size: int = 64,
        cache_size: int = 50_000,
        progress: bool | None = False,
    ) -> list[Any]:
        """Label raw words in evaluation mode, on the model's device.

        A word that the lexicon lacks gets the same vector as if the lexicon had it.

        Args:
            texts: Lists of words, or pairs of them for a model of pairs. A tagger gives an empty
                one no tags.
            batch_size: How many texts of similar length are labelled at once.
            cache_size: How many unseen words are kept for later texts of this call.
            progress: Whether to show a progress bar; if None, only on a terminal.

        Returns:
            One label a text, in the order given: a tagger's is a list, a tag for each word.

        Raises:
            TypeError: A string instead of texts or of a list of words.
        """
        return list(
            self.predict_stream(
                texts, batch_size=batch_size, cache_size=cache_size, progress=progress
            )
        )

    def predict_probabilities(
        self,
        texts: Iterable[Any],
        *,
        batch_size: int = 64,
        cache_size: int = 50_000,
        progress: bool | None = False,
    ) -> list[Tensor]:
        """Compute the probability of each label from raw words, with unseen words as in `predict`.

        Args:
            texts: As in `predict`.
            batch_size: As in `predict`.
            cache_size: As in `predict`.
            progress: As in `predict`.

        Returns:
            One tensor a text, on the CPU: of a tagger ``(word, tag)``, of a classifier
            ``(label,)``, in the order of the model's tags or labels.

        Raises:
            TypeError: As in `predict`.
        """
        return list(
            self._stream(
                texts, batch_size, cache_size, progress, type(self)._probabilities_of_batch
            )
        )

    def predict_stream(
        self,
        texts: Iterable[Any],
        *,
        batch_size: int = 64,
        cache_size: int = 50_000,
        progress: bool | None = False,
    ) -> Iterator[Any]:
        """Label an iterable of texts as `predict` does, holding ``32 * batch_size`` texts in
        memory.

        Args:
            texts: As in `predict`; a generator over a file, for instance.
            batch_size: As in `predict`.
            cache_size: As in `predict`.
            progress: As in `predict`.

        Returns:
            The labels, one a text, in order.

        Raises:
            TypeError: As in `predict`.
        """
        return self._stream(texts, batch_size, cache_size, progress, type(self)._label_batch)

    def _stream(
        self,
        texts: Iterable[Any],
        batch_size: int,
        cache_size: int,
        progress: bool | None,
        predict: Callable[[Any, Mapping[int, Any]], list[Any]],
    ) -> Iterator[Any]:
        """Check the arguments, then yield what `predict` makes of a model and the texts of a batch, by their places."""
        check_positive(batch_size=batch_size)
        require(
            is_count(cache_size) and cache_size >= 0,
            "cache_size",
            "be an integer of 0 or more",
            repr(cache_size),
        )
        readable = isinstance(texts, Iterable) or hasattr(
            texts, "__getitem__"
        )  # a Dataset of torch has items alone
        if isinstance(texts, str | Mapping) or not readable:
            raise TypeError(must("texts", "be an iterable of texts", class_name(texts)))

        def generate() -> Iterator[Any]:
            start, base = 0, evaluation_view(self)
            model, cached = base, set[str]()
            lexicons = _lexicons_of(base)
            for bucket in _buckets(texts, BATCHES_TOGETHER * batch_size, progress):
                bucket = self._check_texts(bucket, start)
                words = self.words_of(bucket, start)
                unseen = {
                    word for lexicon in lexicons for word in words if word not in lexicon
                } - cached
                if len(cached) + len(unseen) > cache_size:
                    unseen |= words & cached
                    model, cached = base, set[str]()
                if unseen:
                    model = model.with_words(sorted(unseen))
                    cached |= unseen
                yield from _predicted_bucket(model, bucket, start, batch_size, predict)
                start += len(bucket)

        return generate()

    @abstractmethod
    def _label_batch(self, texts: Mapping[int, Any]) -> list[Any]:
        """Label the texts of one batch, given with their places."""

    @abstractmethod
    def _probabilities_of_batch(self, texts: Mapping[int, Any]) -> list[Tensor]:
        """Compute the label probabilities of the texts of one batch."""

    @abstractmethod
    def _check_texts(self, texts: Sequence[Any], start: int = 0) -> list[Any]:
        """Return texts of the form that `predict` takes; errors count from `start`."""


@torch.no_grad()
def _predicted_bucket(
    model: TextModel,
    texts: list[Any],
    start: int,
    batch_size: int,
    predict: Callable[[Any, Mapping[int, Any]], list[Any]],
) -> list[Any]:
    """Predict in batches of similar length; `start` is the first text's number in errors."""
    lengths = [count_words_of(model.sentences_of(text)) for text in texts]
    order = sorted(range(len(texts)), key=lengths.__getitem__)
    found: list[Any] = [None] * len(texts)
    for first in range(0, len(order), batch_size):
        batch = order[first : first + batch_size]
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
    check_part("encoder", encoder, "be a sequence encoder or None", "input_size", "embedding_dim")
    dim = int(embedder.embedding_dim)  # type: ignore[arg-type]
    if encoder is None:
        return dim
    input_size = getattr(encoder, "input_size", None)
    require(
        input_size == dim, "encoder", f"have the embedder's {dim} as its input_size", input_size
    )
    return int(encoder.embedding_dim)  # type: ignore[arg-type]


def check_part(name: str, part: object, rule: str, *attributes: str) -> None:
    """Require a part to have the attributes of its family."""
    if part is not None and not all(hasattr(part, attribute) for attribute in attributes):
        raise TypeError(must(name, f"{rule} (with {', '.join(attributes)})", class_name(part)))


def check_labelled_words(tags: Tensor, pieces: Pieces, mask: Tensor | None) -> None:
    """Refuse tags of special pieces and padding, where no mask of words says which positions count.

    It reads values, so it checks tensors on the CPU alone.

    Args:
        tags: Tag ids.
        pieces: The sentences of the tags.
        mask: True = a word; a mask of pieces is taken for no mask.

    Raises:
        ValueError: A tag beyond the last word of its sentence.
    """
    index, real = pieces.word_index, pieces.piece_mask
    if (
        torch.compiler.is_compiling()
        or tags.device.type != "cpu"
        or tags.dim() != 2
        or len(tags) != len(index)
    ):
        return
    if mask is not None and not (
        mask.shape == real.shape == tags.shape and torch.equal(mask, real)
    ):
        return
    counts = index.amax(1) + 1 if index.shape[1] else index.new_zeros(len(index))
    labelled = tags.ne(IGNORE_INDEX) if mask is None else tags.ne(IGNORE_INDEX) & mask
    beyond = labelled & (torch.arange(tags.shape[1]) >= counts[:, None])
    if bool(beyond.any()):
        row, place = beyond.nonzero()[0].tolist()
        rule = f"label words, of which there are {int(counts[row])}, and be -100 for special pieces and padding"
        raise ValueError(must(f"tags[{row}]", rule, f"{int(tags[row, place])} at place {place}"))


def check_names(name: str, names: Sequence[str], kind: str) -> tuple[str, ...]:
    """Return the names after checking that they are different strings, at least one."""
    if (
        isinstance(names, str)
        or not isinstance(names, Sequence)
        or not all(isinstance(each, str) for each in names)
    ):
        found = (
            f"the string {names!r}" if isinstance(names, str) else f"{class_name(names)} {names!r}"
        )
        raise TypeError(must(name, f"be a sequence of {kind} names", found))
    require(
        len(names) > 0 and len(set(names)) == len(names),
        name,
        "be different names, at least one",
        list(names),
    )
    return tuple(names)


def count_words_of(sentences: Sequence[Sequence[str]]) -> int:
    """Return the number of words of a text."""
    return sum(map(len, sentences))


def to_device(inputs: Any, device: torch.device | str) -> Any:
    """Move inputs, or a whole batch, to a device.

    Args:
        inputs: What ``encode`` or ``collate`` returns: tensors, `Pieces`, tuples, lists and dicts
            of them. The rest stays.
        device: Where to.

    Returns:
        The same structure; tensors that are there already are not copied.

    Example:
        >>> batch = {"inputs": (torch.zeros(2, 3), torch.ones(2, 3)), "mask": None}
        >>> to_device(batch, "meta")["inputs"][0].device
        device(type='meta')
    """
    if isinstance(inputs, Tensor):
        return inputs.to(device)
    if isinstance(inputs, dict):
        return {name: to_device(part, device) for name, part in inputs.items()}
    if not isinstance(inputs, tuple | list):
        return inputs
    parts = [to_device(part, device) for part in inputs]
    return type(inputs)(*parts) if hasattr(inputs, "_fields") else type(inputs)(parts)


def _lexicons_of(model: nn.Module) -> list[Lexicon]:
    """Return the different lexicons of a model's embedders."""
    found = (getattr(part, "lexicon", None) for part in model.modules())
    return list({id(lexicon): lexicon for lexicon in found if lexicon is not None}.values())


def _buckets(texts: Iterable[Any], size: int, progress: bool | None) -> Iterator[list[Any]]:
    """Read `size` texts at a time, counting them on a progress bar."""
    from tqdm import tqdm

    total = len(texts) if isinstance(texts, Sized) else None
    disable = (
        None if progress is None else not progress
    )  # None: tqdm shows a bar on a terminal only
    remaining = iter(texts)
    with tqdm(total=total, unit=" texts", leave=False, disable=disable) as bar:
        while bucket := list(islice(remaining, min(size, sys.maxsize))):
            yield bucket
            bar.update(len(bucket))
