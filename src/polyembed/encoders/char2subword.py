"""The rows of a sub-word table, computed from characters."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyembed._checks import check_float, check_ids, check_positive, require
from polyembed.embeddings.transformer import TransformerStack
from polyembed.encoders._fit_table import TableFit, TableFitOptions, fit_table
from polyembed.saving import PretrainedModule
from polyembed.text.piece_surfaces import PieceSurface
from polyembed.text.spelling import CharSpelling, spelling_table

EDGE, INSIDE = 2, 3  # beside 0 for padding and 1 for a character outside the inventory
FIRST_CHARACTER = 4
TYPICAL_LENGTH = 6  # of a piece, mark included


class Char2Subword(PretrainedModule):
    r"""The vector of a piece from its characters, trained to replace the row of an encoder's table
    (Aguilar 2020).

    .. math:: h = \operatorname{Transformer}(c_0, c_1, \dots, c_n), \quad
              y = m + s \Big(W \operatorname{relu}\Big(\sum_i U_i h_i + a\Big) + b\Big)

    where c_1 to c_n embed the piece's characters and c_0 marks whether the piece is at its word's
    edge, so that ``ta`` and ``##ta`` have different vectors. Each place i has its own weights U_i:
    a mean over places takes many times the steps to learn as many rows. `fit_to` trains the module
    to reproduce a table's rows, and sets m and s to the rows' mean and deviation. Then any string
    has a vector: a word that no table holds, or a misspelled one. `CharWordEncoder` uses the
    module inside an encoder.

    Args:
        characters: The inventory; `for_vocabulary` collects it.
        embedding_dim: The size of a row.
        hidden_size: Of the characters' vectors and of the Transformer.
        num_layers: Layers of the Transformer.
        num_heads: Heads of each layer.
        feed_forward_size: Of each layer; twice `hidden_size` if None.
        readout_size: Of the layer over all places.
        num_places: How many places have their own weights; later places share the last one's.
        dropout: The probability of dropping, inside the Transformer.
        max_length: The most characters of a piece that are read, half from its start and half from
            its end.

    Shape:
        ids ``(*batch, character)`` from `spell`, padded with 0 at the end, to
        ``(*batch, embedding_dim)``; zeros for a row without ids.

    Raises:
        ValueError: Sizes that do not fit.

    Example:
        >>> module = Char2Subword("agstu", 6, hidden_size=8, num_heads=2).eval()
        >>> ids = module.spell([PieceSurface("gus", edge=True), PieceSurface("ta", edge=False)])
        >>> ids.tolist()
        [[2, 5, 8, 6], [3, 7, 4, 0]]
        >>> module(ids).shape
        torch.Size([2, 6])

    Deviations: Winata 2021 (section 2.2.3) names neither sizes nor losses: both are this library's,
    as are the mark of the edge, weights by place, m and s. Aguilar 2020 then pretrains the encoder
    further with the module in it, its Transformer fixed; here that is left to training on the task,
    or to your own loop.
    """

    def __init__(
        self,
        characters: Iterable[str],
        embedding_dim: int,
        *,
        hidden_size: int = 128,
        num_layers: int = 2,
        num_heads: int = 4,
        feed_forward_size: int | None = None,
        readout_size: int = 512,
        num_places: int = 16,
        dropout: float = 0.0,
        max_length: int = 32,
    ) -> None:
        check_positive(
            embedding_dim=embedding_dim, readout_size=readout_size, num_places=num_places
        )
        super().__init__()
        self.spelling = CharSpelling(characters, max_length=max_length)
        options: dict[str, Any] = {
            "hidden_size": hidden_size,
            "num_layers": num_layers,
            "num_heads": num_heads,
            "feed_forward_size": 2 * hidden_size
            if feed_forward_size is None
            else feed_forward_size,
            "dropout": dropout,
        }
        self.options = {**options, "readout_size": readout_size, "num_places": num_places}
        self.transformer = TransformerStack(**options)
        self.characters = nn.Embedding(self.num_embeddings, hidden_size, padding_idx=0)
        self.readout = nn.Parameter(torch.empty(num_places, hidden_size, readout_size))
        self.readout_bias = nn.Parameter(torch.zeros(readout_size))
        nn.init.normal_(self.readout, std=(TYPICAL_LENGTH * hidden_size) ** -0.5)
        self.projection = nn.Linear(readout_size, embedding_dim)
        # rows of a table are small and on one side of zero, which the Transformer need not learn
        self.mean = nn.Parameter(torch.zeros(embedding_dim), requires_grad=False)
        self.scale = nn.Parameter(torch.ones(()), requires_grad=False)

    @classmethod
    def for_vocabulary(
        cls,
        vocabulary: Iterable[PieceSurface | None],
        embedding_dim: int,
        *,
        min_count: int = 1,
        **options: Any,
    ) -> Self:
        """Build a module for the characters of a vocabulary.

        Args:
            vocabulary: The result of `polyembed.text.piece_surfaces`.
            embedding_dim: The size of a row of its table.
            min_count: The least number of pieces with a character for it to be in the inventory.
            **options: The constructor's other arguments.

        Returns:
            The module, untrained.
        """
        check_positive(min_count=min_count)
        counts: dict[str, int] = {}
        for surface in vocabulary:
            for character in () if surface is None else dict.fromkeys(surface.text):
                counts[character] = counts.get(character, 0) + 1
        return cls(
            sorted(c for c, count in counts.items() if count >= min_count), embedding_dim, **options
        )

    @property
    def num_embeddings(self) -> int:
        """The number of character ids, with padding, the unknown character and the two marks."""
        return len(self.spelling.characters) + FIRST_CHARACTER

    @property
    def embedding_dim(self) -> int:
        """The size of a vector."""
        return self.projection.out_features

    def symbols(self, surfaces: Iterable[PieceSurface]) -> list[list[int]]:
        """Return the ids of each piece, or word: the mark of the edge, then the characters.

        Args:
            surfaces: Texts, and whether each is at a word's edge; a whole word is.

        Returns:
            One list for each.
        """
        surfaces = list(surfaces)
        spelled = self.spelling.spell([surface.text for surface in surfaces])
        shift = FIRST_CHARACTER - 2
        return [
            [EDGE if surface.edge else INSIDE, *(i if i == 1 else i + shift for i in ids)]
            for surface, ids in zip(surfaces, spelled, strict=True)
        ]

    def spell(self, surfaces: Iterable[PieceSurface]) -> Int[Tensor, "piece character"]:
        """Return the ids of pieces, or words, for `forward`: on the module's device, padded with 0."""
        return spelling_table(self.symbols(surfaces)).to(self.projection.weight.device)

    def forward(
        self, ids: Int[Tensor, "*batch character"]
    ) -> Float[Tensor, "*batch embedding_dim"]:
        """Compute one vector for each piece from the ids that `spell` returns."""
        check_ids("ids", ids)
        if ids.shape[-1] == 0:
            ids = ids.new_zeros(*ids.shape[:-1], 1)
        batch = ids.shape[:-1]
        rows = ids.reshape(batch.numel(), ids.shape[-1])
        mask = rows.ne(0)
        vectors = self.mean + self.scale * self.projection(
            self._read(self.transformer(self.characters(rows), mask))
        )
        return torch.where(mask.any(-1, keepdim=True), vectors, 0.0).reshape(
            *batch, self.embedding_dim
        )

    def _read(self, states: Tensor) -> Tensor:
        """Apply each place's weights and sum; masked places are zeros."""
        count = self.readout.shape[0]
        if states.shape[1] > count:
            states = torch.cat(
                [states[:, : count - 1], states[:, count - 1 :].sum(1, keepdim=True)], 1
            )
        weight = self.readout[: states.shape[1]].flatten(0, 1)
        return torch.relu(states.flatten(1) @ weight + self.readout_bias)

    def fit_to(
        self,
        table: Float[Tensor, "row embedding_dim"],
        vocabulary: Sequence[PieceSurface | None],
        *,
        num_train_epochs: int = 20,
        batch_size: int = 128,
        learning_rate: float = 3e-3,
        held_out: float = 0.1,
        typos: float = 0.0,
        temperature: float = 0.05,
        max_grad_norm: float = 1.0,
        seed: int = 0,
        progress: bool | None = None,
    ) -> TableFit:
        r"""Train the module in place to reproduce the rows of a table.

        The loss of a piece with row e, computed vector y and all trained rows e_j is

        .. math:: (1 - \cos(y, e)) + \frac{|y - e|^2}{\operatorname{mean}_j |e_j|^2}
                  - \log \frac{\exp(\cos(y, e) / \tau)}{\sum_j \exp(\cos(y, e_j) / \tau)}

        which compares direction and length, and asks that no other row be nearer. AdamW with one
        cycle of the learning rate. Order, dropout and typing errors are drawn from `seed` inside a
        fork of the global random state: on a CPU the same call on the same module gives the same
        weights.

        Args:
            table: The encoder's, ``model.get_input_embeddings().weight``; rows beyond the
                vocabulary are padding.
            vocabulary: The result of `polyembed.text.piece_surfaces` for its tokenizer, one for
                each row; rows without a text are not learned.
            num_train_epochs: The number of passes over the rows.
            batch_size: Rows of a step, of similar length.
            learning_rate: The highest of the cycle.
            held_out: The share of rows that are not learned, to measure strings outside the
                vocabulary.
            typos: The share of pieces that are misspelled (`polyembed.text.misspell`) in a pass,
                unless the result is another piece.
            temperature: tau.
            max_grad_norm: Clip the gradient's norm to this.
            seed: For all random choices.
            progress: Whether to show a progress bar; if None, only on a terminal.

        Returns:
            Accuracy and cosine of learned and held-out rows, and the losses.

        Raises:
            ValueError: Sizes that do not fit, options out of range, rows that are not finite, or
                none with a text.
            TypeError: A table of integers.

        Example:
            >>> vocabulary = [PieceSurface(text, edge=True) for text in ("me", "gusta", "la", "song")]
            >>> module = Char2Subword.for_vocabulary(vocabulary, 5, hidden_size=8, num_heads=2, num_layers=1)
            >>> module.fit_to(torch.randn(4, 5), vocabulary, num_train_epochs=50, held_out=0.0).trained.accuracy
            1.0

        Deviations: see `Char2Subword`; the loss is this library's.
        """
        shape = f"shape {tuple(table.shape)}"
        require(table.dim() == 2, "table", "have the axes (row, embedding_dim)", shape)
        require(
            table.shape[1] == self.embedding_dim,
            "table",
            f"have rows of size {self.embedding_dim}",
            shape,
        )
        check_float(table=table)
        options = TableFitOptions(
            num_train_epochs,
            batch_size,
            learning_rate,
            held_out,
            typos,
            temperature,
            max_grad_norm,
            seed,
            progress,
        )
        return fit_table(self, table, vocabulary, options)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            "characters": self.spelling.characters,
            "embedding_dim": self.embedding_dim,
            **self.options,
            "max_length": self.spelling.max_length,
        }
