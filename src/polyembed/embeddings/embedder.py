"""The contract of everything that gives words vectors."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Self

from jaxtyping import Bool, Float
from torch import Tensor, nn

from polyembed._checks import class_name, must, require
from polyembed._views import shallow_copy
from polyembed.saving import PretrainedModule
from polyembed.text.lexicon import Lexicon, check_sentence


class WordEmbedder(PretrainedModule):
    """A vector for each word of a sentence: ``inputs, mask = encode(sentences)``, then
    ``embedder(inputs)``.

    There are two kinds. The vectors of a *type embedder* depend on the word alone: it has a
    `lexicon`, and its inputs are ids of any shape ``(*batch)``. The vectors of a *contextual
    embedder* depend on the sentence too: its `lexicon` is None, and its inputs are `Pieces`. Both
    kinds combine in a `MetaEmbedding`.
    """

    @property
    def lexicon(self) -> Lexicon | None:
        """The words of a type embedder; None for a contextual one."""
        return None

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
            TypeError: A string instead of a list of words.
        """
        return require_lexicon(self).encode(sentences)

    def with_lexicon(self, lexicon: Lexicon) -> Self:
        """Return an embedder for more words that shares every parameter.

        Moving one of them to another device or dtype changes both, unless it was copied by
        `copy.deepcopy` first.

        A new word's vector is the one it would have if it had been in the lexicon from the start.

        Args:
            lexicon: An extension of this embedder's lexicon.

        Returns:
            The new embedder; this one if the lexicon has no new word.

        Raises:
            TypeError: A contextual embedder, which needs no lexicon.
            ValueError: A lexicon that is not an extension of this embedder's.
        """
        old, lexicon = require_lexicon(self), check_lexicon(lexicon)
        found = f"another one of {len(lexicon)} ids"
        require(lexicon.extends(old), "lexicon", f"extend the embedder's, of {len(old)} ids", found)
        return self if len(lexicon) == len(old) else self._with_lexicon(lexicon)

    def with_words(self, words: Iterable[str]) -> Self:
        """Return an embedder whose lexicon has each of `words`; a contextual embedder returns
        itself.

        Args:
            words: Any words, known ones among them.

        Returns:
            An embedder that shares every parameter with this one.
        """
        words = check_sentence(words)
        return self if self.lexicon is None else self.with_lexicon(self.lexicon.extended(words))

    def _with_lexicon(self, lexicon: Lexicon) -> Self:
        rule = "define _with_lexicon, which returns a type embedder for more words"
        raise NotImplementedError(must(class_name(self), rule, "none"))


class WrappedEmbedder(WordEmbedder):
    """A type embedder around another one of the same words and size.

    Args:
        embedder: The other type embedder.
    """

    def __init__(self, embedder: WordEmbedder) -> None:
        require_lexicon(embedder)
        super().__init__()
        self.embedder = embedder

    @property
    def lexicon(self) -> Lexicon:
        """The words."""
        return require_lexicon(self.embedder)

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector."""
        return self.embedder.embedding_dim

    def _with_lexicon(self, lexicon: Lexicon) -> Self:
        return shallow_copy(self, embedder=self.embedder.with_lexicon(lexicon))


def check_lexicon(lexicon: Lexicon) -> Lexicon:
    """Return the lexicon; raise a `TypeError` for another object."""
    if not isinstance(lexicon, Lexicon):
        raise TypeError(must("lexicon", "be a Lexicon", class_name(lexicon)))
    return lexicon


def require_lexicon(embedder: object, name: str = "embedder") -> Lexicon:
    """Return the lexicon of a type embedder; raise a `TypeError` for any other object."""
    lexicon = getattr(require_embedder(embedder, name), "lexicon", None)
    if lexicon is None:
        rule = "be a type embedder: a word's vector must not depend on its sentence"
        raise TypeError(must(name, rule, class_name(embedder)))
    return lexicon  # type: ignore[no-any-return]


def require_embedder(embedder: object, name: str = "embedder") -> nn.Module:
    """Return the embedder if it keeps the contract; raise a `TypeError` for any other object."""
    if isinstance(embedder, nn.Embedding):
        rule = "know its words: SourceEmbedding.from_embedding(embedding, lexicon)"
        raise TypeError(must(name, rule, "an nn.Embedding alone"))
    attributes = ("embedding_dim", "encode", "with_words")
    if not isinstance(embedder, nn.Module) or not all(
        hasattr(embedder, attribute) for attribute in attributes
    ):
        rule = f"be a word embedder (a module with {', '.join(attributes)})"
        raise TypeError(must(name, rule, class_name(embedder)))
    return embedder
