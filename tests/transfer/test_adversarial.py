"""The mapping learnt from nothing: a planted rotation is found, not by luck; and the criterion that judges it."""

import math

import oracles
import pytest
import torch
from toys import own_words

from polyembed.functional import nearest_cosine
from polyembed.transfer import adversarial
from polyembed.transfer.adversarial import (
    AdversarialOptions,
    adversarial_mapping,
    mapping_criterion,
)

QUICK = {
    "num_epochs": 4,
    "epoch_size": 8000,
    "discriminator_steps": 3,
    "hidden_size": 32,
    "beta": 0.01,
}
TINY = {"num_epochs": 2, "epoch_size": 64, "hidden_size": 7}


def planted(seed: int, n: int = 300, dim: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Skewed vectors with another spread in each dimension, and the same turned by up to 1.2 (69 degrees)."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.empty(n, dim).exponential_(1, generator=generator) * torch.linspace(1.5, 0.5, dim)
    skew = torch.randn(dim, dim, generator=generator).double()
    skew = skew - skew.mT
    turn = torch.linalg.matrix_exp(skew * 1.2 / torch.linalg.matrix_norm(skew, 2)).float()
    return x, x @ turn


def learn(x: torch.Tensor, y: torch.Tensor, **options: float) -> adversarial.AdversarialMapping:
    return adversarial_mapping(x, y, AdversarialOptions(**options))


def options(**changed: float) -> AdversarialOptions:
    return AdversarialOptions(
        **{"hidden_size": 3, "batch_size": 1, "learning_rate": 0.5, "beta": 0.01, **changed}
    )


def found(x: torch.Tensor, y: torch.Tensor) -> float:
    return (nearest_cosine(x, y).ids[:, 0] == torch.arange(len(x))).double().mean().item()


def test_a_planted_rotation_is_found_from_nothing() -> None:
    x, y = planted(0)
    mapping = learn(x, y[torch.randperm(len(y))], **QUICK)
    assert found(x, y) < 0.02, "the identity, from which it starts, is no solution"
    assert found(x @ mapping.weight, y) > 0.95
    assert [len(run) for run in mapping.criteria] == [4]
    assert max(mapping.criteria[0]) > 0.998 > mapping_criterion(x, y)
    weight = mapping.weight.double()
    torch.testing.assert_close(
        weight.mT @ weight, torch.eye(5, dtype=torch.float64), atol=1e-6, rtol=0
    )


def test_a_seed_settles_everything_and_restarts_are_its_successors() -> None:
    x, y = planted(0, n=31)
    before = torch.get_rng_state()
    one, again, other = (learn(x, y, **TINY, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(one.weight, again.weight)
    assert one.criteria == again.criteria
    assert not torch.equal(one.weight, other.weight)
    both = learn(x, y, **TINY, seed=3, restarts=2)
    assert both.criteria == [*one.criteria, *other.criteria]
    better = one if max(one.criteria[0]) > max(other.criteria[0]) else other
    assert torch.equal(both.weight, better.weight)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_best_epoch_is_returned() -> None:
    x, y = planted(1, n=31)
    mapping = learn(x, y, **{**TINY, "num_epochs": 5}, learning_rate=1.0, restarts=2)
    scores = [score for run in mapping.criteria for score in run]
    assert mapping_criterion(x @ mapping.weight, y) == max(scores)
    assert max(scores) != scores[-1], "else the last would do"


def rates_of(
    monkeypatch: pytest.MonkeyPatch, scores: list[float], **options: float
) -> tuple[list[float], list[float], list[list[float]]]:
    """Give the rates of the mapping and of the discriminator where epochs have these scores, and the criteria."""
    rates: tuple[list[float], list[float]] = ([], [])

    class Recorded(adversarial._Game):
        def teach_mapping(self, rate: float) -> None:
            rates[0].append(rate)
            super().teach_mapping(rate)

        def teach_discriminator(self) -> None:
            rates[1].append(self.options.learning_rate)
            super().teach_discriminator()

    left = iter(scores)
    monkeypatch.setattr(adversarial, "_Game", Recorded)
    monkeypatch.setattr(adversarial, "mapping_criterion", lambda *_: next(left))
    x, y = planted(0, n=7)
    found = learn(
        x,
        y,
        num_epochs=5,
        epoch_size=1,
        hidden_size=3,
        discriminator_steps=1,
        **{"decay": 0.5, **options},
    )
    return *rates, found.criteria


@pytest.mark.parametrize(
    ("scores", "rates"),
    [
        ([0.5, 0.4, 0.3, 0.6, 0.2], [1, 0.5, 0.25, 0.0625, 0.03125]),
        ([0.5, 0.4, 0.6, 0.5, 0.6], [1, 0.5, 0.25, 0.125, 0.03125]),
    ],
)
def test_the_rate_of_the_mapping_falls_and_halves_where_the_criterion_does(
    scores: list[float], rates: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first drop below the best only counts; each later one halves, a new best between them or not."""
    mapping, discriminator, _ = rates_of(monkeypatch, scores * 2, learning_rate=1.0, restarts=2)
    assert mapping == rates * 2, "each run begins anew"
    assert discriminator == [1.0] * 10


def test_a_run_ends_where_the_rate_falls_below_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = [0.5, 0.4, 0.3, 0.6, 0.2] * 2
    mapping, _, criteria = rates_of(monkeypatch, scores, learning_rate=4e-6, restarts=2)
    assert mapping == [4e-6, 2e-6, 1e-6] * 2, "decay alone goes no lower; then a halving"
    assert criteria == [[0.5, 0.4, 0.3], [0.6, 0.2, 0.5]]


def test_only_the_most_frequent_words_are_drawn() -> None:
    x, y = planted(0, n=31)
    few = learn(x, y, **TINY, most_frequent=7).weight
    assert torch.equal(learn(x, y[:7], **TINY, most_frequent=7).weight, few)
    assert not torch.equal(few, learn(x, y, **TINY, most_frequent=31).weight)


def test_a_step_is_that_of_the_paper() -> None:
    """Two steps by hand: SGD on either loss with smoothed labels, and the step to the orthogonal matrices."""
    x, y = planted(0, n=1, dim=2)
    game = adversarial._Game(x, y, options(dropout=0.0, smoothing=0.2), 0)

    def loss(
        layers: list[torch.Tensor], weight: torch.Tensor, labels: tuple[float, float]
    ) -> torch.Tensor:
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
    game.teach_discriminator()
    for layer, old, gradient in zip(game.layers, layers, gradients, strict=True):
        assert gradient.any()
        torch.testing.assert_close(layer, old - 0.5 * gradient)
    weight = torch.eye(2, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(game.layers, weight, (0.2, 0.8)), [weight])
    moved = (weight - 0.5 * gradient).detach()
    game.teach_mapping(0.5)
    torch.testing.assert_close(game.weight, 1.01 * moved - 0.01 * moved @ moved.mT @ moved)


def test_dropout_is_of_the_input_while_the_discriminator_learns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    game = adversarial._Game(*planted(0, n=1), options(dropout=0.5), 0)
    seen: list[torch.Tensor] = []
    plain = torch.nn.functional.linear
    monkeypatch.setattr(adversarial.F, "linear", lambda *x: (seen.append(x[0]), plain(*x))[1])
    for _ in range(200):
        game._loss(torch.ones(2, 5), fooled=False)
    inputs = torch.cat(seen[::3])
    assert set(inputs.unique().tolist()) == {0.0, 2.0}
    assert 0.9 < inputs.mean() < 1.1
    assert len({game._loss(torch.ones(2, 5), fooled=True).item() for _ in range(20)}) == 1


@own_words
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epoch_size": 1.5}, "epoch_size must be a positive integer, got 1.5"),
        ({"most_frequent": 0}, "most_frequent must be a positive integer, got 0"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        ({"learning_rate": math.nan}, "learning_rate must be positive, got nan"),
        ({"decay": 1.1}, r"decay must be in \(0, 1\], got 1.1"),
        ({"beta": -1.0}, "beta must be 0 or more, got -1.0"),
    ],
)
def test_options_out_of_range_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        AdversarialOptions(**options)


def test_what_diverges_is_named() -> None:
    message = "^learning_rate, beta and the vectors must be so small that the mapping stays finite, got NaN or an inf"
    with pytest.raises(ValueError, match=message):
        learn(*planted(0, n=7), **{**TINY, "epoch_size": 3200}, beta=3.0)


# The criterion.


def test_the_criterion_is_the_mean_cosine_of_mutual_neighbours() -> None:
    x, y = torch.randn(23, 5).double(), torch.randn(31, 5).double()
    pairs = oracles.mutual_pairs(oracles.csls(x.tolist(), y.tolist(), 3))
    expected = [oracles.cosine(x[i].tolist(), y[j].tolist()) for i, j in pairs]
    assert 1 < len(pairs) < 23
    found = mapping_criterion(x, y, neighborhood=3)
    assert found == pytest.approx(sum(expected) / len(expected), abs=1e-12)
    assert mapping_criterion(x[:0], y) == 0.0
