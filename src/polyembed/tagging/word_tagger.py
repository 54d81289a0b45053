"""The contract of everything that tags words, and what follows from it: batches and predictions."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor

from polyembed._checks import require
from polyembed.functional.losses import IGNORE_INDEX
from polyembed.metrics import MetricName
from polyembed.tagging.text_model import TextModel, Vocabulary, to_device
from polyembed.text.pieces import Pieces, check_words

__all__ = ["Inputs", "Tagged", "Vocabulary", "WordTagger", "to_device"]

Inputs = Tensor | Pieces | list[Tensor | Pieces]
"""A lexicon's ids, a word encoder's `Pieces`, or a list of either for taggers that do not read alike."""


@runtime_checkable
class Tagged(Protocol):
    """A sentence with a tag for each word."""

    @property
    def words(self) -> Sequence[str]:
        """The words."""
        ...

    @property
    def tags(self) -> Sequence[str]:
        """One tag a word."""
        ...


class WordTagger(TextModel):
    """A tag for each word: calling it gives the mean loss to train on, `predict` takes raw words.

    Members: `SequenceTagger`, and `VotingEnsemble` over several of them.

    Attributes:
        tags: The tag set, in the order of its ids.
    """

    default_metric: ClassVar[MetricName] = "f1"

    tags: tuple[str, ...]

    @abstractmethod
    def forward(
        self,
        inputs: Any,
        *,
        tags: Int[Tensor, "batch word"],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Float[Tensor, ""]:
        """Compute the mean loss of the given tags, in nats."""

    @abstractmethod
    def decode(self, inputs: Any, mask: Bool[Tensor, "batch word"] | None = None) -> Int[Tensor, "batch word"]:
        """Find the best tags; -100 at masked positions."""

    @abstractmethod
    def probabilities(
        self, inputs: Any, mask: Bool[Tensor, "batch word"] | None = None
    ) -> Float[Tensor, "batch word tag"]:
        """Compute the probability of each tag at each word; zeros at masked positions."""

    @abstractmethod
    def encode(self, sentences: Sequence[Sequence[str]]) -> tuple[Inputs, Tensor]:
        """Turn words into what the other methods call `inputs`, and the mask ``(batch, word)``."""

    @abstractmethod
    def encode_tags(self, sentences: Sequence[Sequence[str]]) -> Int[Tensor, "batch word"]:
        """Turn tag names into ids, padded with -100."""

    def collate(self, sentences: Sequence[Tagged]) -> dict[str, Any]:
        """Make a training batch.

        Args:
            sentences: Objects with ``words`` and ``tags``.

        Returns:
            ``inputs``, ``tags`` and ``mask``: the arguments of `forward`.
        """
        for row, sentence in enumerate(sentences):
            count, found = len(sentence.words), len(sentence.tags)
            require(count == found, f"sentences[{row}].tags", f"be as many as the words, {count}", found)
        inputs, mask = self.encode([sentence.words for sentence in sentences])
        return {"inputs": inputs, "tags": self.encode_tags([sentence.tags for sentence in sentences]), "mask": mask}

    def _check_texts(self, texts: Sequence[Any], start: int) -> list[Any]:
        return [*check_words(texts, name="sentences", start=start)]

    def _label_of_nothing(self) -> list[str]:
        return []

    def _predict_batch(self, texts: Mapping[int, Sequence[str]]) -> list[list[str]]:
        inputs, mask = self.encode(list(texts.values()))
        tags = self.decode(to_device(inputs, self.device), mask.to(self.device)).tolist()
        predictions = []
        for (i, words), row in zip(texts.items(), tags, strict=True):
            found = row[: len(words)]
            rule = "have a tag for each word (scores of NaN, or all forbidden, give none)"
            require(IGNORE_INDEX not in found, f"sentences[{i}]", rule, list(words))
            predictions.append([self.tags[tag] for tag in found])
        return predictions

    def text_of(self, item: Tagged) -> Sequence[str]:
        """Give a sentence's words.

        Args:
            item: An object with ``words`` and ``tags``.

        Returns:
            The words.
        """
        return item.words

    def labels_of(self, item: Tagged) -> list[str]:
        """Give a sentence's tags.

        Args:
            item: An object with ``words`` and ``tags``.

        Returns:
            One tag a word.
        """
        return list(item.tags)

    def check_items(self, items: Sequence[Tagged]) -> None:
        """Raise for tags that cannot be trained on.

        Args:
            items: Objects with ``words`` and ``tags``.

        Raises:
            ValueError: A name outside the tag set, or a sequence that the decoder's constraints forbid.
        """
        self.encode_tags([item.tags for item in items])

    def signature(self) -> dict[str, Any]:
        """Say in plain values what a checkpoint must agree on, besides shapes.

        Returns:
            The tags, and a mark of the lexicon.
        """
        lexicon = getattr(self, "lexicon", None)
        return {"tags": list(self.tags), "lexicon": None if lexicon is None else lexicon.mark(len(lexicon))}
