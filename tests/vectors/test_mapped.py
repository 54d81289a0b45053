"""Turned vectors: the numbers, the contract of a source, and their way to a folder and back."""

import copy
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hostile.mutations import change, reseal
from safetensors.torch import save, save_file
from toys import ToyVectors, own_words

import polyembed as pe
from polyembed.functional import procrustes
from polyembed.vectors import (
    FastTextVectors,
    MappedVectors,
    OrthogonalMapping,
    TextVectors,
    WordVectors,
)

CORPUS = [["me", "gusta", "that", "song"], ["canción", "y", "song"], ["naïve"]] * 20
UNSEEN = ["songs", "que", "gustaron"]


def rotation(dim: int, seed: int = 0) -> torch.Tensor:
    return torch.linalg.qr(
        torch.randn(dim, dim, generator=torch.Generator().manual_seed(seed)).double()
    ).Q


TURN = OrthogonalMapping(rotation(5))


@pytest.fixture
def mapping() -> OrthogonalMapping:
    return OrthogonalMapping(
        rotation(5), report={"dictionary": "pairs", "num_pairs": 3, "criteria": [0.25, 0.5]}
    )


@pytest.fixture
def model(tmp_path: Path) -> FastTextVectors:
    return FastTextVectors.train(CORPUS, tmp_path / "es.bin", dim=5, min_count=1, bucket=100)


class Table:
    """A source with the least there is: no vocabulary."""

    dim = 5

    def vectors(self, words: list[str]) -> np.ndarray:
        return np.float32([[len(word)] * 5 if word != "unknown" else [0] * 5 for word in words])


# The mapping.


def test_the_inverse_leads_back(mapping: OrthogonalMapping) -> None:
    assert torch.equal(mapping.inverse().inverse().weight, mapping.weight)
    assert mapping.inverse().report == mapping.report
    there_and_back = mapping.inverse()(mapping(ToyVectors(5)))
    np.testing.assert_allclose(
        there_and_back.vectors(["a", "b"]), ToyVectors(5).vectors(["a", "b"]), atol=1e-6
    )


def test_a_mapping_is_its_own_copy(mapping: OrthogonalMapping) -> None:
    """Of its matrix; so is its inverse, and so is a source that it has turned."""
    weight, report = rotation(5).float(), {"num_pairs": 3}
    ours = OrthogonalMapping(weight, report=report)
    back, turned = ours.inverse(), ours(Table())
    rows = turned.vectors(["ab"])
    weight.zero_()
    report["num_pairs"] = 0
    assert torch.equal(ours.weight, mapping.weight)
    assert repr(ours) == "OrthogonalMapping(dim=5, report={'num_pairs': 3})"
    with torch.no_grad():
        back.weight.zero_()
    assert torch.equal(ours.weight, mapping.weight)
    ours.to(torch.bfloat16)
    np.testing.assert_array_equal(turned.vectors(["ab"]), rows)
    assert ours(Table()).vectors(["ab"]).dtype == np.float32


def test_a_mapping_made_in_inference_mode_serves_gradients_later() -> None:
    with torch.inference_mode():
        mapping = OrthogonalMapping(rotation(5))
    x = torch.ones(3, 5, requires_grad=True)
    mapping.transform(x).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rounding_is_no_fault(dtype: torch.dtype, tmp_path: Path) -> None:
    """What `procrustes` gives for narrow vectors is taken, and a mapping made narrow is opened again."""
    x = torch.randn(106, 53).to(dtype)
    mapping = OrthogonalMapping(procrustes(x, x.flip(0)), report={"num_pairs": 106})
    assert mapping.weight.dtype == torch.float32
    mapping.to(dtype).save_pretrained(tmp_path)
    again = OrthogonalMapping.from_pretrained(tmp_path)
    assert torch.equal(again.weight, mapping.weight)
    assert (again.weight.dtype, again.report) == (dtype, mapping.report)


def test_damaged_mappings_are_refused(mapping: OrthogonalMapping, tmp_path: Path) -> None:
    mapping.save_pretrained(tmp_path)
    for content, message in (
        (
            {"weight": torch.full((5, 5), torch.nan)},
            r"(?s)model.safetensors must fit .*\sweight must be orthogonal",
        ),
        (
            {"weight": 2 * mapping.weight.detach()},
            r"(?s)model.safetensors must fit .*\sweight must be orthogonal, got",
        ),
        (
            {"weight": torch.eye(3)},
            "model.safetensors must fit the module that config.json describes",
        ),
        ({"matrix": torch.eye(5)}, r"must hold the module's tensors, got missing \['weight'\]"),
    ):
        save_file(content, tmp_path / "model.safetensors")
        reseal(tmp_path)
        with pytest.raises(ValueError, match=message):
            OrthogonalMapping.from_pretrained(tmp_path)


def test_numbers_put_in_later_are_checked_too(mapping: OrthogonalMapping) -> None:
    with pytest.raises(RuntimeError, match="weight must be orthogonal, got W'W"):
        mapping.load_state_dict({"weight": torch.ones(5, 5)})
    torch.testing.assert_close(mapping.weight, rotation(5).float(), msg="the old matrix stays")
    mapping.load_state_dict({"weight": torch.eye(5)})
    assert torch.equal(mapping.transform(torch.ones(5)), torch.ones(5))


# Turned sources.


def test_a_turned_source_is_a_source(mapping: OrthogonalMapping, model: FastTextVectors) -> None:
    turned = mapping(model)
    assert isinstance(turned, WordVectors)
    assert (turned.dim, turned.words, turned.files()) == (5, model.words, model.files())
    words = ["song", *UNSEEN, "song", "naïve"]
    rows = turned.vectors(words)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(
        rows, model.vectors(words).astype(np.float64) @ rotation(5).numpy(), atol=1e-6
    )
    assert [word in turned for word in ("song", "songs", 5)] == [True, False, False]
    assert repr(turned) == f"MappedVectors(source={model!r}, mapping={mapping!r})"
    for twin in (copy.deepcopy(turned), pickle.loads(pickle.dumps(turned))):
        np.testing.assert_array_equal(twin.vectors(words), rows)
        assert (twin.mapping.report, twin.files()) == (mapping.report, turned.files())


def test_a_source_without_vocabulary_is_turned_too(mapping: OrthogonalMapping) -> None:
    turned = mapping(Table())
    assert (turned.words, turned.files()) == ([], {})
    assert [word in turned for word in ("word", "unknown", None)] == [True, False, False]
    assert turned.vectors([]).shape == (0, 5)


@own_words
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: OrthogonalMapping(torch.ones(3, 5)),
            ValueError,
            "weight must be a square matrix, got shape .*",
        ),
        (
            lambda: OrthogonalMapping(torch.ones(5)),
            ValueError,
            r"weight must be a square .*, got shape \(5,\)",
        ),
        (
            lambda: OrthogonalMapping(1.01 * torch.eye(3)),
            ValueError,
            "weight must be .* differs from 1 by 0.02",
        ),
        (
            lambda: OrthogonalMapping(torch.eye(3) * torch.nan),
            ValueError,
            "weight must be .* differs from 1 by nan",
        ),
        (lambda: OrthogonalMapping(np.eye(3)), TypeError, "weight must be a tensor, got ndarray"),
        (lambda: TURN(ToyVectors(3)), ValueError, "vectors.dim must be the mapping's 5, got 3"),
        (
            lambda: TURN({"a": [1.0]}),
            TypeError,
            r"vectors must have dim and vectors\(words\), got dict",
        ),
        (
            lambda: MappedVectors(Table(), torch.eye(5)),
            TypeError,
            "mapping must be an OrthogonalMapping, got Tensor",
        ),
        (
            lambda: TURN(Table()).vectors("me"),
            TypeError,
            "words must be a sequence of words, got the string 'me'",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{message}$"):
        call()


def test_a_turned_model_goes_along_with_a_saved_module(
    mapping: OrthogonalMapping, model: FastTextVectors, tmp_path: Path
) -> None:
    lexicon = pe.Lexicon.from_sentences(CORPUS)
    embedder = pe.SourceEmbedding(mapping(model), lexicon)
    embedder.save_pretrained(tmp_path / "whole")
    embedder.save_pretrained(tmp_path / "light", copy_vectors=False)
    light = {"config.json", "lexicon.json", "model.safetensors"}
    assert {*os.listdir(tmp_path / "light")} == light
    assert {*os.listdir(tmp_path / "whole")} == light | {
        "mapping-0.safetensors",
        "vectors-0-es.bin",
    }
    again = pe.SourceEmbedding.from_pretrained(tmp_path / "whole")
    assert torch.equal(again.weight, embedder.weight)
    assert again.source.mapping.report == mapping.report
    light = pe.SourceEmbedding.from_pretrained(tmp_path / "light")
    assert light.source is None
    light.attach(mapping(model))
    for module in (again, light):
        more = module.with_words(UNSEEN)
        rows = more(torch.arange(len(more.lexicon)))[-3:].detach().numpy()
        np.testing.assert_array_equal(rows, mapping(model).vectors(UNSEEN))


def test_one_model_turned_two_ways_is_written_once(
    mapping: OrthogonalMapping, tmp_path: Path
) -> None:
    path = tmp_path / "two.vec"
    path.write_text("song 1 2 3 4 5\ncanción 5 4 3 2 1\n")
    source = TextVectors(path)
    lexicon = pe.Lexicon.from_sentences(CORPUS)
    both = pe.MetaEmbedding.concat(
        [pe.SourceEmbedding(turn(source), lexicon) for turn in (mapping, mapping.inverse())]
    )
    both.save_pretrained(tmp_path / "both")
    names = sorted(os.listdir(tmp_path / "both"))
    assert names[2:4] == ["mapping-0.safetensors", "mapping-1.safetensors"]
    assert [name for name in names if name.startswith("vectors")] == ["vectors-0-two.vec"]
    again = pe.MetaEmbedding.from_pretrained(tmp_path / "both")
    one, other = (embedder.source for embedder in again.embedders)
    assert one.source is other.source
    np.testing.assert_array_equal(one.vectors(["song"]), mapping(source).vectors(["song"]))
    np.testing.assert_array_equal(
        other.vectors(["song"]), mapping.inverse()(source).vectors(["song"])
    )


@own_words
def test_a_damaged_matrix_of_a_source_is_refused(
    mapping: OrthogonalMapping, tmp_path: Path
) -> None:
    pe.SourceEmbedding(mapping(ToyVectors(5)), pe.Lexicon(["a"])).save_pretrained(tmp_path)
    file = tmp_path / "mapping-0.safetensors"
    for content, message in (
        (
            {"weight": torch.ones(5, 5)},
            r"mapping-0.safetensors must hold a mapping, got weight must be orthogonal",
        ),
        (
            {"weight": torch.ones(3, 5)},
            r"mapping-0.safetensors must hold a mapping, got weight must be a square",
        ),
        ({"weight": torch.eye(3)}, r"vectors.dim must be the mapping's 3, got 5$"),
        (
            {"matrix": torch.eye(5)},
            r"mapping-0.safetensors must be an intact safetensors file with a weight",
        ),
        (None, r"mapping-0.safetensors must be an intact safetensors file with a weight"),
    ):
        file.write_bytes(b"nonsense" if content is None else save(content))
        reseal(tmp_path)
        with pytest.raises(ValueError, match=message):
            pe.SourceEmbedding.from_pretrained(tmp_path)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"must name a file, got nothing at .*mapping-0"):
        pe.SourceEmbedding.from_pretrained(tmp_path)
    change(tmp_path, lambda config: config["config"]["source"].update(files={}))
    change(tmp_path, lambda config: config["checksums"].pop(file.name))
    with pytest.raises(
        ValueError, match=r"files must hold all files of MappedVectors, got none for"
    ):
        pe.SourceEmbedding.from_pretrained(tmp_path)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.bfloat16, 0.05)])
@pytest.mark.parametrize("shape", [(5,), (2, 3, 5), (0, 5)])
def test_vectors_are_turned(
    mapping: OrthogonalMapping, dtype: torch.dtype, tolerance: float, shape: tuple
) -> None:
    x = torch.randn(shape).to(dtype)
    turned = mapping.transform(x)
    assert turned.dtype == dtype
    torch.testing.assert_close(turned.double(), x.double() @ rotation(5), atol=tolerance, rtol=0)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(turned, mapping.transform(x))
    torch.testing.assert_close(
        mapping.inverse().transform(turned).double(), x.double(), atol=tolerance, rtol=0
    )
