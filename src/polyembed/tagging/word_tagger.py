"""The contract of everything that tags words, and what follows from it: batches and predictions."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from polyembed._checks import check_positive, require
from polyembed._pretrained import PretrainedModule
from polyembed.tagging.decoders import IGNORE_INDEX
from polyembed.text.lexicon import UNKNOWN_ID, Lexicon
from polyembed.text.pieces import Pieces

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


class WordTagger(PretrainedModule):
    """A tag for each word: calling it gives the mean loss to train on, `predict` takes raw words.

    Members: `SequenceTagger`, and `VotingEnsemble` over several of them.

    Attributes:
        tags: The tag set, in the order of its ids.
    """

    tags: tuple[str, ...]

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Tell where inputs must be."""

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
    def _vocabularies(self) -> Iterable["Vocabulary"]:
        """List the lexicons, each with the embedders that follow it."""

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

    @torch.no_grad()
    def predict(
        self, sentences: Sequence[Sequence[str]], *, batch_size: int = 64, cache_size: int = 50_000
    ) -> list[list[str]]:
        """Tag raw words, those never seen included, in evaluation mode, on the device that the tagger is on.

        Words that a lexicon does not hold are added to it, and its embedders compute their vectors, a chunk of
        batches at a time; when they are more than `cache_size` they all go, and when the sentences are tagged
        lexicon, embedders and mode are as they were. So two threads must not predict with one tagger.

        Args:
            sentences: Lists of words; an empty one gets no tags.
            batch_size: How many sentences are tagged at once, those of like length together.
            cache_size: How many unseen words are kept from chunk to chunk.

        Returns:
            One list of tag names a sentence, in the order given.
        """
        check_positive(batch_size=batch_size)
        sentences = list(sentences)
        vocabularies = list(self._vocabularies())
        modes = {module: module.training for module in self.modules()}
        self.eval()
        try:
            return self._predict(sentences, vocabularies, batch_size, cache_size)
        finally:
            for vocabulary in vocabularies:
                vocabulary.forget()
            for module, training in modes.items():
                module.training = training

    def _predict(
        self,
        sentences: Sequence[Sequence[str]],
        vocabularies: Sequence["Vocabulary"],
        batch_size: int,
        cache_size: int,
    ) -> list[list[str]]:
        predictions: list[list[str]] = [[] for _ in sentences]
        order = sorted((i for i, words in enumerate(sentences) if len(words)), key=lambda i: len(sentences[i]))
        for chunk in _split(order, 16 * batch_size):
            for vocabulary in vocabularies:
                vocabulary.learn([sentences[i] for i in chunk], cache_size)
            for batch in _split(chunk, batch_size):
                inputs, mask = self.encode([sentences[i] for i in batch])
                tags = self.decode(to_device(inputs, self.device), mask.to(self.device)).tolist()
                for i, row in zip(batch, tags, strict=True):
                    found = row[: len(sentences[i])]
                    rule = "have a tag for each word (scores of NaN, or all forbidden, give none)"
                    require(IGNORE_INDEX not in found, f"sentences[{i}]", rule, list(sentences[i]))
                    predictions[i] = [self.tags[tag] for tag in found]
        return predictions


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


def to_device(inputs: Inputs, device: torch.device) -> Inputs:
    """Move a tagger's inputs."""
    if isinstance(inputs, list):
        return [part.to(device) if isinstance(part, Tensor) else _pieces_to(part, device) for part in inputs]
    return inputs.to(device) if isinstance(inputs, Tensor) else _pieces_to(inputs, device)


def _pieces_to(pieces: Pieces, device: torch.device) -> Pieces:
    return Pieces(*(part.to(device) for part in pieces))


def _split(items: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
