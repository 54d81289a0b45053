"""Ranking layers without training, and what each counts in a fusion."""

import pytest
import torch
from tiny_models import tiny_model
from torch import nn
from torch.nn.functional import cosine_similarity
from toys import own_words

from polyembed import DLFA, LaserElmo, LastLayer, LayerAverage, ScalarMix
from polyembed.encoders import LaserEncoder
from polyembed.experiments import layer_weights, rank_layers


def batch(*rows: list[int]) -> dict[str, torch.Tensor]:
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    return {"input_ids": ids, "attention_mask": ids.ne(0).long()}


SOURCE = [batch([2, 5, 7, 3], [2, 8, 3], [2, 11, 12, 13, 3]), batch([2, 6, 3], [2, 9, 9, 3])]
DE = [batch([2, 15, 7, 3], [2, 18, 18, 3], [2, 11, 3]), batch([2, 16, 3], [2, 9, 3])]
RU = [batch([2, 5, 3], [2, 8, 19, 3], [2, 21, 3]), batch([2, 20, 3], [2, 4, 3])]


@torch.no_grad()
def test_it_is_the_difference_of_two_mean_cosines() -> None:
    model = tiny_model("bert").double()
    table = rank_layers(model, SOURCE, {"de": DE, "ru": RU})
    assert table.columns == ("layer", "average", "cosine", "de", "ru")
    vectors = {}
    for name, batches in (("en", SOURCE), ("de", DE), ("ru", RU)):
        vectors[name] = [
            [
                [layer[row, : int(part["attention_mask"][row].sum())].mean(0) for row in range(len(layer))]
                for layer in model(**part, output_hidden_states=True).hidden_states
            ]
            for part in batches
        ]

    def cosine(language: str, layer: int, shift: int) -> float:
        found = []
        for ours, theirs in zip(vectors["en"], vectors[language], strict=True):
            count = len(ours[layer])
            found += [
                float(cosine_similarity(ours[layer][i], theirs[layer][(i - shift) % count], dim=0))
                for i in range(count)
            ]
        return sum(found) / len(found)

    for layer, average, plain, de, ru in table.rows:
        right = {language: cosine(language, layer, 0) for language in ("de", "ru")}
        wrong = {language: cosine(language, layer, 1) for language in ("de", "ru")}
        assert (de, ru) == pytest.approx((right["de"] - wrong["de"], right["ru"] - wrong["ru"]), abs=1e-9)
        assert average == pytest.approx((de + ru) / 2)
        assert plain == pytest.approx((right["de"] + right["ru"]) / 2)
    averages = [row[1] for row in table.rows]
    assert averages == sorted(averages, reverse=True)
    assert sorted(row[0] for row in table.rows) == [0, 1, 2, 3]


def test_a_layer_that_points_one_way_does_not_rank_first() -> None:
    """Embeddings of their own for each sentence, then a last layer that adds one large vector to all."""

    class Narrow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding.from_pretrained(torch.eye(23))

        def forward(self, input_ids, attention_mask, output_hidden_states):
            states = self.table(input_ids)
            return type("Output", (), {"hidden_states": (states, states + 100.0)})

    table = rank_layers(Narrow(), SOURCE[:1], {"en": SOURCE[:1]})
    assert [row[0] for row in table.rows] == [0, 1]
    assert table.rows[1][2] > 0.99


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
    assert {layer: weight.item() for layer, weight in layer_weights(words).items()} == pytest.approx({1: 0.25, 2: 0.75})


MASK = torch.tensor([[True, True, False, True, True], [True, False, False, False, True]])


@pytest.mark.parametrize(("weighting", "mask"), [("sigmoid", MASK), ("literal", MASK), ("sigmoid", None)])
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
    assert layer_weights(LastLayer(), states) == {3: 1.0}
    assert layer_weights(LayerAverage(), states) == {0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25}
    assert layer_weights(LayerAverage([-1, 1, 3, 0]), states) == {0: 0.25, 1: 0.25, 3: 0.5}
    control = layer_weights(DLFA(8, lower_layer=-1), states)
    assert list(control) == [3]
    assert control[3].tolist() == [1.0] * 16


STATES = [torch.zeros(1, 2, 8) for _ in range(4)]
ONE = [batch([2, 5, 3])]


@own_words
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rank_layers(tiny_model("bert"), SOURCE, {}), "targets must hold at least one language, got none"),
        (lambda: rank_layers(tiny_model("bert"), ONE, {"de": ONE}), r"targets\['de'\]\[0\] must hold .*, got 1"),
        (lambda: layer_weights(nn.ReLU()), "fusion must be a layer fusion whose layers have weights, got ReLU"),
        (lambda: layer_weights(DLFA(8, lower_layer=1)), "hidden_states must be given for DLFA, got None"),
        (lambda: layer_weights(LayerAverage()), "hidden_states must be given for LayerAverage, got None"),
        (lambda: layer_weights(LastLayer()), "hidden_states must be given for LastLayer, got None"),
        (lambda: layer_weights(LayerAverage([4]), STATES), "layers must be a layer of the 4 hidden states, got 4"),
        (lambda: layer_weights(DLFA(8, 9), STATES), "lower_layer must be a layer of the 4 hidden states, got 9"),
        (lambda: layer_weights(DLFA(8, 1), STATES, torch.ones(1, 3) > 0), r"mask must .*, got \(1, 3\)"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{message}$"):
        call()
