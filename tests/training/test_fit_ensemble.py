"""Members trained one after the other: each is what `fit` gives, and finished ones are read."""

from pathlib import Path

import pytest
import torch
from test_fit import DEV, build
from toys import toy_corpus

import polyembed as pe
from polyembed.training import FitOptions, fit, fit_ensemble

TRAIN = toy_corpus(4)
OPTIONS = FitOptions(num_train_epochs=2, batch_size=4, metric="accuracy")


def states(result: object) -> list[dict[str, torch.Tensor]]:
    return [member.state_dict() for member in result.ensemble.members]


def test_members_are_what_fit_gives() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    found = fit_ensemble(build, TRAIN, DEV, OPTIONS, seeds=[3, 1], vote="soft")
    assert torch.equal(torch.get_rng_state(), before)
    assert found.ensemble.vote == "soft"
    assert not found.ensemble.training
    for seed, result, state in zip((3, 1), found.results, states(found), strict=True):
        alone = build(seed)
        expected = fit(alone, TRAIN, DEV, OPTIONS, seed=seed)
        assert [epoch[:3] for epoch in result.history] == [epoch[:3] for epoch in expected.history]
        torch.testing.assert_close(state, alone.state_dict(), rtol=0, atol=0)


def test_an_interrupted_call_goes_on(tmp_path: Path, monkeypatch) -> None:
    expected = fit_ensemble(build, TRAIN, DEV, OPTIONS, seeds=[3, 1])
    calls = []

    def interrupted(seed: int) -> pe.SequenceTagger:
        calls.append(seed)
        if seed == 1:
            raise KeyboardInterrupt
        return build(seed)

    with pytest.raises(KeyboardInterrupt):
        fit_ensemble(interrupted, TRAIN, DEV, OPTIONS, seeds=[3, 1], folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["member-3"]
    found = fit_ensemble(build, TRAIN, DEV, OPTIONS, seeds=[3, 1], folder=tmp_path)
    for one, other in zip(states(found), states(expected), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    monkeypatch.setattr(pe.SequenceTagger, "collate", None)  # the third call trains nothing
    again = fit_ensemble(build, TRAIN, DEV, OPTIONS, seeds=[1, 3], folder=tmp_path)
    assert again.results == found.results[::-1]
