"""Plots: the tests read the drawn values and texts back from the figures."""

import sys

import matplotlib
import numpy as np
import pytest
import torch
from checks import refused
from matplotlib import pyplot as plt
from torch import nn
from toys import own_words

import polyembed as pe
from polyembed.evaluation import (
    plot_layer_weights,
    plot_representations,
    plot_source_attention,
)
from polyembed.evaluation.representations import project_2d

matplotlib.use("Agg")

CLOUDS = {"en": torch.randn(5, 7), "qu": torch.randn(3, 7)}
SHARES = torch.tensor([[0.9, 0.2, 0.5], [0.1, 0.8, 0.5]])
PLOTS = {
    "plot_source_attention": lambda **on: plot_source_attention(
        SHARES, ["a", "b", "c"], sources=["es", "en"], **on
    ),
    "plot_layer_weights": lambda **on: plot_layer_weights({"mix": {0: 0.4, 1: 0.6}}, **on),
    "plot_representations": lambda **on: plot_representations({"before": CLOUDS}, **on),
}


def texts(labels: object) -> list[str]:
    return [label.get_text() for label in labels]


@pytest.mark.parametrize("name", PLOTS)
def test_it_draws_on_the_axes_it_is_given(name: str, monkeypatch: pytest.MonkeyPatch):
    figure, (ax, other) = plt.subplots(1, 2)
    many = name == "plot_representations"
    found = PLOTS[name](**({"axes": [ax]} if many else {"ax": ax}))
    assert (found[0] if many else found) is ax
    assert ax.has_data()
    assert not other.has_data()
    assert plt.get_fignums() == [figure.number]
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=rf"^{name} must find .* pip install matplotlib$"):
        PLOTS[name]()


@pytest.mark.parametrize("name", ["$a$ $", "_"])
def test_names_are_written_as_they_are(name: str):
    """A dollar sign does not start a formula, and an underscore does not hide the legend entry."""
    ax = plot_layer_weights({name: {1: 0.5}})
    (legend,) = ax.get_legend().get_texts()
    assert (legend.get_text(), legend.get_parse_math()) == (name, False)


# -- sources


def test_attention_of_a_meta_embedding():
    lexicon = pe.Lexicon(f"w{i}" for i in range(9))
    tables = [pe.SourceEmbedding.from_embedding(nn.Embedding(11, dim), lexicon) for dim in (3, 5)]
    mme = pe.MetaEmbedding.self_attention(tables, embedding_dim=7).requires_grad_(False)
    ids, words = torch.tensor([2, 5, 3]), ["me", "gusta", "song"]
    weights = mme.attention_weights(ids)
    ax = plot_source_attention(weights, words, sources=["es", "en"], languages=["es", "es", "en"])
    pairs = zip(mme.combiner.projections, tables, strict=True)
    powers = torch.stack([project(table(ids)).tanh().exp() for project, table in pairs])
    shares = (powers / powers.sum(0)).mean(-1)
    np.testing.assert_allclose(ax.images[0].get_array(), shares, atol=1e-6)
    assert texts(ax.get_xticklabels()) == words
    assert texts(ax.get_yticklabels()) == ["es", "en"]
    assert texts(ax.child_axes[0].get_xticklabels()) == ["es", "es", "en"]


# -- layers


def test_bars_of_layer_weights():
    mix = pe.ScalarMix(3)
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([1.0, 2.0, 5.0]).log())
    mean = {1: torch.tensor([[0.1, 0.4], [0.1, 0.2]]), 2: torch.tensor([0.8])}
    ax = plot_layer_weights({"mix": dict(enumerate(mix.weights)), "DLFA": mean})
    by_label = {bars.get_label(): bars for bars in ax.containers if hasattr(bars, "patches")}
    for name, heights in (("mix", [1 / 8, 2 / 8, 5 / 8]), ("DLFA", [0.2, 0.8])):
        assert [bar.get_height() for bar in by_label[name].patches] == pytest.approx(heights)
    line = by_label["DLFA"].errorbar.lines[2][0].get_segments()[0]
    deviation = (sum((x - 0.2) ** 2 for x in (0.1, 0.4, 0.1, 0.2)) / 3) ** 0.5
    assert line[:, 1].tolist() == pytest.approx([0.2 - deviation, 0.2 + deviation])
    assert ax.get_xticks().tolist() == [0, 1, 2]


# -- representations


@own_words
def test_bad_input_draws_nothing():
    rule = r"^weights must have the axes \(source, word\), \(2, 2\), .*, got shape \(2, 3\)$"
    refused(ValueError, rule, plot_source_attention, SHARES, ["a", "b"], sources=["es", "en"])
    assert not plt.get_fignums()


def test_points_are_the_projected_clouds():
    (ax,) = plot_representations({"XLM-R": CLOUDS})
    for points, cloud in zip(ax.collections, project_2d(list(CLOUDS.values())), strict=True):
        np.testing.assert_allclose(points.get_offsets(), cloud, atol=1e-12)
    axes = plot_representations({"before": CLOUDS, "after": CLOUDS})
    assert [ax.get_title() for ax in axes] == ["before", "after"]
