"""Small replacements for real parts: vectors, sub-word pieces, a word encoder, sentences."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from polyembed import CharCNN, Lexicon, Pieces, SourceEmbedding
from polyembed.data import TaggedSentence
from polyembed.embeddings import WordEmbedder
from polyembed.saving import Configurable
from polyembed.text import FastBPETokenizer, PieceDictionary

WORDS = ["me", "gusta", "that", "song", "canción", "naïve", "y"]
NEW_WORDS = ["songs", "cuando", "मुझे"]
SENTENCES = [["me", "gusta", "that", "song"], ["canción", "y", "song"], ["naïve"]]

RUNTIME_TYPES = hasattr(CharCNN.forward, "__wrapped__")
"""Whether jaxtyping checks annotations in this run.

Its errors then precede the library's own errors, and modules do not compile.
"""

own_words = pytest.mark.skipif(RUNTIME_TYPES, reason="jaxtyping speaks before our own checks")
compiles = pytest.mark.skipif(
    RUNTIME_TYPES, reason="nothing compiles while jaxtyping checks annotations"
)


class ToyVectors(Configurable):
    """A source of vectors for all words, which depend on the word alone."""

    def __init__(self, dim: int, seed: int = 0) -> None:
        self.dim = dim
        self.seed = seed

    def vectors(self, words: Sequence[str]) -> npt.NDArray[np.float32]:
        seeds = [zlib.crc32(word.encode("utf-8", "surrogatepass")) + self.seed for word in words]
        rows = [np.random.default_rng(seed).standard_normal(self.dim) for seed in seeds]
        return np.array(rows, dtype=np.float32).reshape(len(words), self.dim)


class ToyPieces(Configurable):
    """Pieces of at most two characters. The id 0 is for unknown pieces."""

    def __init__(self, dim: int, num_pieces: int = 17) -> None:
        self.dim = dim
        self.num_pieces = num_pieces
        self.unknown_id = 0
        self.table = (
            np.random.default_rng(dim).standard_normal((num_pieces, dim)).astype(np.float32)
        )

    def piece_ids(self, words: Sequence[str]) -> list[list[int]]:
        def piece_id(piece):
            return 1 + zlib.crc32(piece.encode("utf-8", "surrogatepass")) % (self.num_pieces - 1)

        return [[piece_id(word[i : i + 2]) for i in range(0, len(word), 2)] for word in words]


class ToyWordEncoder(WordEmbedder):
    """A contextual embedder: the sum of the piece vectors of a word and of its sentence."""

    def __init__(self, embedding_dim: int, num_pieces: int = 17) -> None:
        super().__init__()
        self.pieces = ToyPieces(embedding_dim, num_pieces)
        self.embedding = nn.Embedding(num_pieces, embedding_dim)

    @property
    def embedding_dim(self) -> int:
        return self.embedding.embedding_dim

    def encode(self, sentences: Sequence[Sequence[str]]) -> tuple[Pieces, Tensor]:
        lengths = torch.tensor([len(words) for words in sentences], dtype=torch.int64)
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        spelled = [self.pieces.piece_ids(words) for words in sentences]
        width = max((sum(map(len, spelling)) for spelling in spelled), default=0)
        ids = torch.zeros(len(sentences), width, dtype=torch.int64)
        index = torch.full_like(ids, -1)
        for row, spelling in enumerate(spelled):
            flat = [(word, piece) for word, units in enumerate(spelling) for piece in units]
            for column, (word, piece) in enumerate(flat):
                ids[row, column], index[row, column] = piece, word
        return Pieces(ids, index >= 0, index, mask.shape[1]), mask

    def forward(self, pieces: Pieces) -> Tensor:
        vectors = self.embedding(pieces.piece_ids)
        belongs = pieces.word_index[:, None, :] == torch.arange(pieces.count_words())[None, :, None]
        return belongs.to(vectors) @ vectors + (vectors * pieces.piece_mask[..., None]).sum(
            1, keepdim=True
        )

    @property
    def num_pieces(self) -> int:
        return self.pieces.num_pieces


def toy_bpe_tokenizer() -> FastBPETokenizer:
    """Return a tokenizer with byte pairs of the toy words and 23 pieces in total."""
    merges = [
        "m e</w>",
        "g u",
        "s t",
        "gu st",
        "t h",
        "a t</w>",
        "th at</w>",
        "s o",
        "n g</w>",
        "so ng</w>",
    ]
    pieces = [
        "me",
        "gu@@",
        "gust@@",
        "st@@",
        "a",
        "that",
        "song",
        "so@@",
        "ng",
        "y",
        "c@@",
        "a@@",
        "n@@",
    ]
    pieces += ["v@@", "e", "ng@@", "s@@", "x", "é"]
    pairs = [tuple(merge.split(" ")) for merge in merges]
    return FastBPETokenizer(pairs, PieceDictionary.from_pieces(pieces))


def toy_lexicon() -> Lexicon:
    return Lexicon(WORDS)


def toy_table(dim: int, num_embeddings: int = 9) -> SourceEmbedding:
    """Return a trainable table of `num_embeddings` rows, for the toy words and numbered words."""
    lexicon = Lexicon(
        [*WORDS, *(f"w{i}" for i in range(len(WORDS), num_embeddings))][: num_embeddings - 2]
    )
    return SourceEmbedding.from_embedding(nn.Embedding(num_embeddings, dim), lexicon)


def toy_corpus(repetitions: int = 8) -> list[TaggedSentence]:
    """Return a task that any tagger learns: the tag is the word's language, or `O` for the song."""
    tags = dict(zip(WORDS, ["B-ES", "I-ES", "B-EN", "O", "B-ES", "B-EN", "I-ES"], strict=True))
    sentences = [
        TaggedSentence(tuple(words), tuple(tags[word] for word in words)) for words in SENTENCES
    ]
    return sentences * repetitions


TAGS = ["O", "B-ES", "I-ES", "B-EN", "I-EN"]


class SquareOnce(torch.autograd.Function):
    """A square without second derivatives, and without derivatives in forward mode."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * gradient
