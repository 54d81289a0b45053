"""Tables of rows by id."""

from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyembed._checks import check_ids, must, require
from polyembed._views import shallow_copy
from polyembed.saving import PretrainedModule


class RowTable(PretrainedModule):
    """Rows by id: first the rows of `weight`, which may train, then the frozen rows of `extension`.

    `extended` keeps `weight` the same parameter, so that an optimiser continues to train it. Rows
    of integers are buffers, because code that averages parameters, or makes all of them train,
    fails on integers.

    Args:
        weight: The first rows, ``(row, dim)``; frozen unless `weight` is an `nn.Parameter`.
        padding_idx: The row that never trains, as in `nn.Embedding`.
        extension: The later rows, if any.
    """

    def __init__(
        self,
        weight: Tensor,
        *,
        padding_idx: int | None = None,
        extension: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.padding_idx = padding_idx
        for name in ("weight", "extension"):
            self.register_buffer(name, None)
        self.weight = weight if isinstance(weight, nn.Parameter) else _frozen(weight)
        self.extension = None if extension is None else _frozen(extension)

    def _apply(self, fn: Any, *options: Any, **named: Any) -> Self:
        for rows in self.buffers():  # in place, as torch moves parameters: other tables share them
            moved = fn(rows)
            if torch._has_compatible_shallow_copy_type(rows, moved):
                rows.data = moved
        super()._apply(fn, *options, **named)  # type: ignore[no-untyped-call]
        return self

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        rows, own = state.get(f"{prefix}weight"), self.weight
        if rows is not None and not (own.is_floating_point() or own.is_meta):
            alike = torch.equal(own.cpu(), rows.cpu())  # how the words of the lexicon are spelled
            require(alike, f"{prefix}weight", "be of the same lexicon", "another's rows")
        super()._load_from_state_dict(state, prefix, *rest)

    @property
    def dim(self) -> int:
        """The width of the widest row."""
        return max(self.weight.shape[1], 0 if self.extension is None else self.extension.shape[1])

    def forward(self, ids: Tensor) -> Tensor:
        """Return the rows of `ids`; narrower rows are padded with 0."""
        check_ids("ids", ids)
        if self.extension is None:
            return look_up(ids, self.weight, self.padding_idx)
        base, width = len(self.weight), self.dim
        late, stop = ids >= base, base + len(self.extension)
        first_rows = look_up(torch.where(late, 0, ids), self.weight, self.padding_idx, stop)
        late_rows = look_up(
            torch.where(late, ids - base, 0), self.extension, None, stop, start=base
        )
        return torch.where(late[..., None], _widen(late_rows, width), _widen(first_rows, width))

    def extended(self, rows: Tensor) -> "RowTable":
        """Return a table with more rows that shares `weight`."""
        rows = rows.detach().to(self.weight, copy=True)  # they may be views of `weight`
        if self.extension is not None:
            width = max(rows.shape[1], self.extension.shape[1])
            rows = torch.cat([_widen(self.extension, width), _widen(rows, width)])
        return shallow_copy(self, extension=_frozen(rows))

    def get_config(self) -> dict[str, Any]:
        """Return the shapes and settings of the table, whose rows are loaded afterwards."""
        return {
            "shapes": [list(tensor.shape) for tensor in self.state_dict().values()],
            "dtype": str(self.weight.dtype).removeprefix("torch."),
            "freeze": not self.weight.requires_grad,
            "padding_idx": self.padding_idx,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the table with its rows still to be loaded."""
        dtype = getattr(torch, config["dtype"])
        weight, *extension = (torch.empty(*shape, dtype=dtype) for shape in config["shapes"])
        later = extension[0] if extension else None
        table = cls(weight, padding_idx=config["padding_idx"], extension=later)
        table.weight.requires_grad_(not config["freeze"])
        return table


def look_up(
    ids: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    stop: int | None = None,
    name: str = "ids",
    start: int = 0,
) -> Tensor:
    """Return rows by id; the error names an id counted from `start`, and `stop` as their end."""
    try:
        return F.embedding(ids, weight, padding_idx)
    except IndexError as error:
        wrong = int(ids[(ids < 0) | (ids >= len(weight))][0]) + start
        raise ValueError(must(name, f"be in [0, {stop or len(weight)})", wrong)) from error


def embed_units(ids: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the vectors of the units of words, at least one per word, and their mask.

    ``(*batch, unit)`` to ``(*batch, unit, dim)`` and ``(*batch, unit)``; 0 is padding.
    """
    check_ids("ids", ids)
    ids = ids if ids.shape[-1] else F.pad(ids, (0, 1))
    return look_up(ids, weight, 0), ids.ne(0)


def _frozen(rows: Tensor) -> Tensor:
    """Return rows as a parameter that does not train; rows of integers are returned unchanged."""
    return nn.Parameter(rows, requires_grad=False) if rows.is_floating_point() else rows


def _widen(rows: Tensor, width: int) -> Tensor:
    return F.pad(rows, (0, width - rows.shape[-1]))
