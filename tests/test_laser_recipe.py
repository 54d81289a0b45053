"""The paper's task model and trainings, as the examples build them from the recipes."""

import dataclasses

import _laser
import pytest
import torch
from laser_files import small_encoder
from tiny_models import tiny_model, word_piece_tokenizer
from toys import TAGS, toy_bpe_tokenizer, toy_corpus

import polyembed as pe

SMALL = {"hidden_size": 6, "feed_forward_size": 6}


def top(**options) -> pe.encoders.LaserTop:
    return pe.encoders.LaserTop(small_encoder(), toy_bpe_tokenizer(), **options)


def test_the_papers_tagger() -> None:
    tagger = _laser.build_tagger(top(), TAGS)
    config = tagger.encoder.get_config()
    sizes = [config[name] for name in ("hidden_size", "num_layers", "num_heads", "kernel_size")]
    assert [*sizes, config["feed_forward_size"]] == [300, 2, 2, 1, 300]
    dropout = [config[name] for name in ("input_dropout", "dropout", "attention_dropout")]
    assert dropout == [0.25, 0.15, 0.0]
    assert not config["norm_first"]
    assert isinstance(tagger.decoder, pe.CRFDecoder)


@pytest.mark.parametrize(
    ("recipe", "kind", "norm"),
    [
        ("baselines", torch.optim.Adam, None),
        ("laser", torch.optim.SGD, 1.0),
        ("transformers", torch.optim.AdamW, None),
    ],
)
def test_every_training_runs(recipe: str, kind: type, norm: float | None) -> None:
    data = toy_corpus(8)
    if recipe == "transformers":
        words = pe.PretrainedWordEncoder(tiny_model("bert"), word_piece_tokenizer())
        tagger = _laser.build_transformer_tagger(words, TAGS)
    else:
        tagger = _laser.build_tagger(top(freeze="embeddings"), TAGS, **SMALL)
    options = _laser.training_options(
        recipe, len(data), num_train_epochs=3, batch_size=5, metric="accuracy"
    )
    assert options.max_grad_norm == norm
    optimizer = options.make_optimizer(tagger)
    assert type(optimizer) is kind
    made = []

    def scheduler_of(optimizer: torch.optim.Optimizer):
        made.append(options.make_scheduler(optimizer, 1))
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 / 25)
        return made[0]

    watched = dataclasses.replace(
        options, optimizer=lambda _: optimizer, scheduler=options.scheduler and scheduler_of
    )
    result = pe.fit(tagger, data, data, watched)
    assert result.history[-1].loss < result.history[0].loss
    group = optimizer.param_groups[0]
    if recipe == "laser":
        assert made[0].total_steps == 3 * 5
        assert group["lr"] < 0.1 / 25, "the cycle has come to its end"
        assert group["momentum"] == pytest.approx(0.95, abs=0.01)
    else:
        assert group["lr"] == _laser.RECIPES[recipe]["training"]["learning_rate"]


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (
            "baselines",
            {
                "num_train_epochs": 15,
                "max_decreases": 2,
                "optimizer": "Adam",
                "learning_rate": 1e-3,
                "weight_decay": 1e-3,
            },
        ),
        ("transformers", {"num_train_epochs": 4, "batch_size": 16, "learning_rate": 5e-5}),
    ],
)
def test_the_recipes_say_what_the_paper_says(recipe: str, expected: dict) -> None:
    assert expected.items() <= _laser.RECIPES[recipe]["training"].items()


def test_only_punctuation_and_case_are_normalised() -> None:
    normalize = pe.Normalizer(**_laser.RECIPES["normalizer"])
    words = ["“Ann”", "@ANN", "#Rome", "www.X.es", "😂"]
    assert normalize(words) == ['"ann"', "@ann", "#rome", "www.x.es", "😂"]


@pytest.mark.parametrize(
    ("section", "place"),
    [
        (_laser.RECIPES, "laser2019"),
        (_laser.RECIPES["encoder"], r"laser2019\.encoder"),
        (_laser.RECIPES["baselines"]["training"], r"laser2019\.baselines\.training"),
        (_laser.RECIPES["laser"]["search"], r"laser2019\.laser\.search"),
    ],
)
def test_keys_that_nothing_takes(section: dict, place: str, monkeypatch) -> None:
    monkeypatch.setitem(section, "hiden_size", 0)
    rule = rf"^recipes\.toml: {place} must have keys among .*hiden_size"
    with pytest.raises(SystemExit, match=rule):
        _laser.check_recipe()


def test_rows_of_no_batch_stay() -> None:
    """Under Adam, L2 would move them as far as the others."""
    data = toy_corpus(8)
    tagger = _laser.build_tagger(top(freeze="none"), TAGS, **SMALL)
    table = tagger.embedder.encoder.embed_tokens.weight
    before = table.detach().clone()
    optimizer = _laser.training_options("baselines", len(data)).optimizer(tagger)
    decays = {
        id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]
    }
    assert decays.keys() == {id(parameter) for parameter in tagger.parameters()}
    assert decays[id(table)] == 0.0
    assert decays[id(tagger.decoder.linear.weight)] == 1e-3
    batch = tagger.collate(data)
    tagger(**batch).backward()
    optimizer.step()
    met = torch.zeros(len(before), dtype=torch.bool)
    met[batch["inputs"].piece_ids.unique()] = True
    assert torch.equal(table[~met], before[~met])
    assert not torch.equal(table[met], before[met])
