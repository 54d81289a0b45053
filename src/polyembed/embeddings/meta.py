"""Meta-embeddings: one vector from several embedders of the same words."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from polyembed._checks import check_positive, check_sentences, check_words, require, require_type
from polyembed._views import shallow_copy
from polyembed.embeddings.combine import AttentionCombiner, Combiner, ConcatCombiner, LinearCombiner
from polyembed.embeddings.embedder import WordEmbedder, require_embedder
from polyembed.embeddings.spelled import SpelledEmbedding
from polyembed.embeddings.surface import FeatureSum
from polyembed.text.lexicon import Lexicon
from polyembed.text.spelling import FEATURES, SurfaceSpelling

NEIGHBOUR_FEATURES = ("lower", "shape", "suffix3")
"""The features by which a word scores its neighbours' tags."""


class CombinedEmbedder(WordEmbedder):
    """Several embedders of the same words, whose vectors a subclass combines.

    If all members are type embedders, the combination is a type embedder too, and its inputs are
    ids. With a contextual member, its inputs are a tuple of the members' inputs.
    """

    @property
    @abstractmethod
    def members(self) -> list[WordEmbedder]:
        """The embedders that are combined."""

    @abstractmethod
    def _with_members(self, members: list[WordEmbedder]) -> Self:
        """Return a copy with other members."""

    @property
    def lexicon(self) -> Lexicon | None:  # type: ignore[override]
        """The words if all members are type embedders, else None."""
        lexicons = [member.lexicon for member in self.members]
        return None if None in lexicons else lexicons[0]

    def encode(self, sentences: Sequence[Sequence[str]]) -> tuple[Any, Bool[Tensor, "batch word"]]:
        """Turn words into ids if all members are type embedders, else into the members' inputs.

        Args:
            sentences: Lists of words.

        Returns:
            The inputs, and the mask of words ``(batch, word)``.
        """
        if self.lexicon is not None:
            return super().encode(sentences)
        sentences = check_sentences(sentences)
        encoded = [member.encode(sentences) for member in self.members]
        return tuple(inputs for inputs, _ in encoded), encoded[0][1]

    def member_vectors(self, inputs: Any) -> list[Float[Tensor, "*batch _member_dim"]]:
        """Compute each member's vectors, before they are combined.

        Args:
            inputs: Ids ``(*batch)``, or a tuple of the members' inputs.

        Returns:
            One tensor per member, ``(*batch, member.embedding_dim)``.

        Raises:
            TypeError: If the inputs are another embedder's, or a part is missing.
        """
        members = self.members
        if self.lexicon is not None:
            return [member(inputs) for member in members]
        rule = f"be a tuple of {len(members)} members' inputs, as encode makes it"
        require_type(
            type(inputs) in (tuple, list) and len(inputs) == len(members),
            "inputs",
            rule,
            inputs,
        )
        return [member(part) for member, part in zip(members, inputs, strict=True)]

    def with_words(self, words: Iterable[str]) -> Self:
        """Return an embedder in which the lexicon of every type embedder has each of `words`.

        Args:
            words: Any words, known ones among them.

        Returns:
            An embedder that shares every parameter with this one.
        """
        if self.lexicon is not None:
            return super().with_words(words)
        words = check_words(words)
        return self._with_members([member.with_words(words) for member in self.members])

    def _with_lexicon(self, lexicon: Lexicon) -> Self:
        return self._with_members([member.with_lexicon(lexicon) for member in self.members])


class MetaEmbedding(CombinedEmbedder):
    """Several embedders of the same words, combined: ``u = combiner([E_1(w), ..., E_n(w)])``.

    Winata 2021, section 2.3. The named constructors choose the combiner: `concat` (equation 1),
    `linear`, `self_attention` (equations 2 to 4). Members of both kinds combine: fastText of two
    languages, characters and a layer of a pretrained model.

    Args:
        embedders: Type embedders of one lexicon, contextual embedders, or both.
        combiner: The combiner, which makes one vector from the members' vectors.

    Shape:
        ids ``(*batch)``, or a tuple of the members' inputs, to ``(*batch, combiner.out_dim)``.

    Raises:
        TypeError: If a member is not a word embedder, or the inputs are another embedder's.
        ValueError: If type embedders have different lexicons, or the combiner is for other sizes.

    Example:
        >>> from polyembed import SourceEmbedding
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> tables = nn.Embedding(4, 3), nn.Embedding(4, 5)
        >>> es, en = (SourceEmbedding.from_embedding(table, lexicon) for table in tables)
        >>> MetaEmbedding.self_attention([es, en], embedding_dim=7)(torch.tensor([[2, 3]])).shape
        torch.Size([1, 2, 7])
    """

    def __init__(self, embedders: Sequence[WordEmbedder], combiner: Combiner) -> None:
        dims = _embedding_dims(embedders)
        fits = list(combiner.in_dims) == dims
        require(fits, "combiner", f"take vectors of sizes {dims}", list(combiner.in_dims))
        super().__init__()
        self.embedders = nn.ModuleList(embedders)
        self.combiner = combiner

    @classmethod
    def concat(cls, embedders: Sequence[WordEmbedder]) -> Self:
        """Build a meta-embedding that concatenates the members' vectors."""
        return cls(embedders, ConcatCombiner(_embedding_dims(embedders)))

    @classmethod
    def linear(
        cls, embedders: Sequence[WordEmbedder], *, embedding_dim: int, bias: bool = False
    ) -> Self:
        """Build a meta-embedding that projects the members' vectors and adds them.

        Args:
            embedders: As in the class.
            embedding_dim: The size of the sum.
            bias: As in `LinearCombiner`.

        Returns:
            The meta-embedding.
        """
        return cls(embedders, LinearCombiner(_embedding_dims(embedders), embedding_dim, bias=bias))

    @classmethod
    def self_attention(
        cls,
        embedders: Sequence[WordEmbedder],
        *,
        embedding_dim: int,
        attention: Literal["dimension", "source"] = "dimension",
        bias: bool = False,
    ) -> Self:
        """Build a meta-embedding that averages the projected vectors by self-attention: MME.

        Args:
            embedders: As in the class.
            embedding_dim: The size of the average.
            attention: As in `AttentionCombiner`.
            bias: As in `AttentionCombiner`.

        Returns:
            The meta-embedding.
        """
        dims = _embedding_dims(embedders)
        combiner = AttentionCombiner(dims, embedding_dim, attention=attention, bias=bias)
        return cls(embedders, combiner)

    @property
    def members(self) -> list[WordEmbedder]:
        """The embedders that are combined."""
        return list(self.embedders)  # type: ignore[arg-type]

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector."""
        return self.combiner.out_dim

    def forward(self, inputs: Any) -> Float[Tensor, "*batch embedding_dim"]:
        """Embed words and combine the members' vectors.

        Args:
            inputs: Ids ``(*batch)``, or a tuple of the members' inputs.

        Returns:
            The combined vectors, ``(*batch, embedding_dim)``.
        """
        combined: Tensor = self.combiner(self.member_vectors(inputs))
        return combined

    def attention_weights(self, inputs: Any) -> Float[Tensor, "source *batch weight"]:
        """Compute the weight of each member for each word (equation 3).

        Args:
            inputs: As in `forward`.

        Returns:
            The weights of an `AttentionCombiner`; they sum to 1 over the members.
        """
        weights: Tensor = self.combiner.attention_weights(self.member_vectors(inputs))  # type: ignore[operator]
        return weights

    def contributions(self, inputs: Any) -> Float[Tensor, "source *batch"]:
        """Compute each member's share in each word's vector: `AttentionCombiner.contributions`.

        Args:
            inputs: As in `forward`.

        Returns:
            The shares; they sum to 1 over the members, and are equal where every member's vector is
            zero.
        """
        shares: Tensor = self.combiner.contributions(self.member_vectors(inputs))  # type: ignore[operator]
        return shares

    def _with_members(self, members: list[WordEmbedder]) -> Self:
        copy = shallow_copy(self, embedders=nn.ModuleList(members))
        copy.embedders.training = self.training
        return copy

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"embedders": self.members, "combiner": self.combiner}


class HierarchicalMetaEmbedding(CombinedEmbedder):
    """HME: ``[words(w); subwords(w); characters(w)]`` (Winata 2021, section 2.4; Winata 2019b).

    Words and sub-words are meta-embeddings over frozen tables of several languages, characters are
    trained. Each part may be any word embedder, or be left out. Each is a submodule of its name.

    Args:
        words: The embedder of whole words, such as ``MetaEmbedding.self_attention`` over
            `SourceEmbedding`.
        subwords: The embedder of sub-word pieces, such as ``MetaEmbedding.self_attention`` over
            ``SpelledEmbedding.from_pieces``.
        characters: The embedder of characters, ``SpelledEmbedding.from_characters``.
        surface: The embedder of affixes and shape, ``SpelledEmbedding.from_surface``.

    Shape:
        ids ``(*batch)`` to ``(*batch, sum of the parts' sizes)``; with a contextual part, a tuple
        of the parts' inputs.

    Raises:
        TypeError: If a part is not a word embedder.
        ValueError: If the parts have different lexicons, or no part is given.

    Example:
        >>> from polyembed import CharCNN, SourceEmbedding, SpelledEmbedding
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> words = SourceEmbedding.from_embedding(nn.Embedding(4, 3), lexicon)
        >>> cnn = CharCNN(lexicon.num_characters, 5)
        >>> characters = SpelledEmbedding.from_characters(lexicon, cnn)
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
        super().__init__()
        self.words, self.subwords = words, subwords
        self.characters, self.surface = characters, surface
        _embedding_dims(
            [part for part in (words, subwords, characters, surface) if part is not None]
        )

    @property
    def members(self) -> list[WordEmbedder]:
        """The parts that were given, in the order of the constructor."""
        return list(self._modules.values())  # type: ignore[arg-type]

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector."""
        return sum(member.embedding_dim for member in self.members)

    def forward(self, inputs: Any) -> Float[Tensor, "*batch embedding_dim"]:
        """Embed words and concatenate the parts' vectors.

        Args:
            inputs: Ids ``(*batch)``, or a tuple of the parts' inputs.

        Returns:
            The concatenated vectors, ``(*batch, embedding_dim)``.
        """
        return torch.cat(self.member_vectors(inputs), -1)

    def _with_members(self, members: list[WordEmbedder]) -> Self:
        return shallow_copy(self, **dict(zip(self._modules, members, strict=True)))


def _embedding_dims(embedders: Sequence[WordEmbedder]) -> list[int]:
    """Return the sizes of the members' vectors, after checking that the members fit together."""
    require(len(embedders) > 0, "embedders", "hold at least one embedder", "none")
    first: Lexicon | None = None
    for j, embedder in enumerate(embedders):
        lexicon = require_embedder(embedder, f"embedders[{j}]").lexicon
        first = first or lexicon
        rule = f"have the words of the type embedders before it ({first})"
        require(lexicon in (None, first), f"embedders[{j}]", rule, lexicon)
    return [int(embedder.embedding_dim) for embedder in embedders]


def surface_scores(
    lexicon: Lexicon,
    num_tags: int,
    *,
    window: int = 2,
    num_buckets: int = 2**16,
) -> MetaEmbedding:
    """Build the linear path's embedder: scores of the tags at a word, and at each word around it.

    A word has a score for each pair of a tag and a feature of `FEATURES`; fewer features score its
    neighbours' tags. All scores are zeros before training. `WideAndDeepEncoder` adds them up.

    Args:
        lexicon: The words.
        num_tags: The number of tags.
        window: The number of neighbours on each side that a word gives scores to.
        num_buckets: As in `SurfaceSpelling`.

    Returns:
        An embedder of size ``num_tags * (2 * window + 1)``: the word's own scores, then those for
        the words ``window`` places after it to ``window`` places before it.

    Raises:
        ValueError: If a size is not positive.

    Example:
        >>> surface_scores(Lexicon(["me", "gusta"]), num_tags=3).embedding_dim
        15
    """
    check_positive(num_tags=num_tags, window=window)
    parts = []
    for names, size in ((FEATURES, num_tags), (NEIGHBOUR_FEATURES, 2 * window * num_tags)):
        spelling = SurfaceSpelling(names, num_buckets=num_buckets)
        scores = FeatureSum(spelling.num_units, size)
        parts.append(SpelledEmbedding(spelling, scores, lexicon))
    return MetaEmbedding.concat(parts)
