"""Significance tests against loops and full enumeration, and the table of significance."""

import itertools
import math
import random
import sys
from collections.abc import Sequence

import pytest
from checks import refused

from polyembed.evaluation import (
    ProtocolResult,
    approximate_randomization,
    sign_test,
    significance_table,
)
from polyembed.evaluation.results import SystemRun
from polyembed.evaluation.significance import Significance
from polyembed.metrics import accuracy, entity_f1
from polyembed.training import Epoch, FitResult

LABELS = ["O", "B-A", "I-A", "B-B", "I-B"]


def corrupt(gold: Sequence[Sequence[str]], rate: float, seed: int) -> list[list[str]]:
    """Replace a share of the labels by others drawn at random."""
    generator = random.Random(seed)
    return [
        [generator.choice(LABELS) if generator.random() < rate else label for label in sentence]
        for sentence in gold
    ]


def labels(sentences: int, words: int = 7, seed: int = 0) -> list[list[str]]:
    generator = random.Random(seed)
    return [
        generator.choices(LABELS, [6, 1, 1, 1, 1], k=generator.randint(1, words))
        for _ in range(sentences)
    ]


def score(metric: str, gold, predicted) -> float:
    return accuracy(gold, predicted) if metric == "accuracy" else entity_f1(gold, predicted).f1


def binomial_loop(wins: int, losses: int) -> float:
    n = wins + losses
    return min(1.0, 2 * sum(math.comb(n, k) * 0.5**n for k in range(min(wins, losses) + 1)))


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (1, 0), (3, 3), (2, 11), (500, 523)])
def test_sign_test_against_a_loop(wins: int, losses: int):
    gold = [["X", "Y"]] * (wins + losses + 5)
    # the last five are ties
    first = [["X", "Y"]] * wins + [["Y", "Y"]] * losses + [["Y", "Y"]] * 5
    second = [["X", "X"]] * wins + [["X", "Y"]] * losses + [["X", "X"]] * 5
    found = sign_test(gold, first, second)
    assert found.p_value == pytest.approx(binomial_loop(wins, losses), rel=1e-12)
    assert found.n == wins + losses
    assert found.difference == ((wins - losses) / (wins + losses) if wins + losses else 0.0)
    assert sign_test(gold, second, first) == Significance(-found.difference, found.p_value, found.n)


@pytest.mark.parametrize("metric", ["f1", "accuracy"])
def test_half_known_labels_count_as_in_the_metrics(metric: str):
    gold = [[frozenset({"B-A", "B-B"}), None]] * 8
    systems = [["B-A", "O"]] * 8, [["B-C", "O"]] * 8
    assert approximate_randomization(gold, *systems, metric=metric).difference == 1.0


@pytest.mark.parametrize("metric", ["f1", "accuracy"])
def test_randomization_against_all_swaps(metric: str):
    gold = labels(8)
    first, second = corrupt(gold, 0.2, 10), corrupt(gold, 0.5, 20)
    difference = score(metric, gold, first) - score(metric, gold, second)
    as_large = 0
    for swaps in itertools.product([False, True], repeat=8):
        one = [b if swap else a for a, b, swap in zip(first, second, swaps, strict=True)]
        two = [a if swap else b for a, b, swap in zip(first, second, swaps, strict=True)]
        found = score(metric, gold, one) - score(metric, gold, two)
        as_large += abs(found) >= abs(difference) - 1e-12
    # the default of 10,000 swaps is more than 2^8, so all swaps are used
    found = approximate_randomization(gold, first, second, metric=metric)
    assert found == Significance(pytest.approx(difference, abs=1e-15), exact := as_large / 2**8, 8)
    assert 0.01 < exact < 1


def test_drawn_swaps_approach_all_swaps():
    gold = labels(16, seed=1)
    pair = corrupt(gold, 0.6, 1), corrupt(gold, 0.8, 2)
    exact = approximate_randomization(gold, *pair, num_resamples=2**14).p_value
    drawn = approximate_randomization(gold, *pair, num_resamples=4_000)
    spread = math.sqrt(exact * (1 - exact) / 4_000)
    assert 0.01 < exact < 0.9
    assert drawn.p_value == pytest.approx(exact, abs=4 * spread + 1 / 4_000)
    observed = drawn.p_value * 4_001  # the observed labels count as one draw
    assert observed == pytest.approx(round(observed))


def test_sentences_without_entities_have_no_say(monkeypatch):
    for label in "O", "B-A":
        found = approximate_randomization([["O"]] * 2, [[label], ["O"]], [["O"]] * 2)
        assert found == Significance(0.0, 1.0, 2)
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    refused(ImportError, r"install scipy$", sign_test, [["O"]], [["O"]], [["A"]])


def test_entities_are_of_the_scheme_that_the_labels_show():
    bioes, bio = {"right": ["B-A", "E-A"], "cut": ["S-A", "O"]}, {"right": ["B-A", "I-A"]}
    bio["cut"] = ["B-A", "O"]
    found = [
        approximate_randomization(
            [tags["right"]] * 2, [tags["right"]] * 2, [tags["cut"], tags["right"]]
        )
        for tags in (bio, bioes)
    ]
    assert found[0] == found[1]
    assert found[0].difference == 0.5


def protocol(gold: dict, systems: dict[str, dict[int, dict]], metric: str) -> ProtocolResult:
    """Build a result from predictions, which are nested by system, seed and language."""
    training = FitResult(Epoch(1, 0.5, 0.5, 0.1), ())
    runs = []
    for name, seeds in systems.items():
        for seed, predicted in seeds.items():
            scores = {k: score(metric, gold[k], v) for k, v in predicted.items()}
            runs.append(SystemRun(name, seed, ("es",), training, scores, predicted))
    return ProtocolResult(tuple(runs), gold, metric)


@pytest.fixture
def gold() -> dict[str, list[list[str]]]:
    return {"es": labels(19, seed=3), "nl": labels(11, seed=4)}


def test_the_seed_decides_and_p_is_never_zero():
    test = approximate_randomization
    gold = labels(29)
    first, second = corrupt(gold, 0.2, 1), corrupt(gold, 0.25, 2)
    one, same, other = (test(gold, first, second, num_resamples=97, seed=i) for i in (0, 0, 1))
    assert one == same != other
    gold = [["B-A"]] * 101
    assert test(gold, gold, [["O"]] * 101, num_resamples=99)[:3] == (1.0, 0.01, 101)


@pytest.mark.parametrize("metric", ["f1", "accuracy"])
def test_table_of_single_runs(metric: str, gold):
    predicted = {
        name: {language: corrupt(right, rate, 7) for language, right in gold.items()}
        for name, rate in (("a", 0.1), ("b", 0.4), ("c", 0.2))
    }
    del predicted["c"]["nl"]
    result = protocol(gold, {name: {0: tags} for name, tags in predicted.items()}, metric)
    options = {"num_resamples": 97, "seed": 2}
    for test, function, chosen in (
        ("sign", sign_test, {}),
        ("randomization", approximate_randomization, {"metric": metric, **options}),
    ):
        table = significance_table(result, "b", test=test, **options)
        assert table.columns == ("system", "language", "difference to b", "p", "n", "p, Holm")
        assert [row[:2] for row in table.rows] == [("a", "es"), ("a", "nl"), ("c", "es")]
        for name, language, *found, corrected in table.rows:
            assert corrected >= found[1]
            pair = predicted[name][language], predicted["b"][language]
            expected = function(gold[language], *pair, **chosen)
            assert tuple(found) == expected[:3]


def test_table_of_several_seeds_counts_each_sentence_once(gold):
    """The runs of a sentence count as one long sentence."""
    right = gold["es"]
    systems = {
        name: {seed: {"es": corrupt(right, rate, 10 * seed + 1)} for seed in (0, 1, 2)}
        for name, rate in (("a", 0.2), ("b", 0.3))
    }
    result = protocol({"es": right}, systems, "f1")
    (row,) = significance_table(result, "b", num_resamples=97).rows

    def joined(runs):
        rows = zip(*runs, strict=True)
        return [[label for labels in row for label in (*labels, "O")] for row in rows]

    a, b = (joined([run["es"] for run in runs.values()]) for runs in systems.values())
    assert row[2:5] == approximate_randomization(joined([right] * 3), a, b, num_resamples=97)[:3]
    assert row[4] == 19


def test_wrong_results_for_a_table(gold):
    result = protocol(gold, {"a": {0: gold}, "b": {1: gold}}, "f1")
    rule = r"^seeds of 'b' must be those of 'a', got \[1\]$"
    refused(ValueError, rule, significance_table, result, "a")
    rule = "^against must be one of 'a', 'b', got 'c'$"
    refused(ValueError, rule, significance_table, result, "c")


ONE, NO_LABEL = [["O"]], "gold must hold at least one sentence with a label, got none"


@pytest.mark.parametrize(
    ("test", "labels", "options", "message"),
    [
        *((test, ([[]],) * 3, {}, NO_LABEL) for test in (sign_test, approximate_randomization)),
        (
            sign_test,
            (ONE, ONE, [["O", "O"]]),
            {},
            r"second\[0\] must have as many .* gold\[0\], 1, got 2",
        ),
        (
            approximate_randomization,
            ([["X"]] * 2,) * 3,
            {},
            "labels must be O, B-<type> or I-<type>, got 'X'.*",
        ),
        (
            approximate_randomization,
            (ONE * 2,) * 3,
            {"metric": "x"},
            "metric must be one of 'f1', 'accuracy', got 'x'",
        ),
    ],
)
def test_bad_input(test, labels, options, message):
    refused(ValueError, f"^{message}$", test, *labels, **options)


def test_holm_corrects_for_the_number_of_rows(gold):
    """Holm 1979 as a loop: the smallest p times m, the next times m - 1, never decreasing."""
    rates = {"a": 0.05, "b": 0.4, "c": 0.3, "d": 0.35}
    systems = {
        name: {0: {k: corrupt(v, rate, i) for i, (k, v) in enumerate(gold.items())}}
        for name, rate in rates.items()
    }
    rows = significance_table(protocol(gold, systems, "macro_f1"), "b", test="sign").rows
    expected, largest = {}, 0.0
    for rank, row in enumerate(sorted(rows, key=lambda row: row[3])):
        largest = max(largest, min(1.0, (6 - rank) * row[3]))
        expected[row[:2]] = largest
    assert {row[:2]: row[5] for row in rows} == pytest.approx(expected)
    assert len(rows) == 6
