"""A word's vector from its spelling."""

from collections.abc import Sequence
from typing import Any, Literal, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyembed._checks import check_choice, require
from polyembed._views import shallow_copy
from polyembed.embeddings.char_cnn import CharCNN
from polyembed.embeddings.embedder import WordEmbedder
from polyembed.embeddings.piece_pooling import PieceMean, PieceTransformer
from polyembed.embeddings.surface import FeatureEncoder
from polyembed.embeddings.table import RowTable
from polyembed.text.lexicon import Lexicon
from polyembed.text.spelling import FEATURES, PieceSpelling, Spelling, SurfaceSpelling


class SpelledEmbedding(WordEmbedder):
    """A word's vector from its spelling: ``E(word) = encoder(spelling(word))``.

    The spelling of each type is looked up, and its vector is computed at every call, so that the
    encoder trains. `from_characters` and `from_pieces` build the two members of hierarchical
    meta-embeddings (Winata 2021, section 2.4), `from_surface` the features of a hand-featured
    tagger. Words of over 64 characters or pieces are cut in the middle (`CharSpelling`).

    Args:
        spelling: The spelling, which turns words into unit ids: `PieceSpelling`, or a lexicon's
            ``spelling`` by characters.
        encoder: The module that maps unit ids ``(n, unit)``, 0 = padding, to vectors
            ``(n, embedding_dim)``, and has ``num_embeddings`` and ``embedding_dim``: `CharCNN`,
            `PieceMean`, `PieceTransformer`, `FeatureEncoder`.
        lexicon: The words.
        table: The words' spellings by id; computed if None.

    Shape:
        ids ``(*batch)`` to ``(*batch, encoder.embedding_dim)``.

    Raises:
        ValueError: If ids are outside the lexicon, or the encoder is for another number of units.

    Example:
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> chars = SpelledEmbedding.from_characters(lexicon, CharCNN(lexicon.num_characters, 8))
        >>> chars(torch.tensor([[2, 3, 0]])).shape
        torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        spelling: Spelling,
        encoder: nn.Module,
        lexicon: Lexicon,
        *,
        table: RowTable | None = None,
    ) -> None:
        super().__init__()
        units, expected = getattr(encoder, "num_embeddings", None), spelling.num_units
        require(units == expected, "encoder", f"be for the spelling's {expected} units", units)
        self.lexicon, self.spelling, self.encoder = lexicon, spelling, encoder
        self.table = RowTable(lexicon.spell(spelling)) if table is None else table

    @classmethod
    def from_characters(cls, lexicon: Lexicon, encoder: CharCNN | PieceTransformer) -> Self:
        """Build an embedder of words by their characters, whose vectors train.

        Args:
            lexicon: The words, and the inventory of characters.
            encoder: The encoder of ``lexicon.num_characters`` character ids. A `PieceTransformer`
                (the authors' choice) needs a table that trains.

        Returns:
            The embedder.
        """
        return cls(lexicon.spelling, encoder, lexicon)

    @classmethod
    def from_pieces(
        cls,
        vectors: Any,
        lexicon: Lexicon,
        *,
        pooling: Literal["mean", "transformer"] = "mean",
        freeze: bool = True,
        **options: Any,
    ) -> Self:
        """Build an embedder of words by their sub-word pieces.

        Args:
            vectors: A `BPEmbVectors`.
            lexicon: The words.
            pooling: How pieces become a word: by their mean, or by their sum after a small
                Transformer, the authors' choice.
            freeze: Whether the piece vectors do not train, as in the paper.
            **options: The options of `PieceTransformer`; the mean has none.

        Returns:
            The embedder.

        Raises:
            TypeError: If one of `options` is not an option of the pooling.
        """
        check_choice("pooling", pooling, ("mean", "transformer"))
        rows = torch.from_numpy(vectors.table)
        table = torch.cat([rows.new_zeros(1, rows.shape[1]), rows])
        kind = PieceMean if pooling == "mean" else PieceTransformer
        return cls(PieceSpelling(vectors), kind(table, freeze=freeze, **options), lexicon)

    @classmethod
    def from_surface(
        cls,
        lexicon: Lexicon,
        *,
        embedding_dim: int = 100,
        features: Sequence[str] = FEATURES,
        num_buckets: int = 2**16,
        feature_dim: int = 32,
        dropout: float = 0.5,
    ) -> Self:
        """Build an embedder of words by features of their surface, whose vectors train.

        The features are affixes, shape and lower-case form, as in a hand-featured CRF.

        Args:
            lexicon: The words.
            embedding_dim: The size of a word's vector.
            features: As in `SurfaceSpelling`.
            num_buckets: As in `SurfaceSpelling`.
            feature_dim: As in `FeatureEncoder`.
            dropout: As in `FeatureEncoder`.

        Returns:
            The embedder.
        """
        spelling = SurfaceSpelling(features, num_buckets=num_buckets)
        sizes = spelling.num_units, len(spelling.features), embedding_dim
        encoder = FeatureEncoder(*sizes, feature_dim=feature_dim, dropout=dropout)
        return cls(spelling, encoder, lexicon)

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector."""
        return int(self.encoder.embedding_dim)  # type: ignore[arg-type]

    def forward(self, ids: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch embedding_dim"]:
        """Spell the words and encode their spellings."""
        units = self.table(ids).long()  # (*batch, unit)
        units = units.reshape(ids.numel(), units.shape[-1])  # (word, unit)
        if units.device.type == "cpu" and not torch.compiler.is_compiling() and units.numel():
            # Less padding gives the same, faster; a GPU's host would wait for the length.
            units = units[:, : max(1, int(units.ne(0).sum(1).max()))]
        vectors: Tensor = self.encoder(units)  # (word, embedding_dim)
        return vectors.reshape(*ids.shape, self.embedding_dim)

    def _with_lexicon(self, lexicon: Lexicon) -> Self:
        rows = lexicon.spell(self.spelling, start=self.num_embeddings)
        return shallow_copy(self, table=self.table.extended(rows), lexicon=lexicon)
