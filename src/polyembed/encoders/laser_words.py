"""LASER's embeddings and states as word vectors: the five word encoders of van der Heijden 2019."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from polyembed._checks import check_choice, check_dim, check_mask, check_positive, class_name, must, require
from polyembed._pretrained import repr_call
from polyembed.encoders.fusion import ScalarMix
from polyembed.encoders.laser import LaserEncoder
from polyembed.encoders.pooling import pool_words
from polyembed.encoders.word_encoder import WordEncoder, count_words
from polyembed.text.laser_tokenizers import LaserTokenizer
from polyembed.text.pieces import Pieces

FREEZE_ENCODER = ("none", "embeddings", "all")
FREEZE_EMBEDDINGS = ("none", "embeddings")


class _PieceWordEncoder(WordEncoder):
    """A word encoder over the pieces of a `LaserTokenizer`; subclasses say what a word's vector is."""

    tokenizer: LaserTokenizer | None

    def pieces(self, sentences: Sequence[Sequence[str]]) -> Pieces:
        """Cut sentences of words into pieces.

        Args:
            sentences: Lists of words.

        Returns:
            Pieces on the CPU.

        Raises:
            TypeError: No tokeniser.
        """
        if self.tokenizer is None:
            raise TypeError(must("tokenizer", "be given to cut words into pieces", None))
        return self.tokenizer.pieces(sentences)

    def check_pieces(self, pieces: Pieces) -> None:
        """Require a batch of pieces; on the CPU, words in the order of their pieces."""
        check_dim("piece_ids", pieces.piece_ids, 2, "batch, piece")
        check_mask(pieces.piece_mask, pieces.piece_ids.shape, name="piece_mask")
        if pieces.word_index.device.type == "cpu" and not torch.compiler.is_compiling():
            pieces.check()

    def __repr__(self) -> str:
        return repr_call(self, **self.get_config())


class _EmbeddingWords(_PieceWordEncoder):
    """A word encoder over the embeddings of pieces alone."""

    def __init__(
        self, embedding: nn.Embedding, tokenizer: LaserTokenizer | None, freeze: Literal["none", "embeddings"]
    ) -> None:
        if not isinstance(embedding, nn.Embedding):
            rule = "be an nn.Embedding of pieces (an encoder's embed_tokens)"
            raise TypeError(must("embedding", rule, class_name(embedding)))
        _check_tokenizer(tokenizer, embedding.num_embeddings)
        check_choice("freeze", freeze, FREEZE_EMBEDDINGS)
        super().__init__()
        self.embedding = embedding
        self.tokenizer = tokenizer
        self.freeze = freeze
        if freeze == "embeddings":
            embedding.requires_grad_(False)

    def embed(self, pieces: Pieces) -> Tensor:
        """Look pieces up; what padding holds is not looked at."""
        self.check_pieces(pieces)
        padding = self.embedding.padding_idx or 0
        try:
            vectors: Tensor = self.embedding(torch.where(pieces.piece_mask, pieces.piece_ids, padding))
        except IndexError as error:
            raise ValueError(must("piece_ids", f"lie in [0, {self.embedding.num_embeddings})", "others")) from error
        return vectors

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"embedding": self.embedding, "tokenizer": self.tokenizer, "freeze": self.freeze}


class BPEBow(_EmbeddingWords):
    """A word as the mean of its pieces' embeddings (van der Heijden 2019, BPE BOW).

    Args:
        embedding: Of pieces: a `LaserEncoder`'s ``embed_tokens``.
        tokenizer: What cuts words into them; needed for `encode`.
        freeze: ``"none"``, or ``"embeddings"``: nothing here trains.

    Shape:
        `Pieces` ``(batch, piece)`` to ``(batch, word, embedding_dim)``.

    Raises:
        ValueError: An unknown choice, a tokeniser for another number of pieces, ids outside the table.
        TypeError: No table of embeddings, no tokeniser.

    Example:
        >>> index = torch.tensor([[0, 0, 1, -1]])
        >>> BPEBow(nn.Embedding(7, 4))(Pieces(torch.tensor([[4, 5, 6, 2]]), index > -2, index)).shape
        torch.Size([1, 2, 4])

    Deviations: the paper does not say whether embeddings train on; they do here unless told otherwise.
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        tokenizer: LaserTokenizer | None = None,
        *,
        freeze: Literal["none", "embeddings"] = "none",
    ) -> None:
        super().__init__(embedding, tokenizer, freeze)

    @property
    def embedding_dim(self) -> int:
        """Give the size of a word's vector."""
        return self.embedding.embedding_dim

    def forward(self, pieces: Pieces, num_words: int | None = None) -> Float[Tensor, "batch word embedding_dim"]:
        """Average the embeddings of each word's pieces.

        Args:
            pieces: Sentences cut into pieces; on the CPU the order of their words is checked.
            num_words: How many words a row has at most; if None, as the pieces say (which makes a GPU's host wait).

        Returns:
            ``(batch, num_words, embedding_dim)``; zeros for a word without pieces.
        """
        vectors = self.embed(pieces)
        num_words = count_words(pieces) if num_words is None else num_words
        return pool_words(vectors, pieces.word_index, num_words, pooling="mean")


class BPEGRU(_EmbeddingWords):
    """A word as the maximum over time of a GRU over its pieces' embeddings (van der Heijden 2019, BPE GRU).

    Each word starts anew: its vector does not depend on its sentence. All words of a batch run side by side as one
    packed sequence, so a very long word costs no padding; packing makes a GPU's host wait. Neither
    ``torch.compile(fullgraph=True)`` nor ``torch.export`` takes it, and cuDNN's kernels have no second derivatives.

    Args:
        embedding: Of pieces: a `LaserEncoder`'s ``embed_tokens``.
        tokenizer: What cuts words into them; needed for `encode`.
        hidden_size: The size of a state in each direction.
        bidirectional: Whether a second GRU reads words backwards.
        freeze: ``"none"``, or ``"embeddings"``: only the GRU trains.

    Shape:
        `Pieces` ``(batch, piece)`` to ``(batch, word, embedding_dim)``.

    Raises:
        ValueError: A size or choice that does not exist, a tokeniser for another number of pieces, ids outside the
            table.
        TypeError: No table of embeddings, no tokeniser.

    Example:
        >>> index = torch.tensor([[0, 0, 1, -1]])
        >>> BPEGRU(nn.Embedding(7, 4), hidden_size=3)(Pieces(torch.tensor([[4, 5, 6, 2]]), index > -2, index)).shape
        torch.Size([1, 2, 3])

    Deviations: the paper gives neither the GRU's size nor its directions: 320 (as wide as an embedding) and one are
    ours.
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
        super().__init__(embedding, tokenizer, freeze)
        self.gru = nn.GRU(embedding.embedding_dim, hidden_size, bidirectional=bidirectional)

    @property
    def embedding_dim(self) -> int:
        """Give the size of a word's vector."""
        return (2 if self.gru.bidirectional else 1) * self.gru.hidden_size

    def forward(self, pieces: Pieces, num_words: int | None = None) -> Float[Tensor, "batch word embedding_dim"]:
        """Run the GRU over each word's pieces, and take the maximum.

        Args:
            pieces: Sentences cut into pieces; on the CPU the order of their words is checked.
            num_words: How many words a row has at most; if None, as the pieces say.

        Returns:
            ``(batch, num_words, embedding_dim)``; zeros for a word without pieces.
        """
        vectors = self.embed(pieces)
        num_words = count_words(pieces) if num_words is None else num_words
        inside = (pieces.word_index >= 0) & (pieces.word_index < num_words)
        places, sizes = _in_steps(pieces.word_index, inside, num_words)
        states = vectors.new_zeros(*vectors.shape[:2], self.embedding_dim)
        if len(places):
            ran = self._run(vectors.flatten(0, 1)[places], sizes)
            states = states.flatten(0, 1).index_copy(0, places, ran).view_as(states)
        return pool_words(states, pieces.word_index, num_words, pooling="max")

    def _run(self, x: Tensor, sizes: Tensor) -> Tensor:
        if x.device.type == "cpu" and (x.dtype.itemsize < 4 or torch.is_autocast_enabled("cpu")):
            with torch.autocast("cpu", enabled=False):
                wide = {name: parameter.float() for name, parameter in self.gru.named_parameters()}
                packed: PackedSequence = torch.func.functional_call(
                    self.gru, wide, (PackedSequence(x.float(), sizes),)
                )[0]
        else:
            packed = self.gru(PackedSequence(x, sizes))[0]
        states: Tensor = packed.data
        return states.to(x.dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        options = {"hidden_size": self.gru.hidden_size, "bidirectional": self.gru.bidirectional}
        return {**super().get_config(), **options}


class _StateWords(_PieceWordEncoder):
    """A word encoder over the states of a `LaserEncoder`."""

    def __init__(
        self, encoder: LaserEncoder, tokenizer: LaserTokenizer | None, freeze: Literal["none", "embeddings", "all"]
    ) -> None:
        if not isinstance(encoder, LaserEncoder):
            raise TypeError(must("encoder", "be a LaserEncoder", class_name(encoder)))
        _check_tokenizer(tokenizer, encoder.embed_tokens.num_embeddings)
        check_choice("freeze", freeze, FREEZE_ENCODER)
        super().__init__()
        self.encoder = encoder
        self.tokenizer = tokenizer
        self.freeze = freeze
        if freeze != "none":
            (encoder if freeze == "all" else encoder.embed_tokens).requires_grad_(False)

    @property
    def embedding_dim(self) -> int:
        """Give the size of a word's vector."""
        return self.encoder.hidden_size

    def both_directions(self, states: Tensor) -> Tensor:
        """Take the maximum of forward and backward states, ``(batch, piece, hidden_size)``."""
        return torch.maximum(*states.chunk(2, -1))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"encoder": self.encoder, "tokenizer": self.tokenizer, "freeze": self.freeze}


class LaserTop(_StateWords):
    """Words from LASER's last layer: ``m_L(t) = gamma * max(h_L(t) forwards, h_L(t) backwards)``, max over a word.

    Equation 2 of van der Heijden 2019, ``L`` the last layer; the vector of a word is the maximum of ``m_L`` over its
    pieces.

    Args:
        encoder: A `LaserEncoder`.
        tokenizer: What cuts words into its pieces; needed for `encode`. ``LaserTop(*load_laser())`` gives both.
        freeze: ``"none"``; ``"embeddings"``: the pieces' embeddings do not train; ``"all"``: the encoder does not
            train and keeps no graph, ``gamma`` does.

    Shape:
        `Pieces` ``(batch, piece)`` to ``(batch, word, hidden_size)``.

    Raises:
        ValueError: An unknown choice, a tokeniser for another number of pieces, ids outside the table.
        TypeError: No `LaserEncoder`, no tokeniser.

    Example:
        >>> index = torch.tensor([[0, 0, 1, -1]])
        >>> words = LaserTop(LaserEncoder(7, 4, 3, num_layers=2))
        >>> words(Pieces(torch.tensor([[4, 5, 6, 2]]), index > -2, index)).shape
        torch.Size([1, 2, 3])

    Deviations: the paper does not say whether the encoder trains on; it does here unless told otherwise.
    """

    def __init__(
        self,
        encoder: LaserEncoder,
        tokenizer: LaserTokenizer | None = None,
        *,
        freeze: Literal["none", "embeddings", "all"] = "none",
    ) -> None:
        super().__init__(encoder, tokenizer, freeze)
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, pieces: Pieces, num_words: int | None = None) -> Float[Tensor, "batch word embedding_dim"]:
        """Encode words in their sentences.

        Args:
            pieces: Sentences cut into pieces; on the CPU the order of their words is checked.
            num_words: How many words a row has at most; if None, as the pieces say (which makes a GPU's host wait).

        Returns:
            ``(batch, num_words, hidden_size)``; zeros for a word without pieces.
        """
        self.check_pieces(pieces)
        num_words = count_words(pieces) if num_words is None else num_words
        top = self.both_directions(self.encoder.last_hidden_state(pieces.piece_ids, pieces.piece_mask))
        return pool_words(self.gamma.to(top.dtype) * top, pieces.word_index, num_words, pooling="max")


class LaserElmo(_StateWords):
    """Words from all of LASER's layers: ``e(t) = sum_l softmax(s)_l m_l(t)``, max over a word.

    Equation 3 of van der Heijden 2019, with ``m_l`` of equation 2: ``gamma * max(h_l(t) forwards, h_l(t) backwards)``;
    the embeddings are no layer. Over a random two-layer encoder this is the paper's *LSTM without pretraining*::

        LaserElmo(LaserEncoder(len(dictionary), num_layers=2, dictionary=dictionary), tokenizer)

    Args:
        encoder: A `LaserEncoder`.
        tokenizer: What cuts words into its pieces; needed for `encode`. ``LaserElmo(*load_laser())`` gives both.
        freeze: As in `LaserTop`; under ``"all"`` the weights of the layers and ``gamma`` train.

    Shape:
        `Pieces` ``(batch, piece)`` to ``(batch, word, hidden_size)``.

    Raises:
        ValueError: An unknown choice, a tokeniser for another number of pieces, ids outside the table.
        TypeError: No `LaserEncoder`, no tokeniser.

    Example:
        >>> index = torch.tensor([[0, 0, 1, -1]])
        >>> words = LaserElmo(LaserEncoder(7, 4, 3, num_layers=2))
        >>> words(Pieces(torch.tensor([[4, 5, 6, 2]]), index > -2, index)).shape, words.mix.weights.tolist()
        (torch.Size([1, 2, 3]), [0.5, 0.5])

    Deviations: one ``gamma`` for all layers, as in ELMo; the paper's equation can be read either way.
    """

    def __init__(
        self,
        encoder: LaserEncoder,
        tokenizer: LaserTokenizer | None = None,
        *,
        freeze: Literal["none", "embeddings", "all"] = "none",
    ) -> None:
        super().__init__(encoder, tokenizer, freeze)
        self.mix = ScalarMix(encoder.num_layers)

    def forward(self, pieces: Pieces, num_words: int | None = None) -> Float[Tensor, "batch word embedding_dim"]:
        """Encode words in their sentences.

        Args:
            pieces: Sentences cut into pieces; on the CPU the order of their words is checked.
            num_words: How many words a row has at most; if None, as the pieces say (which makes a GPU's host wait).

        Returns:
            ``(batch, num_words, hidden_size)``; zeros for a word without pieces.
        """
        self.check_pieces(pieces)
        num_words = count_words(pieces) if num_words is None else num_words
        layers = self.encoder.hidden_states(pieces.piece_ids, pieces.piece_mask)[1:]
        mixed = self.mix([self.both_directions(states) for states in layers], pieces.piece_mask)
        return pool_words(mixed, pieces.word_index, num_words, pooling="max")


def _check_tokenizer(tokenizer: LaserTokenizer | None, count: int) -> None:
    if tokenizer is None:
        return
    if not isinstance(tokenizer, LaserTokenizer):
        raise TypeError(must("tokenizer", "be a LaserTokenizer", class_name(tokenizer)))
    size = len(tokenizer.dictionary)
    require(size == count, "tokenizer", f"have a dictionary of {count} pieces", size)


def _in_steps(word_index: Tensor, inside: Tensor, num_words: int) -> tuple[Tensor, Tensor]:
    """Order pieces as a `PackedSequence` of words has them.

    Gives the flat place of the first piece of every word, the longest word first, then of every second piece, and so
    on; and how many words have a first, a second, ... piece.
    """
    row, column = inside.nonzero(as_tuple=True)
    words, word = torch.unique(row * num_words + word_index[row, column], return_inverse=True)
    order = torch.argsort(word, stable=True)  # pieces of a word need not stand together
    length = torch.bincount(word, minlength=len(words))
    first = length.cumsum(0) - length
    step = torch.empty_like(word)
    step[order] = torch.arange(len(word), device=word.device) - first[word[order]]
    rank = torch.empty_like(length)
    longest_first = torch.argsort(length, descending=True, stable=True)
    rank[longest_first] = torch.arange(len(length), device=length.device)
    packed = torch.argsort(step * max(len(words), 1) + rank[word])
    return (row * word_index.shape[1] + column)[packed], torch.bincount(step).cpu()
