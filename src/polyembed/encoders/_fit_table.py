"""Training a module of characters to reproduce the rows of a table."""

import math
import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import AdamW
from torch.optim.lr_scheduler import OneCycleLR

from polyembed._checks import check_positive, check_probability, must, require
from polyembed.functional.neighbors import nearest_cosine
from polyembed.text.piece_surfaces import PieceSurface
from polyembed.text.spelling import spelling_table
from polyembed.text.typos import misspell

EVALUATED = 1024  # rows at once


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
    """The result of `Char2Subword.fit_to`: scores of learned and of held-out rows, and each epoch's mean loss."""

    trained: RowScore
    held_out: RowScore
    losses: tuple[float, ...]


class TableFitOptions(NamedTuple):
    """The options of `Char2Subword.fit_to`."""

    num_train_epochs: int = 20
    batch_size: int = 128
    learning_rate: float = 3e-3
    held_out: float = 0.1
    typos: float = 0.0
    temperature: float = 0.05
    max_grad_norm: float = 1.0
    seed: int = 0
    progress: bool | None = None

    def check(self) -> None:
        """Raise a `ValueError` for an option out of range."""
        check_positive(num_train_epochs=self.num_train_epochs, batch_size=self.batch_size)
        check_probability(held_out=self.held_out)
        require(0.0 <= self.typos <= 1.0, "typos", "be in [0, 1]", self.typos)
        for name in ("learning_rate", "temperature", "max_grad_norm"):
            require(getattr(self, name) > 0, name, "be positive", getattr(self, name))


def fit_table(
    module: Any, table: Tensor, vocabulary: Sequence[PieceSurface | None], options: TableFitOptions
) -> TableFit:
    """Train a `Char2Subword`; see its `fit_to`."""
    options.check()
    vocabulary = list(vocabulary)
    require(
        len(vocabulary) <= len(table),
        "vocabulary",
        f"have at most the table's {len(table)} rows",
        len(vocabulary),
    )
    spelled = [i for i, surface in enumerate(vocabulary) if surface is not None]
    require(len(spelled) > 0, "vocabulary", "hold a piece with a text", "none")
    device = next(module.parameters()).device
    table = table.detach().to(device=device, dtype=torch.float32)
    require(bool(table.isfinite().all()), "table", "be finite", "NaN or an infinity")

    draw = random.Random(options.seed)
    order = draw.sample(spelled, len(spelled))
    apart = int(options.held_out * len(order))
    require(apart < len(order), "held_out", "leave a row to learn from", options.held_out)
    left_out, learned = sorted(order[:apart]), sorted(order[apart:])
    task = _Task(module, table, vocabulary, learned, options)
    with torch.no_grad():
        mean = task.targets.mean(0)
        deviation = (task.targets - mean).square().mean().sqrt()
        module.mean.copy_(mean)
        module.scale.copy_(_or_one(deviation))
    steps = options.num_train_epochs * math.ceil(len(learned) / options.batch_size)
    losses: list[float] = []
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(options.seed)
        optimizer = AdamW(
            [value for value in module.parameters() if value.requires_grad],
            lr=options.learning_rate,
        )
        scheduler = OneCycleLR(optimizer, options.learning_rate, total_steps=max(steps, 2))
        module.train()
        with _bar(steps, options.progress) as bar:
            for _ in range(options.num_train_epochs):
                total = torch.zeros((), device=device)
                for places, ids in task.epoch(draw):
                    loss = task.loss(places, ids.to(device))
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()  # type: ignore[no-untyped-call]
                    torch.nn.utils.clip_grad_norm_(module.parameters(), options.max_grad_norm)
                    optimizer.step()
                    scheduler.step()
                    total += loss.detach() * len(places)
                    bar.update()
                losses.append(float(total) / len(learned))
                if not math.isfinite(losses[-1]):
                    raise ValueError(
                        must("loss", "stay finite", f"{losses[-1]} in epoch {len(losses)}")
                    )
    module.eval()
    return TableFit(task.score(learned), task.score(left_out), tuple(losses))


class _Task:
    """The rows to learn, their spellings and the loss."""

    def __init__(
        self,
        module: Any,
        table: Tensor,
        vocabulary: Sequence[PieceSurface | None],
        learned: Sequence[int],
        options: TableFitOptions,
    ) -> None:
        self.module, self.table, self.vocabulary = module, table, vocabulary
        self.learned, self.options = learned, options
        self.known = {surface for surface in vocabulary if surface is not None}
        self.letters = "".join(
            sorted({letter for surface in self.known for letter in surface.text})
        )
        self.targets = table[torch.tensor(learned, device=table.device)]
        self.directions = F.normalize(self.targets, dim=-1)
        self.scale = _or_one(self.targets.square().sum(-1).mean())

    def epoch(self, draw: random.Random) -> Iterator[tuple[list[int], Tensor]]:
        """Yield batches of rows of similar length: places in `learned`, and spellings."""
        batch_size = self.options.batch_size
        symbols = self.module.symbols([self._see(i, draw) for i in self.learned])
        order = draw.sample(range(len(symbols)), len(symbols))
        pool = 16 * batch_size
        order = [
            i
            for start in range(0, len(order), pool)
            for i in sorted(order[start : start + pool], key=lambda i: len(symbols[i]))
        ]
        batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        draw.shuffle(batches)
        for places in batches:
            yield places, spelling_table([symbols[i] for i in places])

    def loss(self, places: list[int], ids: Tensor) -> Tensor:
        place = torch.tensor(places, device=self.table.device)
        found = self.module(ids).float()
        expected = self.targets[place]
        cosines = F.normalize(found, dim=-1) @ self.directions.mT
        direction = 1 - cosines.gather(1, place[:, None]).mean()
        length = (found - expected).square().sum(-1).mean() / self.scale
        loss: Tensor = (
            direction + length + F.cross_entropy(cosines / self.options.temperature, place)
        )
        return loss

    @torch.no_grad()
    def score(self, rows: Sequence[int]) -> RowScore:
        """Compare the vectors of `rows` with all rows of the table."""
        hits, cosine = 0, 0.0
        for start in range(0, len(rows), EVALUATED):
            some = rows[start : start + EVALUATED]
            ids = spelling_table(self.module.symbols([self.vocabulary[i] for i in some]))
            found = self.module(ids.to(self.table.device)).float()
            place = torch.tensor(some, device=self.table.device)
            hits += int((nearest_cosine(found, self.table).ids[:, 0] == place).sum())
            cosine += float(F.cosine_similarity(found, self.table[place]).sum())
        count = len(rows)
        return (
            RowScore(hits / count, cosine / count, count)
            if count
            else RowScore(math.nan, math.nan, 0)
        )

    def _see(self, row: int, draw: random.Random) -> PieceSurface:
        surface = self.vocabulary[row]
        assert surface is not None
        if self.options.typos and draw.random() < self.options.typos:
            wrong = PieceSurface(misspell(surface.text, self.letters, draw), surface.edge)
            if wrong not in self.known:
                return wrong
        return surface


def _or_one(size: Tensor) -> Tensor:
    """Return 1 in place of 0, to divide by, for rows that are all equal or all zero."""
    return torch.where(size > 0, size, 1.0)


def _bar(steps: int, progress: bool | None) -> Any:
    from tqdm import tqdm

    disable = None if progress is None else not progress  # tqdm's None: off without a terminal
    return tqdm(total=steps, desc="characters", leave=False, disable=disable)
