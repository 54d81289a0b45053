"""A table of rows from pretrained vectors."""

import re
import warnings
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyembed._checks import class_name, must, require
from polyembed._views import shallow_copy
from polyembed.embeddings.embedder import WordEmbedder, require_lexicon
from polyembed.embeddings.table import RowTable
from polyembed.text.lexicon import UNKNOWN_ID, Lexicon
from polyembed.vectors.protocol import WordVectors
from polyembed.vectors.words import as_source

CHUNK = 2_048  # words that are looked up at once


class SourceEmbedding(WordEmbedder):
    """The rows of pretrained vectors for a lexicon's words (Winata 2021, section 2.1.1).

    ``E[id] = source(word)``; the rows of padding and of the unknown word are zero. A word of an
    extended lexicon gets the source's vector while the source is attached, else the unknown row.

    Args:
        source: Pretrained vectors: `FastTextVectors`, `TextVectors`, `BPEmbVectors`, gensim's
            ``KeyedVectors``, or any object with ``dim`` and ``vectors(words)``.
        lexicon: The words.
        freeze: Whether the rows do not train, as in the paper.
        table: The rows by id; read from `source` if None.

    Shape:
        ids ``(*batch)`` to ``(*batch, source.dim)``.

    Raises:
        ValueError: If ids are outside the lexicon, or the source's vectors are not ``(word, dim)``
            or not finite.
        TypeError: If `source` is not a source.

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

    def __init__(
        self,
        source: WordVectors | None,
        lexicon: Lexicon,
        *,
        freeze: bool = True,
        table: RowTable | None = None,
    ) -> None:
        super().__init__()
        self.lexicon = lexicon
        self.source = None if source is None and table is not None else as_source(source)
        self.missing_source: str | None = None
        if table is None:
            table = RowTable(_rows(as_source(source), lexicon))
            table.weight.requires_grad_(not freeze)
        self.table = table

    @classmethod
    def from_embedding(cls, embedding: nn.Embedding, lexicon: Lexicon) -> Self:
        """Wrap an `nn.Embedding` with a row for each of a lexicon's ids, and share its parameter.

        Args:
            embedding: The table.
            lexicon: The words of its rows.

        Returns:
            An embedder without a source: a word of an extended lexicon gets the unknown row.

        Raises:
            ValueError: If there are more or fewer rows than ids.

        Deviations: of the options of `nn.Embedding`, only `padding_idx` is kept.
        """
        count, rows = len(lexicon), embedding.num_embeddings
        rule = f"have a row for each of the lexicon's {count} ids"
        require(rows == count, "embedding", rule, rows)
        table = RowTable(embedding.weight, padding_idx=embedding.padding_idx)
        return cls(None, lexicon, table=table)

    @property
    def detachable_parameters(self) -> tuple[str, ...]:  # type: ignore[override]
        """The rows that a source can fill again; without a source, none."""
        refillable = self.source is not None or self.missing_source is not None
        return ("table.weight", "table.extension") if refillable else ()

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector."""
        return self.table.dim

    @property
    def weight(self) -> Tensor:
        """The rows of the lexicon that the table was built with."""
        return self.table.weight

    def forward(self, ids: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch embedding_dim"]:
        """Return the rows of the ids."""
        attached = not any(rows.is_meta for rows in self.table.parameters()) or ids.is_meta
        rule = "be attached (its rows were left out of the saved folder)"
        require(attached, "the source", rule, "none")
        vectors: Tensor = self.table(ids)
        return vectors

    def _with_lexicon(self, lexicon: Lexicon) -> Self:
        start = self.num_embeddings
        if self.source is not None:
            rows = _rows(self.source, lexicon, start=start)
        else:
            if self.missing_source is not None:
                found = f"unseen words are unknown here: attach {self.missing_source}"
                warnings.warn(found, stacklevel=2)
            rows = self.weight[UNKNOWN_ID].expand(len(lexicon) - start, -1)
        return shallow_copy(self, table=self.table.extended(rows), lexicon=lexicon)

    def attach(self, source: WordVectors) -> None:
        """Attach the source to a loaded table, and fill the rows that were not saved.

        The rows have the dtype of the table that was saved.

        Args:
            source: The vectors that the table was built from.

        Raises:
            ValueError: If the vectors have another size.
        """
        source = as_source(source)
        dim = self.embedding_dim
        require(source.dim == dim, "source.dim", f"be {dim}", source.dim)
        self.source, self.missing_source = source, None
        parts = dict(self.table.named_parameters())  # the weight, then the extension
        if any(part.is_meta for part in parts.values()):
            sizes = [len(part) for part in parts.values()]
            rows = torch.split(_rows(source, require_lexicon(self)), sizes)
            pairs = zip(parts.items(), rows, strict=True)
            missing = {k: x.to(old.dtype) for (k, old), x in pairs if old.is_meta}
            self.table.load_state_dict(missing, strict=False, assign=True)

    def get_config(self) -> dict[str, Any]:
        """Return the parts and the source; the source is saved only where wanted and possible."""
        # The source's name is saved without this machine's folders: saved folders are shared.
        own = re.sub(r"'[^']*[/\\]([^'/\\]+)'", r"'\1'", repr(self.source))
        return {
            "lexicon": self.lexicon,
            "table": self.table,
            "source": self.source,
            "source_name": self.missing_source if self.source is None else own,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the embedder with its rows still to be loaded."""
        embedder = cls(config["source"], config["lexicon"], table=config["table"])
        embedder.missing_source = config["source_name"] if config["source"] is None else None
        return embedder


def _rows(source: WordVectors, lexicon: Lexicon, *, start: int = 0) -> Tensor:
    """Compute the rows of the ids from `start` on in chunks, so that peak memory is one table."""
    words = lexicon.words(start)
    rows = np.zeros((len(lexicon) - start, source.dim), np.float32)
    known = rows[len(rows) - len(words) :]  # without the special ids
    for first in range(0, len(words), CHUNK):
        chunk = words[first : first + CHUNK]
        vectors = np.asarray(source.vectors(chunk))
        expected = (len(chunk), source.dim)
        name, rule = f"{class_name(source)}.vectors", f"return an array of shape {expected}"
        require(vectors.shape == expected, name, rule, vectors.shape)
        for row in np.flatnonzero(~np.isfinite(vectors).all(axis=1))[:1]:
            name = f"the vector of {chunk[row]!r} in {source!r}"
            raise ValueError(must(name, "be finite", "NaN or an infinity"))
        known[first : first + CHUNK] = vectors
    return torch.from_numpy(rows)
