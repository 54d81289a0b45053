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


def test_the_papers_tagger():
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
def test_every_training_runs(recipe: str, kind: type, norm: float | None):
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

    def scheduler_of(optimizer):
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
