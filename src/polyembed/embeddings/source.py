"""A table of rows from pretrained vectors."""

import re
import warnings
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyembed._checks import check_ids, class_name, must, require
from polyembed._pretrained import Detachable, repr_call
from polyembed.embeddings._table import GrowingTable, empty_table
from polyembed.embeddings.word_embedder import WordEmbedder
from polyembed.text.lexicon import NUM_SPECIAL, UNKNOWN_ID, Lexicon
from polyembed.vectors.protocol import WordVectors

CHUNK = 2_048  # words that a source is asked for at once


class SourceEmbedding(WordEmbedder):
    """The rows of pretrained vectors for a lexicon's words: ``E[id] = source(word)`` (Winata 2021, section 2.1.1).

    The padding's row and the unknown word's are zero: no vector, no information. Words added later get the
    source's vector while the source is attached, else the unknown row.

    Args:
        source: Pretrained vectors: `FastTextVectors`, `TextVectors`, `BPEmbVectors`, or any object with ``dim``
            and ``vectors(words)``.
        lexicon: The words.
        freeze: Whether the rows stay as they are, as in the paper.

    Shape:
        ids ``(*batch)`` to ``(*batch, source.dim)``.

    Raises:
        ValueError: Ids outside the lexicon, or a source whose vectors are not ``(word, dim)``.

    Example:
        >>> class Lengths:
        ...     dim = 1
        ...     def vectors(self, words):
        ...         return np.array([[len(word)] for word in words], dtype=np.float32)
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> SourceEmbedding(Lengths(), lexicon)(torch.tensor([0, 2, 3])).flatten()
        tensor([0., 2., 5.])

    Deviations: none. The paper does not say what an unknown word's vector is where a source has no sub-words.
    """

    detachable_parameters = ("table.weight", "table.extension")

    def __init__(self, source: WordVectors, lexicon: Lexicon, *, freeze: bool = True) -> None:
        super().__init__()
        self.source: WordVectors | None = source
        self.missing_source: str | None = None
        if not hasattr(source, "vectors"):
            raise TypeError(must("source", "have dim and vectors(words)", class_name(source)))
        marks = [lexicon.mark(len(lexicon))]
        self.table = GrowingTable(_rows(source, lexicon, start=0), freeze=freeze, marks=marks)

    @classmethod
    def from_embedding(cls, embedding: nn.Embedding) -> Self:
        """Give a plain `nn.Embedding` the contract of word embedders; its parameter stays the same object.

        Args:
            embedding: A table whose rows are a lexicon's ids.

        Returns:
            An embedder without a source: words added later get the unknown row.

        Raises:
            ValueError: An option of `nn.Embedding` beyond `padding_idx`.
        """
        require(embedding.max_norm is None, "embedding", "have no max_norm", embedding.max_norm)
        plain = not (embedding.sparse or embedding.scale_grad_by_freq)
        require(plain, "embedding", "have neither sparse nor scaled gradients", embedding)
        embedder = cls.__new__(cls)
        nn.Module.__init__(embedder)
        embedder.source = embedder.missing_source = None
        embedder.table = GrowingTable(embedding.weight, padding_idx=embedding.padding_idx)
        return embedder

    @property
    def num_embeddings(self) -> int:
        """Count the ids that have a vector."""
        return self.table.num_rows

    @property
    def embedding_dim(self) -> int:
        """Give the size of a vector."""
        return self.table.dim

    @property
    def weight(self) -> nn.Parameter:
        """The rows that the table was built with."""
        return self.table.weight

    @property
    def lexicon_mark(self) -> int | None:
        """Tell which lexicon the ids are of."""
        return self.table.mark

    def forward(self, ids: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch embedding_dim"]:
        """Look the vectors up.

        Args:
            ids: A lexicon's ids.

        Returns:
            ``(*batch, embedding_dim)``.
        """
        check_ids("ids", ids)
        if self.table.weight.is_meta and not ids.is_meta:
            raise ValueError(must("the source", "be attached (its rows were left out of the saved folder)", "none"))
        vectors: Tensor = self.table(ids)
        return vectors

    def extend(self, lexicon: Lexicon) -> None:
        """Follow a lexicon: rows for the words that were added, none for those that it forgot.

        Args:
            lexicon: The lexicon that the table was built for, longer or shorter by now.
        """

        def make_rows(start: int) -> Tensor:
            if self.source is not None:
                return _rows(self.source, lexicon, start=start)
            if self.missing_source is not None:
                warnings.warn(f"unseen words are unknown here: attach {self.missing_source}", stacklevel=2)
            return self.table.weight[UNKNOWN_ID].detach().expand(len(lexicon) - start, -1)

        self.table.follow(lexicon, make_rows)

    def attach(self, source: WordVectors, lexicon: Lexicon) -> None:
        """Give a loaded table its source back, and its rows where they were left out.

        Args:
            source: The vectors that the table was built from.
            lexicon: The lexicon that belongs to the table.
        """
        require(source.dim == self.embedding_dim, "source.dim", f"be {self.embedding_dim}", source.dim)
        have, marks = self.num_embeddings, self.table.marks
        same = len(lexicon) >= have and (not marks or lexicon.mark(have) == marks[-1])
        require(same, "lexicon", f"begin with the table's {have} ids", f"{len(lexicon)} others")
        self.source, self.missing_source = source, None
        if self.table.weight.is_meta:
            base, frozen = self.table.weight.shape[0], not self.table.weight.requires_grad
            rows = _rows(source, lexicon, start=0).to(self.table.weight.dtype)
            self.table = GrowingTable(rows[:base], freeze=frozen, marks=[lexicon.mark(base)])
            self.extend(lexicon)

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the empty table, and its source where that is wanted and can be saved."""
        return {
            "table": self.table.get_config(),
            "source": Detachable(self.source),
            "source_name": self.missing_source if self.source is None else _name(self.source),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the table with its rows still to be loaded."""
        embedder = cls.__new__(cls)
        nn.Module.__init__(embedder)
        embedder.source = config["source"]
        embedder.missing_source = config["source_name"] if embedder.source is None else None
        embedder.table = empty_table(config["table"], dtype=torch.float32)
        return embedder

    def __repr__(self) -> str:
        freeze = not self.table.weight.requires_grad
        return repr_call(self, num_embeddings=self.num_embeddings, embedding_dim=self.embedding_dim, freeze=freeze)


def _name(source: WordVectors) -> str:
    """Print a source without the folders of this machine: what is saved may be shared."""
    return re.sub(r"'[^']*[/\\]([^'/\\]+)'", r"'\1'", repr(source))


def as_word_embedder(embedder: nn.Module) -> nn.Module:
    """Wrap a plain `nn.Embedding`; give anything else back."""
    return SourceEmbedding.from_embedding(embedder) if isinstance(embedder, nn.Embedding) else embedder


def _rows(source: WordVectors, lexicon: Lexicon, *, start: int) -> Tensor:
    """Compute the rows of the ids from `start` on; special ids have zeros.

    Some at a time: beside the table there is never a second one.
    """
    words, special = lexicon.words(max(start, NUM_SPECIAL)), max(0, NUM_SPECIAL - start)
    rows = np.zeros((special + len(words), source.dim), np.float32)
    for first in range(0, len(words), CHUNK):
        chunk = words[first : first + CHUNK]
        vectors = np.asarray(source.vectors(chunk))
        expected = (len(chunk), source.dim)
        if vectors.shape != expected:
            rule = f"return an array of shape {expected}"
            raise ValueError(must(f"{class_name(source)}.vectors", rule, vectors.shape))
        for row in np.flatnonzero(~np.isfinite(vectors).all(axis=1)):
            raise ValueError(must(f"the vector of {chunk[row]!r}", "be finite", "NaN or an infinity"))
        rows[special + first : special + first + len(chunk)] = vectors
    return torch.from_numpy(rows)
