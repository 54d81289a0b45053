"""The contract of word encoders: a vector for each word in its sentence."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from polyembed.embeddings.embedder import WordEmbedder
from polyembed.text.pieces import Pieces, check_words


class WordEncoder(WordEmbedder):
    """Words in their sentence: one `Pieces` to ``(batch, word, embedding_dim)``.

    A word without pieces gets zeros; what padding holds does not matter.
    """

    @property
    @abstractmethod
    def embedding_dim(self) -> int:
        """Give the size of a word's vector."""

    @abstractmethod
    def pieces(self, sentences: Sequence[Sequence[str]]) -> Pieces:
        """Cut sentences of words into the pieces that this encoder reads."""

    @abstractmethod
    def forward(self, pieces: Pieces, num_words: int | None = None) -> Float[Tensor, "batch word embedding_dim"]:
        """Encode words in their sentences.

        Args:
            pieces: Sentences cut into pieces.
            num_words: How many words a row has at most; if None, as the pieces say (which makes a GPU's host wait).

        Returns:
            ``(batch, num_words, embedding_dim)``.
        """

    def encode(self, sentences: Sequence[Sequence[str]]) -> tuple[Pieces, Bool[Tensor, "batch word"]]:
        """Turn words into what `forward` takes.

        Args:
            sentences: Lists of words.

        Returns:
            Pieces, and the mask of words ``(batch, word)``.

        Raises:
            TypeError: A string in the place of a list of words, or words that are no strings.
        """
        sentences = check_words(sentences)
        lengths = torch.tensor([len(words) for words in sentences], dtype=torch.int64)
        width = max(map(len, sentences), default=0)
        return self.pieces(sentences), torch.arange(width) < lengths[:, None]


def count_words(pieces: Pieces) -> int:
    """Count the words of the longest row, by reading the index.

    Args:
        pieces: Sentences cut into pieces.

    Returns:
        One more than the largest index; 0 without words.
    """
    return int(pieces.word_index.max()) + 1 if pieces.word_index.numel() else 0
