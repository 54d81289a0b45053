"""Mapped vectors: the numbers, the contract of a source, saving and loading."""

from pathlib import Path

import numpy as np
import pytest
import torch
from checks import refused
from toys import SENTENCES, ToyVectors, own_words

from polyembed.functional import procrustes
from polyembed.vectors import FastTextVectors, OrthogonalMapping

UNSEEN = ["songs", "que", "gustaron"]


def rotation(dim: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(dim, dim, generator=generator).double()).Q


@pytest.fixture
def mapping() -> OrthogonalMapping:
    return OrthogonalMapping(rotation(5), report={"dictionary": "pairs", "criteria": [0.25, 0.5]})


class Table:
    """A source without a vocabulary, which is optional."""

    dim = 5

    def vectors(self, words: list[str]) -> np.ndarray:
        return np.float32([[len(word)] * 5 if word != "unknown" else [0] * 5 for word in words])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.bfloat16, 0.05)])
@pytest.mark.parametrize("shape", [(5,), (2, 3, 5), (0, 5)])
def test_tensors_are_rotated(mapping, dtype: torch.dtype, tolerance: float, shape):
    x = torch.randn(shape).to(dtype)
    mapped = mapping.transform(x)
    assert mapped.dtype == dtype
    torch.testing.assert_close(mapped.double(), x.double() @ rotation(5), atol=tolerance, rtol=0)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(mapped, mapping.transform(x))
    assert mapping.inverse().report == mapping.report
    back = mapping.inverse().transform(mapped)
    torch.testing.assert_close(back.double(), x.double(), atol=tolerance, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rounding_is_no_fault(dtype: torch.dtype, tmp_path: Path):
    """A rotation from narrow vectors is accepted, and a narrow mapping can be saved and opened."""
    x = torch.randn(106, 53).to(dtype)
    mapping = OrthogonalMapping(procrustes(x, x.flip(0)), report={"num_pairs": 106})
    assert mapping.weight.dtype == torch.float32
    mapping.to(dtype).save_pretrained(tmp_path)
    again = OrthogonalMapping.from_pretrained(tmp_path)
    assert torch.equal(again.weight, mapping.weight)
    assert (again.weight.dtype, again.report) == (dtype, mapping.report)
    assert again(ToyVectors(53)).vectors(["a"]).dtype == np.float32


def test_a_mapped_source_is_a_source(mapping: OrthogonalMapping, tmp_path: Path):
    model = FastTextVectors.train(
        SENTENCES * 20, tmp_path / "es.bin", dim=5, min_count=1, bucket=100
    )
    mapped = mapping(model)
    assert (mapped.dim, mapped.words) == (5, model.words)
    words = ["song", *UNSEEN, "song", "naïve"]
    rows = mapped.vectors(words)
    assert rows.dtype == np.float32
    expected = model.vectors(words).astype(np.float64) @ rotation(5).numpy()
    np.testing.assert_allclose(rows, expected, atol=1e-6)
    assert [word in mapped for word in ("song", "songs", 5)] == [True, False, False]
    bare = mapping(Table())
    assert bare.words == []
    assert [word in bare for word in ("word", "unknown", None)] == [True, False, False]


@own_words
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: OrthogonalMapping(torch.ones(3, 5)), ValueError, "weight must be a square .*"),
        (lambda m: OrthogonalMapping(1.01 * torch.eye(3)), ValueError, "weight .* from 1 by 0.02"),
        (lambda m: OrthogonalMapping(torch.eye(3) * torch.nan), ValueError, "weight .* 1 by nan"),
        (lambda m: m(ToyVectors(3)), ValueError, "vectors.dim must be the mapping's 5, got 3"),
        (lambda m: m({"a": [1.0]}), TypeError, r"vectors must have dim and vectors.*, got dict"),
    ],
)
def test_what_does_not_fit_is_refused(mapping, call, error: type[Exception], message: str):
    refused(error, f"^{message}$", call, mapping)
