"""A table of rows by id that can be extended without a copy."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyembed._checks import check_ids, must, require
from polyembed._views import shallow_copy


class RowTable(nn.Module):
    """Rows by id: first the rows of `weight`, which may train, then the rows of `extension`, which
    are frozen.

    `extended` keeps `weight` the same parameter, so that an optimiser can go on training it. Rows
    may be integers.

    Args:
        weight: The first rows, ``(row, dim)``.
        freeze: Whether the first rows do not train; ignored for a parameter.
        padding_idx: The row that never trains, as in `nn.Embedding`.
        extension: Later rows.
    """

    def __init__(
        self,
        weight: Tensor,
        *,
        freeze: bool = True,
        padding_idx: int | None = None,
        extension: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.padding_idx = padding_idx
        self.weight = (
            weight
            if isinstance(weight, nn.Parameter)
            else nn.Parameter(weight, requires_grad=not freeze)
        )
        self.extension = None if extension is None else nn.Parameter(extension, requires_grad=False)

    def shapes(self) -> dict[str, list[int]]:
        """Return the shapes of the tensors, for `empty`."""
        return {name: list(tensor.shape) for name, tensor in self.named_parameters()}

    @classmethod
    def empty(
        cls, shapes: dict[str, list[int]], num_rows: int, *, dtype: torch.dtype, **options: Any
    ) -> "RowTable":
        """Build a table whose rows are still to be loaded; the shapes of its tensors must have `num_rows` rows."""
        for name, shape in shapes.items():
            require(
                len(shape) == 2,
                f"shapes.{name}",
                "be a number of rows and a number of columns",
                shape,
            )
        tensors = {name: torch.empty(*shape, dtype=dtype) for name, shape in shapes.items()}
        table = cls(tensors["weight"], extension=tensors.get("extension"), **options)
        require(
            table.num_rows == num_rows,
            "shapes",
            f"have {num_rows} rows, one for each id",
            table.num_rows,
        )
        return table

    @property
    def num_extended(self) -> int:
        """The number of rows in the extension."""
        return 0 if self.extension is None else self.extension.shape[0]

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self.weight.shape[0] + self.num_extended

    @property
    def dim(self) -> int:
        """The width of the widest row."""
        return max(self.weight.shape[1], 0 if self.extension is None else self.extension.shape[1])

    @property
    def is_frozen(self) -> bool:
        """Whether no row trains."""
        return not self.weight.requires_grad

    def forward(self, ids: Tensor) -> Tensor:
        """Return the rows of `ids`; narrower rows are padded with 0."""
        try:
            if self.extension is None:
                return F.embedding(ids, self.weight, self.padding_idx)
            base = self.weight.shape[0]
            late = ids >= base
            first_rows = F.embedding(torch.where(late, 0, ids), self.weight, self.padding_idx)
            late_rows = F.embedding(torch.where(late, ids - base, 0), self.extension)
            return torch.where(
                late[..., None], _widened(late_rows, self.dim), _widened(first_rows, self.dim)
            )
        except IndexError as error:
            raise ValueError(must("ids", f"lie in [0, {self.num_rows})", "ids outside")) from error

    def extended(self, rows: Tensor) -> "RowTable":
        """Return a table with more rows that shares `weight`."""
        rows = rows.detach().to(self.weight, copy=True)  # they may be views of `weight`
        if self.extension is not None:
            width = max(rows.shape[1], self.extension.shape[1])
            rows = torch.cat([_widened(self.extension, width), _widened(rows, width)])
        return shallow_copy(self, extension=nn.Parameter(rows, requires_grad=False))


def check_units(ids: Tensor) -> None:
    """Require ids of the units of words, ``(*batch, unit)``."""
    check_ids("ids", ids)
    require(ids.dim() > 0, "ids", "have a last axis of units", "shape ()")


def look_up_units(ids: Tensor, weight: Tensor) -> Tensor:
    """Return the vectors of units; that of the padding's 0 never trains."""
    try:
        return F.embedding(ids, weight, padding_idx=0)
    except IndexError as error:
        raise ValueError(must("ids", f"lie in [0, {len(weight)})", "ids outside")) from error


def _widened(rows: Tensor, width: int) -> Tensor:
    return F.pad(rows, (0, width - rows.shape[-1])) if width > rows.shape[-1] else rows
