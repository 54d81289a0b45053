import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import ModuleType, SimpleNamespace

import numpy as np
import oracles
import pytest
import torch
from checks import refused
from torch import Tensor, nn
from toys import own_words

from polyembed import RepresentationTransformationNetwork, transformed_output
from polyembed.evaluation import (
    collect_hidden_states,
    representation_distances,
)
from polyembed.evaluation.representations import project_2d
from polyembed.transfer import encoder_layer


def bert() -> nn.Module:
    from transformers import BertConfig, BertForTokenClassification

    sizes = {"hidden_size": 12, "num_attention_heads": 2, "intermediate_size": 17}
    return BertForTokenClassification(BertConfig(vocab_size=31, num_hidden_layers=2, **sizes))


def make_batch(rows: int, length: int, seed: int, left: bool = False) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, length + 1, (rows,), generator=generator)
    mask = (torch.arange(length) < lengths[:, None]).long()
    mask = mask.flip(1) if left else mask
    return {
        "input_ids": torch.randint(5, 31, (rows, length), generator=generator),
        "attention_mask": mask,
    }


@pytest.mark.parametrize(("layer", "left"), [(0, True), (1, False), (2, True)])
def test_collects_the_states_of_a_layer(layer: int, left: bool):
    model, batches = bert().train(), [make_batch(3, 7, 1, left), make_batch(2, 5, 2, left)]
    tokens, firsts = [], []
    with torch.no_grad():
        model.eval()
        for batch in batches:
            states = model(**batch, output_hidden_states=True).hidden_states[layer]
            for row, mask in zip(states, batch["attention_mask"].tolist(), strict=True):
                points = [row[i] for i, valid in enumerate(mask) if valid]
                tokens += points
                firsts.append(points[0])
    model.train()
    model.bert.encoder.eval()
    found = collect_hidden_states(model, iter(batches), np.int64(layer))
    torch.testing.assert_close(found, torch.stack(tokens))
    heads = collect_hidden_states(model, batches, layer, "cls")
    torch.testing.assert_close(heads, torch.stack(firsts))
    assert torch.equal(collect_hidden_states(model, batches, layer, max_points=11), found[:11])
    assert torch.equal(collect_hidden_states(model, batches, encoder_layer(model, layer)), found)
    assert not found.requires_grad
    assert model.training
    assert not model.bert.encoder.training
    assert not model.bert.embeddings._forward_hooks


def test_threads_collect_from_a_model_that_trains():
    model, batches = bert().train(), [[make_batch(3, 7, i)] * 9 for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(partial(collect_hidden_states, model, layer=1), batches * 3))
    assert model.training
    for one, rows in zip(found, batches * 3, strict=True):
        torch.testing.assert_close(one, collect_hidden_states(model, rows, 1))


def test_a_layer_that_runs_twice_gives_its_last_states():
    from transformers import AlbertConfig, AlbertModel

    sizes = {"hidden_size": 12, "num_attention_heads": 2, "intermediate_size": 17}
    model = AlbertModel(AlbertConfig(vocab_size=31, embedding_size=5, **sizes)).eval()
    batches = [make_batch(3, 7, 1), make_batch(2, 5, 2)]
    layer = model.encoder.albert_layer_groups[0].albert_layers[0]
    expected = [model(**x).last_hidden_state[x["attention_mask"] == 1] for x in batches]
    torch.testing.assert_close(collect_hidden_states(model, batches, layer), torch.cat(expected))


def test_with_the_transform():
    model, batch = bert(), make_batch(3, 7, 1)
    rtn = RepresentationTransformationNetwork(12, bottleneck=5)
    plain = collect_hidden_states(model, [batch], 1)
    with transformed_output(encoder_layer(model, 1), rtn):
        torch.testing.assert_close(collect_hidden_states(model, [batch], 1), rtn(plain).detach())


def test_reads_no_more_than_it_needs_and_no_empty_sentence():
    batch = make_batch(3, 7, 1)
    batch["attention_mask"][1] = 0

    def batches():
        yield batch
        raise AssertionError

    model = bert()
    found = collect_hidden_states(model, batches(), 1, "cls", max_points=2)
    rest = {name: value[[0, 2]] for name, value in batch.items()}
    torch.testing.assert_close(found, collect_hidden_states(model, [rest], 1, "cls"))


CLOUD = torch.ones(4, 3)


@own_words
def test_bad_input():
    rule = "^batches must hold at least one batch, got none$"
    refused(ValueError, rule, collect_hidden_states, bert(), [], 1)
    rule = r"^source must hold points in rows, got shape \(0, 3\)$"
    refused(ValueError, rule, representation_distances, CLOUD[:0], CLOUD)
    rule = r"^target must have a last axis of size 3, got shape \(4, 2\)$"
    refused(ValueError, rule, representation_distances, CLOUD, CLOUD[:, :2])


def test_distances():
    source, target = torch.randn(10, 5, dtype=torch.float64).split([7, 3])
    cosines = [[oracles.cosine(s, t) for t in target.tolist()] for s in source.tolist()]
    rows = [1 - max(row) for row in cosines]
    columns = [1 - max(column) for column in zip(*cosines, strict=True)]
    found = representation_distances(source, target, chunk=2)
    assert found.hausdorff == pytest.approx(max(*rows, *columns))
    assert found.modified == pytest.approx(max(sum(rows) / 7, sum(columns) / 3))
    assert found.cosine == pytest.approx(sum(map(sum, cosines)) / 21)


def test_principal_components():
    one, other = torch.randn(11, 5) * torch.tensor([1.0, 5.0, 2.0, 0.1, 0.3]), torch.randn(7, 5)
    points = project_2d([one, other])
    whole = torch.cat([one, other]).double().numpy()
    whole = whole - whole.mean(0)
    left, sizes, _ = np.linalg.svd(whole, full_matrices=False)
    found = torch.cat(points).numpy()
    expected = left[:, :2] * sizes[:2]
    np.testing.assert_allclose(found, np.sign((expected * found).sum(0)) * expected, atol=1e-9)
    axes = np.linalg.pinv(whole) @ found
    assert all(axis[np.abs(axis).argmax()] > 0 for axis in axes.T)


def test_umap(monkeypatch: pytest.MonkeyPatch):
    """Check the options given to a stub of UMAP, and the division of its result into clouds."""
    given: list[dict[str, int]] = []

    def make(**options):
        given.append(options)
        return SimpleNamespace(fit_transform=first_two)

    def first_two(points):
        torch.set_num_threads(threads + 1)  # as numba does
        return points[:, :2].astype(np.float32)

    stub = ModuleType("umap")
    stub.UMAP = make
    monkeypatch.setitem(sys.modules, "umap", stub)
    one, other, threads = torch.randn(3, 5), torch.randn(2, 5), torch.get_num_threads()
    found = project_2d([one, other], "umap", seed=7)
    assert torch.get_num_threads() == threads
    assert given == [{"n_components": 2, "n_neighbors": 4, "random_state": 7, "n_jobs": 1}]
    torch.testing.assert_close(found[1], other[:, :2])
