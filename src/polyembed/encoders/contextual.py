"""The contract of contextual embedders: a vector for each word in its sentence."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from polyembed._checks import (
    check_dim,
    check_ids,
    check_mask,
    check_sentences,
    check_tensor,
    require_type,
)
from polyembed.embeddings.embedder import WordEmbedder
from polyembed.text.pieces import Pieces
from polyembed.text.spelling import mask_of


class ContextualEmbedder(WordEmbedder):
    """Words in their sentence: `Pieces` to ``(batch, word, embedding_dim)``.

    A word without pieces gets zeros; the content of padding does not matter.
    """

    @abstractmethod
    def pieces(self, sentences: Sequence[Sequence[str]]) -> Pieces:
        """Cut sentences of words into pieces on the CPU.

        Args:
            sentences: Lists of words.

        Returns:
            The pieces.

        Raises:
            TypeError: If the embedder has no tokenizer.
        """

    @abstractmethod
    def forward(self, pieces: Pieces) -> Float[Tensor, "batch word embedding_dim"]:
        """Encode words in their sentences.

        Args:
            pieces: Sentences cut into pieces; on the CPU the order of their words is checked. If
                ``num_words`` is None, it is read from the index, which makes a GPU's host wait.

        Returns:
            ``(batch, num_words, embedding_dim)``; zeros for a word without pieces.
        """

    def encode(
        self, sentences: Sequence[Sequence[str]]
    ) -> tuple[Pieces, Bool[Tensor, "batch word"]]:
        """Turn words into the inputs of `forward`.

        Args:
            sentences: Lists of words.

        Returns:
            Pieces, with ``num_words`` filled in, and the mask of words ``(batch, word)``; both on
            the CPU.

        Raises:
            TypeError: If a string is given in place of a list of words, or words are not strings.
        """
        sentences = check_sentences(sentences)
        mask = mask_of(sentences)
        return self.pieces(sentences)._replace(num_words=mask.shape[1]), mask


def check_pieces(pieces: Pieces) -> None:
    """Require a batch of pieces; on the CPU also that words are in the order of their pieces."""
    require_type(isinstance(pieces, Pieces), "pieces", "be Pieces, as encode makes them", pieces)
    check_dim("piece_ids", pieces.piece_ids, 2, "batch, piece")
    check_ids("piece_ids", pieces.piece_ids)
    check_tensor("piece_mask", pieces.piece_mask)
    check_mask(pieces.piece_mask, pieces.piece_ids.shape, name="piece_mask")
    if pieces.word_index.device.type == "cpu" and not torch.compiler.is_compiling():
        pieces.check()
