"""Word vectors rotated into another space, and several sources of one space joined."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor, nn

from polyembed._checks import check_last_dim, check_words, require
from polyembed.saving import Configurable, PretrainedModule
from polyembed.vectors.protocol import Rows, Vocabulary, WordVectors
from polyembed.vectors.words import as_source


class JoinedVectors(Vocabulary, Configurable):
    """Several sources as one: ``vector(w) = s(w)``, with ``s`` the first source that knows ``w``.

    All sources have vectors of the same space, for example after `polyembed.align_spaces`. They
    serve text in several languages: the matrix language first, and the embedded language for the
    words that the first one lacks. A source knows the words of its vocabulary (``word in source``).
    If it has no vocabulary, it knows the words whose vector is not zero. A word outside all sources
    gets the first spelled vector with a number other than zero.

    Args:
        sources: The sources, the most trusted first; their vectors have one length.

    Raises:
        ValueError: If `sources` is empty, or the vectors have different lengths.
        TypeError: If one of `sources` is not a source.

    Example:
        >>> class Length:
        ...     dim = 1
        ...     def __init__(self, *words): self.words = words
        ...     def vectors(self, words):
        ...         return np.float32([[len(w) if w in self.words else 0] for w in words])
        >>> joined = JoinedVectors([Length("me", "no"), Length("me", "song")])
        >>> joined.vectors(["me", "song", "?"]).tolist()
        [[2.0], [4.0], [0.0]]
    """

    def __init__(self, sources: Iterable[WordVectors]) -> None:
        self.sources = tuple(as_source(source, name="sources") for source in sources)
        require(len(self.sources) > 0, "sources", "hold at least one source", "none")
        dims = [source.dim for source in self.sources]
        require(len(set(dims)) == 1, "sources", "have vectors of one length", dims)
        self.dim = dims[0]

    @property
    def words(self) -> list[str]:
        """The words of all vocabularies, in the order of the sources."""
        words = (word for source in self.sources for word in getattr(source, "words", ()))
        return list(dict.fromkeys(words))

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and any(known_words(s, [word])[0] for s in self.sources)

    def vectors(self, words: Sequence[str]) -> Rows:
        """Return the vectors of the words as float32, ``(len(words), dim)``."""
        words = check_words(words)
        out = np.zeros((len(words), self.dim), np.float32)
        known = np.stack([known_words(source, words) for source in self.sources])
        first = np.where(known.any(0), known.argmax(0), -1)
        for i, source in enumerate(self.sources):
            places = np.flatnonzero((first == i) | ((first == -1) & ~out.any(1)))
            if len(places):
                out[places] = source.vectors([words[place] for place in places.tolist()])
        return out


def known_words(source: WordVectors, words: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which words a source knows: by its vocabulary, or else by vectors other than zero."""
    if hasattr(source, "__contains__"):
        return np.array([word in source for word in words], bool)
    rows = np.asarray(source.vectors(words)).reshape(-1, source.dim)
    known: npt.NDArray[np.bool_] = (rows != 0).any(1)
    return known


TOLERANCE = 1e-3  # the largest deviation of W'W from 1, well above the rounding of float32


class OrthogonalMapping(PretrainedModule):
    """A rotation of one space of word vectors into another (Winata 2021, section 2.1.2).

    ``x -> x W`` with ``W' W = 1`` keeps lengths and angles. `polyembed.align_spaces` finds one.
    ``mapping(vectors)`` maps a whole source of vectors, including words met later; `transform` maps
    tensors; `inverse` returns the mapping in the other direction.

    Args:
        weight: ``W``, orthogonal, ``(dim, dim)``; copied as float32 onto the CPU.
        report: Facts about how the mapping was found, which are saved with the mapping.

    Raises:
        ValueError: If the matrix is not square or not orthogonal.

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
        square = weight.dim() == 2 and weight.shape[0] == weight.shape[1]
        require(square, "weight", "be a square matrix", f"shape {tuple(weight.shape)}")
        if not weight.is_meta:
            tolerance = max(TOLERANCE, torch.finfo(weight.dtype).eps)
            wide = weight.detach().to("cpu", torch.float64)
            error = (wide.mT @ wide - torch.eye(len(wide), device="cpu")).abs().max().item()
            got = f"W'W that differs from 1 by {error:.2g}"
            require(error < tolerance, "weight", "be orthogonal", got)
            weight = wide.float().contiguous()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.report = dict(report or {})

    @property
    def dim(self) -> int:
        """The length of the vectors of both spaces."""
        return len(self.weight)

    def forward(self, vectors: WordVectors) -> "MappedVectors":
        """Return a source of the same words in the other space."""
        return MappedVectors(vectors, self)

    def transform(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Return ``x W`` in the dtype of `x`, which is on the mapping's device."""
        check_last_dim("x", x, self.dim)
        wide = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            return (x.to(wide) @ self.weight.to(wide)).to(x.dtype)

    def inverse(self) -> "OrthogonalMapping":
        """Return the other direction, ``x -> x W'``, with the same report."""
        return OrthogonalMapping(self.weight.mT, report=self.report)

    def get_config(self) -> dict[str, Any]:
        """Return the size and the report; the matrix is saved as a weight."""
        return {"dim": self.dim, "report": self.report}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build a mapping whose matrix is loaded afterwards."""
        return cls(torch.eye(config["dim"]), report=config["report"])


class MappedVectors(Vocabulary, Configurable):
    """A source of word vectors in the space that a mapping leads to: ``vector(w) = source(w) W``.

    Args:
        source: The source of the vectors that are mapped.
        mapping: The rotation, which is copied.

    Raises:
        ValueError: If the mapping is for vectors of another length.
        TypeError: If `source` is not a source of vectors.

    Example:
        >>> class Ones:
        ...     dim = 2
        ...     def vectors(self, words): return np.ones((len(words), 2), np.float32)
        >>> mapping = OrthogonalMapping(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
        >>> MappedVectors(Ones(), mapping).vectors(["me"]).tolist()
        [[-1.0, 1.0]]
    """

    file_arguments = frozenset({"mapping"})

    def __init__(self, source: WordVectors, mapping: OrthogonalMapping) -> None:
        self.source = as_source(source, name="vectors")
        self.dim = self.source.dim
        require(self.dim == mapping.dim, "vectors.dim", f"be the mapping's {mapping.dim}", self.dim)
        self.mapping = OrthogonalMapping(mapping.weight, report=mapping.report)

    @property
    def words(self) -> list[str]:
        """The source's words."""
        return list(getattr(self.source, "words", ()))

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and bool(known_words(self.source, [word])[0])

    def vectors(self, words: Sequence[str]) -> Rows:
        """Return the mapped vectors of the words as float32, ``(len(words), dim)``."""
        rows = np.asarray(self.source.vectors(words), np.float32).reshape(-1, self.dim)
        mapped: Rows = rows @ self.mapping.weight.numpy()
        return mapped

    def get_config(self) -> dict[str, Any]:
        """Return the source and the mapping's report."""
        return {"source": self.source, "report": self.mapping.report}

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write the mapping's matrix."""
        from safetensors.torch import save_file

        save_file({"weight": self.mapping.weight.data}, folder / "mapping.safetensors")
        return {"mapping": "mapping.safetensors"}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Open the mapping's file and apply it to the source."""
        from safetensors.torch import load_file

        weight = load_file(config["mapping"])["weight"]
        return cls(config["source"], OrthogonalMapping(weight, report=config["report"]))
