"""An encoder of transformers that reads characters in the place of its sub-word table."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from polyembed._checks import check_choice, check_dim, check_mask, class_name, must, require
from polyembed._pretrained import repr_call
from polyembed.encoders.char2subword import EDGE, INSIDE, Char2Subword
from polyembed.encoders.pretrained import PretrainedWordEncoder
from polyembed.encoders.word_encoder import WordEncoder, count_words
from polyembed.text.piece_surfaces import PieceSurface, piece_surfaces, word_text
from polyembed.text.pieces import Pieces, align_words

UNITS = ("piece", "word")


class CharacterWordEncoder(WordEncoder):
    """A `PretrainedWordEncoder` whose pieces' vectors come from their characters (Aguilar 2020).

    Each unit of a sentence, a piece or a whole word, is spelled; `char2subword` gives its vector, once a batch for
    units that are spelled alike; the encoder reads the vectors as ``inputs_embeds``. Pieces without a text (special
    ones, bytes) have the rows of the encoder's own table.

    ``unit="piece"`` cuts words as the tokenizer does. ``unit="word"`` gives each word one vector, known or not: a
    misspelled word stays one unit instead of falling into pieces, and sentences are shorter. The vectors of words that
    are no pieces are then as good as training has made them.

    Its `Pieces` hold a row of symbols a sentence: a unit's mark and characters, or one symbol for a piece without text.
    Finding the units makes the host wait for a GPU.

    Args:
        encoder: With its tokenizer. Its model must take ``inputs_embeds`` and have a plain table.
        char2subword: Fitted to the rows of the encoder's table (`Char2Subword.fit_to`).
        unit: What gets one vector.

    Shape:
        `Pieces` ``(batch, symbol)`` to ``(batch, word, embedding_dim)``.

    Raises:
        ValueError: A `char2subword` for rows of another size, an unknown unit.
        TypeError: An encoder without a tokenizer, or with a table that is none.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
        >>> rules = Tokenizer(models.WordPiece({"[UNK]": 0, "me": 1, "gus": 2, "##ta": 3}, unk_token="[UNK]"))
        >>> rules.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=rules, unk_token="[UNK]")
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
        >>> encoder = PretrainedWordEncoder(BertModel(BertConfig(vocab_size=4, **sizes)), tokenizer)
        >>> module = Char2Subword.for_vocabulary(piece_surfaces(tokenizer), 8, hidden_size=8, num_heads=2)
        >>> spelled = CharacterWordEncoder(encoder, module, unit="word")
        >>> pieces, mask = spelled.encode([["me", "gutsa"]])
        >>> spelled(pieces).shape
        torch.Size([1, 2, 8])

    Deviations: see `Char2Subword`. The encoder keeps its table, for the pieces without a text; it saves no memory.
    """

    def __init__(
        self,
        encoder: PretrainedWordEncoder,
        char2subword: Char2Subword,
        *,
        unit: Literal["piece", "word"] = "piece",
    ) -> None:
        super().__init__()
        check_choice("unit", unit, UNITS)
        if encoder.tokenizer is None:
            raise TypeError(must("encoder", "have a tokenizer", None))
        table = encoder.model.get_input_embeddings()  # type: ignore[operator]
        if not isinstance(table, nn.Embedding) or hasattr(table, "embed_scale"):
            raise TypeError(must("encoder", "have a plain table of its pieces", class_name(table)))
        dim = char2subword.embedding_dim
        require(dim == table.embedding_dim, "char2subword", f"give vectors of size {table.embedding_dim}", dim)
        self.encoder = encoder
        self.char2subword = char2subword
        self.unit = unit
        self.surfaces = piece_surfaces(encoder.tokenizer)

    @property
    def embedding_dim(self) -> int:
        """Give the size of a word's vector."""
        return self.encoder.embedding_dim

    def pieces(self, sentences: Sequence[Sequence[str]]) -> Pieces:
        """Spell the units of sentences.

        Args:
            sentences: Lists of words.

        Returns:
            A row of symbols a sentence, on the CPU.
        """
        rows = list(self._word_units(sentences) if self.unit == "word" else self._piece_units(sentences))
        width = max((sum(len(symbols) for symbols, _ in row) for row in rows), default=0)
        ids = torch.zeros(len(rows), width, dtype=torch.int64)
        mask = torch.zeros(len(rows), width, dtype=torch.bool)
        index = torch.full((len(rows), width), -1, dtype=torch.int64)
        for number, row in enumerate(rows):
            symbols = [symbol for spelled, _ in row for symbol in spelled]
            owners = [word for spelled, word in row for _ in spelled]
            ids[number, : len(symbols)] = torch.tensor(symbols, dtype=torch.int64)
            index[number, : len(symbols)] = torch.tensor(owners, dtype=torch.int64)
            mask[number, : len(symbols)] = True
        return Pieces(ids, mask, index)

    def forward(self, pieces: Pieces, num_words: int | None = None) -> Float[Tensor, "batch word embedding_dim"]:
        """Encode words in their sentences.

        Args:
            pieces: Spelled sentences, from `encode`.
            num_words: How many words a row has at most; if None, as the pieces say.

        Returns:
            ``(batch, num_words, embedding_dim)``; zeros for a word without pieces.
        """
        check_dim("piece_ids", pieces.piece_ids, 2, "batch, piece")
        check_mask(pieces.piece_mask, pieces.piece_ids.shape, name="piece_mask")
        num_words = count_words(pieces) if num_words is None else num_words
        units, spellings = self._units(pieces)
        words: Tensor = self.encoder(units, num_words, table=self._vectors(spellings))
        return words

    def _units(self, pieces: Pieces) -> tuple[Pieces, Tensor]:
        """Put symbols together to units: where each stands, and how the different ones are spelled."""
        symbols = torch.where(pieces.piece_mask, pieces.piece_ids, 0)
        starts = symbols.eq(EDGE) | symbols.eq(INSIDE) | symbols.ge(self.char2subword.num_embeddings)
        unit = starts.cumsum(1) - 1
        place = torch.arange(symbols.shape[1], device=symbols.device).expand_as(symbols)
        first = torch.where(starts, place, 0).cummax(1).values if symbols.numel() else place
        real = symbols.ne(0) & unit.ge(0)
        row, column = real.nonzero(as_tuple=True)
        count = int(unit.max()) + 1 if unit.numel() else 0
        width = int((place - first)[real].max()) + 1 if len(row) else 0
        spelled = symbols.new_zeros(len(symbols), count, max(width, 1))
        spelled[row, unit[row, column], (place - first)[row, column]] = symbols[row, column]
        index = pieces.word_index.new_full((len(symbols), count), -1)
        row, column = (starts & real).nonzero(as_tuple=True)
        index[row, unit[row, column]] = pieces.word_index[row, column]
        spellings, ids = torch.unique(spelled.flatten(0, 1), dim=0, return_inverse=True)
        return Pieces(ids.view(len(symbols), count), spelled[..., 0].ne(0), index), spellings

    def _vectors(self, spellings: Tensor) -> Tensor:
        """Compute the vectors of spelled units; special symbols look theirs up."""
        special = spellings[:, 0] - self.char2subword.num_embeddings
        vectors = self.char2subword(torch.where(special[:, None] < 0, spellings, 0))
        own = self.encoder.model.get_input_embeddings().weight  # type: ignore[operator]
        return torch.where(special[:, None] < 0, vectors, F.embedding(special.clamp(min=0), own).to(vectors.dtype))

    def _piece_units(self, sentences: Sequence[Sequence[str]]) -> Iterator[list[tuple[list[int], int]]]:
        cut = self.encoder.pieces(sentences)
        spelled: dict[int, list[int]] = {}
        for ids, mask, index in zip(*(part.tolist() for part in cut), strict=True):
            row = [(piece, word) for piece, real, word in zip(ids, mask, index, strict=True) if real]
            for piece, _ in row:
                if piece not in spelled:
                    spelled[piece] = self._spell_piece(piece)
            yield [(spelled[piece], word) for piece, word in row]

    def _word_units(self, sentences: Sequence[Sequence[str]]) -> Iterator[list[tuple[list[int], int]]]:
        align_words(sentences, self.encoder.tokenizer, overflow="window")  # its checks
        words = list(dict.fromkeys(word for words in sentences for word in words))
        texts = [PieceSurface(word_text(word, self.encoder.tokenizer), edge=True) for word in words]
        spelled = dict(zip(words, self.char2subword.symbols(texts), strict=True))
        before, after = ([(self._special(piece), -1) for piece in pieces] for pieces in self.encoder.special)
        room = None if self.encoder.max_length is None else self.encoder.max_length - len(before) - len(after)
        for number, sentence in enumerate(sentences):
            if room is not None and len(sentence) > room and self.encoder.overflow == "error":
                raise ValueError(must(f"sentences[{number}]", f"have at most {room} words", len(sentence)))
            kept = sentence[:room] if self.encoder.overflow == "truncate" else sentence
            yield [*before, *((spelled[word], place) for place, word in enumerate(kept)), *after]

    def _spell_piece(self, piece: int) -> list[int]:
        surface = self.surfaces[piece] if piece < len(self.surfaces) else None
        return self._special(piece) if surface is None else self.char2subword.symbols([surface])[0]

    def _special(self, piece: int) -> list[int]:
        return [self.char2subword.num_embeddings + piece]

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"encoder": self.encoder, "char2subword": self.char2subword, "unit": self.unit}

    def __repr__(self) -> str:
        return repr_call(self, **self.get_config())
