"""The paper's task model and trainings, as the examples build them from the recipes."""

import dataclasses
import importlib
from pathlib import Path

import pytest
import torch
from laser_files import small_encoder
from tiny_models import tiny_model, word_piece_tokenizer
from toys import TAGS, toy_bpe_tokenizer, toy_corpus

import polyembed as pe

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SMALL = {"hidden_size": 6, "feed_forward_size": 6}


@pytest.fixture(scope="module")
def laser():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        return importlib.import_module("_laser")


def top(**options) -> pe.encoders.LaserTop:
    return pe.encoders.LaserTop(small_encoder(), toy_bpe_tokenizer(), **options)


def test_the_papers_tagger(laser) -> None:
    tagger = laser.build_tagger(top(), TAGS)
    sizes = {
        "input_size": 3,
        "hidden_size": 300,
        "num_layers": 2,
        "num_heads": 2,
        "feed_forward_size": 300,
        "kernel_size": 1,
    }
    dropout = {"input_dropout": 0.25, "dropout": 0.15, "attention_dropout": 0.0}
    assert tagger.encoder.get_config() == {**sizes, **dropout, "norm_first": False}
    assert isinstance(tagger.decoder, pe.CRFDecoder)


@pytest.mark.parametrize("recipe", ["baselines", "laser", "transformers"])
def test_every_training_runs(laser, recipe: str) -> None:
    data = toy_corpus(8)
    if recipe == "transformers":
        words = pe.PretrainedWordEncoder(tiny_model("bert"), word_piece_tokenizer())
        tagger = laser.build_transformer_tagger(words, TAGS)
    else:
        tagger = laser.build_tagger(top(freeze="embeddings"), TAGS, **SMALL)
    options = laser.training_options(
        recipe, len(data), num_train_epochs=3, batch_size=5, metric="accuracy"
    )
    made = []

    def optimizer_of(model: torch.nn.Module) -> torch.optim.Optimizer:
        made.append(options.make_optimizer(model))
        return made[0]

    def scheduler_of(optimizer: torch.optim.Optimizer):
        made.extend([options.make_scheduler(optimizer, 1), optimizer.param_groups[0]["lr"]])
        return made[1]

    watched = dataclasses.replace(
        options, optimizer=optimizer_of, scheduler=options.scheduler and scheduler_of
    )
    result = pe.fit(tagger, data, data, watched)
    optimizer, scheduler, start = [*made, None, None][:3]
    kind = {
        "baselines": torch.optim.Adam,
        "laser": torch.optim.SGD,
        "transformers": torch.optim.AdamW,
    }[recipe]
    assert type(optimizer) is kind
    assert result.history[-1].loss < result.history[0].loss
    if recipe == "laser":
        assert scheduler.total_steps == 3 * 5
        assert start == pytest.approx(0.1 / 25)
        assert optimizer.param_groups[0]["lr"] < start, "the cycle has come to its end"
        assert optimizer.param_groups[0]["momentum"] == pytest.approx(0.95, abs=0.01)
    else:
        assert optimizer.param_groups[0]["lr"] == laser.RECIPES[recipe]["training"]["learning_rate"]


def test_the_recipes_say_what_the_paper_says(laser) -> None:
    baselines = laser.RECIPES["baselines"]["training"]
    assert (baselines["num_train_epochs"], baselines["max_decreases"]) == (15, 2)
    assert (baselines["optimizer"], baselines["learning_rate"], baselines["weight_decay"]) == (
        "Adam",
        1e-3,
        1e-3,
    )
    transformers = laser.RECIPES["transformers"]["training"]
    assert [transformers[key] for key in ("num_train_epochs", "batch_size", "learning_rate")] == [
        4,
        16,
        5e-5,
    ]
    assert laser.RECIPES["pretrained"] == "laser1"


@pytest.mark.parametrize(
    ("recipe", "norm"), [("baselines", None), ("laser", 1.0), ("transformers", None)]
)
def test_gradients_are_clipped_where_the_recipe_says_so(
    laser, recipe: str, norm: float | None
) -> None:
    assert laser.RECIPES[recipe]["training"]["max_grad_norm"] == (norm or "none")
    assert laser.training_options(recipe, 8).max_grad_norm == norm


def test_only_punctuation_and_case_are_normalised(laser) -> None:
    normalize = pe.Normalizer(**laser.RECIPES["normalizer"])
    assert normalize(["“Ann”", "@ANN", "#Rome", "www.X.es", "😂"]) == [
        '"ann"',
        "@ann",
        "#rome",
        "www.x.es",
        "😂",
    ]


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ((), "encoders"),
        (("encoder",), "hiden_size"),
        (("baselines", "training"), "epochs"),
        (("laser", "search"), "l2"),
    ],
)
def test_keys_that_nothing_takes(
    laser, section: tuple[str, ...], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    laser.check_recipe()
    place = laser.RECIPES
    for name in section:
        place = place[name]
    monkeypatch.setitem(place, key, 0)
    with pytest.raises(
        SystemExit,
        match=rf"^recipes\.toml: {'.'.join(('laser2019', *section))} must have keys among .*{key}",
    ):
        laser.check_recipe()


def test_rows_of_no_batch_stay(laser) -> None:
    """Under Adam, L2 would move them as far as the others."""
    data = toy_corpus(8)
    tagger = laser.build_tagger(top(freeze="none"), TAGS, **SMALL)
    table = tagger.embedder.encoder.embed_tokens.weight
    before = table.detach().clone()
    optimizer = laser.training_options("baselines", len(data)).optimizer(tagger)
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    assert held == {id(parameter) for parameter in tagger.parameters()}
    decays = {
        id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]
    }
    assert decays[id(table)] == 0.0
    assert decays[id(tagger.decoder.linear.weight)] == 1e-3
    batch = tagger.collate(data)
    tagger(**batch).backward()
    optimizer.step()
    met = torch.zeros(len(before), dtype=torch.bool)
    met[batch["inputs"].piece_ids.unique()] = True
    assert torch.equal(table[~met], before[~met])
    assert not torch.equal(table[met], before[met])
