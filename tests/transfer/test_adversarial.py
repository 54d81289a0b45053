"""The adversarial mapping, which finds a planted rotation without pairs, and its criterion."""

import numpy as np
import oracles
import pytest
import torch
from checks import refused
from toys import own_words

from polyembed.functional import nearest_cosine
from polyembed.transfer import adversarial
from polyembed.transfer.adversarial import (
    AdversarialOptions,
    adversarial_mapping,
    mapping_criterion,
)

TINY = {"num_epochs": 2, "epoch_size": 64, "hidden_size": 7}


def planted(seed: int, n: int = 200, dim: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Return skewed vectors with another spread in each dimension, and the same vectors rotated.

    The rotation is by up to 1.2 radians (69 degrees).
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.empty(n, dim).exponential_(1, generator=generator) * torch.linspace(1.5, 0.5, dim)
    skew = torch.randn(dim, dim, generator=generator).double()
    skew = skew - skew.mT
    turn = torch.linalg.matrix_exp(skew * 1.2 / torch.linalg.matrix_norm(skew, 2)).float()
    return x, x @ turn


def learn(
    x: torch.Tensor, y: torch.Tensor, **options: float
) -> tuple[torch.Tensor, list[list[float]]]:
    return adversarial_mapping(x, y, AdversarialOptions(**options))


def found(x: torch.Tensor, y: torch.Tensor) -> float:
    return (nearest_cosine(x, y).ids[:, 0] == torch.arange(len(x))).double().mean().item()


def test_a_planted_rotation_is_found_from_nothing():
    x, y = planted(0)
    sizes = {"num_epochs": 2, "epoch_size": 8000, "discriminator_steps": 1, "hidden_size": 32}
    shuffled = y[torch.randperm(len(y))]
    weight, criteria = learn(x, shuffled, **sizes, learning_rate=0.2, beta=0.01)
    assert found(x, y) < 0.02, "the identity, from which it starts, is no solution"
    assert found(x @ weight, y) > 0.6
    assert max(criteria[0]) > 0.99 > mapping_criterion(x, y)
    torch.testing.assert_close(weight.mT @ weight, torch.eye(len(weight)), atol=1e-5, rtol=0)


def test_a_seed_settles_everything_and_restarts_are_its_successors():
    x, y = planted(0, n=31)
    before = torch.get_rng_state()
    one, again, other = (learn(x, y, **TINY, seed=seed) for seed in (3, np.int64(3), 4))
    assert torch.equal(one[0], again[0])
    assert one[1] == again[1]
    assert not torch.equal(one[0], other[0])
    weight, criteria = learn(x, y, **TINY, seed=3, restarts=2)
    assert criteria == [*one[1], *other[1]]
    better = one if max(one[1][0]) > max(other[1][0]) else other
    assert torch.equal(weight, better[0])
    assert torch.equal(torch.get_rng_state(), before)


def test_the_best_epoch_is_returned():
    x, y = planted(1, n=31)
    weight, criteria = learn(x, y, **{**TINY, "num_epochs": 5}, learning_rate=1.0, restarts=2)
    scores = [score for run in criteria for score in run]
    assert mapping_criterion(x @ weight, y) == max(scores)
    assert max(scores) != scores[-1], "else the last would do"


@pytest.mark.parametrize(
    ("scores", "rates"),
    [
        ([0.5, 0.4, 0.3, 0.6, 0.2], [1, 0.5, 0.25, 0.0625, 0.03125]),
        ([0.5, 0.4, 0.6, 0.5, 0.6], [1, 0.5, 0.25, 0.125, 0.03125]),
        ([0.5, 0.4, 0.3], [4e-6, 2e-6, 1e-6]),
    ],
)
def test_the_rate_of_the_mapping_falls_and_halves_where_the_criterion_does(
    scores, rates, monkeypatch
):
    """The first drop below the best score is only counted, and each later drop halves the rate.

    A new best score between the drops makes no difference. Decay alone does not reduce the rate
    below 1e-6, and a halving below 1e-6 ends the run.
    """
    seen: list[float] = []

    class Recorded(adversarial._Game):
        def step(self, rate, *, fooled):
            assert fooled or rate == rates[0]
            seen.extend([rate] * fooled)

    left = iter(scores * 2)
    monkeypatch.setattr(adversarial, "_Game", Recorded)
    monkeypatch.setattr(adversarial, "mapping_criterion", lambda *_: next(left))
    sizes = {"num_epochs": 5, "epoch_size": 1, "hidden_size": 3, "restarts": 2}
    criteria = learn(*planted(0, n=7), **sizes, decay=0.5, learning_rate=rates[0])[1]
    assert seen == rates * 2, "each run begins anew"
    assert criteria == [scores] * 2


def test_only_the_most_frequent_words_are_drawn():
    x, y = planted(0, n=31)
    few, whole, all_ = (
        learn(x, rows, **TINY, most_frequent=most)[0]
        for rows, most in ((y, 7), (y[:7], 7), (y, 31))
    )
    assert torch.equal(whole, few)
    assert not torch.equal(few, all_)


def test_a_step_is_that_of_the_paper():
    """Compare two steps with a computation by hand.

    The steps are SGD on each loss with smoothed labels. The second step also moves the mapping
    towards the orthogonal matrices.
    """
    x, y = planted(0, n=1, dim=2)
    rates = {"learning_rate": 0.5, "beta": 0.01, "dropout": 0.0, "smoothing": 0.2}
    game = adversarial._Game(x, y, AdversarialOptions(hidden_size=3, batch_size=1, **rates), 0)

    def loss(layers, weight, labels):
        total = torch.zeros(())
        for vector, label in ((x[0] @ weight, labels[0]), (y[0], labels[1])):
            hidden = vector
            for i, layer in enumerate(layers):
                hidden = layer[:, :-1] @ hidden + layer[:, -1]
                if i < 2:
                    hidden = torch.where(hidden > 0, hidden, 0.2 * hidden)
            p = torch.sigmoid(hidden[0])
            total = total - label * p.log() - (1 - label) * (1 - p).log()
        return total / 2

    layers = [layer.detach().clone().requires_grad_() for layer in game.layers]
    gradients = torch.autograd.grad(loss(layers, torch.eye(2), (0.8, 0.2)), layers)
    game.step(0.5, fooled=False)
    for layer, old, gradient in zip(game.layers, layers, gradients, strict=True):
        assert gradient.any()
        torch.testing.assert_close(layer, old - 0.5 * gradient)
    weight = torch.eye(2, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(game.layers, weight, (0.2, 0.8)), [weight])
    moved = (weight - 0.5 * gradient).detach()
    game.step(0.5, fooled=True)
    torch.testing.assert_close(game.weight, 1.01 * moved - 0.01 * moved @ moved.mT @ moved)


@own_words
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epoch_size": 1.5}, "epoch_size must be a positive integer, got 1.5"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        ({"learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    refused(ValueError, f"^{message}$", AdversarialOptions, **options)


def test_what_diverges_is_named():
    message = "^learning_rate, beta and the vectors must be so small that the mapping stays finite, got NaN or an inf"
    refused(ValueError, message, learn, *planted(0, n=7), **TINY | {"epoch_size": 3200}, beta=3.0)


# The criterion.


def test_the_criterion_is_the_mean_cosine_of_mutual_neighbours():
    x, y = torch.randn(23, 5).double(), torch.randn(31, 5).double()
    pairs = oracles.mutual_pairs(oracles.csls(x.tolist(), y.tolist(), 3))
    expected = [oracles.cosine(x[i].tolist(), y[j].tolist()) for i, j in pairs]
    assert 1 < len(pairs) < 23
    found = mapping_criterion(x, y, neighborhood=3)
    assert found == pytest.approx(sum(expected) / len(expected), abs=1e-12)
    assert mapping_criterion(x[:0], y) == 0.0
