"""Members trained one after the other: each equals a result of `fit`; finished ones are read."""

import pytest
import torch
from checks import refused
from test_fit import DEV, build
from toys import toy_corpus

import polyembed as pe
from polyembed.training import FitOptions, fit, fit_ensemble

TRAIN = toy_corpus(4)
OPTIONS = FitOptions(num_train_epochs=2, batch_size=4, metric="accuracy")


def test_members_are_what_fit_gives_after_an_interruption_too(tmp_path, monkeypatch):
    calls = []

    def interrupted(seed):
        calls.append(seed)
        if seed == 1:
            raise KeyboardInterrupt
        return build(seed)

    options = {"seeds": [3, 1], "vote": "soft", "folder": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        fit_ensemble(interrupted, TRAIN, DEV, OPTIONS, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["member-3"]
    before = torch.get_rng_state()
    found = fit_ensemble(build, TRAIN, DEV, OPTIONS, **options)
    assert torch.equal(torch.get_rng_state(), before)
    assert found.ensemble.vote == "soft"
    assert not found.ensemble.training
    for seed, result, member in zip((3, 1), found.results, found.ensemble.members, strict=True):
        alone = build(seed)
        expected = fit(alone, TRAIN, DEV, OPTIONS, seed=seed)
        assert [epoch[:3] for epoch in result.history] == [epoch[:3] for epoch in expected.history]
        torch.testing.assert_close(member.state_dict(), alone.state_dict(), rtol=0, atol=0)
    refused(
        ValueError,
        r"^vote must be one of 'hard', .*, got 'mean'$",
        fit_ensemble,
        build,
        [],
        DEV,
        vote="mean",
    )  # before anything trains
    monkeypatch.setattr(pe.SequenceTagger, "collate", None)  # the third call does not train
    assert fit_ensemble(build, TRAIN, DEV, OPTIONS, **options).results == found.results


def test_members_share_what_is_frozen_alone():
    shared = build(0)
    refused(
        ValueError,
        r"^build must build new parameters for each seed",
        fit_ensemble,
        lambda seed: shared,
        TRAIN,
        DEV,
        OPTIONS,
        seeds=[0, 1],
    )
    refused(ValueError, "seeds must be different", fit_ensemble, build, TRAIN, DEV, seeds=[1, 1])
