"""An encoder of transformers that computes piece vectors from characters, in place of its table."""

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from polyembed._checks import check_choice, check_sentences, require, require_type
from polyembed.encoders.char2subword import EDGE, INSIDE, Char2Subword
from polyembed.encoders.contextual import ContextualEmbedder, check_pieces
from polyembed.encoders.pretrained import PretrainedWordEncoder
from polyembed.text.pieces import Pieces, pad_pieces
from polyembed.text.surfaces import PieceSurface, piece_surfaces, word_text


class CharWordEncoder(ContextualEmbedder):
    """A `PretrainedWordEncoder` whose pieces' vectors are computed from their characters (Aguilar
    2020).

    Each unit of a sentence, a piece or a whole word, is spelled. `char2subword` computes a vector
    for each spelling of a batch. The encoder reads the vectors as ``inputs_embeds``, in the dtype
    of its table. Pieces without a text (special ones, bytes) have the rows of this table.

    ``unit="piece"`` cuts words as the tokenizer does. ``unit="word"`` gives each word one vector,
    known or not: a misspelled word stays one unit instead of being cut into pieces, and sentences
    are shorter. The quality of the vectors of words that are not pieces depends on training.

    Its `Pieces` hold a row of symbols for each sentence: a unit's mark and characters, or one
    symbol for a piece without text. Finding the units makes the host wait for a GPU.

    Args:
        encoder: The encoder, with its tokenizer. Its model must take ``inputs_embeds`` and have a
            plain table.
        char2subword: The module that computes the vectors, fitted to the rows of the encoder's
            table (`Char2Subword.fit_to`).
        unit: The unit that gets one vector, ``"piece"`` or ``"word"``.

    Shape:
        `Pieces` ``(batch, symbol)`` to ``(batch, word, embedding_dim)``.

    Raises:
        ValueError: If `char2subword` gives vectors of another size, or the unit is unknown.
        TypeError: If the encoder has no tokenizer, or its table is not a plain `nn.Embedding`.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
        >>> rules = Tokenizer(models.WordPiece({"[UNK]": 0, "me": 1, "gus": 2, "##ta": 3},
        ...     unk_token="[UNK]"))
        >>> rules.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=rules, unk_token="[UNK]")
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
        ...     "intermediate_size": 8}
        >>> encoder = PretrainedWordEncoder(BertModel(BertConfig(vocab_size=4, **sizes)), tokenizer)
        >>> module = Char2Subword.for_vocabulary(piece_surfaces(tokenizer), 8, hidden_size=8,
        ...     num_heads=2)
        >>> spelled = CharWordEncoder(encoder, module, unit="word")
        >>> pieces, mask = spelled.encode([["me", "gutsa"]])
        >>> spelled(pieces).shape
        torch.Size([1, 2, 8])

    Deviations: see `Char2Subword`. The encoder keeps its table, for the pieces without a text;
        memory is not saved.
    """

    def __init__(
        self,
        encoder: PretrainedWordEncoder,
        char2subword: Char2Subword,
        *,
        unit: Literal["piece", "word"] = "piece",
    ) -> None:
        super().__init__()
        check_choice("unit", unit, ("piece", "word"))
        tokenizer = encoder.tokenizer
        require_type(tokenizer is not None, "encoder", "have a tokenizer", tokenizer)
        table = encoder.model.get_input_embeddings()
        plain = isinstance(table, nn.Embedding) and not hasattr(table, "embed_scale")
        require_type(plain, "encoder", "have a plain table of its pieces", table)
        size, dim = table.embedding_dim, char2subword.embedding_dim
        require(dim == size, "char2subword", f"give vectors of size {size}", dim)
        self.encoder = encoder
        self.char2subword = char2subword
        self.unit = unit
        self.surfaces = piece_surfaces(tokenizer)

    @property
    def embedding_dim(self) -> int:
        """The size of a word's vector."""
        return self.encoder.embedding_dim

    def pieces(self, sentences: Sequence[Sequence[str]]) -> Pieces:
        """Spell the units of sentences: a row of symbols for each sentence, on the CPU."""
        units = self._word_units if self.unit == "word" else self._piece_units
        rows = [
            [(symbol, w) for spelled, w in row for symbol in spelled] for row in units(sentences)
        ]
        symbols, owners = ([[pair[i] for pair in row] for row in rows] for i in (0, 1))
        return pad_pieces(symbols, owners, 0)

    def forward(self, pieces: Pieces) -> Float[Tensor, "batch word embedding_dim"]:
        """Encode words in their sentences; see `ContextualEmbedder.forward`."""
        check_pieces(pieces)
        # group symbols into units, and number the units by their spellings
        symbols = torch.where(pieces.piece_mask, pieces.piece_ids, 0)
        starts = symbols.eq(EDGE) | symbols.eq(INSIDE)
        starts |= symbols.ge(self.char2subword.num_embeddings)
        real = symbols.ne(0)
        lengths, counts = torch.bincount(starts[real].cumsum(0) - 1), starts.sum(1)
        spelled = _padded(symbols[real], lengths, 0)
        spellings, ids = torch.unique(spelled, dim=0, return_inverse=True)
        index = _padded(pieces.word_index[starts], counts, -1)[:-1]
        mask = torch.arange(index.shape[1], device=index.device) < counts[:, None]
        units = Pieces(_padded(ids[:-1], counts, 0)[:-1], mask, index, pieces.count_words())
        # special symbols have rows of the table
        special = spellings[:, :1] - self.char2subword.num_embeddings
        vectors = self.char2subword(torch.where(special < 0, spellings, 0))
        table = self.encoder.model.get_input_embeddings().weight
        rows = F.embedding(special[:, 0].clamp(min=0), table)
        words: Tensor = self.encoder(
            units, table=torch.where(special < 0, vectors.to(rows.dtype), rows)
        )
        return words

    def _piece_units(
        self, sentences: Sequence[Sequence[str]]
    ) -> Iterator[list[tuple[list[int], int]]]:
        cut = self.encoder.pieces(sentences)
        spelled = {}
        for piece in set(cut.piece_ids.flatten().tolist()):
            surface = self.surfaces[piece] if piece < len(self.surfaces) else None
            text = [] if surface is None else self.char2subword.symbols([surface])[0]
            spelled[piece] = text or self._special(piece)
        for row in zip(*(part.tolist() for part in cut[:3]), strict=True):
            yield [(spelled[piece], w) for piece, real, w in zip(*row, strict=True) if real]

    def _word_units(
        self, sentences: Sequence[Sequence[str]]
    ) -> Iterator[list[tuple[list[int], int]]]:
        sentences = check_sentences(sentences)
        words = list(dict.fromkeys(word for words in sentences for word in words))
        texts = [PieceSurface(word_text(word, self.encoder.tokenizer), edge=True) for word in words]
        spelled = dict(zip(words, self.char2subword.symbols(texts), strict=True))
        special = self.encoder.special
        before, after = ([(self._special(piece), -1) for piece in pieces] for pieces in special)
        limit, overflow = self.encoder.max_length, self.encoder.overflow
        room = None if limit is None else limit - len(before) - len(after)
        for sentence in sentences:
            kept = sentence if overflow == "window" else sentence[:room]
            require(
                kept == sentence or overflow == "truncate",
                f"sentence {' '.join(sentence)[:60]!r}",
                f"have at most {room} words",
                len(sentence),
            )
            yield [*before, *((spelled[word], place) for place, word in enumerate(kept)), *after]

    def _special(self, piece: int) -> list[int]:
        return [self.char2subword.num_embeddings + piece]


def _padded(values: Tensor, lengths: Tensor, padding: int) -> Tensor:
    """Cut values into rows of these lengths, and one row of padding."""
    rows = [*torch.split(values, lengths.tolist()), values.new_full((1,), padding)]
    return pad_sequence(rows, batch_first=True, padding_value=padding)
