"""Ranking of layers without training, and the weight of each layer in a fusion."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from checks import refused
from tiny_models import tiny_model, word_piece_tokenizer
from torch.nn.functional import cosine_similarity
from toys import own_words

import polyembed as pe
from polyembed import DLFA, LastLayer, ScalarMix
from polyembed.evaluation import rank_layers

EN = [["me", "gusta", "la"], ["song"], ["gusta", "cancion", "a", "b"], ["la", "la"], ["c", "songs"]]
DE = [["me", "song", "la"], ["songs", "b"], ["gusta", "cancion"], ["a"], ["c"]]
RU = [["la"], ["song", "song"], ["b", "cancion"], ["la", "me"], ["songs"]]


def encoder(name: str = "bert", **options) -> pe.PretrainedWordEncoder:
    return pe.PretrainedWordEncoder(tiny_model(name).double(), word_piece_tokenizer(), **options)


def sentence_vectors(encoder: pe.PretrainedWordEncoder, sentences) -> list[torch.Tensor]:
    """Return the sentence vectors of each layer, from an encoding of each sentence alone."""
    rows = []
    for words in sentences:
        pieces = encoder.pieces([words])
        layers = [*encoder.model(pieces.piece_ids, output_hidden_states=True).hidden_states]
        if not isinstance(encoder.fusion, LastLayer):
            layers.append(encoder.fusion(layers))
        inside = pieces.word_index[0] >= 0
        rows.append([x[0][inside].mean(0) for x in layers])
    return [torch.stack(layer) for layer in zip(*rows, strict=True)]


@torch.no_grad()
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize(
    ("name", "fusion"),
    [("bert", DLFA(8, 1).double()), ("bert", None), ("qwen3", ScalarMix(4).double())],
)
def test_cosine_and_retrieval_of_each_layer(name: str, fusion, center: bool):
    ours = encoder(name, fusion=fusion).train()
    options = {"center": center, "batch_size": 3}
    table = rank_layers(ours, EN, {"de": DE, "ru": RU}, **options)
    assert table.columns == ("layer", "retrieval", "cosine", "de", "ru")
    assert ours.training
    ours.eval()
    layers = [0, 1, 2, 3] + ([] if fusion is None else ["fused"])
    vectors = [sentence_vectors(ours, sentences) for sentences in (EN, DE, RU)]
    expected = {}
    for layer, s, *others in zip(layers, *vectors, strict=True):
        s, *others = (x - x.mean(0) if center else x for x in (s, *others))
        means, shares = [], []
        for t in others:
            cosines = [[float(cosine_similarity(x, y, dim=0)) for y in t] for x in s]
            means.append(sum(cosines[i][i] for i in range(5)) / 5)
            both = [*cosines, *zip(*cosines, strict=True)]
            shares.append(sum(row.index(max(row)) == i % 5 for i, row in enumerate(both)) / 10)
        expected[layer] = [sum(shares) / 2, sum(means) / 2, *shares]
    assert {row[0]: [*row[1:]] for row in table.rows} == {
        layer: pytest.approx(scores) for layer, scores in expected.items()
    }
    order = [(row[1], row[2]) for row in table.rows]
    assert order == sorted(order, reverse=True)


def test_threads_rank_an_encoder_that_trains():
    """Regression: threads switched the encoder's mode, so dropout changed each other's scores."""
    ours = encoder().train()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: rank_layers(ours, EN, {"de": DE}).rows, range(8)))
    assert all(part.training for part in ours.modules())
    assert found == [rank_layers(ours.eval(), EN, {"de": DE}).rows] * 8


MASK = torch.tensor([[True, True, False, True, True], [True, False, False, False, True]])


@pytest.mark.parametrize(
    ("weighting", "mask"), [("sigmoid", MASK), ("literal", MASK), ("sigmoid", None)]
)
def test_weights_of_dlfa_mix_its_layers(weighting, mask):
    """The module returns ``H_1 * w + H_last * (1 - w)`` at the valid positions."""
    states = [torch.randn(2, 5, 8) for _ in range(4)]
    fusion = DLFA(8, lower_layer=1, weighting=weighting).eval()
    w = fusion.weight(states, mask)
    valid = torch.ones(2, 5, dtype=torch.bool) if mask is None else mask
    mixed = states[1] * w + states[3] * (1 - w)
    torch.testing.assert_close(mixed[valid], fusion(states, mask)[valid])
    if mask is not None:  # the contents of padding do not count
        noisy = [torch.where(mask[..., None], state, torch.nan) for state in states]
        torch.testing.assert_close(fusion.weight(noisy, mask)[valid], w[valid])


@own_words
@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (EN, DE[:4], r"targets\['de'\] must hold a translation .* 5 .*, got 4"),
        (EN[:1], DE, "source must hold at least two sentences, got 1"),
        (EN, [*DE[:4], []], r"sentences must have a word each, .* \[4\]"),
    ],
)
def test_bad_input(source, target, message: str):
    refused(ValueError, "targets must hold a language, got none", rank_layers, encoder(), EN, {})
    refused(ValueError, f"^{message}$", rank_layers, encoder(), source, {"de": target})
