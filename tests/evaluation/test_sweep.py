"""The sweep over lower layers: which systems it trains, and that its averages are those of the runs."""

import pytest
import torch
from tiny_models import tiny_model, word_piece_tokenizer
from torch import nn
from toys import TAGS, toy_corpus

import polyembed as pe
from polyembed.data import SentencePair, TaggedSentence
from polyembed.evaluation import plot_layers
from polyembed.evaluation.compare import Corpus
from polyembed.evaluation.protocols import run_code_switched, run_zero_shot
from polyembed.evaluation.sweep import sweep_layers
from polyembed.training import FitOptions
from polyembed.training.fit import Training

CORPUS = toy_corpus(3)
EN = Corpus("en", CORPUS, CORPUS[:3], CORPUS[3:])
DE = Corpus("de", test=CORPUS[1:4])
RU = Corpus("ru", test=[TaggedSentence(("gusta", "song"), ("B-ES", "O"))])
BESIDE = {"average of all": pe.LayerAverage}
OPTIONS = {
    "seeds": (0, 1),
    "options": FitOptions(metric="accuracy", num_train_epochs=2, batch_size=2),
}


def build(fusion, train, seed):
    encoder = pe.PretrainedWordEncoder(
        tiny_model("bert", seed=seed), word_piece_tokenizer(), fusion=fusion
    )
    return pe.SequenceTagger(encoder, TAGS, decoder=pe.SoftmaxDecoder(8, len(TAGS)))


def fusion(layer):
    return pe.DLFA(8, layer)


def test_each_system_is_what_zero_shot_trains() -> None:
    result = sweep_layers(
        build,
        EN,
        [DE, RU],
        layers=[2, 3],
        fusion=fusion,
        beside=BESIDE,
        family=["en", "de"],
        **OPTIONS,
    )
    by_hand = run_zero_shot(
        {
            "last": lambda train, seed: build(pe.LastLayer(), train, seed),
            "mean": lambda train, seed: build(pe.LayerAverage(), train, seed),
            "two": lambda train, seed: build(pe.DLFA(8, 2), train, seed),
            "control": lambda train, seed: build(pe.DLFA(8, 3), train, seed),
        },
        EN,
        [DE, RU],
        **OPTIONS,
    )
    assert result.table.columns == ("system", "average", "family", "rest", "en", "de", "ru")
    assert [row[0] for row in result.table.rows] == ["last layer", "average of all", "D_2", "D_3"]
    for layer, name in (
        ("last layer", "last"),
        ("average of all", "mean"),
        (2, "two"),
        (3, "control"),
    ):
        expected = {
            language: list(by_hand.scores(name, language).values())
            for language in ("en", "de", "ru")
        }
        assert {language: result.scores[language][layer] for language in expected} == expected
        for seed in range(2):
            en, de, ru = (expected[language][seed] for language in ("en", "de", "ru"))
            assert result.scores["average"][layer][seed] == pytest.approx((en + de + ru) / 3)
            assert result.scores["family"][layer][seed] == pytest.approx((en + de) / 2)
            assert result.scores["rest"][layer][seed] == ru
    row = result.table.rows[2]
    assert row[1].mean == pytest.approx(sum(result.scores["average"][2]) / 2)
    assert row[1].deviation == pytest.approx(
        torch.tensor(result.scores["average"][2]).std().item(), abs=1e-6
    )
    for column, part in result.scores.items():
        assert sum(part[result.best[column]]) == max(sum(part[2]), sum(part[3]))
    assert plot_layers({"average": result.scores["average"]}).get_xticks().tolist() == [2, 3]


@pytest.mark.parametrize("layers", [[1, 2, 3], [3, 1, 2]])
def test_the_best_layer_has_the_highest_scores(layers: list[int]) -> None:
    """Taggers that always say the same: a tag of the texts around layer 2, one that they never have around others."""

    def fixed(fusion, train, seed):
        tagger = build(fusion, train, seed)
        says = "O" if getattr(fusion, "lower_layer", 0) == 2 else "I-EN"
        tagger.decoder.linear.bias.data.fill_(-99.0)[TAGS.index(says)] = 99.0
        return tagger

    options = {"seeds": (0,), "options": FitOptions(metric="accuracy", num_train_epochs=1)}
    result = sweep_layers(fixed, EN, [DE], layers=layers, fusion=fusion, **options)
    scores = result.scores["average"]
    assert scores[2][0] > max(scores[1][0], scores[3][0])
    assert result.best == {"average": 2, "en": 2, "de": 2}


def test_a_sweep_goes_on_where_it_stopped(tmp_path, monkeypatch) -> None:
    options = {**OPTIONS, "seeds": (0,), "folder": tmp_path}
    first = sweep_layers(build, EN, [DE], layers=[1], fusion=fusion, **options)
    trained = []
    train = Training.run
    monkeypatch.setattr(
        Training,
        "run",
        lambda self, run, **kw: trained.append(self.model) or train(self, run, **kw),
    )
    again = sweep_layers(build, EN, [DE], layers=[1, 2], fusion=fusion, **options)
    assert [tagger.embedder.fusion.lower_layer for tagger in trained] == [2]
    assert again.table.rows[:2] == first.table.rows


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"layers": []}, ValueError, "^layers must hold at least one layer, got none$"),
        ({"layers": [1, 1]}, ValueError, r"^layers must be different, got \[1, 1\]$"),
        ({"layers": [1.5]}, TypeError, r"^layers must hold whole numbers, got 1.5$"),
        ({"layers": [9]}, ValueError, "^lower_layer must be one of the 4 hidden states .*, got 9$"),
        (
            {"fusion": lambda layer: nn.Linear(2, 2)},
            TypeError,
            "^fusion must give a LayerFusion, got Lin",
        ),
        ({"family": ["de"]}, ValueError, r"^family must hold the source 'en', got \['de'\]$"),
        (
            {"family": ["en", "xx"]},
            ValueError,
            r"^family must hold languages that are tested, en, de, got \['xx'\]$",
        ),
        (
            {"beside": {"D_1": pe.LayerAverage}},
            ValueError,
            r"^beside must have other names .* sweep, got \['D_1'\]$",
        ),
        (
            {"language": "average"},
            ValueError,
            r"^languages must have other names than .*, got \['average'\]$",
        ),
        (
            {"family": ["en", "de"]},
            ValueError,
            r"^family must leave out a language that is tested, got \['en', 'de'\]",
        ),
    ],
)
def test_bad_input(options, error, message) -> None:
    arguments = {"layers": [1], "fusion": fusion, **OPTIONS, **options}
    other = DE._replace(language=arguments.pop("language", "de"))
    with pytest.raises(error, match=message):
        sweep_layers(build, EN, [other], **arguments)


def test_code_switched_text_is_trained_and_tested_on_by_itself() -> None:
    options = {**OPTIONS, "seeds": (0,)}
    result = sweep_layers(build, EN, layers=[1], fusion=fusion, **options)
    assert result.table.columns == ("system", "en")
    assert result.averages == {}
    systems = {"D_1": lambda train, seed: build(pe.DLFA(8, 1), train, seed)}
    by_hand = run_code_switched(systems, [EN], **options)
    assert result.scores["en"][1] == list(by_hand.scores("D_1", "en").values())


def test_pairs() -> None:
    """Half of the paper's tables: a pair is read in one row, and the fused layers of its first piece are classified."""
    pairs = [
        SentencePair(("me", "gusta"), ("song",), "yes"),
        SentencePair(("song",), ("la", "cancion"), "no"),
    ] * 2

    def pair_model(fusion, train, seed):
        encoder = pe.PretrainedWordEncoder(
            tiny_model("bert", seed=seed), word_piece_tokenizer(), fusion=fusion
        )
        return pe.PairClassifier(encoder, ["no", "yes"])

    en, de = Corpus("en", pairs, pairs, pairs), Corpus("de", test=pairs[::-1])
    options = FitOptions(num_train_epochs=1, batch_size=2)
    result = sweep_layers(pair_model, en, [de], options, layers=[1], fusion=fusion, seeds=(0,))
    assert result.protocol.metric == "accuracy"
    assert [row[0] for row in result.table.rows] == ["last layer", "D_1"]
    assert result.protocol.gold["de"] == [["no"], ["yes"]] * 2
