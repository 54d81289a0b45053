"""Turned vectors: the numbers, the contract of a source, and their way to a folder and back."""

import copy
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hostile.mutations import change, reseal
from safetensors.torch import load_file, save_file
from toys import TAGS, ToyVectors, own_words

import polyembed as pe
from polyembed.functional import procrustes
from polyembed.vectors import FastTextVectors, MappedVectors, OrthogonalMapping, TextVectors, WordVectors

CORPUS = [["me", "gusta", "that", "song"], ["canción", "y", "song"], ["naïve"]] * 20
UNSEEN = ["songs", "que", "gustaron"]


def rotation(dim: int, seed: int = 0) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(dim, dim, generator=torch.Generator().manual_seed(seed)).double()).Q


@pytest.fixture
def mapping() -> OrthogonalMapping:
    return OrthogonalMapping(rotation(5), report={"dictionary": "pairs", "num_pairs": 3, "criteria": [0.25, 0.5]})


@pytest.fixture
def model(tmp_path: Path) -> FastTextVectors:
    return FastTextVectors.train(CORPUS, tmp_path / "es.bin", dim=5, min_count=1, bucket=100)


class Table:
    """A source with the least there is: no vocabulary."""

    dim = 5

    def vectors(self, words: list[str]) -> np.ndarray:
        return np.float32([[len(word)] * 5 if word != "unknown" else [0] * 5 for word in words])


# The mapping.


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-6), (torch.float32, 1e-6), (torch.bfloat16, 0.05), (torch.float16, 5e-3)],
)
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (0, 5)])
def test_vectors_of_every_shape_and_dtype_are_turned(
    mapping: OrthogonalMapping, dtype: torch.dtype, tolerance: float, shape: tuple[int, ...]
) -> None:
    x = torch.randn(shape).to(dtype)
    before = x.clone()
    turned = mapping.transform(x)
    assert turned.dtype == dtype
    torch.testing.assert_close(turned.double(), x.double() @ rotation(5), atol=tolerance, rtol=0)
    assert torch.equal(x, before)


def test_the_inverse_leads_back(mapping: OrthogonalMapping) -> None:
    x = torch.randn(7, 5)
    assert not torch.allclose(mapping.transform(x), x, atol=0.1)
    torch.testing.assert_close(mapping.inverse().transform(mapping.transform(x)), x)
    assert torch.equal(mapping.inverse().inverse().weight, mapping.weight)
    assert mapping.inverse().report == mapping.report
    words = ["a", "bcd"]
    there_and_back = mapping.inverse()(mapping(ToyVectors(5)))
    np.testing.assert_allclose(there_and_back.vectors(words), ToyVectors(5).vectors(words), atol=1e-6)


def test_a_mapping_is_its_own_copy(mapping: OrthogonalMapping) -> None:
    weight, report = rotation(5).float(), {"num_pairs": 3}
    ours = OrthogonalMapping(weight, report=report)
    weight.zero_()
    report["num_pairs"] = 0
    torch.testing.assert_close(ours.weight, mapping.weight)
    assert ours.report == {"num_pairs": 3}
    back = ours.inverse()
    with torch.no_grad():
        back.weight.zero_()
    torch.testing.assert_close(ours.weight, mapping.weight)
    assert not ours.weight.requires_grad
    assert repr(ours) == "OrthogonalMapping(dim=5, report={'num_pairs': 3})"


def test_a_gradient_flows_through(mapping: OrthogonalMapping) -> None:
    x = torch.randn(3, 5, requires_grad=True)
    mapping.transform(x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, rotation(5).sum(1).float().expand(3, -1))


@own_words
def test_what_is_no_rotation_is_refused(mapping: OrthogonalMapping) -> None:
    for shape in ((3, 5), (5,), (2, 2, 2)):
        with pytest.raises(ValueError, match=r"^weight must be a square matrix, got shape \("):
            OrthogonalMapping(torch.ones(shape))
    for weight, error in ((1.01 * torch.eye(3), "0.02"), (torch.zeros(3, 3), "1"), (torch.eye(3) * torch.nan, "nan")):
        with pytest.raises(ValueError, match=rf"^weight must be orthogonal, got W'W that differs from 1 by {error}$"):
            OrthogonalMapping(weight)
    with pytest.raises(ValueError, match=r"^x must have a last axis of size 5, got shape \(2, 3\)$"):
        mapping.transform(torch.ones(2, 3))
    with pytest.raises(TypeError, match=r"^x must be floating point, got torch.int64$"):
        mapping.transform(torch.ones(2, 5, dtype=torch.int64))


@own_words
def test_no_array_is_taken_for_a_matrix() -> None:
    with pytest.raises(TypeError, match=r"^weight must be a tensor, got ndarray$"):
        OrthogonalMapping(np.eye(3))


def test_autocast_changes_nothing(mapping: OrthogonalMapping) -> None:
    x = torch.randn(7, 5)
    with torch.autocast("cpu", torch.bfloat16):
        turned = mapping.transform(x)
    assert torch.equal(turned, mapping.transform(x))


def test_a_mapping_made_in_inference_mode_serves_gradients_later() -> None:
    with torch.inference_mode():
        mapping = OrthogonalMapping(rotation(5))
    x = torch.ones(3, 5, requires_grad=True)
    mapping.transform(x).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("dim", [1, 3, 5, 53])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_rounding_is_no_fault(dim: int, dtype: torch.dtype, tmp_path: Path) -> None:
    """What `procrustes` gives for narrow vectors is taken, and a mapping made narrow is opened again."""
    x = torch.randn(2 * dim, dim).to(dtype)
    mapping = OrthogonalMapping(procrustes(x, x.flip(0)))
    assert mapping.weight.dtype == torch.float32
    mapping.to(dtype).save_pretrained(tmp_path)
    again = OrthogonalMapping.from_pretrained(tmp_path)
    assert again.weight.dtype == dtype
    assert torch.equal(again.weight, mapping.weight)
    assert mapping(ToyVectors(dim)).vectors(["a"]).dtype == np.float32


def test_a_mapping_is_saved_with_its_report(mapping: OrthogonalMapping, tmp_path: Path) -> None:
    for _ in range(2):  # over its own folder, too
        mapping.save_pretrained(tmp_path / "mapping")
        again = OrthogonalMapping.from_pretrained(tmp_path / "mapping")
        assert torch.equal(again.weight, mapping.weight)
        assert again.report == mapping.report
        assert not again.weight.requires_grad
        mapping = again
    assert sorted(os.listdir(tmp_path / "mapping")) == ["config.json", "model.safetensors"]


def test_damaged_mappings_are_refused(mapping: OrthogonalMapping, tmp_path: Path) -> None:
    mapping.save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    for bad in (torch.ones(5, 5), torch.full((5, 5), torch.nan), 2 * mapping.weight.detach()):
        save_file({"weight": bad}, weights)
        reseal(tmp_path)
        with pytest.raises(ValueError, match=r"(?s)model.safetensors must fit .*\sweight must be orthogonal, got W'W"):
            OrthogonalMapping.from_pretrained(tmp_path)
    save_file({"weight": torch.eye(3)}, weights)
    reseal(tmp_path)
    with pytest.raises(ValueError, match=r"(?s)model.safetensors must fit the module that config.json describes"):
        OrthogonalMapping.from_pretrained(tmp_path)
    save_file({"matrix": torch.eye(5)}, weights)
    reseal(tmp_path)
    with pytest.raises(ValueError, match=r"model.safetensors must hold the module's tensors, got missing \['weight'\]"):
        OrthogonalMapping.from_pretrained(tmp_path)
    weights.write_bytes(b"nonsense")
    reseal(tmp_path)
    with pytest.raises(ValueError, match=r"model.safetensors must be an intact safetensors file"):
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
    assert isinstance(turned, MappedVectors)
    assert isinstance(turned, WordVectors)
    assert turned.dim == 5
    assert turned.words == model.words
    assert turned.files() == model.files()
    words = ["song", *UNSEEN, "song", "naïve"]
    rows = turned.vectors(words)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, model.vectors(words).astype(np.float64) @ rotation(5).numpy(), atol=1e-6)
    assert turned.vectors([]).shape == (0, 5)
    assert "song" in turned
    assert "songs" not in turned
    assert 5 not in turned
    assert repr(turned) == f"MappedVectors(source={model!r}, mapping={mapping!r})"


def test_a_turned_source_keeps_its_own_matrix(mapping: OrthogonalMapping) -> None:
    turned = mapping(Table())
    before = turned.vectors(["ab"])
    mapping.to(torch.bfloat16)
    np.testing.assert_array_equal(turned.vectors(["ab"]), before)
    with torch.no_grad():
        mapping.weight.zero_()
    np.testing.assert_array_equal(turned.vectors(["ab"]), before)


@own_words
def test_a_string_is_no_list_of_words(mapping: OrthogonalMapping) -> None:
    with pytest.raises(TypeError, match=r"^words must be a sequence of words, got the string 'song'$"):
        mapping(Table()).vectors("song")


def test_a_source_without_vocabulary_is_turned_too(mapping: OrthogonalMapping) -> None:
    turned = mapping(Table())
    assert turned.words == []
    assert "word" in turned
    assert "unknown" not in turned
    assert None not in turned
    assert turned.files() == {}
    assert turned.vectors([]).shape == (0, 5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_rows_are_float32_whatever_the_mapping_is(mapping: OrthogonalMapping, dtype: torch.dtype) -> None:
    rows = mapping.to(dtype)(Table()).vectors(["ab"])
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, 2 * rotation(5).sum(0, keepdim=True).numpy(), atol=0.05)


@own_words
def test_what_does_not_fit_is_refused(mapping: OrthogonalMapping) -> None:
    with pytest.raises(ValueError, match=r"^vectors.dim must be the mapping's 5, got 3$"):
        mapping(ToyVectors(3))
    with pytest.raises(TypeError, match=r"^vectors must have dim and vectors\(words\), got dict$"):
        mapping({"song": [1.0]})
    with pytest.raises(TypeError, match=r"^mapping must be an OrthogonalMapping, got Tensor$"):
        MappedVectors(ToyVectors(5), torch.eye(5))


def test_copies_are_equal(mapping: OrthogonalMapping, model: FastTextVectors) -> None:
    turned = mapping(model)
    for twin in (copy.deepcopy(turned), pickle.loads(pickle.dumps(turned))):
        np.testing.assert_array_equal(twin.vectors(["song", "songs"]), turned.vectors(["song", "songs"]))
        assert twin.mapping.report == mapping.report
        assert twin.files() == turned.files()


def test_a_turned_model_goes_along_with_a_saved_module(
    mapping: OrthogonalMapping, model: FastTextVectors, tmp_path: Path
) -> None:
    lexicon = pe.Lexicon.from_sentences(CORPUS)
    embedder = pe.SourceEmbedding(mapping(model), lexicon)
    embedder.save_pretrained(tmp_path / "whole")
    embedder.save_pretrained(tmp_path / "light", copy_vectors=False)
    assert sorted(os.listdir(tmp_path / "whole")) == [
        "config.json",
        "lexicon.json",
        "mapping-0.safetensors",
        "model.safetensors",
        "vectors-0-es.bin",
    ]
    assert sorted(os.listdir(tmp_path / "light")) == ["config.json", "lexicon.json", "model.safetensors"]
    again = pe.SourceEmbedding.from_pretrained(tmp_path / "whole")
    assert torch.equal(again.weight, embedder.weight)
    assert isinstance(again.source, MappedVectors)
    assert again.source.mapping.weight.device.type == "cpu"
    assert again.source.mapping.report == mapping.report
    expected = mapping(model).vectors(UNSEEN)
    np.testing.assert_array_equal(again.source.vectors(UNSEEN), expected)
    light = pe.SourceEmbedding.from_pretrained(tmp_path / "light")
    assert light.source is None
    light.attach(mapping(model))
    for module in (again, light):
        more = module.covering(UNSEEN)
        np.testing.assert_array_equal(more(torch.arange(len(more.lexicon)))[-3:].detach().numpy(), expected)


def test_one_model_turned_two_ways_is_written_once(mapping: OrthogonalMapping, tmp_path: Path) -> None:
    path = tmp_path / "two.vec"
    path.write_text("song 1 2 3 4 5\ncanción 5 4 3 2 1\n")
    source = TextVectors(path)
    lexicon = pe.Lexicon.from_sentences(CORPUS)
    both = pe.MetaEmbedding.concat([pe.SourceEmbedding(turn(source), lexicon) for turn in (mapping, mapping.inverse())])
    both.save_pretrained(tmp_path / "both")
    names = sorted(os.listdir(tmp_path / "both"))
    assert names[2:4] == ["mapping-0.safetensors", "mapping-1.safetensors"]
    assert [name for name in names if name.startswith("vectors")] == ["vectors-0-two.vec"]
    again = pe.MetaEmbedding.from_pretrained(tmp_path / "both")
    one, other = (embedder.source for embedder in again.embedders)
    assert one.source is other.source
    np.testing.assert_array_equal(one.vectors(["song"]), mapping(source).vectors(["song"]))
    np.testing.assert_array_equal(other.vectors(["song"]), mapping.inverse()(source).vectors(["song"]))


def test_a_source_that_cannot_be_rebuilt_is_not_saved(mapping: OrthogonalMapping, tmp_path: Path) -> None:
    embedder = pe.SourceEmbedding(mapping(Table()), pe.Lexicon(["a"]))
    with pytest.raises(TypeError, match=r"source must be something that can be rebuilt .*, got Table$"):
        embedder.save_pretrained(tmp_path / "folder")
    assert os.listdir(tmp_path) == []
    embedder.save_pretrained(tmp_path / "folder", copy_vectors=False)
    assert torch.equal(pe.SourceEmbedding.from_pretrained(tmp_path / "folder").weight, embedder.weight)


@own_words
def test_a_damaged_matrix_of_a_source_is_refused(mapping: OrthogonalMapping, tmp_path: Path) -> None:
    pe.SourceEmbedding(mapping(ToyVectors(5)), pe.Lexicon(["a"])).save_pretrained(tmp_path)
    file = tmp_path / "mapping-0.safetensors"
    assert torch.equal(load_file(file)["weight"], mapping.weight)
    for content, message in (
        ({"weight": torch.ones(5, 5)}, r"mapping-0.safetensors must hold a mapping, got weight must be orthogonal"),
        ({"weight": torch.ones(3, 5)}, r"mapping-0.safetensors must hold a mapping, got weight must be a square"),
        ({"weight": torch.eye(3)}, r"vectors.dim must be the mapping's 3, got 5$"),
        ({"matrix": torch.eye(5)}, r"mapping-0.safetensors must be an intact safetensors file with a weight"),
    ):
        save_file(content, file)
        reseal(tmp_path)
        with pytest.raises(ValueError, match=message):
            pe.SourceEmbedding.from_pretrained(tmp_path)
    file.write_bytes(b"nonsense")
    reseal(tmp_path)
    with pytest.raises(ValueError, match=r"mapping-0.safetensors must be an intact safetensors file with a weight"):
        pe.SourceEmbedding.from_pretrained(tmp_path)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"must name a file, got nothing at .*mapping-0"):
        pe.SourceEmbedding.from_pretrained(tmp_path)

    def leave_out(config: dict) -> None:
        config["config"]["source"]["files"] = {}
        del config["checksums"][file.name]

    change(tmp_path, leave_out)
    with pytest.raises(ValueError, match=r"files must hold all files of MappedVectors, got none for"):
        pe.SourceEmbedding.from_pretrained(tmp_path)


def test_models_of_other_processes_open_the_file_themselves(
    mapping: OrthogonalMapping, model: FastTextVectors, tmp_path: Path
) -> None:
    """What `fit_ensemble` sends to its workers is a pickle: it names the file, so it is small."""
    lexicon = pe.Lexicon.from_sentences(CORPUS)
    embedder = pe.SourceEmbedding(mapping(model), lexicon)
    tagger = pe.SequenceTagger(embedder, TAGS).eval()
    stored = pickle.dumps(tagger)
    assert len(stored) < 50_000
    twin = pickle.loads(stored)
    assert twin.predict([UNSEEN]) == tagger.predict([UNSEEN])
