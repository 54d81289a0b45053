"""A table of rows from pretrained vectors."""

import re
import warnings
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyembed._checks import check_ids, class_name, must, require
from polyembed._views import shallow_copy
from polyembed.embeddings._table import RowTable
from polyembed.embeddings.embedder import WordEmbedder, check_lexicon
from polyembed.text.lexicon import NUM_SPECIAL, UNKNOWN_ID, Lexicon
from polyembed.vectors.adapters import as_source
from polyembed.vectors.protocol import WordVectors

CHUNK = 2_048  # words that a source is asked for at once


class SourceEmbedding(WordEmbedder):
    """The rows of pretrained vectors for a lexicon's words: ``E[id] = source(word)`` (Winata 2021,
    section 2.1.1).

    The rows of padding and of the unknown word are zero. A word of an extended lexicon gets the
    source's vector while the source is attached, else the unknown row.

    Args:
        source: Pretrained vectors: `FastTextVectors`, `TextVectors`, `BPEmbVectors`, gensim's
            ``KeyedVectors``, or any object with ``dim`` and ``vectors(words)``.
        lexicon: The words.
        freeze: Whether the rows do not train, as in the paper.

    Shape:
        ids ``(*batch)`` to ``(*batch, source.dim)``.

    Raises:
        ValueError: Ids outside the lexicon, or a source whose vectors are not ``(word, dim)`` or
            not finite.
        TypeError: Something that is not a source.

    Example:
        >>> class Lengths:
        ...     dim = 1
        ...     def vectors(self, words):
        ...         return np.array([[len(word)] for word in words], dtype=np.float32)
        >>> words = SourceEmbedding(Lengths(), Lexicon(["me", "gusta"]))
        >>> ids, mask = words.encode([["gusta", "me"]])
        >>> words(ids).flatten()
        tensor([5., 2.])
    """

    optional_arguments = frozenset({"source"})
    detachable_parameters = ("table.weight", "table.extension")

    def __init__(self, source: WordVectors, lexicon: Lexicon, *, freeze: bool = True) -> None:
        super().__init__()
        source = as_source(source)
        self._lexicon = check_lexicon(lexicon)
        self.source: WordVectors | None = source
        self.missing_source: str | None = None
        self.table = RowTable(_rows(source, lexicon), freeze=freeze)

    @classmethod
    def from_embedding(cls, embedding: nn.Embedding, lexicon: Lexicon) -> Self:
        """Wrap an `nn.Embedding` whose rows are a lexicon's ids; its parameter stays the same
        object.

        Args:
            embedding: The table.
            lexicon: The words of its rows.

        Returns:
            An embedder without a source: a word of an extended lexicon gets the unknown row.

        Raises:
            ValueError: Another number of rows than ids, or an option of `nn.Embedding` beyond
                `padding_idx`.
        """
        if not isinstance(embedding, nn.Embedding):
            raise TypeError(must("embedding", "be an nn.Embedding", class_name(embedding)))
        count, lexicon = embedding.num_embeddings, check_lexicon(lexicon)
        require(
            count == len(lexicon),
            "embedding",
            f"have a row for each of the lexicon's {len(lexicon)} ids",
            count,
        )
        require(embedding.max_norm is None, "embedding", "have no max_norm", embedding.max_norm)
        plain = not (embedding.sparse or embedding.scale_grad_by_freq)
        require(plain, "embedding", "have neither sparse nor scaled gradients", embedding)
        return cls._of(lexicon, RowTable(embedding.weight, padding_idx=embedding.padding_idx))

    @classmethod
    def _of(cls, lexicon: Lexicon, table: RowTable) -> Self:
        embedder = cls.__new__(cls)
        nn.Module.__init__(embedder)
        embedder._lexicon, embedder.table = lexicon, table
        embedder.source = embedder.missing_source = None
        return embedder

    @property
    def lexicon(self) -> Lexicon:
        """The words."""
        return self._lexicon

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector."""
        return self.table.dim

    @property
    def weight(self) -> nn.Parameter:
        """The rows of the lexicon that the table was built with."""
        return self.table.weight

    def forward(self, ids: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch embedding_dim"]:
        """Return the rows of the ids."""
        check_ids("ids", ids)
        if self.table.weight.is_meta and not ids.is_meta:
            raise ValueError(
                must(
                    "the source", "be attached (its rows were left out of the saved folder)", "none"
                )
            )
        vectors: Tensor = self.table(ids)
        return vectors

    def _with_lexicon(self, lexicon: Lexicon) -> Self:
        start = len(self.lexicon)
        if self.source is not None:
            rows = _rows(self.source, lexicon, start=start)
        else:
            if self.missing_source is not None:
                warnings.warn(
                    f"unseen words are unknown here: attach {self.missing_source}", stacklevel=2
                )
            rows = self.table.weight[UNKNOWN_ID].expand(len(lexicon) - start, -1)
        return shallow_copy(self, table=self.table.extended(rows), _lexicon=lexicon)

    def attach(self, source: WordVectors) -> None:
        """Attach the source to a loaded table, and fill the rows where they were left out.

        Args:
            source: The vectors that the table was built from.

        Raises:
            ValueError: Vectors of another size.
        """
        source = as_source(source)
        require(
            source.dim == self.embedding_dim, "source.dim", f"be {self.embedding_dim}", source.dim
        )
        self.source, self.missing_source = source, None
        if self.table.weight.is_meta:
            rows = _rows(source, self.lexicon).to(self.table.weight.dtype)
            base = self.table.weight.shape[0]
            self.table = RowTable(
                rows[:base],
                freeze=self.table.is_frozen,
                padding_idx=self.table.padding_idx,
                extension=rows[base:] if self.table.num_extended else None,
            )

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the empty table, and its source where that is wanted and can be saved."""
        return {
            "lexicon": self.lexicon,
            "shapes": self.table.shapes(),
            "freeze": self.table.is_frozen,
            "padding_idx": self.table.padding_idx,
            "source": self.source,
            "source_name": self.missing_source if self.source is None else _name(self.source),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the table with its rows still to be loaded."""
        options = {key: config[key] for key in ("freeze", "padding_idx")}
        table = RowTable.empty(
            config["shapes"], len(config["lexicon"]), dtype=torch.float32, **options
        )
        embedder = cls._of(config["lexicon"], table)
        embedder.source = source = config["source"]
        if source is not None:
            require(source.dim == table.dim, "source.dim", f"be {table.dim}", source.dim)
        embedder.missing_source = config["source_name"] if embedder.source is None else None
        return embedder


def _name(source: WordVectors) -> str:
    """Return the source's `repr` without the folders of this machine, since saved folders are shared."""
    return re.sub(r"'[^']*[/\\]([^'/\\]+)'", r"'\1'", repr(source))


def _rows(source: WordVectors, lexicon: Lexicon, *, start: int = 0) -> Tensor:
    """Compute the rows of the ids from `start` on in chunks, so that peak memory is one table."""
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
            raise ValueError(
                must(f"the vector of {chunk[row]!r}", "be finite", "NaN or an infinity")
            )
        rows[special + first : special + first + len(chunk)] = vectors
    return torch.from_numpy(rows)
