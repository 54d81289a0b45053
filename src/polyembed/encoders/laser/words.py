"""LASER's states as word vectors: LASER-top, LASER-elmo and the LSTM of van der Heijden 2019."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from polyembed._checks import check_choice, class_name, must, require
from polyembed.encoders.contextual import ContextualEmbedder, check_pieces
from polyembed.encoders.fusion import ScalarMix
from polyembed.encoders.laser.encoder import LaserEncoder
from polyembed.encoders.pooling import WordPooling, pool_words
from polyembed.text.laser import LaserTokenizer
from polyembed.text.pieces import Pieces


class PieceWords(ContextualEmbedder):
    """Words as pooled vectors of the pieces of a `LaserTokenizer`; subclasses compute the vectors."""

    pooling: ClassVar[WordPooling] = "max"
    tokenizer: LaserTokenizer | None

    @abstractmethod
    def _encode_pieces(self, pieces: Pieces) -> Float[Tensor, "batch piece embedding_dim"]:
        """Compute the vector of each piece."""

    def forward(self, pieces: Pieces) -> Float[Tensor, "batch word embedding_dim"]:
        """Encode words in their sentences; see `ContextualEmbedder.forward`."""
        check_pieces(pieces)
        pieces = pieces._replace(num_words=pieces.count_words())
        return pool_words(
            self._encode_pieces(pieces),
            pieces.word_index,
            pieces.count_words(),
            pooling=self.pooling,
        )

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
        if not isinstance(encoder, LaserEncoder):
            raise TypeError(must("encoder", "be a LaserEncoder", class_name(encoder)))
        if tokenizer is not None:
            check_tokenizer(tokenizer, encoder.num_embeddings)
        check_choice("freeze", freeze, ("none", "embeddings", "all"))
        super().__init__()
        self.encoder = encoder
        self.tokenizer = tokenizer
        self.freeze = freeze
        if freeze != "none":
            (encoder if freeze == "all" else encoder.embed_tokens).requires_grad_(False)

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
        tokenizer: Cuts words into its pieces; needed for `encode`. ``LaserTop(*load_laser())`` has
            both.
        freeze: ``"none"``; ``"embeddings"``: the pieces' embeddings do not train; ``"all"``: the
            encoder does not train and keeps no graph, ``gamma`` trains.

    Shape:
        `Pieces` ``(batch, piece)`` to ``(batch, word, hidden_size)``.

    Raises:
        ValueError: An unknown choice, a tokeniser for another number of pieces, ids outside the
            table.
        TypeError: An encoder that is not a `LaserEncoder`, another tokeniser.

    Example:
        >>> index = torch.tensor([[0, 0, 1, -1]])
        >>> words = LaserTop(LaserEncoder(7, 4, 3, num_layers=2))
        >>> words(Pieces(torch.tensor([[4, 5, 6, 2]]), index > -2, index)).shape
        torch.Size([1, 2, 3])

    Deviations: the paper does not say whether the encoder trains on; here it does by default.
    """

    def __init__(
        self,
        encoder: LaserEncoder,
        tokenizer: LaserTokenizer | None = None,
        *,
        freeze: Literal["none", "embeddings", "all"] = "none",
    ) -> None:
        super().__init__(encoder, tokenizer, freeze=freeze)
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
        tokenizer: Cuts words into its pieces; needed for `encode`. ``LaserElmo(*load_laser())`` has
            both.
        freeze: As in `LaserTop`; under ``"all"`` the weights of the layers and ``gamma`` train.

    Shape:
        `Pieces` ``(batch, piece)`` to ``(batch, word, hidden_size)``.

    Raises:
        ValueError: An unknown choice, a tokeniser for another number of pieces, ids outside the
            table.
        TypeError: An encoder that is not a `LaserEncoder`, another tokeniser.

    Example:
        >>> index = torch.tensor([[0, 0, 1, -1]])
        >>> words = LaserElmo(LaserEncoder(7, 4, 3, num_layers=2))
        >>> words(Pieces(torch.tensor([[4, 5, 6, 2]]), index > -2, index)).shape, words.mix.weights.tolist()
        (torch.Size([1, 2, 3]), [0.5, 0.5])

    Deviations: one ``gamma`` for all layers, as in ELMo; the paper's equation can be read either
        way.
    """

    def __init__(
        self,
        encoder: LaserEncoder,
        tokenizer: LaserTokenizer | None = None,
        *,
        freeze: Literal["none", "embeddings", "all"] = "none",
    ) -> None:
        super().__init__(encoder, tokenizer, freeze=freeze)
        self.mix = ScalarMix(encoder.num_layers)

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
    """Require a tokeniser with so many pieces."""
    if not isinstance(tokenizer, LaserTokenizer):
        raise TypeError(must("tokenizer", "be a LaserTokenizer", class_name(tokenizer)))
    size = len(tokenizer.dictionary)
    require(size == count, "tokenizer", f"have a dictionary of {count} pieces", size)
