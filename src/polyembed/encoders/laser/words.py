"""LASER's states as word vectors, van der Heijden's LASER-top, LASER-elmo and LSTM, and LASER's
vectors of sentences.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from polyembed._batches import chunked, progress_bar
from polyembed._checks import (
    check_choice,
    check_positive,
    check_words,
    must,
    require,
    require_type,
)
from polyembed.embeddings.table import look_up
from polyembed.encoders.contextual import ContextualEmbedder, check_pieces
from polyembed.encoders.fusion import ScalarMix
from polyembed.encoders.laser.encoder import LaserEncoder
from polyembed.encoders.pooling import WordPooling, pool_words
from polyembed.functional.alignment import length_normalize
from polyembed.functional.neighbors import Nearest, nearest_cosine
from polyembed.saving import PretrainedModule
from polyembed.text.laser import LaserTokenizer
from polyembed.text.pieces import Pieces


class PieceWords(ContextualEmbedder):
    """Words as pooled vectors of a `LaserTokenizer`'s pieces, which subclasses compute."""

    pooling: ClassVar[WordPooling] = "max"

    def __init__(self, num_pieces: int, tokenizer: LaserTokenizer | None, freeze: str) -> None:
        super().__init__()
        if tokenizer is not None:
            check_tokenizer(tokenizer, num_pieces)
        self.tokenizer, self.freeze = tokenizer, freeze

    @abstractmethod
    def _encode_pieces(self, pieces: Pieces) -> Float[Tensor, "batch piece embedding_dim"]:
        """Compute the vector of each piece."""

    def forward(self, pieces: Pieces) -> Float[Tensor, "batch word embedding_dim"]:
        """Encode words in their sentences; see `ContextualEmbedder.forward`."""
        check_pieces(pieces)
        count = pieces.count_words()
        vectors = self._encode_pieces(pieces._replace(num_words=count))
        return pool_words(vectors, pieces.word_index, count, pooling=self.pooling)

    def pieces(self, sentences: Sequence[Sequence[str]]) -> Pieces:
        """Cut sentences of words into pieces."""
        if self.tokenizer is None:
            raise TypeError(must("tokenizer", "be given to cut words into pieces", None))
        return self.tokenizer.pieces(sentences)


class _StateWords(PieceWords):
    """Words from the states of a `LaserEncoder`."""

    def __init__(
        self,
        encoder: LaserEncoder,
        tokenizer: LaserTokenizer | None = None,
        *,
        freeze: Literal["none", "embeddings", "all"] = "none",
    ) -> None:
        check_choice("freeze", freeze, ("none", "embeddings", "all"))
        super().__init__(encoder.num_embeddings, tokenizer, freeze)
        self.encoder = encoder
        if freeze != "none":
            (encoder if freeze == "all" else encoder.embed_tokens).requires_grad_(False)
        self._add_parameters()

    @abstractmethod
    def _add_parameters(self) -> None:
        """Add the parameters that train beside the encoder."""

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector."""
        return self.encoder.hidden_size


class LaserTop(_StateWords):
    """Words from LASER's last layer: ``m_L(t) = gamma * max(h_L(t) forwards, h_L(t) backwards)``,
    max over a word.

    Equation 2 of van der Heijden 2019, ``L`` the last layer; the vector of a word is the maximum of
    ``m_L`` over its pieces.

    Args:
        encoder: A `LaserEncoder`.
        tokenizer: The tokeniser of the encoder's pieces; needed for `encode`.
            ``LaserTop(*load_laser())`` has both.
        freeze: The frozen part: ``"none"``; ``"embeddings"``: the pieces' embeddings; ``"all"``:
            the whole encoder, which keeps no graph, while ``gamma`` trains.

    Shape:
        `Pieces` ``(batch, piece)`` to ``(batch, word, hidden_size)``.

    Raises:
        ValueError: If a choice is unknown, the tokeniser has another number of pieces, or ids are
            outside of the table.
        TypeError: If the tokeniser is not a `LaserTokenizer`.

    Example:
        >>> index = torch.tensor([[0, 0, 1, -1]])
        >>> words = LaserTop(LaserEncoder(7, 4, 3, num_layers=2))
        >>> words(Pieces(torch.tensor([[4, 5, 6, 2]]), index > -2, index)).shape
        torch.Size([1, 2, 3])

    Deviations: the paper does not say whether the encoder trains on; here it does by default.
    """

    def _add_parameters(self) -> None:
        self.gamma = nn.Parameter(torch.ones(()))

    def _encode_pieces(self, pieces: Pieces) -> Float[Tensor, "batch piece embedding_dim"]:
        """Compute ``m_L`` of each piece."""
        top = _larger_direction(self.encoder.last_hidden_state(pieces.piece_ids, pieces.piece_mask))
        return self.gamma.to(top.dtype) * top


class LaserElmo(_StateWords):
    """Words from all of LASER's layers: ``e(t) = sum_l softmax(s)_l m_l(t)``, max over a word.

    Equation 3 of van der Heijden 2019, with ``m_l`` of equation 2:
    ``gamma * max(h_l(t) forwards, h_l(t) backwards)``; the embeddings are not a layer. Over a
    random two-layer encoder this is the paper's *LSTM without pretraining*::

        LaserElmo(LaserEncoder(len(dictionary), num_layers=2, dictionary=dictionary), tokenizer)

    Args:
        encoder: A `LaserEncoder`.
        tokenizer: The tokeniser of the encoder's pieces; needed for `encode`.
            ``LaserElmo(*load_laser())`` has both.
        freeze: As in `LaserTop`; under ``"all"`` the weights of the layers and ``gamma`` train.

    Shape:
        `Pieces` ``(batch, piece)`` to ``(batch, word, hidden_size)``.

    Raises:
        ValueError: If a choice is unknown, the tokeniser has another number of pieces, or ids are
            outside of the table.
        TypeError: If the tokeniser is not a `LaserTokenizer`.

    Example:
        >>> index = torch.tensor([[0, 0, 1, -1]])
        >>> words = LaserElmo(LaserEncoder(7, 4, 3, num_layers=2))
        >>> pieces = Pieces(torch.tensor([[4, 5, 6, 2]]), index > -2, index)
        >>> words(pieces).shape, words.mix.weights.tolist()
        (torch.Size([1, 2, 3]), [0.5, 0.5])

    Deviations: one ``gamma`` for all layers, as in ELMo; the paper's equation can be read either
        way.
    """

    def _add_parameters(self) -> None:
        self.mix = ScalarMix(self.encoder.num_layers)

    def _encode_pieces(self, pieces: Pieces) -> Float[Tensor, "batch piece embedding_dim"]:
        """Compute the weighted sum of ``m_l`` of each piece."""
        layers = self.encoder.hidden_states(pieces.piece_ids, pieces.piece_mask)[1:]
        mixed: Tensor = self.mix(
            [_larger_direction(states) for states in layers], pieces.piece_mask
        )
        return mixed


def _larger_direction(states: Tensor) -> Tensor:
    """Return the maximum of forward and backward states, ``(batch, piece, hidden_size)``."""
    return torch.maximum(*states.chunk(2, -1))


def check_tokenizer(tokenizer: LaserTokenizer, count: int) -> None:
    """Require a `LaserTokenizer` with `count` pieces."""
    require_type(
        isinstance(tokenizer, LaserTokenizer), "tokenizer", "be a LaserTokenizer", tokenizer
    )
    size = len(tokenizer.dictionary)
    require(size == count, "tokenizer", f"have a dictionary of {count} pieces", size)


class _EmbeddingWords(PieceWords):
    """Words from the embeddings of pieces alone."""

    def __init__(
        self,
        embedding: nn.Embedding,
        tokenizer: LaserTokenizer | None = None,
        *,
        freeze: Literal["none", "embeddings"] = "none",
    ) -> None:
        check_choice("freeze", freeze, ("none", "embeddings"))
        super().__init__(embedding.num_embeddings, tokenizer, freeze)
        self.embedding = embedding
        if freeze == "embeddings":
            embedding.requires_grad_(False)

    def embed(self, pieces: Pieces) -> Tensor:
        """Return the embeddings of pieces; the ids of padding are not read."""
        table = self.embedding
        ids = torch.where(pieces.piece_mask, pieces.piece_ids, table.padding_idx or 0)
        return look_up(ids, table.weight, table.padding_idx, name="piece_ids")

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, with the table's sizes in place of the table."""
        names = ("num_embeddings", "embedding_dim", "padding_idx")
        table = {name: getattr(self.embedding, name) for name in names}
        return {**super().get_config(), "embedding": table}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the embedder, its table still to be loaded."""
        return cls(nn.Embedding(**config.pop("embedding")), **config)


class BPEBow(_EmbeddingWords):
    """A word as the mean of its pieces' embeddings (van der Heijden 2019, BPE BOW).

    Args:
        embedding: The table of pieces: a `LaserEncoder`'s ``embed_tokens``.
        tokenizer: The tokeniser of the table's pieces; needed for `encode`.
        freeze: The frozen part: ``"none"`` or ``"embeddings"``.

    Shape:
        `Pieces` ``(batch, piece)`` to ``(batch, word, embedding_dim)``.

    Raises:
        ValueError: If a choice is unknown, the tokeniser has another number of pieces, or ids are
            outside of the table.
        TypeError: If the tokeniser is not a `LaserTokenizer`.

    Example:
        >>> index = torch.tensor([[0, 0, 1, -1]])
        >>> pieces = Pieces(torch.tensor([[4, 5, 6, 2]]), index > -2, index)
        >>> BPEBow(nn.Embedding(7, 4))(pieces).shape
        torch.Size([1, 2, 4])

    Deviations: the paper does not say whether embeddings train on; here they do by default.
    """

    pooling = "mean"

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector."""
        return self.embedding.embedding_dim

    def _encode_pieces(self, pieces: Pieces) -> Float[Tensor, "batch piece embedding_dim"]:
        """Return the embeddings of pieces."""
        return self.embed(pieces)


class BPEGRU(_EmbeddingWords):
    """A word as the maximum over time of a GRU over its pieces' embeddings (van der Heijden 2019,
    BPE GRU).

    The GRU starts anew for each word, so a word's vector does not depend on its sentence. All words
    of a batch are one packed sequence, so a very long word costs no padding; packing makes a GPU's
    host wait. On a GPU cuDNN multiplies in TF32, as for `LSTMSequenceEncoder`, and has no second
    derivatives. Neither ``torch.compile(fullgraph=True)`` nor ``torch.export`` takes the GRU.

    Args:
        embedding: The table of pieces: a `LaserEncoder`'s ``embed_tokens``.
        tokenizer: The tokeniser of the table's pieces; needed for `encode`.
        hidden_size: The size of a state in each direction.
        bidirectional: Whether a second GRU reads words backwards.
        freeze: The frozen part: ``"none"``, or ``"embeddings"``, so that only the GRU trains.

    Shape:
        `Pieces` ``(batch, piece)`` to ``(batch, word, embedding_dim)``.

    Raises:
        ValueError: If the size is not positive, a choice is unknown, the tokeniser has another
            number of pieces, or ids are outside of the table.
        TypeError: If the tokeniser is not a `LaserTokenizer`.

    Example:
        >>> index = torch.tensor([[0, 0, 1, -1]])
        >>> pieces = Pieces(torch.tensor([[4, 5, 6, 2]]), index > -2, index)
        >>> BPEGRU(nn.Embedding(7, 4), hidden_size=3)(pieces).shape
        torch.Size([1, 2, 3])

    Deviations: the paper gives neither the GRU's size nor its directions: 320 (as wide as an
    embedding) and one are ours.
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        tokenizer: LaserTokenizer | None = None,
        *,
        hidden_size: int = 320,
        bidirectional: bool = False,
        freeze: Literal["none", "embeddings"] = "none",
    ) -> None:
        check_positive(hidden_size=hidden_size)
        super().__init__(embedding, tokenizer, freeze=freeze)
        self.hidden_size, self.bidirectional = hidden_size, bidirectional
        self.gru = nn.GRU(embedding.embedding_dim, hidden_size, bidirectional=bidirectional)

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector."""
        return (2 if self.bidirectional else 1) * self.hidden_size

    def _encode_pieces(self, pieces: Pieces) -> Float[Tensor, "batch piece embedding_dim"]:
        """Run the GRU over each word's pieces; pieces of no word get zeros."""
        vectors = self.embed(pieces)
        places, sizes = _in_steps(pieces.word_index, pieces.count_words())
        states = vectors.new_zeros(*vectors.shape[:2], self.embedding_dim)
        if len(places):
            ran = self.gru(PackedSequence(vectors.flatten(0, 1)[places], sizes))[0].data.to(states)
            states = states.flatten(0, 1).index_copy(0, places, ran).view_as(states)
        return states


def _in_steps(word_index: Tensor, num_words: int) -> tuple[Tensor, Tensor]:
    """Order pieces as a `PackedSequence` of words does.

    Returns the flat places of the first pieces of all words, the longest word first, then of the
    second pieces, and so on; and the numbers of words that have a first, a second, ... piece.
    """
    row, column = ((word_index >= 0) & (word_index < num_words)).nonzero(as_tuple=True)
    # the pieces of a word are side by side
    word, length = torch.unique_consecutive(
        row * num_words + word_index[row, column], return_inverse=True, return_counts=True
    )[1:]
    step = torch.arange(len(word), device=word.device) - (length.cumsum(0) - length)[word]
    rank = torch.argsort(torch.argsort(length, descending=True, stable=True))  # the longest is 0
    packed = torch.argsort(step * len(length) + rank[word])
    return (row * word_index.shape[1] + column)[packed], torch.bincount(step).cpu()


class LaserSentences(PretrainedModule):
    """Language-independent vectors of sentences: ``max_i [h_L(i) forwards; h_L(i) backwards]``.

    The numbers are equal to LASER's own tools' (Artetxe and Schwenk 2019): the encoder reads the
    pieces of a sentence and ``</s>``, and the vector is the maximum of the last layer over all of
    them.

    Args:
        encoder: A `LaserEncoder`.
        tokenizer: The tokeniser of the encoder's pieces. ``LaserSentences(*load_laser())`` has
            both.

    Shape:
        `Pieces` ``(batch, piece)`` to ``(batch, 2 * hidden_size)``.

    Raises:
        ValueError: If the tokeniser is for another number of pieces.
        TypeError: If the tokeniser is not a `LaserTokenizer`.

    Example:
        >>> from polyembed.text import FastBPETokenizer, PieceDictionary
        >>> dictionary = PieceDictionary.from_pieces(["hola", "song"])
        >>> merges = [("h", "o"), ("l", "a</w>"), ("ho", "la</w>"), ("s", "o"), ("n", "g</w>"),
        ...     ("so", "ng</w>")]
        >>> encoder = LaserEncoder(len(dictionary), 4, 3, num_layers=2)
        >>> sentences = LaserSentences(encoder, FastBPETokenizer(merges, dictionary))
        >>> sentences.encode(["hola", "hola song", ""]).shape
        torch.Size([3, 6])
    """

    def __init__(self, encoder: LaserEncoder, tokenizer: LaserTokenizer) -> None:
        check_tokenizer(tokenizer, encoder.num_embeddings)
        super().__init__()
        self.encoder = encoder
        self.tokenizer = tokenizer

    @property
    def embedding_dim(self) -> int:
        """The size of a sentence's vector."""
        return 2 * self.encoder.hidden_size

    def forward(self, pieces: Pieces) -> Float[Tensor, "batch dim"]:
        """Encode sentences cut by `LaserTokenizer.text_pieces`."""
        vectors: Tensor = self.encoder(pieces.piece_ids, pieces.piece_mask)
        return vectors

    @torch.no_grad()
    def encode(
        self,
        texts: Sequence[str],
        *,
        batch_size: int = 32,
        normalize: bool = False,
        progress: bool | None = None,
    ) -> Float[Tensor, "sentence dim"]:
        """Encode whole sentences without a graph, in batches of similar length.

        Args:
            texts: Sentences; an empty one has ``</s>`` alone.
            batch_size: The number of sentences in a batch.
            normalize: Whether to scale each vector to length 1.
            progress: Whether to show a progress bar; if None, only on a terminal.

        Returns:
            A row for each sentence, in the order given, on the CPU.

        Raises:
            TypeError: If `texts` is a single string, or an item is not a string.
        """
        check_positive(batch_size=batch_size)
        cut = [self.tokenizer.cut_text(text) for text in check_words(texts, name="texts")]
        # the batch that needs most memory first
        order = sorted(range(len(cut)), key=lambda i: -len(cut[i].ids))
        weight = self.encoder.embed_tokens.weight
        vectors = torch.empty(len(cut), self.embedding_dim, dtype=weight.dtype)
        batches = list(chunked(order, batch_size))
        for batch in progress_bar(batches, progress=progress, desc="sentences"):
            pieces = self.tokenizer.join(cut[i] for i in batch).to(weight.device)
            vectors[batch] = self(pieces).to(vectors)
        return length_normalize(vectors) if normalize else vectors

    def nearest(
        self, queries: Sequence[str] | Tensor, keys: Sequence[str] | Tensor, k: int = 1
    ) -> Nearest:
        """Return the sentences that are nearest by cosine.

        Args:
            queries: Sentences, or vectors of `encode`.
            keys: The sentences to search, or their vectors.
            k: The number of sentences to return per query.

        Returns:
            Scores and rows of `keys`, the best first, ``(query, k)``.
        """
        sides = [x if isinstance(x, Tensor) else self.encode(x) for x in (queries, keys)]
        return nearest_cosine(sides[0], sides[1], k)
