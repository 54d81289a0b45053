"""Meta-embeddings: one vector from several embedders of the same words."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self

from jaxtyping import Bool, Float
from torch import Tensor, nn

from polyembed._checks import class_name, must, require
from polyembed._views import shallow_copy
from polyembed.embeddings.combine import AttentionCombiner, Combiner, ConcatCombiner, LinearCombiner
from polyembed.embeddings.embedder import WordEmbedder, require_embedder
from polyembed.text.lexicon import Lexicon, check_sentence
from polyembed.text.pieces import check_words


class CombinedEmbedder(WordEmbedder):
    """Several embedders of the same words and a combiner of their vectors.

    Where all members are type embedders, this is one too, and its inputs are ids. With a contextual
    member, its inputs are a tuple of the members' inputs.

    Args:
        embedders: Type embedders of one lexicon, contextual embedders, or both.
        combiner: Makes one vector of the members' vectors.
    """

    def __init__(self, embedders: Sequence[WordEmbedder], combiner: Combiner) -> None:
        dims = embedding_dims(embedders)
        if not hasattr(combiner, "in_dims"):
            raise TypeError(
                must("combiner", "be a combiner (with in_dims and out_dim)", class_name(combiner))
            )
        require(
            list(combiner.in_dims) == dims,
            "combiner",
            f"take vectors of sizes {dims}",
            list(combiner.in_dims),
        )
        super().__init__()
        self.embedders = nn.ModuleList(embedders)
        self.combiner = combiner

    @property
    def lexicon(self) -> Lexicon | None:
        """The words, where all members are type embedders; else None."""
        lexicons = [embedder.lexicon for embedder in self._members()]
        return None if any(lexicon is None for lexicon in lexicons) else lexicons[0]

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector."""
        return self.combiner.out_dim

    def encode(self, sentences: Sequence[Sequence[str]]) -> tuple[Any, Bool[Tensor, "batch word"]]:
        """Turn words into ids where all members read them, else into a tuple of the members'
        inputs.

        Args:
            sentences: Lists of words.

        Returns:
            The inputs, and the mask of words ``(batch, word)``.
        """
        if self.lexicon is not None:
            return super().encode(sentences)
        sentences = check_words(sentences)
        encoded = [embedder.encode(sentences) for embedder in self._members()]
        return tuple(inputs for inputs, _ in encoded), encoded[0][1]

    def forward(self, inputs: Any) -> Float[Tensor, "*batch embedding_dim"]:
        """Embed and combine.

        Args:
            inputs: Ids ``(*batch)``, or a tuple of the members' inputs.

        Returns:
            ``(*batch, embedding_dim)``.

        Raises:
            TypeError: Inputs of another embedder, or a tuple with a part missing.
        """
        combined: Tensor = self.combiner(self.member_vectors(inputs))
        return combined

    def member_vectors(self, inputs: Any) -> list[Float[Tensor, "*batch _member_dim"]]:
        """Compute each member's vectors, before they are combined."""
        members = self._members()
        if self.lexicon is not None:
            return [embedder(inputs) for embedder in members]
        if (
            isinstance(inputs, Tensor)
            or not isinstance(inputs, tuple | list)
            or len(inputs) != len(members)
        ):
            found = f"{len(inputs)} parts" if type(inputs) in (tuple, list) else class_name(inputs)
            raise TypeError(
                must(
                    "inputs",
                    f"be a tuple of {len(members)} members' inputs, as encode makes it",
                    found,
                )
            )
        return [embedder(part) for embedder, part in zip(members, inputs, strict=True)]

    def with_words(self, words: Iterable[str]) -> Self:
        """Return an embedder in which the lexicon of every type embedder has each of `words`.

        Args:
            words: Any words, known ones among them.

        Returns:
            An embedder that shares every parameter with this one.
        """
        if self.lexicon is not None:
            return super().with_words(words)
        words = list(check_sentence(words))
        return self._with([embedder.with_words(words) for embedder in self._members()])

    def _with_lexicon(self, lexicon: Lexicon) -> Self:
        return self._with([embedder.with_lexicon(lexicon) for embedder in self._members()])

    def _with(self, embedders: Sequence[WordEmbedder]) -> Self:
        copy = shallow_copy(self, embedders=nn.ModuleList(embedders))
        copy.embedders.training = self.training
        return copy

    def _members(self) -> list[WordEmbedder]:
        return list(self.embedders)  # type: ignore[arg-type]


class MetaEmbedding(CombinedEmbedder):
    """Several embedders of the same words, combined: ``u = combiner([E_1(w), ..., E_n(w)])``.

    Winata 2021, section 2.3. The named constructors choose the combiner: `concat` (equation 1),
    `linear`, `self_attention` (equations 2 to 4). Members of both kinds combine: fastText of two
    languages, characters and a layer of a pretrained model.

    Args:
        embedders: Type embedders of one lexicon, contextual embedders, or both.
        combiner: Makes one vector of the members' vectors.

    Shape:
        ids ``(*batch)``, or a tuple of the members' inputs, to ``(*batch, combiner.out_dim)``.

    Raises:
        TypeError: A member that is not a word embedder; inputs of another embedder.
        ValueError: Type embedders of different lexicons, or a combiner for other sizes.

    Example:
        >>> from polyembed import SourceEmbedding
        >>> lexicon = Lexicon(["me", "gusta"])
        >>> es, en = (SourceEmbedding.from_embedding(nn.Embedding(4, dim), lexicon) for dim in (3, 5))
        >>> MetaEmbedding.self_attention([es, en], embedding_dim=7)(torch.tensor([[2, 3]])).shape
        torch.Size([1, 2, 7])
    """

    @classmethod
    def concat(cls, embedders: Sequence[WordEmbedder]) -> Self:
        """Build a meta-embedding that concatenates the members' vectors."""
        return cls(embedders, ConcatCombiner(embedding_dims(embedders)))

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
        return cls(embedders, LinearCombiner(embedding_dims(embedders), embedding_dim, bias=bias))

    @classmethod
    def self_attention(
        cls,
        embedders: Sequence[WordEmbedder],
        *,
        embedding_dim: int,
        attention: Literal["dimension", "source"] = "dimension",
        bias: bool = False,
    ) -> Self:
        """Build a meta-embedding that averages the projected vectors by self-attention over the
        members: MME.

        Args:
            embedders: As in the class.
            embedding_dim: The size of the average.
            attention: As in `AttentionCombiner`.
            bias: As in `AttentionCombiner`.

        Returns:
            The meta-embedding.
        """
        dims = embedding_dims(embedders)
        return cls(
            embedders, AttentionCombiner(dims, embedding_dim, attention=attention, bias=bias)
        )

    def attention_weights(self, inputs: Any) -> Float[Tensor, "source *batch weight"]:
        """Compute the weight of each member for each word (equation 3).

        Args:
            inputs: As in `forward`.

        Returns:
            The combiner's weights; they sum to 1 over the members.

        Raises:
            TypeError: The combiner has no weights.
        """
        return self._attention().attention_weights(self.member_vectors(inputs))

    def contributions(self, inputs: Any) -> Float[Tensor, "source *batch"]:
        """Compute the share of each member in each word's vector; see
        `AttentionCombiner.contributions`.

        Args:
            inputs: As in `forward`.

        Returns:
            The shares; they sum to 1 over the members, and are even where every member's vector is
            zero.

        Raises:
            TypeError: The combiner has no weights.
        """
        return self._attention().contributions(self.member_vectors(inputs))

    def _attention(self) -> AttentionCombiner:
        if not isinstance(self.combiner, AttentionCombiner):
            raise TypeError(
                must(
                    "combiner", "be an AttentionCombiner to have weights", class_name(self.combiner)
                )
            )
        return self.combiner

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"embedders": self._members(), "combiner": self.combiner}


def embedding_dims(embedders: Sequence[WordEmbedder]) -> list[int]:
    """Return the sizes of the members' vectors, after checking that the members have the same words."""
    if not isinstance(embedders, Sequence):
        raise TypeError(must("embedders", "be a sequence of word embedders", class_name(embedders)))
    require(len(embedders) > 0, "embedders", "hold at least one embedder", "none")
    first: Lexicon | None = None
    for j, embedder in enumerate(embedders):
        for part in require_embedder(embedder, f"embedders[{j}]").modules():
            lexicon = getattr(part, "lexicon", None)
            first = lexicon if first is None else first
            if lexicon is not None and lexicon != first:
                rule = f"have the words of the type embedders before it ({first})"
                raise ValueError(must(f"embedders[{j}]", rule, lexicon))
    return [int(embedder.embedding_dim) for embedder in embedders]
