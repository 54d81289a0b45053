"""Significance: against loops and full enumeration, calibrated where there is no difference."""

import itertools
import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from polyembed.experiments import (
    ProtocolResult,
    Significance,
    SystemRun,
    approximate_randomization,
    paired_bootstrap,
    sentence_counts,
    sign_test,
    significance,
    significance_table,
)
from polyembed.metrics import accuracy, entity_f1
from polyembed.tables import Table
from polyembed.training import Epoch, FitResult

LABELS = ["O", "B-A", "I-A", "B-B", "I-B"]
TESTS = [sign_test, approximate_randomization, paired_bootstrap]


def corrupt(gold: Sequence[Sequence[str]], rate: float, seed: int) -> list[list[str]]:
    """Replace a share of the labels by others drawn at random."""
    generator = random.Random(seed)
    return [
        [generator.choice(LABELS) if generator.random() < rate else label for label in sentence] for sentence in gold
    ]


def labels(sentences: int, words: int = 7, seed: int = 0) -> list[list[str]]:
    generator = random.Random(seed)
    return [generator.choices(LABELS, [6, 1, 1, 1, 1], k=generator.randint(1, words)) for _ in range(sentences)]


def score(metric: str, gold, predicted) -> float:
    return accuracy(gold, predicted) if metric == "accuracy" else entity_f1(gold, predicted).f1


@pytest.mark.parametrize("metric", ["f1", "accuracy"])
def test_counts_add_up_to_the_metric(metric: str) -> None:
    gold = labels(23)
    predicted = corrupt(gold, 0.3, 1)
    counts = sentence_counts(gold, predicted, metric=metric)
    assert counts.shape == (23, 2)
    assert counts[:, 0].sum() / counts[:, 1].sum() == score(metric, gold, predicted)
    for row, right, guess in zip(counts, gold, predicted, strict=True):
        assert (row[0] / row[1] if row[1] else 0.0) == score(metric, [right], [guess])


def binomial_loop(wins: int, losses: int) -> float:
    n = wins + losses
    tail = 0.0
    for k in range(min(wins, losses) + 1):
        tail += math.comb(n, k) * 0.5**n
    return min(1.0, 2 * tail)


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (1, 0), (0, 5), (3, 3), (4, 3), (2, 11), (60, 41), (500, 523)])
def test_sign_test_against_a_loop(wins: int, losses: int) -> None:
    gold = [["X", "Y"]] * (wins + losses + 5)
    first = [["X", "Y"]] * wins + [["Y", "Y"]] * losses + [["Y", "Y"]] * 5
    second = [["X", "X"]] * wins + [["X", "Y"]] * losses + [["X", "X"]] * 5  # the last five are ties
    found = sign_test(gold, first, second)
    assert found.p_value == pytest.approx(binomial_loop(wins, losses), rel=1e-12)
    assert found.n == wins + losses
    assert found.difference == ((wins - losses) / (wins + losses) if wins + losses else 0.0)
    assert sign_test(gold, second, first) == Significance(-found.difference, found.p_value, found.n)


def test_sign_test_of_many_and_of_nearly_certain() -> None:
    gold = [["X"] * 20_001]
    first = [["X"] * 10_201 + ["Y"] * 9_800]
    second = [["Y"] * 10_201 + ["X"] * 9_800]
    z = (401 - 1) / math.sqrt(20_001)  # the normal approximation, with continuity
    assert sign_test(gold, first, second, unit="token").p_value == pytest.approx(math.erfc(z / math.sqrt(2)), rel=1e-2)
    assert sign_test(gold, gold, [["Y"] * 20_001], unit="token") == Significance(1.0, 0.0, 20_001)  # 2^-20000


def test_sign_test_units() -> None:
    gold = [["X", "X", "X"], ["X"]]
    first, second = [["X", "X", "Y"], ["Y"]], [["Y", "Y", "X"], ["X"]]
    assert sign_test(gold, first, second) == Significance(0.0, 1.0, 2)  # 2:1 and 0:1
    assert sign_test(gold, first, second, unit="token") == Significance(0.0, 1.0, 4)
    assert sign_test(gold, first, [["Y", "Y", "Y"], ["Y"]], unit="token") == Significance(1.0, 0.5, 2)


@pytest.mark.parametrize("metric", ["f1", "accuracy"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_randomization_against_all_swaps(metric: str, seed: int) -> None:
    gold = labels(8, seed=seed)
    first, second = corrupt(gold, 0.2, seed + 10), corrupt(gold, 0.5, seed + 20)
    difference = score(metric, gold, first) - score(metric, gold, second)
    as_large = 0
    for swaps in itertools.product([False, True], repeat=8):
        one = [b if swap else a for a, b, swap in zip(first, second, swaps, strict=True)]
        two = [a if swap else b for a, b, swap in zip(first, second, swaps, strict=True)]
        swapped = score(metric, gold, one) - score(metric, gold, two)
        as_large += abs(swapped) >= abs(difference) - 1e-12
    found = approximate_randomization(gold, first, second, metric=metric)  # 10,000 swaps are more than 2^8: all of them
    assert found == Significance(pytest.approx(difference, abs=1e-15), exact := as_large / 2**8, 8)
    assert 0.01 < exact < 1


def test_drawn_swaps_approach_all_swaps() -> None:
    gold = labels(16, seed=1)
    first, second = corrupt(gold, 0.6, 1), corrupt(gold, 0.8, 2)
    assert 2**14 >= 2 ** (sentence_counts(gold, first) != sentence_counts(gold, second)).any(1).sum() > 4_000
    exact = approximate_randomization(gold, first, second, num_resamples=2**14).p_value
    drawn = approximate_randomization(gold, first, second, num_resamples=4_000).p_value
    assert 0.01 < exact < 0.9
    assert drawn == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 4_000) + 1 / 4_000)
    assert drawn * 4_001 == pytest.approx(round(drawn * 4_001))  # the observed labels count as one of the draws


@pytest.mark.parametrize("metric", ["f1", "accuracy"])
@pytest.mark.parametrize("chunk", [2**22, 40, 1])
def test_bootstrap_against_a_loop_with_the_same_draws(metric: str, chunk: int, monkeypatch) -> None:
    monkeypatch.setattr(significance, "CHUNK", chunk)
    gold = labels(13)
    first, second = corrupt(gold, 0.2, 1), corrupt(gold, 0.4, 2)
    difference = score(metric, gold, first) - score(metric, gold, second)
    found = paired_bootstrap(gold, first, second, metric=metric, num_resamples=101, seed=7, confidence=0.9)
    generator = np.random.default_rng(7)
    differences = []
    for _ in range(101):
        drawn = generator.integers(13, size=13)
        right, one, two = ([sentences[i] for i in drawn] for sentences in (gold, first, second))
        differences.append(score(metric, right, one) - score(metric, right, two))
    as_large = sum(abs(d - difference) >= abs(difference) - 1e-12 for d in differences)
    assert 0 < as_large < 101
    assert found.p_value == (1 + as_large) / 102
    assert found.difference == pytest.approx(difference, abs=1e-15)
    assert (found.low, found.high) == pytest.approx(np.quantile(differences, [0.05, 0.95]))
    assert found.n == 13


def test_chunks_do_not_matter(monkeypatch) -> None:
    gold = labels(31)
    first, second = corrupt(gold, 0.2, 1), corrupt(gold, 0.3, 2)
    expected = approximate_randomization(gold, first, second, num_resamples=500)
    monkeypatch.setattr(significance, "CHUNK", 100)
    assert approximate_randomization(gold, first, second, num_resamples=500) == expected


def test_p_is_never_zero() -> None:
    gold, wrong = [["B-A"]] * 101, [["O"]] * 101
    assert approximate_randomization(gold, gold, wrong, num_resamples=99) == Significance(1.0, 0.01, 101)
    assert paired_bootstrap(gold, gold, wrong, num_resamples=99)[:3] == (1.0, 0.01, 101)


@pytest.mark.parametrize("test", TESTS)
def test_a_system_does_not_differ_from_itself(test) -> None:
    gold = labels(17)
    predicted = corrupt(gold, 0.3, 1)
    found = test(gold, predicted, predicted)
    assert (found.difference, found.p_value) == (0.0, 1.0)


def test_sentences_without_entities_have_no_say() -> None:
    found = approximate_randomization([["O"], ["O"]], [["O"], ["O"]], [["O"], ["O"]])
    assert found == Significance(0.0, 1.0, 2)
    assert paired_bootstrap([["O"], ["O"]], [["B-A"], ["O"]], [["O"], ["O"]]) == (0.0, 1.0, 2, 0.0, 0.0)


def test_a_bootstrap_needs_two_sentences() -> None:
    with pytest.raises(ValueError, match=r"^gold must hold at least two sentences for a bootstrap, got 1$"):
        paired_bootstrap([["O"]], [["B-A"]], [["O"]])


@pytest.mark.parametrize("test", TESTS)
def test_the_order_of_the_systems_turns_the_sign_alone(test) -> None:
    gold = labels(41)
    first, second = corrupt(gold, 0.1, 1), corrupt(gold, 0.35, 2)
    there, back = test(gold, first, second), test(gold, second, first)
    assert there.difference == -back.difference > 0
    assert there.p_value == pytest.approx(back.p_value, abs=1e-3)
    assert there.p_value < 0.05


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("metric", ["f1", "accuracy"])
def test_calibrated_where_there_is_no_difference(test, metric: str) -> None:
    """Of 200 pairs of equally good systems, a share of about alpha has p < alpha."""
    options = {} if test is sign_test else {"metric": metric, "num_resamples": 200}
    values = []
    for seed in range(200):
        gold = labels(60, words=5, seed=1000 + seed)
        found = test(gold, corrupt(gold, 0.3, 2 * seed), corrupt(gold, 0.3, 2 * seed + 1), **options)
        values.append(found.p_value)
    p = np.array(values)
    for alpha in (0.05, 0.2, 0.5):
        spread = 4 * math.sqrt(alpha * (1 - alpha) / 200)
        below = (p <= alpha).mean()
        assert below <= alpha + spread
        if test is not sign_test:  # whose few values let it err on the safe side
            assert below >= alpha - spread


@pytest.mark.parametrize("test", [approximate_randomization, paired_bootstrap])
def test_the_seed_decides(test) -> None:
    gold = labels(29)
    first, second = corrupt(gold, 0.2, 1), corrupt(gold, 0.25, 2)
    found = [test(gold, first, second, num_resamples=997, seed=seed) for seed in (0, 0, 1)]
    assert found[0] == found[1]
    assert found[0] != found[2]
    assert found[0].p_value == pytest.approx(found[2].p_value, abs=0.1)


def protocol(gold: dict, systems: dict[str, dict[int, dict[str, list]]], metric: str) -> ProtocolResult:
    """Make a result of predictions: system -> seed -> language."""
    training = FitResult(Epoch(1, 0.5, 0.5, 0.1), ())
    runs = [
        SystemRun(
            name, seed, ("es",), training, {k: score(metric, gold[k], v) for k, v in predicted.items()}, predicted
        )
        for name, seeds in systems.items()
        for seed, predicted in seeds.items()
    ]
    return ProtocolResult(Table((), ()), tuple(runs), gold, metric)


@pytest.fixture
def gold() -> dict[str, list[list[str]]]:
    return {"es": labels(19, seed=3), "nl": labels(11, seed=4)}


@pytest.mark.parametrize("metric", ["f1", "accuracy"])
def test_table_of_single_runs(metric: str, gold) -> None:
    predicted = {
        name: {language: corrupt(right, rate, i) for i, (language, right) in enumerate(gold.items())}
        for name, rate in (("a", 0.1), ("b", 0.4), ("c", 0.2))
    }
    result = protocol(gold, {name: {0: tags} for name, tags in predicted.items()}, metric)
    for test, function, options in (
        ("sign", sign_test, {}),
        ("randomization", approximate_randomization, {"metric": metric, "num_resamples": 97, "seed": 2}),
        ("bootstrap", paired_bootstrap, {"metric": metric, "num_resamples": 97, "seed": 2}),
    ):
        table = significance_table(result, "b", test=test, num_resamples=97, seed=2)
        assert table.columns == ("system", "language", "difference to b", "p", "n")
        assert [row[:2] for row in table.rows] == [(name, language) for name in "ac" for language in ("es", "nl")]
        for name, language, *found in table.rows:
            expected = function(gold[language], predicted[name][language], predicted["b"][language], **options)
            assert tuple(found) == expected[:3]


def test_table_of_several_seeds_counts_each_sentence_once(gold) -> None:
    right = gold["es"]
    a, b = ({seed: corrupt(right, rate, 10 * seed + 1) for seed in (0, 1, 2)} for rate in (0.2, 0.3))
    systems = {name: {seed: {"es": tags} for seed, tags in runs.items()} for name, runs in (("a", a), ("b", b))}
    result = protocol({"es": right}, systems, "f1")
    ((_, _, difference, p_value, n),) = significance_table(result, "b", num_resamples=2_000).rows
    assert n == 19
    assert difference == pytest.approx(
        score("f1", right * 3, [s for k in a for s in a[k]]) - score("f1", right * 3, [s for k in b for s in b[k]])
    )
    scored = {  # each sentence by itself, in each run
        name: [[entity_f1([g], [t]) for g, t in zip(right, runs[seed], strict=True)] for seed in runs]
        for name, runs in (("a", a), ("b", b))
    }

    def f1(names: Sequence[str]) -> float:
        """Score all seeds' sentences together, of which system each sentence is said by."""
        parts = [scored[name][seed][i] for seed in range(3) for i, name in enumerate(names)]
        return 2 * sum(x.correct for x in parts) / sum(x.predicted + x.support for x in parts)

    generator, as_large = random.Random(1), 0
    for _ in range(2_000):  # swap a sentence in all seeds or in none
        names = [generator.choice("ab") for _ in right]
        others = ["b" if name == "a" else "a" for name in names]
        as_large += abs(f1(names) - f1(others)) >= abs(difference) - 1e-12
    assert p_value == pytest.approx(as_large / 2_000, abs=0.06)


def test_a_system_that_was_not_tested_in_a_language_is_left_out(gold) -> None:
    systems = {"a": {0: gold}, "b": {0: {"es": gold["es"]}}}
    rows = significance_table(protocol(gold, systems, "f1"), "a").rows
    assert [row[:2] for row in rows] == [("b", "es")]


def test_wrong_results_for_a_table(gold) -> None:
    result = protocol(gold, {"a": {0: gold}, "b": {1: gold}}, "f1")
    with pytest.raises(ValueError, match=r"^seeds of 'b' must be those of 'a', got \[1\]$"):
        significance_table(result, "a")
    with pytest.raises(ValueError, match=r"^against must be one of 'a', 'b', got 'c'$"):
        significance_table(result, "c")
    with pytest.raises(ValueError, match=r"^metric of the result must be one of 'f1', 'accuracy', got 'recall'$"):
        significance_table(result._replace(metric="recall"), "a")
    with pytest.raises(ValueError, match=r"^num_resamples must be a positive integer, got 0$"):
        significance_table(result, "a", num_resamples=0)
    short = protocol(gold, {"a": {0: gold}, "b": {0: gold}}, "f1")._replace(gold={**gold, "es": gold["es"][1:]})
    with pytest.raises(ValueError, match=r"^predicted must have as many sentences as gold, 18, got 19$"):
        significance_table(short, "a")


@pytest.mark.parametrize("test", TESTS)
def test_labels_must_fit(test) -> None:
    for gold, first, second, message in (
        ([], [], [], r"gold must hold at least one sentence with a label, got none"),
        ([[]], [[]], [[]], r"gold must hold at least one sentence with a label, got none"),
        ([["O"]], [["O"], ["O"]], [["O"]], r"first must have as many sentences as gold, 1, got 2"),
        ([["O"]], [["O"]], [], r"second must have as many sentences as gold, 1, got 0"),
        ([["O"], ["O"]], [["O"], ["O"]], [["O"], ["O", "O"]], r"second\[1\] must have as many .* gold\[1\], 1, got 2"),
    ):
        with pytest.raises(ValueError, match=f"^{message}$"):
            test(gold, first, second)
    with pytest.raises(TypeError, match=r"^first\[0\] must be the labels of a sentence, got the string 'O'$"):
        test([["O"]], ["O"], [["O"]])


def test_wrong_options() -> None:
    one = [["O"]]
    for test in (approximate_randomization, paired_bootstrap):
        with pytest.raises(ValueError, match=r"^num_resamples must be a positive integer, got 0$"):
            test(one, one, one, num_resamples=0)
        with pytest.raises(ValueError, match=r"^labels must be O, B-<type> or I-<type>, got 'NOUN'$"):
            test([["NOUN"]], [["NOUN"]], [["NOUN"]])
    for confidence in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match=rf"^confidence must be in \(0, 1\), got {confidence}$"):
            paired_bootstrap(one, one, one, confidence=confidence)
    for call, name, choices in (
        (lambda: sign_test(one, one, one, unit="word"), "unit", "'sentence', 'token'"),
        (lambda: sentence_counts(one, one, metric="recall"), "metric", "'f1', 'accuracy'"),
        (lambda: paired_bootstrap(one, one, one, metric="recall"), "metric", "'f1', 'accuracy'"),
        (lambda: approximate_randomization(one, one, one, metric="recall"), "metric", "'f1', 'accuracy'"),
    ):
        with pytest.raises(ValueError, match=f"^{name} must be one of {choices}, got"):
            call()
