"""LASER's sentence vectors, for whole corpora, and search among them."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from polyembed._checks import check_positive, check_words
from polyembed._progress import progress_bar
from polyembed.encoders.laser.encoder import LaserEncoder
from polyembed.encoders.laser.words import check_tokenizer
from polyembed.functional.alignment import length_normalize
from polyembed.functional.neighbors import Nearest, nearest_cosine
from polyembed.saving import PretrainedModule
from polyembed.text.laser import LaserTokenizer
from polyembed.text.pieces import Pieces


class LaserSentences(PretrainedModule):
    """Language-independent vectors of sentences: ``max_i [h_L(i) forwards; h_L(i) backwards]``.

    The numbers are equal to LASER's own tools' (Artetxe and Schwenk 2019): the encoder reads the
    pieces of a sentence and ``</s>``, and the vector is the maximum of the last layer over all of
    them.

    Args:
        encoder: A `LaserEncoder`.
        tokenizer: Cuts sentences into its pieces. ``LaserSentences(*load_laser())`` has both.

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
        batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
        for batch in progress_bar(batches, progress=progress, desc="sentences"):
            pieces = self.tokenizer.join(cut[i] for i in batch).to(weight.device)
            vectors[batch] = self(pieces).cpu()
        return length_normalize(vectors) if normalize else vectors

    def nearest(
        self, queries: Sequence[str] | Tensor, keys: Sequence[str] | Tensor, k: int = 1
    ) -> Nearest:
        """Return the sentences that are nearest by cosine.

        Args:
            queries: Sentences, or vectors of `encode`.
            keys: The sentences to search, or their vectors.
            k: How many for each query.

        Returns:
            Scores and rows of `keys`, the best first, ``(query, k)``.
        """
        sides = [x if isinstance(x, Tensor) else self.encode(x) for x in (queries, keys)]
        return nearest_cosine(sides[0], sides[1], k)
