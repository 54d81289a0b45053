"""Ranking layers without training, and what each counts in a fusion."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tiny_models import tiny_model, word_piece_tokenizer
from torch import nn
from torch.nn.functional import cosine_similarity
from toys import own_words

import polyembed as pe
from polyembed import DLFA, LastLayer, LayerAverage, ScalarMix
from polyembed.encoders import LaserElmo, LaserEncoder
from polyembed.evaluation import layer_weights, parallel_cosine, plot_layers, rank_layers

EN = [["me", "gusta", "la"], ["song"], ["gusta", "cancion", "a", "b"], ["la", "la"], ["c", "songs"]]
DE = [["me", "song", "la"], ["songs", "b"], ["gusta", "cancion"], ["a"], ["c"]]
RU = [["la"], ["song", "song"], ["b", "cancion"], ["la", "me"], ["songs"]]


def encoder(name: str = "bert", **options) -> pe.PretrainedWordEncoder:
    return pe.PretrainedWordEncoder(tiny_model(name).double(), word_piece_tokenizer(), **options)


def sentence_vectors(
    encoder: pe.PretrainedWordEncoder, sentences, pooling: str
) -> list[torch.Tensor]:
    """Layer by layer, each sentence by itself."""
    rows = []
    for words in sentences:
        pieces = encoder.pieces([words])
        layers = [*encoder.model(pieces.piece_ids, output_hidden_states=True).hidden_states]
        if not isinstance(encoder.fusion, LastLayer):
            layers.append(encoder.fusion(layers))
        inside = pieces.word_index[0] >= 0
        rows.append(
            [layer[0, 0] if pooling == "cls" else layer[0][inside].mean(0) for layer in layers]
        )
    return [torch.stack(layer) for layer in zip(*rows, strict=True)]


@torch.no_grad()
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize(
    ("name", "pooling", "fusion"),
    [
        ("bert", "mean", DLFA(8, 1).double()),
        ("bert", "cls", None),
        ("qwen3", "mean", ScalarMix(4).double()),
        ("llama", "mean", None),
    ],
)
def test_cosine_and_retrieval_of_each_layer(name: str, pooling: str, fusion, center: bool) -> None:
    ours = encoder(name, fusion=fusion).train()
    found = parallel_cosine(ours, EN, DE, pooling=pooling, center=center, batch_size=3)
    assert ours.training
    ours.eval()
    layers = [0, 1, 2, 3] + ([] if fusion is None else ["fused"])
    assert list(found) == layers
    vectors = [sentence_vectors(ours, sentences, pooling) for sentences in (EN, DE)]
    for layer, s, t in zip(layers, *vectors, strict=True):
        if center:
            s, t = s - s.mean(0), t - t.mean(0)
        cosines = [[float(cosine_similarity(x, y, dim=0)) for y in t] for x in s]
        assert found[layer].cosine == pytest.approx(sum(cosines[i][i] for i in range(5)) / 5)
        forth = [row.index(max(row)) == i for i, row in enumerate(cosines)]
        back = [
            column.index(max(column)) == i for i, column in enumerate(zip(*cosines, strict=True))
        ]
        assert found[layer].retrieval == pytest.approx((sum(forth) + sum(back)) / 10)


def test_ranking_averages_over_languages() -> None:
    table = rank_layers(encoder(fusion=ScalarMix(4).double()), EN, {"de": DE, "ru": RU})
    assert table.columns == ("layer", "retrieval", "cosine", "de", "ru")
    de, ru = (
        parallel_cosine(encoder(fusion=ScalarMix(4).double()), EN, other) for other in (DE, RU)
    )
    assert sorted(map(str, (row[0] for row in table.rows))) == ["0", "1", "2", "3", "fused"]
    for layer, *scores in table.rows:
        one, two = de[layer], ru[layer]
        averages = [(one.retrieval + two.retrieval) / 2, (one.cosine + two.cosine) / 2]
        assert scores == pytest.approx([*averages, one.retrieval, two.retrieval])
    order = [(row[1], row[2]) for row in table.rows]
    assert order == sorted(order, reverse=True)
    drawn = plot_layers({"retrieval": {row[0]: row[1] for row in table.rows}})
    assert drawn.get_xticks().tolist() == [0, 1, 2, 3]


def test_a_layer_that_points_one_way_does_not_rank_first() -> None:
    """All of its cosines are 1, of translations and of other sentences."""
    ours = encoder()
    with torch.no_grad():
        ours.model.encoder.layer[2].output.LayerNorm.weight.zero_()
        ours.model.encoder.layer[2].output.LayerNorm.bias.fill_(1.0)
    rows = rank_layers(ours, EN, {"ru": RU}).rows
    assert rows[-1][0] == 3
    assert rows[-1][2] == pytest.approx(1.0)
    assert rows[0][1] > 0.5


def test_threads_rank_an_encoder_that_trains() -> None:
    """Each switched the encoder's mode, and dropout of the others changed the scores."""
    ours = encoder().train()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: parallel_cosine(ours, EN, DE), range(8)))
    assert all(part.training for part in ours.modules())
    assert found == [parallel_cosine(ours.eval(), EN, DE)] * 8


def test_weights_of_a_mix() -> None:
    mix = ScalarMix(3)
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([1.0, 2.0, 4.0]).log())
    found = layer_weights(mix)
    assert {layer: weight.tolist() for layer, weight in found.items()} == {
        0: pytest.approx([1 / 7]), 1: pytest.approx([2 / 7]), 2: pytest.approx([4 / 7]),
    }  # fmt: skip
    assert not any(weight.requires_grad for weight in found.values())
    words = LaserElmo(LaserEncoder(7, 4, 3, num_layers=2))
    with torch.no_grad():
        words.mix.scores.copy_(torch.tensor([1.0, 3.0]).log())
    assert {
        layer: weight.item() for layer, weight in layer_weights(words).items()
    } == pytest.approx({1: 0.25, 2: 0.75})


MASK = torch.tensor([[True, True, False, True, True], [True, False, False, False, True]])


@pytest.mark.parametrize(
    ("weighting", "mask"), [("sigmoid", MASK), ("literal", MASK), ("sigmoid", None)]
)
def test_weights_of_dlfa_mix_its_layers(weighting, mask) -> None:
    """``H_1 * w + H_last * (1 - w)`` at the valid positions is what the module gives in evaluation mode."""
    states = [torch.randn(2, 5, 8) for _ in range(4)]
    fusion = DLFA(8, lower_layer=1, weighting=weighting).train()
    before = {name: value.clone() for name, value in fusion.state_dict().items()}
    found = layer_weights(fusion, states, mask)
    assert list(found) == [1, 3]
    assert fusion.training
    assert all(torch.equal(value, before[name]) for name, value in fusion.state_dict().items())
    valid = torch.ones(2, 5, dtype=torch.bool) if mask is None else mask
    parts = [(states[layer][valid].flatten() * weight) for layer, weight in found.items()]
    torch.testing.assert_close(sum(parts), fusion.eval()(states, mask)[valid].flatten())
    if mask is not None:  # what padding holds does not count
        noisy = [torch.where(mask[..., None], state, torch.nan) for state in states]
        torch.testing.assert_close(layer_weights(fusion, noisy, mask), found)


def test_weights_that_are_constant() -> None:
    states = [torch.zeros(1, 2, 8) for _ in range(4)]
    assert (
        layer_weights(LastLayer(), states)
        == layer_weights(LastLayer(), torch.stack(states))
        == {3: 1.0}
    )
    assert layer_weights(LayerAverage(), states) == {0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25}
    assert layer_weights(LayerAverage([-1, 1, 3, 0]), states) == {0: 0.25, 1: 0.25, 3: 0.5}
    control = layer_weights(DLFA(8, lower_layer=-1), states)
    assert list(control) == [3]
    assert control[3].tolist() == [1.0] * 16


STATES = [torch.zeros(1, 2, 8) for _ in range(4)]


@own_words
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rank_layers(encoder(), EN, {}),
            "targets must hold at least one language, got none",
        ),
        (
            lambda: rank_layers(encoder(), EN, {"de": DE[:4]}),
            r"targets\['de'\] must hold a translation .* 5 .*, got 4",
        ),
        (
            lambda: parallel_cosine(encoder(), EN[:1], DE[:1]),
            "source must hold at least two sentences, got 1",
        ),
        (
            lambda: parallel_cosine(encoder(), EN, [*DE[:4], []]),
            r"target must have a word in each sentence, .*",
        ),
        (
            lambda: parallel_cosine(encoder(), EN, DE, pooling="max"),
            "pooling must be one of 'mean', 'cls', got 'max'",
        ),
        (
            lambda: parallel_cosine(encoder(), EN, DE, batch_size=0),
            "batch_size must be a positive integer, got 0",
        ),
        (
            lambda: parallel_cosine(encoder("llama"), EN, DE, pooling="cls"),
            "pooling must be 'mean' for a causal .*",
        ),
        (
            lambda: layer_weights(nn.ReLU()),
            "fusion must be a layer fusion whose layers have weights, got ReLU",
        ),
        (
            lambda: layer_weights(DLFA(8, lower_layer=1)),
            "hidden_states must be given for DLFA, got None",
        ),
        (
            lambda: layer_weights(LayerAverage()),
            "hidden_states must be given for LayerAverage, got None",
        ),
        (lambda: layer_weights(LastLayer()), "hidden_states must be given for LastLayer, got None"),
        (
            lambda: layer_weights(LayerAverage([4]), STATES),
            "layers must be one of the 4 hidden states .*, got 4",
        ),
        (
            lambda: layer_weights(DLFA(8, 9), STATES),
            "lower_layer must be one of the 4 hidden states .*, got 9",
        ),
        (
            lambda: layer_weights(DLFA(8, 1), STATES, torch.ones(1, 3) > 0),
            r"mask must .*, got \(1, 3\)",
        ),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{message}$"):
        call()
