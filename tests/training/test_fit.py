"""The training loop: learning, stopping, and interrupted runs that reach the same numbers."""

import copy
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from cases import SIZES, characters, vector_source
from checks import refused
from tiny_models import tiny_model, word_piece_tokenizer
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, ReduceLROnPlateau
from toys import TAGS, toy_corpus, toy_lexicon

import polyembed as pe
from polyembed.data import TaggedSentence
from polyembed.training import Epoch, FitOptions, FitResult
from polyembed.training import fit as fit_with

ARGUMENTS = ("seed", "checkpoint", "on_epoch", "progress")


def fit(tagger: pe.SequenceTagger, train: list, dev: list, **options) -> FitResult:
    """Call `fit` with options by name."""
    arguments = {name: options.pop(name) for name in ARGUMENTS if name in options}
    return fit_with(tagger, train, dev, FitOptions(**options), **arguments)


def build(seed: int = 0, *, dropout: float = 0.1) -> pe.SequenceTagger:
    """Return a tagger with dropout and a frozen table, to which "song" is an unknown word."""
    torch.manual_seed(seed)
    lexicon = pe.Lexicon([word for word in toy_lexicon() if word != "song"])
    table = pe.SourceEmbedding.from_embedding(nn.Embedding(len(lexicon), 5), lexicon)
    parts = [table, characters(lexicon), vector_source(lexicon, 3)]
    encoder = pe.TransformerSequenceEncoder(13, **SIZES, dropout=dropout)
    return pe.SequenceTagger(pe.UniqueWords(pe.MetaEmbedding.concat(parts)), TAGS, encoder=encoder)


CORPUS = toy_corpus(1)
DEV = [*toy_corpus(1), TaggedSentence(("songs", "song"), ("O", "O"))]


def scores(*values: float):
    """Return a metric with given values."""
    given = iter(values)
    return lambda gold, predicted: next(given)


def assert_equal_states(tagger: pe.SequenceTagger, expected: dict[str, torch.Tensor]) -> None:
    torch.testing.assert_close(tagger.state_dict(), expected, rtol=0, atol=0)


def snapshot(tagger: pe.SequenceTagger) -> dict[str, torch.Tensor]:
    return copy.deepcopy(tagger.state_dict())


def test_learns_a_task_from_data_that_may_be_read_once():
    tagger = build(dropout=0.0)
    options = {"num_train_epochs": 15, "batch_size": 8, "optimizer": adam(0.01)}
    result = fit(tagger, iter(toy_corpus(8)), iter(toy_corpus(1)), **options)
    assert result.history[0].loss > 3 * result.history[-1].loss
    assert result.best.score == 1.0
    assert [epoch.number for epoch in result.history] == [*range(1, 16)]
    assert tagger.predict([["me", "gusta", "that"]]) == [["B-ES", "I-ES", "B-EN"]]


def adam(lr: float, kind: type = torch.optim.Adam) -> Callable[[nn.Module], torch.optim.Optimizer]:
    return lambda tagger: kind([p for p in tagger.parameters() if p.requires_grad], lr=lr)


def test_the_best_epoch_comes_back():
    tagger, states = build(), []

    def metric(gold, predicted):
        states.append(snapshot(tagger))
        return [0.1, 0.9, 0.9, 0.2][len(states) - 1]

    seen: list[Epoch] = []
    result = fit(
        tagger, toy_corpus(2), DEV, num_train_epochs=4, metric=metric, on_epoch=seen.append
    )
    assert result.history == tuple(seen)
    assert not tagger.training
    assert result.best.number == 2  # the first of the equal epochs
    assert [epoch.score for epoch in result.history] == [0.1, 0.9, 0.9, 0.2]
    assert_equal_states(tagger, states[1])
    assert not torch.equal(states[1]["decoder.linear.weight"], states[3]["decoder.linear.weight"])


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"max_decreases": 2}, 7),
        ({"max_decreases": 1}, 2),
        ({"patience": 3}, 4),
    ],
)
def test_stops_when_stale_or_after_decreases_in_a_row(options, count):
    """A decrease is relative to the epoch before.

    An equal or better score starts the count anew.
    """
    metric = scores(0.9, 0.5, 0.6, 0.4, 0.4, 0.3, 0.2, 0.9)
    result = fit(build(), CORPUS, DEV, metric=metric, num_train_epochs=8, **options)
    assert (len(result.history), result.best.number) == (count, 1)


def test_schedulers():
    def rates(make, interval="epoch", **options):
        made = []

        def schedule(optimizer):
            made.append(optimizer)
            return make(optimizer)

        options |= {"optimizer": adam(1.0), "scheduler": schedule, "scheduler_interval": interval}
        fit(build(), toy_corpus(2), DEV, num_train_epochs=3, batch_size=2, **options)
        return made[0].param_groups[0]["lr"]

    def halve(optimizer):
        return LambdaLR(optimizer, lambda step: 0.5**step)

    assert rates(halve) == 0.5**3
    assert rates(halve, "step") == 0.5**9  # three epochs of three batches

    def plateau(optimizer):
        return ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=0)

    assert rates(plateau, metric=scores(0.5, 0.6, 0.6)) == 0.5


def run(
    checkpoint: Path | None, *, epochs: int = 4, seed: int = 3, last: int = 0
) -> tuple[pe.SequenceTagger, list]:
    """Train once with many kinds of state.

    The state includes Adam, a cosine schedule by steps, dropout, unknown words, and an encoder that
    is frozen for one epoch.
    """
    tagger = build()
    tagger.encoder.requires_grad_(False)

    def on_epoch(epoch):
        if epoch.number == 1:
            tagger.encoder.requires_grad_()
        if epoch.number == last:
            raise KeyboardInterrupt

    options = {
        "optimizer": lambda tagger: torch.optim.Adam(tagger.parameters(), lr=0.01),
        "scheduler": lambda optimizer: CosineAnnealingLR(optimizer, T_max=50),
        "scheduler_interval": "step",
        "seed": seed,
        "on_epoch": on_epoch,
    }
    options |= {"num_train_epochs": epochs, "batch_size": 2, "checkpoint": checkpoint}
    result = fit(tagger, toy_corpus(2), DEV, metric="accuracy", **options)
    return tagger, [epoch[:3] for epoch in result.history]


def test_an_interrupted_run_goes_on_to_the_same_numbers(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, last=2)
    torch.manual_seed(11)  # the state of the new process does not matter
    tagger, history = run(tmp_path)
    expected, expected_history = run(None)
    assert history == expected_history
    assert_equal_states(tagger, expected.state_dict())
    finished, again = run(tmp_path)
    assert again == history
    assert_equal_states(finished, expected.state_dict())
    assert len(run(tmp_path, epochs=5)[1]) == 5


CHANGES = {
    "seed": {"seed": 4},
    "metric": {"metric": "f1"},
    "train": {"train": toy_corpus(3)},
    "optimizer": {"optimizer": adam(0.5)},
    "parts": {"scheduler": partial(CosineAnnealingLR, T_max=2)},
}


def test_another_run_is_not_resumed(tmp_path):
    """Any change that affects the numbers makes another run, and the error names the change."""

    def start(train=CORPUS, **options):
        options = {"batch_size": 2, "metric": "accuracy", **options}
        fit(build(), train, DEV, num_train_epochs=1, checkpoint=tmp_path, **options)

    start()
    for name, changes in CHANGES.items():
        rule = rf"checkpoint\.pt must be a checkpoint of this training, got .*{name} .* in place of"
        refused(ValueError, rule, start, **changes)
    other = build()
    other.tags = other.tags[::-1]
    refused(
        ValueError,
        r", tags .* in place of",
        fit,
        other,
        CORPUS,
        DEV,
        num_train_epochs=1,
        checkpoint=tmp_path,
    )


def test_the_number_of_epochs_may_change_under_a_warm_up(tmp_path):
    """One epoch has 3 steps with 1 step of warm-up; 4 epochs have 12 steps with 2 of warm-up."""
    for epochs in (1, 4):
        words = pe.PretrainedWordEncoder(tiny_model("bert"), word_piece_tokenizer())
        options = {"num_train_epochs": epochs, "batch_size": 1, "checkpoint": tmp_path}
        result = fit(pe.SequenceTagger(words, TAGS), CORPUS, DEV, **options)
    assert len(result.history) == 4


def test_a_loss_that_is_not_finite_stops():
    tagger = build()
    tagger.decoder.linear.weight.data.fill_(math.inf)
    refused(
        ValueError,
        r"^loss must stay finite, got nan in epoch 1$",
        fit,
        tagger,
        toy_corpus(),
        DEV,
        num_train_epochs=1,
    )


def test_the_best_weights_outlive_an_epoch_that_fails():
    """The second epoch has a finite loss, but its weights are not finite.

    Each epoch is one step, and the second epoch trains parts that were frozen.
    """

    class Diverging(torch.optim.SGD):
        def step(self, *args, **options):
            super().step(*args, **options)
            if kept:
                self.param_groups[0]["params"][0].data.fill_(math.nan)

    def unfreeze(_):
        kept.append(snapshot(tagger))
        tagger.requires_grad_()

    kept = []
    tagger = build()
    tagger.encoder.requires_grad_(False)
    options = {
        "batch_size": 100,
        "optimizer": lambda tagger: Diverging(tagger.parameters(), lr=0.1),
        "on_epoch": unfreeze,
    }
    refused(
        ValueError,
        r"^weights must stay finite, got NaN .* in epoch 2: ",
        fit,
        tagger,
        toy_corpus(1),
        DEV,
        num_train_epochs=3,
        **options,
    )
    assert_equal_states(tagger, kept[0])


def test_the_seed_decides_and_the_global_random_state_is_untouched():
    def trained(seed):
        return run(None, epochs=1, seed=seed)[0].decoder.linear.weight

    assert torch.equal(first := trained(1), trained(np.int64(1)))
    assert not torch.equal(first, trained(2**62))
    tagger, before = build(), torch.get_rng_state()
    fit(tagger, CORPUS, DEV, num_train_epochs=1, metric=pe.metrics.entity_f1)
    assert torch.equal(torch.get_rng_state(), before)


def test_autocast_trains():
    taggers = build(dropout=0.0), build(dropout=0.0)
    for tagger, dtype in zip(taggers, (None, torch.bfloat16), strict=True):
        fit(tagger, CORPUS, DEV, num_train_epochs=1, amp_dtype=dtype)
    full, mixed = (tagger.decoder.linear.weight for tagger in taggers)
    assert 0 < (full - mixed).abs().max() < 0.1


def test_gradients_are_clipped_only_if_asked(monkeypatch):
    monkeypatch.delattr(torch.nn.utils, "clip_grad_norm_")
    fit(build(), CORPUS, DEV, num_train_epochs=1, max_grad_norm=None)


def test_gradients_outside_the_optimiser_are_neither_clipped_nor_kept():
    tagger, norms = build(dropout=0.0), []

    def note(_):
        parts = tagger.decoder, tagger.encoder
        grads = ([value.grad for value in part.parameters()] for part in parts)
        norms.append([float(nn.utils.get_total_norm(part)) for part in grads])

    options = {"num_train_epochs": 2, "batch_size": len(CORPUS), "max_grad_norm": 0.01}
    options["optimizer"] = lambda tagger: torch.optim.SGD(tagger.decoder.parameters(), lr=0.0)
    fit(tagger, CORPUS, DEV, on_epoch=note, **options)
    assert norms == [pytest.approx([0.01, norms[0][1]], rel=1e-3)] * 2


class Words(NamedTuple):
    """A sentence of a user's own reader, without checks."""

    words: tuple[str, ...]
    tags: tuple[str | None, ...]


EMPTY, UNEVEN = Words((), ()), Words(("me", "gusta"), ("O",))
UNEVEN_RULE = "the tags of a sentence must be as many as the words, 2, got 1"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": [Words(("me",), ("VERB",))]}, r"tags\[0\]\[0\] must be one of .*, got 'VERB'"),
        ({"train": [EMPTY]}, "train must hold at least one sentence with a word, got none"),
        ({"dev": []}, "dev must hold a label that is known, got none"),
        ({"train": [*CORPUS, EMPTY, UNEVEN]}, rf"train\[{len(CORPUS) + 1}\]: {UNEVEN_RULE}"),
        ({"dev": [*CORPUS, UNEVEN]}, rf"dev\[{len(CORPUS)}\]: {UNEVEN_RULE}"),
        ({"dev": [Words(("me",), (None,))]}, "dev must hold a label that is known, got none"),
        ({"train": [Words(("me",), ("_",))]}, "train must hold a label that is known, got none"),
        ({"metric": "recall"}, "metric must be one of 'f1', .*, got 'recall'"),
        ({"num_train_epochs": 0}, "num_train_epochs must be a positive .*, got 0"),
        ({"optimizer": torch.optim.Adam}, "optimizer must be a function of .*Adam"),
        (
            {"scheduler": ReduceLROnPlateau, "scheduler_interval": "step"},
            "scheduler_interval must be 'epoch' for a ReduceLROnPlateau, got 'step'",
        ),
        (
            {"optimizer": lambda _: torch.optim.Adam(torch.nn.Linear(2, 2).parameters())},
            "optimizer must hold parameters of the model, got none",
        ),
    ],
)
def test_wrong_values_show_before_the_first_step(changes, message):
    tagger = build()
    tagger.register_forward_hook(lambda *_: pytest.fail("a step was made"))
    refused(
        (ValueError, TypeError),
        f"^{message}$",
        fit,
        tagger,
        **{"train": CORPUS, "dev": DEV, **changes},
    )


def test_batches_hold_sentences_of_like_many_pieces_under_a_trained_encoder(monkeypatch):
    """A prepared word has one piece or four, so the number of words does not tell the length."""
    few, many = (TaggedSentence((word,) * 4, (TAGS[0],) * 4) for word in ("a", "b"))
    seen, collate = [], pe.SequenceTagger.collate

    def record(self, items):
        seen.append({one.words[0] for one in items})
        return collate(self, items)

    monkeypatch.setattr(pe.SequenceTagger, "collate", record)
    words = pe.PretrainedWordEncoder(tiny_model("bert"), word_piece_tokenizer())
    spell = partial(map, {"a": "a", "b": "cancions"}.get)
    tagger = pe.SequenceTagger(words, TAGS, prepare=spell)
    fit(tagger, [few, many] * 8, [few], num_train_epochs=2, batch_size=2)
    assert len(seen) >= 16
    assert {*map(len, seen)} == {1}


def test_the_bar_of_an_epoch_names_the_score_of_the_last(capsys):
    options = {"num_train_epochs": 2, "metric": scores(0.25, 0.5), "progress": True}
    fit(build(), CORPUS, DEV, **options)
    shown = capsys.readouterr().err
    assert "epoch 2" in shown
    assert "0.25" in shown
