import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from checks import refused
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR

from polyembed import (
    MetaXLTrainer,
    RepresentationTransformationNetwork,
    metaxl_step,
    transformed_output,
)
from polyembed.training import MetaXLOptions
from polyembed.training.metaxl import MetaXLTrainerStep

HIDDEN = 7
Row = dict[str, Any]


class Classifier(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, HIDDEN), nn.Tanh(), nn.Dropout(dropout))
        self.head = nn.Linear(HIDDEN, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch["x"]), batch["label"])


def make_rows(count: int, seed: int) -> list[Row]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 5, generator=generator, dtype=torch.float64)
    return [{"x": x[i], "label": i % 3, "name": seed * 1000 + i} for i in range(count)]


SOURCE, TARGET = make_rows(12, 1), make_rows(5, 2)


def networks() -> nn.Module:
    return RepresentationTransformationNetwork(HIDDEN, bottleneck=3).double()


class Setting:
    """A trainer over toys, with records of its batches and its steps."""

    def __init__(
        self,
        *,
        dropout: float = 0.0,
        rtn: Any = networks,
        lr: float = 0.3,
        **options: Any,
    ) -> None:
        torch.manual_seed(5)
        self.model = Classifier(dropout).double()
        self.rtn = rtn()
        self.steps: list[MetaXLTrainerStep] = []
        self.batches: list[list[int]] = []
        objects = {name: options.pop(name) for name in ("loss", "scheduler") if name in options}
        self.trainer = MetaXLTrainer(
            self.model,
            self.rtn,
            self.model.body[1],
            options=MetaXLOptions(
                **{"num_train_epochs": 2, "batch_size": 4, "max_grad_norm": None, **options}
            ),
            optimizer=SGD(self.model.parameters(), lr),
            meta_optimizer=None if self.rtn is None else SGD(self.rtn.parameters(), 1.0),
            **{"loss": loss, **objects},
        )
        self.before = self.state()

    def collate(self, rows: list[Row]) -> dict[str, Tensor]:
        self.batches.append([row["name"] for row in rows])
        return torch.utils.data.default_collate(rows)

    def train(self, source: Any = SOURCE, target: Any = TARGET, **options: Any) -> Any:
        options = {"collate": self.collate, "on_step": self.steps.append, **options}
        return self.trainer.train(source, target, **options)

    def state(self) -> dict[str, Tensor]:
        parts = nn.ModuleDict({"model": self.model, "rtn": self.rtn or nn.Identity()})
        return {name: value.detach().clone() for name, value in parts.state_dict().items()}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor], **tolerance: float) -> None:
    torch.testing.assert_close(one, other, **(tolerance or {"rtol": 0, "atol": 0}))


def rows_named(names: list[int]) -> dict[str, Tensor]:
    found = {row["name"]: row for row in (*SOURCE, *TARGET)}
    return torch.utils.data.default_collate([found[name] for name in names])


@pytest.mark.parametrize("options", [{}, {"target_weight": 0.5}, {"target_weight": 0.0}])
def test_steps_are_those_of_metaxl_step(options):
    """Each step has the numbers of `metaxl_step`.

    A target batch is split between the inner and the outer loss, except in the printed algorithm.
    """
    setting, plain, joint = Setting(**options), Setting(), Setting(objective="joint")
    setting.train(), joint.train()
    optimizers = plain.trainer.optimizer, plain.trainer.meta_optimizer
    splits = options.get("target_weight") != 0.0
    size = 3 if splits else 2
    parts = [setting.batches[i : i + size] for i in range(0, len(setting.batches), size)]
    for (source, *inner, outer), whole, seen in zip(
        parts, joint.batches[1::2], setting.steps, strict=True
    ):
        assert [*inner, outer] == ([whole[::2], whole[1::2]] if splits else [whole])
        step = metaxl_step(
            plain.model, plain.rtn, plain.model.body[1], [rows_named(source)], [rows_named(outer)],
            target_support=[rows_named(names) for names in inner] or None,
            optimizer=optimizers[0], meta_optimizer=optimizers[1], loss=loss, **options,
        )  # fmt: skip
        assert (seen.loss, seen.target_loss, seen.norm, seen.meta_norm, seen.cosine) == step
    assert_same(setting.state(), plain.state())
    numbers = [(step.number, step.epoch) for step in setting.steps]
    assert numbers == [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (6, 2)]


def test_an_epoch_reads_each_source_row_once_and_the_target_again_and_again():
    # joint training without networks ignores `weight`
    setting = Setting(num_train_epochs=5, objective="joint", weight=[0.5, 0.8])
    setting.train()
    for rows, batches in ((SOURCE, setting.batches[::2]), (TARGET, setting.batches[1::2])):
        assert {len(batch) for batch in batches} == {4}
        read = [name for batch in batches for name in batch]
        passes = [read[i : i + len(rows)] for i in range(0, len(read), len(rows))]
        assert len(read) == 15 * 4
        assert all(sorted(one) == sorted(row["name"] for row in rows) for one in passes)
        assert passes[0] != passes[1]
    alone = Setting(num_train_epochs=3, objective="target_only", target_weight=0.0)
    alone.train(None)
    assert all(step.loss for step in alone.steps), "the only loss has no weight"
    assert [step.epoch for step in alone.steps] == [1, 1, 2, 2, 3, 3]
    read = [name for batch in alone.batches for name in batch]
    assert len({*read[:5]}) == len({*read[5:10]}) == 5, "a batch goes on with the next pass"


@pytest.mark.parametrize(
    ("transformed", "size", "weight"), [(False, 4, 1.0), (True, 4, 1.0), (False, 2, 0.5)]
)
def test_joint_training_is_the_plain_loop(transformed, size, weight):
    """The loop minimises ``L_s + w L_t`` over the batches of MetaXL.

    Source batches pass through the network in one of the cases.
    """
    options = {"target_batch_size": size, "target_weight": weight}
    setting = Setting(objective="joint_rtn" if transformed else "joint", **options)
    plain, metaxl = Setting(), Setting(target_batch_size=size, target_weight=0.0)
    setting.train(), metaxl.train()
    assert setting.batches == metaxl.batches
    used = plain.rtn if transformed else nn.Identity()
    optimizers = plain.trainer.optimizer, plain.trainer.meta_optimizer
    for source, target, step in zip(
        setting.batches[::2], setting.batches[1::2], setting.steps, strict=True
    ):
        assert (len(source), len(target)) == (4, size)
        for optimizer in optimizers:
            optimizer.zero_grad()
        with transformed_output(plain.model.body[1], used):
            value = loss(plain.model, rows_named(source))
        value = value + weight * loss(plain.model, rows_named(target))
        value.backward()
        norms = [
            math.sqrt(sum(float(p.grad.square().sum()) for p in module.parameters()))
            for module in (plain.model, used)
        ]
        found = (step.loss, step.norm, step.meta_norm or 0.0)
        assert found == pytest.approx((value.item(), *norms))
        for optimizer in optimizers:
            optimizer.step()
    assert_same(setting.state(), plain.state(), rtol=1e-9, atol=1e-12)
    moved = setting.state()["rtn.up.weight"] - setting.before["rtn.up.weight"]
    assert bool(moved.norm() > 1e-3) is transformed


def test_source_languages_are_drawn_by_temperature():
    sources = {"many": SOURCE, "few": make_rows(3, 3)}

    def share(temperature):
        options = {"objective": "joint", "num_train_epochs": 15, "batch_size": 2}
        setting = Setting(seed=np.int64(0), source_temperature=temperature, lr=1e-3, **options)
        setting.train(sources)
        assert len(setting.steps) == 15 * math.ceil((3 + len(SOURCE)) / 2)
        drawn = setting.batches[::2]
        return sum(batch[0] // 1000 == 3 for batch in drawn) / len(drawn)

    assert share(1.0) == pytest.approx(3 / (3 + len(SOURCE)), abs=0.08)
    assert share(1e6) == pytest.approx(0.5, abs=0.12)


@pytest.mark.parametrize("objective", ["metaxl", "joint_rtn"])
def test_accumulation_is_exact(objective):
    options = {"objective": objective, "max_grad_norm": 0.5, "meta_max_grad_norm": 1e-4}
    whole = Setting(batch_size=12, **options)
    parts = Setting(batch_size=4, gradient_accumulation_steps=3, **options)
    whole.train(), parts.train()
    assert len(whole.steps) == len(parts.steps)
    assert_same(parts.state(), whole.state(), rtol=1e-9, atol=1e-12)
    assert max(step.norm for step in whole.steps) > 0.5
    moved = whole.state()["model.head.weight"] - whole.before["model.head.weight"]
    assert moved.norm() <= 0.3 * 0.5 * len(whole.steps)


def test_languages_have_networks_of_their_own():
    def two():
        return nn.ModuleDict({"en": networks(), "es": networks()})

    setting = Setting(rtn=two, target_weight=0.0)
    more = make_rows(7, 3)
    setting.train({"en": SOURCE, "es": more})
    assert len(setting.steps) == 6  # an epoch is one pass over the largest source set
    assert [{name // 1000 for name in batch} for batch in setting.batches[:3]] == [{1}, {3}, {2}]
    for name in ("rtn.en.up.weight", "rtn.es.up.weight"):
        assert not torch.equal(setting.state()[name], setting.before[name])
    refused(
        ValueError,
        r"^language must be one of 'en', 'es', got 'fr' \(step",
        setting.train,
        {"en": SOURCE, "fr": more},
    )


def test_keeps_the_best_epoch():
    scores = iter([0.1, 0.7, 0.7, 0.2])
    states: list[dict[str, Tensor]] = []
    setting = Setting(num_train_epochs=4, dropout=0.5)

    def evaluate(model):
        assert model is setting.model
        assert not model.training
        assert not torch.is_grad_enabled()
        assert not model.body[1]._forward_hooks
        states.append(setting.state())
        torch.rand(3)
        return next(scores)

    state = torch.get_rng_state()
    result = setting.train(evaluate=evaluate)
    assert torch.equal(torch.get_rng_state(), state)
    assert result.best is result.history[1]
    assert result.history[0].loss == pytest.approx(sum(step.loss for step in setting.steps[:3]) / 3)
    assert_same(setting.state(), states[1])


def test_back_off_starts_from_the_best_epoch():
    scores = iter([0.9, 0.1, 0.3, 0.2])
    before: list[dict[str, Tensor]] = []
    after: list[dict[str, Tensor]] = []
    setting = Setting(backoff_epochs=2)

    def collate(rows):
        before.append(setting.state())
        return setting.collate(rows)

    def evaluate(model):
        after.append(setting.state())
        return next(scores)

    setting.train(collate=collate, evaluate=evaluate)
    assert [step.cosine is None for step in setting.steps] == [False] * 6 + [True] * 6
    assert_same(before[18], after[0])  # the first joint batch, after six steps of three batches
    assert setting.batches[18::2] == setting.batches[:18:3]
    assert torch.equal(after[3]["rtn.up.weight"], after[0]["rtn.up.weight"])
    assert not torch.equal(after[3]["model.head.weight"], after[0]["model.head.weight"])


def resumable(folder: Any, on_step: Any = None) -> Any:
    """Train with all kinds of state that a run carries on.

    The state includes dropout, momentum, schedules, the back-off, and random numbers in an
    evaluation.
    """

    def schedule(optimizer, steps):
        return LambdaLR(optimizer, lambda step: 1.0 - step / steps)

    setting = Setting(dropout=0.5, num_train_epochs=3, backoff_epochs=2, scheduler=schedule)
    trainer = setting.trainer
    trainer.optimizer = torch.optim.AdamW(setting.model.parameters(), 0.02)
    trainer.meta_optimizer = torch.optim.Adam(setting.rtn.parameters(), 0.01)

    def evaluate(model):
        return float(torch.rand(())) - float(
            loss(model, rows_named([row["name"] for row in TARGET]))
        )

    options = {"on_step": on_step} if on_step else {}
    return setting, setting.train(checkpoint=folder, evaluate=evaluate, **options)


def test_an_interrupted_run_reaches_the_same_numbers(tmp_path):
    def interrupt(step):
        if step.number == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resumable(tmp_path, interrupt)
    whole, expected = resumable(None)
    again, found = resumable(tmp_path)
    assert 0 < len(again.steps) < len(whole.steps)
    assert again.steps == whole.steps[-len(again.steps) :]
    assert [epoch[:3] for epoch in found.history] == [epoch[:3] for epoch in expected.history]
    assert found.best[:3] == expected.best[:3]
    assert_same(again.state(), whole.state())
    lrs = [
        one.param_groups[0]["lr"] for one in (whole.trainer.optimizer, whole.trainer.meta_optimizer)
    ]
    assert lrs == pytest.approx([0.0, 0.0]), "schedules know the number of steps"
    finished, result = resumable(tmp_path)
    assert finished.steps == []
    assert result == found
    assert_same(finished.state(), whole.state())


def test_a_resumed_run_that_scores_returns_an_epoch_with_a_score(tmp_path):
    Setting(num_train_epochs=2).train(checkpoint=tmp_path)
    options = {"checkpoint": tmp_path, "evaluate": lambda model: 0.5}
    assert Setting(num_train_epochs=4).train(**options).best.number == 3


def test_an_interrupted_trainer_goes_on(tmp_path):
    """The continued trainer has optimisers with the rates of the interrupted step."""

    def interrupt(step):
        if step.epoch == 2:
            raise KeyboardInterrupt

    options = {"scheduler": lambda optimizer, _: ExponentialLR(optimizer, 0.9)}
    setting, whole = Setting(**options), Setting(**options)
    with pytest.raises(KeyboardInterrupt):
        setting.train(checkpoint=tmp_path, on_step=interrupt)
    setting.train(checkpoint=tmp_path), whole.train()
    assert_same(setting.state(), whole.state())


def test_refuses_the_checkpoint_of_another_run(tmp_path):
    Setting().train(checkpoint=tmp_path)

    elsewhere = Setting(seed=4_611_686_018_427_387_905)  # the seed is 1 modulo 2**31
    elsewhere.trainer.layers = [elsewhere.model.body[2]]
    rule = r"must be a checkpoint of this training, got .*seed 0 in place of 1.*layers \['body.1'\]"
    rule += r" in place of \['body.2'\].*rows "
    refused(ValueError, rule, elsewhere.train, SOURCE[:-1], checkpoint=tmp_path)
    # target batches of the same size, and larger ones
    options = {"batch_size": 2, "gradient_accumulation_steps": 2}
    Setting(objective="joint", target_batch_size=2).train(checkpoint=tmp_path / "joint")
    same, other = (Setting(objective="joint", target_batch_size=n, **options) for n in (1, 2))
    same.train(checkpoint=tmp_path / "joint")
    rule = "target_batch_size 2 in place of 4"
    refused(ValueError, rule, other.train, checkpoint=tmp_path / "joint")


def test_a_bad_loss_stops_and_names_the_step():
    def bad(model, batch):
        return loss(model, batch) * (math.nan if len(setting.steps) == 2 else 1.0)

    setting = Setting(loss=bad)
    refused(ValueError, r"^source_loss must be finite, got nan \(step 3\)$", setting.train)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Setting(objective="jt"), "objective must be one of 'metaxl', .*, got 'jt'"),
        (lambda: Setting(method="exact"), "method must be one of .*, got 'exact'"),
        (lambda: Setting(target_weight=-1.0), "target_weight must be 0 or more, got -1.0"),
        (lambda: Setting(max_grad_norm=-1.0), "max_grad_norm must be positive, or None, got -1.0"),
        (
            lambda: Setting(batch_size=3),
            "batch_size must be even, because a target_weight of 1.0 splits target batches, got 3",
        ),
        (lambda: Setting(rtn=lambda: None), "rtn must be a module, .* 'metaxl', got NoneType"),
        (lambda: Setting().train(target=[]), "target must hold at least one row, got none"),
        (
            lambda: Setting().train(source={"es": []}),
            "source 'es' must hold at least one row, got none",
        ),
        (
            lambda: Setting(objective="joint").train(source=None),
            "source must hold data of at least one language, got none",
        ),
        (
            lambda: Setting().train(evaluate=lambda model: math.nan),
            "evaluate must give a .*, got nan in epoch 1",
        ),
    ],
)
def test_wrong_values(call, message):
    refused((ValueError, TypeError), f"^{message}$", call)
