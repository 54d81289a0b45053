"""Word vectors rotated into another space."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from polyembed._checks import check_float, check_last_dim, class_name, must, require
from polyembed.saving import PretrainedModule, VectorFiles
from polyembed.vectors.adapters import as_source
from polyembed.vectors.protocol import Rows, WordVectors, check_words

TOLERANCE = 1e-3  # of W'W - 1: well above the rounding of float32


class OrthogonalMapping(PretrainedModule):
    """A rotation from one space of word vectors to another: ``x -> x W`` with ``W' W = 1`` (Winata
    2021, 2.1.2).

    It keeps lengths and angles. `polyembed.align_spaces` finds one. ``mapping(vectors)`` maps a
    whole source of vectors, also for words met later; `transform` maps tensors; `inverse` is the
    other direction.

    Args:
        weight: ``W``, orthogonal, ``(dim, dim)``.
        report: How the mapping was found, to be kept with it.

    Raises:
        ValueError: A matrix that is not square, or not orthogonal.
        TypeError: Not a tensor.

    Example:
        >>> mapping = OrthogonalMapping(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
        >>> mapping.transform(torch.tensor([[2.0, 3.0]]))
        tensor([[-3.,  2.]])
        >>> mapping.inverse().transform(torch.tensor([[-3.0, 2.0]]))
        tensor([[2., 3.]])

    Deviations: MUSE writes the mapped vectors to a file. Here they are computed when asked for, so
    that a fastText model can spell unseen words in the other space too.
    """

    def __init__(
        self, weight: Float[Tensor, "dim dim"], *, report: dict[str, Any] | None = None
    ) -> None:
        super().__init__()
        if not isinstance(weight, Tensor):
            raise TypeError(must("weight", "be a tensor", class_name(weight)))
        square = weight.dim() == 2 and weight.shape[0] == weight.shape[1]
        require(square, "weight", "be a square matrix", f"shape {tuple(weight.shape)}")
        _check_orthogonal(weight)
        # Row by row in memory, as a loaded one is: other layouts are multiplied with other
        # rounding.
        with torch.inference_mode(
            False
        ):  # a tensor made in inference mode could never take part in a gradient
            weight = (
                weight.detach()
                .to("cpu", torch.float32)
                .clone(memory_format=torch.contiguous_format)
            )
            self.weight = nn.Parameter(weight, requires_grad=False)
        self.report = dict(report or {})

    @property
    def dim(self) -> int:
        """The length of the vectors of both spaces."""
        return len(self.weight)

    def forward(self, vectors: WordVectors) -> "MappedVectors":
        """Return a source of the same words in the other space; `vectors` are of the space mapped from."""
        return MappedVectors(vectors, self)

    def transform(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Return ``x W`` in the dtype of `x`, which is on the mapping's device."""
        check_last_dim("x", x, self.dim)
        check_float(x=x)
        wide = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            return (x.to(wide) @ self.weight.to(wide)).to(x.dtype)

    def inverse(self) -> "OrthogonalMapping":
        """Return the other direction, ``x -> x W'``, with the same report."""
        return OrthogonalMapping(self.weight.mT, report=self.report)

    def get_config(self) -> dict[str, Any]:
        """Return size and report; the numbers are saved as weights."""
        return {"dim": self.dim, "report": self.report}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build a mapping whose numbers are loaded afterwards."""
        mapping = cls.__new__(cls)
        nn.Module.__init__(mapping)
        mapping.weight = nn.Parameter(
            torch.empty(config["dim"], config["dim"]), requires_grad=False
        )
        mapping.report = dict(config["report"])
        return mapping

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        weight = state_dict.get(f"{prefix}weight")
        if isinstance(weight, Tensor) and weight.shape == self.weight.shape and not weight.is_meta:
            try:
                _check_orthogonal(weight)
            except ValueError as error:
                args[-1].append(str(error))  # torch's list of errors, which it raises together
                return  # the old matrix stays
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        """Return size and report."""
        return f"dim={self.dim}, report={self.report}"


def _check_orthogonal(weight: Tensor) -> None:
    """Check that ``W' W = 1`` up to the rounding of the dtype."""
    tolerance = (
        max(TOLERANCE, torch.finfo(weight.dtype).eps) if weight.is_floating_point() else TOLERANCE
    )
    weight = weight.detach().to("cpu", torch.float64)
    error = (
        float((weight.mT @ weight - torch.eye(len(weight), device="cpu")).abs().max())
        if len(weight)
        else 0.0
    )
    require(error < tolerance, "weight", "be orthogonal", f"W'W that differs from 1 by {error:.2g}")


class MappedVectors(VectorFiles):
    """A source of word vectors in the space that a mapping leads to: ``vector(w) = source(w) W``.

    Args:
        source: The vectors.
        mapping: The rotation. ``W`` is copied in float32, so that later changes of `mapping` have
            no effect here.

    Raises:
        ValueError: The mapping is for vectors of another length.
        TypeError: Not a source of vectors, or not a mapping.

    Example:
        >>> class Ones:
        ...     dim = 2
        ...     def vectors(self, words): return np.ones((len(words), 2), np.float32)
        >>> mapping = OrthogonalMapping(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
        >>> MappedVectors(Ones(), mapping).vectors(["me"]).tolist()
        [[-1.0, 1.0]]
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset({"mapping_file"})

    def __init__(self, source: WordVectors, mapping: OrthogonalMapping) -> None:
        self.source = as_source(source, name="vectors")
        if not isinstance(mapping, OrthogonalMapping):
            raise TypeError(must("mapping", "be an OrthogonalMapping", class_name(mapping)))
        require(
            self.source.dim == mapping.dim,
            "vectors.dim",
            f"be the mapping's {mapping.dim}",
            self.source.dim,
        )
        self.mapping = OrthogonalMapping(mapping.weight, report=mapping.report)

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return self.source.dim

    @property
    def words(self) -> list[str]:
        """The source's words."""
        return list(getattr(self.source, "words", ()))

    def __contains__(self, word: object) -> bool:
        if hasattr(self.source, "__contains__"):
            return word in self.source
        return isinstance(word, str) and bool(np.any(self.source.vectors([word])))

    def vectors(self, words: Sequence[str]) -> Rows:
        """Read or spell the words and map them; return float32 rows in their order, ``(len(words), dim)``."""
        check_words(words)
        if not len(words):
            return np.zeros((0, self.dim), np.float32)
        rows = np.asarray(self.source.vectors(words), np.float32)
        mapped: Rows = rows @ self.mapping.weight.detach().to("cpu", torch.float32).numpy()
        return mapped

    def files(self) -> Mapping[str, Path]:
        """Return the source's files."""
        return self.source.files() if isinstance(self.source, VectorFiles) else {}

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write the mapping's matrix; the source writes its own files."""
        from safetensors.torch import save_file

        name = "mapping.safetensors"
        save_file({"weight": self.mapping.weight.detach().cpu().contiguous()}, folder / name)
        return {"mapping_file": name}

    def get_config(self) -> dict[str, Any]:
        """Return the source and the mapping's report."""
        return {"source": self.source, "report": self.mapping.report}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Open the mapping's file and apply it to the source."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = config["mapping_file"]
        try:
            weight = load_file(path)["weight"]
        except (SafetensorError, KeyError) as error:
            raise ValueError(
                must(str(path), "be an intact safetensors file with a weight", error)
            ) from error
        try:
            with torch.device("cpu"):
                mapping = OrthogonalMapping(weight, report=config["report"])
        except ValueError as error:
            raise ValueError(must(str(path), "hold a mapping", error)) from error
        return cls(config["source"], mapping)
