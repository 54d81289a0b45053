"""Word vectors turned into another space."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from polyembed._checks import check_float, check_last_dim, class_name, must, require
from polyembed._pretrained import PretrainedModule, VectorFiles, repr_call, usual_mode
from polyembed.vectors.protocol import Rows, WordVectors, check_words

TOLERANCE = 1e-3  # of W'W - 1: well above the rounding of float32, well below what a missed step leaves


class OrthogonalMapping(PretrainedModule):
    """A rotation from one space of word vectors to another: ``x -> x W`` with ``W' W = 1`` (Winata 2021, 2.1.2).

    Lengths and angles inside the space stay as they are. `polyembed.align` finds one. ``mapping(vectors)`` turns a
    whole source of vectors, words met later included; `transform` turns tensors; `inverse` leads back.

    Args:
        weight: ``W``, orthogonal, ``(dim, dim)``.
        report: How it was found, if that shall be kept with it.

    Raises:
        ValueError: A matrix that is not square, or not orthogonal.
        TypeError: No tensor.

    Example:
        >>> mapping = OrthogonalMapping(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
        >>> mapping.transform(torch.tensor([[2.0, 3.0]]))
        tensor([[-3.,  2.]])
        >>> mapping.inverse().transform(torch.tensor([[-3.0, 2.0]]))
        tensor([[2., 3.]])

    Deviations: MUSE writes the turned vectors to a file; here they are computed as they are asked for, so that a
    fastText model can spell unseen words in the other space too.
    """

    def __init__(self, weight: Float[Tensor, "dim dim"], *, report: dict[str, Any] | None = None) -> None:
        super().__init__()
        if not isinstance(weight, Tensor):
            raise TypeError(must("weight", "be a tensor", class_name(weight)))
        square = weight.dim() == 2 and weight.shape[0] == weight.shape[1]
        require(square, "weight", "be a square matrix", f"shape {tuple(weight.shape)}")
        _check_orthogonal(weight)
        # Row by row in memory, as a loaded one is: other layouts are multiplied with other rounding.
        with torch.inference_mode(False):  # where it is on, what is made here still serves a gradient later
            weight = weight.detach().to("cpu", torch.float32).clone(memory_format=torch.contiguous_format)
            self.weight = nn.Parameter(weight, requires_grad=False)
        self.report = dict(report or {})

    @property
    def dim(self) -> int:
        """The length of the vectors of both spaces."""
        return len(self.weight)

    def forward(self, vectors: WordVectors) -> "MappedVectors":
        """Turn a source of word vectors.

        Args:
            vectors: Vectors of the space that the mapping starts from.

        Returns:
            The same words in the other space.

        Raises:
            ValueError: Vectors of another length.
        """
        return MappedVectors(vectors, self)

    def transform(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Turn vectors: ``x W``.

        Args:
            x: Vectors, ``(*batch, dim)``, on the mapping's device.

        Returns:
            The turned vectors in the dtype of `x`.

        Raises:
            ValueError: Vectors of another length.
            TypeError: Integers.
        """
        check_last_dim("x", x, self.dim)
        check_float(x=x)
        wide = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            return (x.to(wide) @ self.weight.to(wide)).to(x.dtype)

    def inverse(self) -> "OrthogonalMapping":
        """Give the mapping back: ``x -> x W'``.

        Returns:
            The other direction, with the same report.
        """
        return OrthogonalMapping(self.weight.mT, report=self.report)

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the mapping but its numbers."""
        return {"dim": self.dim, "report": self.report}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build a mapping whose numbers are still to be loaded."""
        mapping = cls.__new__(cls)
        nn.Module.__init__(mapping)
        mapping.weight = nn.Parameter(torch.empty(config["dim"], config["dim"]), requires_grad=False)
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

    def __repr__(self) -> str:
        return f"{class_name(self)}(dim={self.dim}, report={self.report})"


def _check_orthogonal(weight: Tensor) -> None:
    """Require ``W' W = 1`` but for the rounding of the dtype."""
    tolerance = max(TOLERANCE, torch.finfo(weight.dtype).eps) if weight.is_floating_point() else TOLERANCE
    weight = weight.detach().to("cpu", torch.float64)
    error = float((weight.mT @ weight - torch.eye(len(weight), device="cpu")).abs().max()) if len(weight) else 0.0
    require(error < tolerance, "weight", "be orthogonal", f"W'W that differs from 1 by {error:.2g}")


class MappedVectors(VectorFiles):
    """A source of word vectors in the space that a mapping leads to: ``vector(w) = source(w) W``.

    Args:
        source: The vectors.
        mapping: Where they go. What is done to it later changes nothing here: ``W`` is copied, in float32.

    Raises:
        ValueError: The mapping is for vectors of another length.
        TypeError: No source of vectors, or no mapping.

    Example:
        >>> class Ones:
        ...     dim = 2
        ...     def vectors(self, words): return np.ones((len(words), 2), np.float32)
        >>> mapping = OrthogonalMapping(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
        >>> MappedVectors(Ones(), mapping).vectors(["me"]).tolist()
        [[-1.0, 1.0]]

    Deviations: none.
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset({"mapping_file"})

    def __init__(self, source: WordVectors, mapping: OrthogonalMapping) -> None:
        if not (hasattr(source, "vectors") and hasattr(source, "dim")):
            raise TypeError(must("vectors", "have dim and vectors(words)", class_name(source)))
        if not isinstance(mapping, OrthogonalMapping):
            raise TypeError(must("mapping", "be an OrthogonalMapping", class_name(mapping)))
        require(source.dim == mapping.dim, "vectors.dim", f"be the mapping's {mapping.dim}", source.dim)
        self.source, self.mapping = source, OrthogonalMapping(mapping.weight, report=mapping.report)

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
        """Look up, or spell, the vectors of `words`, and turn them.

        Args:
            words: The words, repetitions allowed.

        Returns:
            Float32 rows in the order of `words`, ``(len(words), dim)``.

        Raises:
            TypeError: One string instead of words.
        """
        check_words(words)
        if not len(words):
            return np.zeros((0, self.dim), np.float32)
        rows = np.asarray(self.source.vectors(words), np.float32)
        turned: Rows = rows @ self.mapping.weight.detach().to("cpu", torch.float32).numpy()
        return turned

    def files(self) -> Mapping[str, Path]:
        """Name the source's files on disk.

        Returns:
            Constructor argument of the source to file.
        """
        return self.source.files() if isinstance(self.source, VectorFiles) else {}

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write the mapping's matrix; the source writes its own files."""
        from safetensors.torch import save_file

        name = f"mapping-{sum(1 for _ in folder.glob('mapping-*'))}.safetensors"
        with usual_mode(folder / name) as path:
            save_file({"weight": self.mapping.weight.detach().cpu().contiguous()}, path)
        return {"mapping_file": name}

    def get_config(self) -> dict[str, Any]:
        """Give the source, and how the mapping was found."""
        return {"source": self.source, "report": self.mapping.report}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Open the mapping's file and put it on the source."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = config["mapping_file"]
        try:
            weight = load_file(path)["weight"]
        except (SafetensorError, KeyError) as error:
            raise ValueError(must(str(path), "be an intact safetensors file with a weight", error)) from error
        try:
            with torch.device("cpu"):
                mapping = OrthogonalMapping(weight, report=config["report"])
        except ValueError as error:
            raise ValueError(must(str(path), "hold a mapping", error)) from error
        return cls(config["source"], mapping)

    def __repr__(self) -> str:
        return repr_call(self, source=self.source, mapping=self.mapping)
