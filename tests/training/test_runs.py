"""A run's folder: whole, undamaged, of this run, and of one process at a time."""

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import LambdaLR, StepLR

from polyembed import Lexicon
from polyembed._fingerprint import checksum, describe_model
from polyembed.data import TaggedSentence
from polyembed.training.runs import CHECKPOINT_NAME, Run


def test_a_run_reads_what_it_saved_last(tmp_path: Path) -> None:
    with Run(tmp_path / "a" / "b", {"seed": 0}) as run:
        assert run.load() is None
        run.save({"weights": torch.ones(3)})
        run.save({"weights": torch.full((3,), 2.0), "epochs": [(1, math.nan)]})
    with Run(tmp_path / "a" / "b", {"seed": 0}) as run:
        state = run.load()
        assert state is not None
        assert torch.equal(state["weights"], torch.full((3,), 2.0))
        assert not run.finished
        run.finish({"score": 0.5})
        assert run.finished
    with Run(tmp_path / "a" / "b", {"seed": 0}) as run:
        assert run.load() == {"score": 0.5}
        assert run.finished
    with Run(None, {}) as run:  # without a folder nothing is kept
        run.save({"epoch": 1})
        assert run.load() is None


def test_a_flipped_bit_anywhere_is_noticed(tmp_path: Path) -> None:
    with Run(tmp_path, {"seed": 0}) as run:
        run.save({"weights": torch.randn(5, 7)})
        whole = bytearray((tmp_path / CHECKPOINT_NAME).read_bytes())
        for place in [*range(0, len(whole), 101), len(whole) - 1]:
            damaged = bytearray(whole)
            damaged[place] ^= 1 << place % 8
            (tmp_path / CHECKPOINT_NAME).write_bytes(damaged)
            with pytest.raises(
                ValueError, match=r"checkpoint\.pt must be a whole checkpoint.*remove the file"
            ):
                run.load()
        for size in (0, 7, len(whole) - 1):
            (tmp_path / CHECKPOINT_NAME).write_bytes(whole[:size])
            with pytest.raises(ValueError, match="must be a whole checkpoint"):
                run.load()


def test_another_run_is_refused_with_what_differs(tmp_path: Path) -> None:
    with Run(tmp_path, {"seed": 0, "data": ["me"], "rate": 0.1}) as run:
        run.save({})
    other = Run(tmp_path, {"seed": 1, "data": ["te"], "rate": 0.1})
    with pytest.raises(
        ValueError, match=r"from this run, got another one: seed 0 in place of 1, other data \("
    ):
        other.load()


def test_a_state_that_could_not_be_read_back_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    with Run(tmp_path, {}) as run:
        run.save({"epoch": 1})
        with pytest.raises(
            TypeError, match=r"must hold tensors and plain values, got objects of .*TaggedSentence"
        ):
            run.save({"epoch": TaggedSentence(("a",), ("X",))})
        assert run.load() == {"epoch": 1}


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with Run(tmp_path, {}):
        with (
            pytest.raises(RuntimeError, match="must be used by one process at a time"),
            Run(tmp_path, {}),
        ):
            raise AssertionError("entered")
        with Run(tmp_path, {}, writes=False) as reader:
            assert reader.load() is None
    with Run(tmp_path, {}):  # released
        pass


def test_a_folder_that_cannot_be_written_to_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(OSError, match="must be a folder that can be written to"),
        Run(tmp_path / "file" / "run", {}),
    ):
        raise AssertionError("entered")


def test_a_failed_write_leaves_the_last_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise RuntimeError(
            "[enforce fail at inline_container.cc:858] . PytorchStreamWriter failed writing file"
        )

    with Run(tmp_path, {}) as run:
        run.save({"epoch": 1})
        monkeypatch.setattr(torch, "save", fail)
        with pytest.raises(OSError, match=r"checkpoint\.pt could not be written \(RuntimeError"):
            run.save({"epoch": 2})
        assert run.load() == {"epoch": 1}


def _network(*, seed: int = 0, dropout: float = 0.1, frozen: float = 1.0) -> nn.Sequential:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Embedding(7, 5), nn.Dropout(dropout), nn.Linear(5, 3))
    model[0].weight.requires_grad_(False).fill_(frozen)  # type: ignore[operator, union-attr]
    return model


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        ({"seed": 1}, "initial weights"),
        ({"dropout": 0.2}, "modules"),
        ({"frozen": 2.0}, "frozen tensors"),
    ],
)
def test_a_model_is_told_by_weights_settings_and_frozen_tensors(
    options: dict[str, Any], differs: str
) -> None:
    one, other = describe_model(_network()), describe_model(_network(**options))
    assert one == describe_model(_network())
    assert [name for name in one if one[name] != other[name]] == [differs]
    assert describe_model(_network().eval()) == one


def _optimizer(kind: Callable[..., Any] = Adam, **options: Any) -> Any:
    return kind(
        [
            {"params": [nn.Parameter(torch.ones(3))]},
            {"params": [nn.Parameter(torch.ones(2))], **options},
        ]
    )


def _warmup(step: int, *, steps: int) -> float:
    return min(1.0, step / steps)


def test_optimisers_and_schedules_are_told_by_their_settings() -> None:
    def under(factor: float) -> LambdaLR:
        return LambdaLR(_optimizer(), lambda step: factor**step)

    values = [
        _optimizer(),
        _optimizer(lr=0.5),
        _optimizer(betas=(0.9, 0.98)),
        _optimizer(SGD),
        StepLR(_optimizer(), 3),
        StepLR(_optimizer(), 5),
        under(0.5),
        under(0.25),
        LambdaLR(_optimizer(), lambda step: 0.125**step),
        LambdaLR(_optimizer(), functools.partial(_warmup, steps=3)),
        LambdaLR(_optimizer(), functools.partial(_warmup, steps=5)),
    ]
    assert len({checksum(value) for value in values}) == len(values)
    assert checksum(under(0.5)) == checksum(under(0.5))


def test_data_is_told_by_all_its_content() -> None:
    sentence = TaggedSentence(("me", "gusta"), ("X", "V"))
    values = [
        [sentence],
        [sentence, sentence],
        [TaggedSentence(("megus", "ta"), ("X", "V"))],
        [TaggedSentence(("me", "gusta"), ("V", "X"))],
        {"ids": torch.tensor([1, 2])},
        {"ids": torch.tensor([1, 2], dtype=torch.int32)},
        {"ids": torch.tensor([[1, 2]])},
        {"ids": torch.tensor([1, 3])},
        {"ids": [1, 2]},
        {"ids": ["1", "2"]},
        Lexicon(["me"]),
        Lexicon(["te"]),
        {"b", "a"},
        None,
    ]
    assert len({checksum(value) for value in values}) == len(values)
    assert checksum({"a", "b"}) == checksum({"b", "a"})
    assert checksum(torch.tensor([0.5], dtype=torch.bfloat16)) != checksum(torch.tensor([0.5]))
