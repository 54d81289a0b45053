"""Ranking layers without training, and drawing scores against layers."""

import matplotlib
import pytest
import torch
from tiny_models import tiny_model
from torch import nn
from torch.nn.functional import cosine_similarity

from polyembed.analysis import plot_layers, rank_layers

matplotlib.use("Agg")


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


def test_bad_input() -> None:
    model = tiny_model("bert")
    with pytest.raises(ValueError, match=r"^targets must hold at least one language, got none$"):
        rank_layers(model, SOURCE, {})
    one = [batch([2, 5, 3])]
    with pytest.raises(ValueError, match=r"^targets\['de'\]\[0\] must hold at least two sentences, got 1$"):
        rank_layers(model, one, {"de": one})
    with pytest.raises(ValueError, match=r"^scores must hold at least one name, got none$"):
        plot_layers({})
    with pytest.raises(ValueError, match=r"^scores\['de'\] must hold at least one layer, got none$"):
        plot_layers({"de": {"last layer": 0.5}})


def test_the_picture_shows_means_deviations_and_the_last_layer() -> None:
    ax = plot_layers({"de": {"last layer": [0.5, 0.7], 1: [0.4, 0.6], 3: [0.7, 0.7]}, "ru": {2: 0.3}}, ylabel="F1")
    de, last, ru = ax.lines
    assert de.get_xdata().tolist() == [1, 3]
    assert de.get_ydata().tolist() == pytest.approx([0.5, 0.7])
    assert last.get_ydata() == pytest.approx([0.6, 0.6])
    assert ru.get_ydata().tolist() == [0.3]
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(0.5 - 0.02**0.5, abs=1e-6)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["de", "de, last layer", "ru"]
    assert ax.get_ylabel() == "F1"
