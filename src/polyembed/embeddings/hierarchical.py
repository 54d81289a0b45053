"""Hierarchical meta-embeddings: words, sub-words, characters and surface features side by side."""

from typing import Any

from polyembed.embeddings.combine import ConcatCombiner
from polyembed.embeddings.embedder import WordEmbedder
from polyembed.embeddings.meta import CombinedEmbedder, embedding_dims


class HierarchicalMetaEmbedding(CombinedEmbedder):
    """HME: ``[words(w); subwords(w); characters(w)]`` (Winata 2021, section 2.4; Winata 2019b).

    Words and sub-words are meta-embeddings over frozen tables of several languages, characters are
    trained. Each part may be any word embedder, or be left out.

    Args:
        words: Vectors of whole words, such as ``MetaEmbedding.self_attention`` over
            `SourceEmbedding`.
        subwords: Vectors from sub-word pieces, such as the same over
            ``SpelledEmbedding.from_pieces``.
        characters: Vectors from characters, ``SpelledEmbedding.from_characters``.
        surface: Vectors from affixes and shape, ``SpelledEmbedding.from_surface``.

    Shape:
        ids ``(*batch)`` to ``(*batch, sum of the parts' sizes)``; with a contextual part, a tuple
        of the parts' inputs.

    Raises:
        TypeError: A part that is not a word embedder.
        ValueError: Parts of different lexicons, or no part.

    Example:
        >>> import torch
        >>> from polyembed import CharCNN, Lexicon, SourceEmbedding, SpelledEmbedding
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> words = SourceEmbedding.from_embedding(torch.nn.Embedding(4, 3), lexicon)
        >>> characters = SpelledEmbedding.from_characters(lexicon, CharCNN(lexicon.num_characters, 5))
        >>> hme = HierarchicalMetaEmbedding(words=words, characters=characters)
        >>> hme(torch.tensor([[2, 3]])).shape
        torch.Size([1, 2, 8])

    Deviations: the papers have no `surface`. Their code has a `PieceTransformer` for sub-words and
        for characters.
    """

    def __init__(
        self,
        *,
        words: WordEmbedder | None = None,
        subwords: WordEmbedder | None = None,
        characters: WordEmbedder | None = None,
        surface: WordEmbedder | None = None,
    ) -> None:
        parts = {"words": words, "subwords": subwords, "characters": characters, "surface": surface}
        embedders = [part for part in parts.values() if part is not None]
        super().__init__(embedders, ConcatCombiner(embedding_dims(embedders)))
        self.parts = tuple(name for name, part in parts.items() if part is not None)

    @property
    def words(self) -> WordEmbedder | None:
        """The word-level embedder."""
        return self.get_config().get("words")

    @property
    def subwords(self) -> WordEmbedder | None:
        """The sub-word embedder."""
        return self.get_config().get("subwords")

    @property
    def characters(self) -> WordEmbedder | None:
        """The character embedder."""
        return self.get_config().get("characters")

    @property
    def surface(self) -> WordEmbedder | None:
        """The embedder of affixes and shape."""
        return self.get_config().get("surface")

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments that are not None."""
        return dict(zip(self.parts, self._members(), strict=True))
