"""The contract of everything that gives words vectors."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Self

from jaxtyping import Bool, Float
from torch import Tensor, nn

from polyembed._checks import class_name, must, require
from polyembed.saving import PretrainedModule
from polyembed.text.lexicon import Lexicon


class WordEmbedder(PretrainedModule):
    """A vector for each word of a sentence, by `encode` and ``forward``.

    ``inputs, mask = embedder.encode(sentences)``, then ``embedder(inputs)``. There are two kinds.
    The vectors of a *type embedder* depend on the word alone: it has a `lexicon`, and its inputs
    are ids of any shape ``(*batch)``. The vectors of a *contextual embedder* depend on the sentence
    too: its `lexicon` is None, and its inputs are `Pieces`. Both kinds combine in a
    `MetaEmbedding`.
    """

    lexicon: Lexicon | None = None
    """The words of a type embedder; None for a contextual one."""

    @property
    def num_embeddings(self) -> int:
        """The number of ids that have a vector, ``len(lexicon)``; 0 for a contextual embedder."""
        return 0 if self.lexicon is None else len(self.lexicon)

    @property
    @abstractmethod
    def embedding_dim(self) -> int:
        """The size of a word's vector."""

    @abstractmethod
    def forward(self, inputs: Any) -> Float[Tensor, "*batch word embedding_dim"]:
        """Compute the vectors of the words in `inputs`, as `encode` made them."""

    def encode(self, sentences: Sequence[Sequence[str]]) -> tuple[Any, Bool[Tensor, "batch word"]]:
        """Turn words into the inputs of `forward`.

        Args:
            sentences: Lists of words.

        Returns:
            The inputs, and the mask of words ``(batch, word)``.

        Raises:
            TypeError: If a sentence is a string instead of a list of words.
        """
        return require_lexicon(self).encode(sentences)

    def with_lexicon(self, lexicon: Lexicon) -> Self:
        """Return an embedder for more words that shares every parameter.

        A new word's vector is the one it would have if it had been in the lexicon from the start.
        Moving one of the two embedders to another device or dtype moves the rows that both share,
        unless one of them was copied by `copy.deepcopy` first, but not the rows of words that the
        other one has alone.

        Args:
            lexicon: An extension of this embedder's lexicon.

        Returns:
            The new embedder; this one if the lexicon has no new word.

        Raises:
            TypeError: If the embedder is contextual, and so needs no lexicon.
            ValueError: If `lexicon` is not an extension of this embedder's.
        """
        old = require_lexicon(self)
        found = f"another one of {len(lexicon)} ids"
        require(lexicon.extends(old), "lexicon", f"extend the embedder's, of {len(old)} ids", found)
        return self if len(lexicon) == len(old) else self._with_lexicon(lexicon)

    def with_words(self, words: Iterable[str]) -> Self:
        """Return an embedder whose lexicon has each of `words`; a contextual one returns itself.

        Args:
            words: Any words, known ones among them.

        Returns:
            An embedder that shares every parameter with this one.
        """
        return self if self.lexicon is None else self.with_lexicon(self.lexicon.extended(words))

    def _with_lexicon(self, lexicon: Lexicon) -> Self:
        raise NotImplementedError("a type embedder must define _with_lexicon")


def require_lexicon(embedder: object) -> Lexicon:
    """Return the lexicon of a type embedder; raise a `TypeError` for any other object."""
    lexicon = require_embedder(embedder).lexicon
    if lexicon is None:
        rule = "be a type embedder: a word's vector must not depend on its sentence"
        raise TypeError(must("embedder", rule, class_name(embedder)))
    return lexicon


def require_embedder(embedder: object, name: str = "embedder") -> WordEmbedder:
    """Return `embedder` if it meets the contract; raise a `TypeError` for any other object."""
    attributes = ("lexicon", "embedding_dim", "encode", "with_words")
    if isinstance(embedder, nn.Module) and all(hasattr(embedder, name) for name in attributes):
        return embedder  # type: ignore[return-value]
    rule = f"be a word embedder (a module with {', '.join(attributes)}; for an nn.Embedding, "
    rule += "SourceEmbedding.from_embedding)"
    raise TypeError(must(name, rule, class_name(embedder)))
