"""The rows of a sub-word table, computed from characters."""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import OneCycleLR

from polyembed._batches import batches_by_length, chunked, progress_bar
from polyembed._checks import check_positive, check_probability, require
from polyembed.embeddings.table import embed_units
from polyembed.embeddings.transformer import TransformerStack
from polyembed.functional.neighbors import nearest_cosine
from polyembed.saving import PretrainedModule
from polyembed.text.spelling import CharSpelling, spelling_table
from polyembed.text.surfaces import PieceSurface

EDGE, INSIDE = 2, 3  # beside 0 for padding and 1 for a character outside the inventory
TYPICAL_LENGTH = 6  # symbols of a piece, mark included
EVALUATED = 1024  # rows that are scored at once
TEMPERATURE = 0.05  # of the last term of the loss


class RowScore(NamedTuple):
    """How well vectors from characters reproduce the rows of a table.

    Attributes:
        accuracy: The share of pieces whose vector is nearer to their own row than to any other row
            of the table, by the cosine; NaN without pieces.
        cosine: The mean cosine of a piece's vector and its row; NaN without pieces.
        rows: The number of pieces.
    """

    accuracy: float
    cosine: float
    rows: int


class TableFit(NamedTuple):
    """The scores of learned and of held-out rows after `Char2Subword.fit_to`, and the losses."""

    trained: RowScore
    held_out: RowScore
    losses: tuple[float, ...]


class Char2Subword(PretrainedModule):
    r"""The vector of a piece from its characters, instead of a table's row (Aguilar 2020).

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
        hidden_size: The size of the characters' vectors and of the Transformer.
        num_layers: The number of layers of the Transformer.
        num_heads: The number of heads of each layer.
        feed_forward_size: The feed-forward size of each layer; twice `hidden_size` if None.
        readout_size: The size of the layer over all places.
        num_places: The number of places with weights of their own; later places share the last.
        dropout: The dropout probability inside the Transformer.
        max_length: The most characters of a piece that are read, half from its start and half from
            its end.

    Shape:
        ids ``(*batch, character)`` from `spell`, padded with 0 at the end, to
        ``(*batch, embedding_dim)``; zeros for a row without ids.

    Raises:
        ValueError: If a size is not positive or not a multiple of the heads.

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
            "feed_forward_size": feed_forward_size or 2 * hidden_size,
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
        **options: Any,
    ) -> Self:
        """Build a module for the characters of a vocabulary.

        Args:
            vocabulary: The result of `polyembed.text.piece_surfaces`.
            embedding_dim: The size of a row of the table.
            **options: The constructor's other arguments.

        Returns:
            The module, untrained.
        """
        characters = {c for surface in vocabulary if surface is not None for c in surface.text}
        return cls(sorted(characters), embedding_dim, **options)

    @property
    def num_embeddings(self) -> int:
        """The number of character ids, with padding, the unknown character and the two marks."""
        return self.spelling.num_units + 2

    @property
    def embedding_dim(self) -> int:
        """The size of a vector."""
        return self.projection.out_features

    def symbols(self, surfaces: Iterable[PieceSurface]) -> list[list[int]]:
        """Return the ids of each piece, or word: the mark of the edge, then the characters.

        Args:
            surfaces: The texts, and whether each is at a word's edge, as a whole word is.

        Returns:
            One list of ids per piece or word.
        """
        surfaces = list(surfaces)
        spelled = self.spelling.spell([surface.text for surface in surfaces])
        return [  # the spelling counts characters from 2, where the marks are here
            [EDGE if surface.edge else INSIDE, *(i if i == 1 else i + 2 for i in ids)]
            for surface, ids in zip(surfaces, spelled, strict=True)
        ]

    def spell(self, surfaces: Iterable[PieceSurface]) -> Int[Tensor, "piece character"]:
        """Return the ids of pieces or words on the module's device, padded with 0."""
        return spelling_table(self.symbols(surfaces)).to(self.projection.weight.device)

    def forward(
        self, ids: Int[Tensor, "*batch character"]
    ) -> Float[Tensor, "*batch embedding_dim"]:
        """Compute one vector for each piece from the ids that `spell` returns."""
        x, mask = embed_units(ids, self.characters.weight)
        *batch, length, dim = x.shape
        mask = mask.reshape(-1, length)
        states = self.transformer(x.reshape(-1, length, dim), mask)  # (piece, character, hidden)
        vectors = self.mean + self.scale * self.projection(self._read(states))
        vectors = torch.where(mask.any(-1, keepdim=True), vectors, 0.0)
        return vectors.reshape(*batch, self.embedding_dim)

    def _read(self, states: Tensor) -> Tensor:
        """Apply each place's weights and sum; masked places are zeros."""
        last = len(self.readout) - 1
        if states.shape[1] > last + 1:
            states = torch.cat([states[:, :last], states[:, last:].sum(1, keepdim=True)], 1)
        weight = self.readout[: states.shape[1]].flatten(0, 1)
        return torch.relu(states.flatten(1) @ weight + self.readout_bias)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        sizes = {"embedding_dim": self.embedding_dim, "max_length": self.spelling.max_length}
        return {"characters": self.spelling.characters, **sizes, **self.options}

    def fit_to(
        self,
        table: Float[Tensor, "row embedding_dim"],
        vocabulary: Sequence[PieceSurface | None],
        *,
        num_train_epochs: int = 20,
        batch_size: int = 128,
        learning_rate: float = 3e-3,
        held_out: float = 0.1,
        seed: int = 0,
        progress: bool | None = None,
    ) -> TableFit:
        r"""Train the module in place to reproduce the rows of a table.

        The loss of a piece with row e, computed vector y and all trained rows e_j is

        .. math:: (1 - \cos(y, e)) + \frac{|y - e|^2}{\operatorname{mean}_j |e_j|^2}
                  - \log \frac{\exp(\cos(y, e) / \tau)}{\sum_j \exp(\cos(y, e_j) / \tau)}

        with tau = 0.05. The loss compares direction and length, and asks that no other row be
        nearer. The optimiser is AdamW with one cycle of the learning rate and gradients clipped to
        norm 1. Order and dropout are drawn from `seed` inside a fork of the global random state.

        Args:
            table: The table of the encoder, ``model.get_input_embeddings().weight``; rows beyond
                the vocabulary are padding.
            vocabulary: The result of `polyembed.text.piece_surfaces` for the encoder's tokenizer,
                one surface for each row; rows without a text are not learned.
            num_train_epochs: The number of passes over the rows.
            batch_size: The number of rows of a step, of similar length.
            learning_rate: The highest rate of the cycle.
            held_out: The share of rows that are not learned, to measure strings outside the
                vocabulary.
            seed: The seed of all random choices.
            progress: Whether to show a progress bar; if None, only on a terminal.

        Returns:
            Accuracy and cosine of learned and held-out rows, and the mean loss of each epoch.

        Raises:
            ValueError: If sizes do not fit, `held_out` leaves no row to learn, or the loss is not
                finite.

        Example:
            >>> texts = ("me", "gusta", "la", "song")
            >>> vocabulary = [PieceSurface(text, edge=True) for text in texts]
            >>> sizes = {"hidden_size": 8, "num_heads": 2, "num_layers": 1}
            >>> module = Char2Subword.for_vocabulary(vocabulary, 5, **sizes)
            >>> fit = module.fit_to(torch.randn(4, 5), vocabulary, num_train_epochs=50,
            ...     held_out=0.0)
            >>> fit.trained.accuracy
            1.0

        Deviations: see `Char2Subword`; the loss is this library's.
        """
        check_positive(num_train_epochs=num_train_epochs, batch_size=batch_size)
        check_probability(held_out=held_out)
        shape, size, count = tuple(table.shape), self.embedding_dim, len(vocabulary)
        fits = len(shape) == 2 and shape[0] >= count and shape[1] == size
        rule = f"have a row of size {size} for each of the {count} pieces"
        require(fits, "table", rule, f"shape {shape}")
        device = self.projection.weight.device
        table = table.detach().to(device=device, dtype=torch.float32)
        draw = random.Random(seed)
        surfaces = {i: surface for i, surface in enumerate(vocabulary) if surface is not None}
        order = draw.sample(list(surfaces), len(surfaces))
        apart = int(held_out * len(order))
        require(apart < len(order), "vocabulary", "leave a row to learn from", len(order))
        left_out, learned = sorted(order[:apart]), sorted(order[apart:])
        targets = table[learned]
        with torch.no_grad():
            self.mean.copy_(targets.mean(0))
            self.scale.copy_((targets - self.mean).square().mean().sqrt())
        symbols = self.symbols(surfaces[i] for i in learned)
        steps = num_train_epochs * math.ceil(len(learned) / batch_size)
        losses: list[float] = []
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            optimizer = AdamW(self.parameters(), lr=learning_rate)
            scheduler = OneCycleLR(optimizer, learning_rate, total_steps=max(steps, 2))
            self.train()
            for _ in progress_bar(range(num_train_epochs), progress=progress, desc="characters"):
                total = torch.zeros((), device=device)
                shuffled = draw.sample(range(len(symbols)), len(symbols))
                batches = list(batches_by_length(shuffled, batch_size, lambda i: len(symbols[i])))
                draw.shuffle(batches)
                for places in batches:
                    ids = spelling_table([symbols[i] for i in places]).to(device)
                    place = torch.tensor(places, device=device)
                    loss = row_loss(self(ids).float(), targets, place)
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()  # type: ignore[no-untyped-call]
                    torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)
                    optimizer.step()
                    scheduler.step()
                    total += loss.detach() * len(places)
                losses.append(float(total) / len(learned))
                require(math.isfinite(losses[-1]), "the loss", "stay finite", losses[-1])
        self.eval()
        known, unknown = (self._score(table, surfaces, rows) for rows in (learned, left_out))
        return TableFit(known, unknown, tuple(losses))

    @torch.no_grad()
    def _score(
        self, table: Tensor, surfaces: Mapping[int, PieceSurface], rows: Sequence[int]
    ) -> RowScore:
        """Compare the vectors of `rows` with all rows of the table."""
        some = list(chunked(rows, EVALUATED)) or [[]]
        found = torch.cat([self(self.spell(surfaces[i] for i in part)).float() for part in some])
        place = torch.tensor(rows, dtype=torch.int64, device=table.device)
        hits = nearest_cosine(found, table).ids[:, 0] == place
        cosine = F.cosine_similarity(found, table[place])
        return RowScore(float(hits.double().mean()), float(cosine.mean()), len(rows))


def row_loss(
    found: Float[Tensor, "piece dim"],
    targets: Float[Tensor, "row dim"],
    place: Int[Tensor, "piece"],
) -> Float[Tensor, ""]:
    """Compute the loss of `Char2Subword.fit_to` for vectors whose rows are ``targets[place]``."""
    size = targets.square().sum(-1).mean()
    cosines = F.normalize(found, dim=-1) @ F.normalize(targets, dim=-1).mT  # (piece, row)
    direction = 1 - cosines.gather(1, place[:, None]).mean()
    length = (found - targets[place]).square().sum(-1).mean() / size
    return direction + length + F.cross_entropy(cosines / TEMPERATURE, place)
