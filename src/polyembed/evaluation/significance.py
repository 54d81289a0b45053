"""Tests of whether the difference between two systems would hold on other sentences.

All tests are paired: two systems on the same sentences. The entity F1 and the accuracy of a set of
sentences are ratios of sums over its sentences,

    f1 = sum(2 * correct) / sum(predicted + support),   accuracy = sum(right) / sum(words),

so resampling needs two whole numbers per sentence. A ratio with denominator 0 is 0.0. The tests
need scipy.
"""

from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from polyembed._checks import check_choice, check_positive, import_optional, require
from polyembed.evaluation.results import ProtocolResult
from polyembed.metrics import (
    GoldLabels,
    Labels,
    check_labels,
    per_class,
    per_tag,
    scheme_of,
    sum_of,
)
from polyembed.tables import Table
from polyembed.tagging.decoders import options_of

Counts = npt.NDArray[np.int64]
"""A numerator and a denominator per sentence, ``(sentence, 2)``."""

CHUNK = 2**20  # the number of signs drawn at once
TIE = 1e-12  # equal ratios may differ by rounding


class Significance(NamedTuple):
    """A difference between two systems, and the evidence for it.

    Attributes:
        difference: The first system's score minus the second's.
        p_value: The probability of a difference at least as large, in either direction, if the
            systems were equal.
        n: The number of sentences; for the sign test, of sentences without a tie.
    """

    difference: float
    p_value: float
    n: int


def sign_test(gold: GoldLabels, first: Labels, second: Labels) -> Significance:
    """Test whether one system is right more often than the other (van der Heijden 2019, "Results").

    With `wins` sentences in which the first system has more right labels than the second, and
    `losses` in which it has fewer,

        p = min(1, 2 * P(X <= min(wins, losses))),   X ~ Binomial(wins + losses, 1/2),

    exactly. Ties are left out.

    Args:
        gold: The right labels of each sentence.
        first: The labels by one system.
        second: The labels by the other system.

    Returns:
        ``(wins - losses) / (wins + losses)`` as the difference, 0.0 if all are ties; the two-sided
        p-value; and ``wins + losses``.

    Raises:
        TypeError: If the labels are not one sequence per sentence.
        ValueError: If `gold` has no labels, or the numbers of sentences or labels differ.
        ImportError: If scipy is not installed.

    Example:
        >>> gold = [["DET", "NOUN"]] * 8
        >>> sign_test(gold, gold, [["DET", "VERB"]] * 8)
        Significance(difference=1.0, p_value=0.0078125, n=8)

    Deviations: the paper names the sign test and alpha = 0.05, but neither the unit (here the
    sentence) nor the treatment of ties.
    """
    check_labels({"gold": gold, "first": first, "second": second}, empty=False)
    return _sign_test(_count(gold, first, "accuracy"), _count(gold, second, "accuracy"))


def approximate_randomization(
    gold: GoldLabels,
    first: Labels,
    second: Labels,
    *,
    metric: Literal["f1", "accuracy"] = "f1",
    num_resamples: int = 10_000,
    seed: int = 0,
) -> Significance:
    """Test a difference by swapping the systems' outputs at random (Noreen 1989; Yeh 2000).

    If the systems were alike, it would not matter which of them labelled a sentence. With ``d`` the
    observed difference and ``d*`` the difference after swapping each sentence with probability 1/2,

        ``p = (1 + #{|d*| >= |d|}) / (1 + num_resamples)``.

    Where the sentences allow at most `num_resamples` different swaps, ``d*`` runs through all of
    them and ``p = #{|d*| >= |d|} / #{d*}`` is exact.

    Args:
        gold: The right labels of each sentence.
        first: The labels by one system.
        second: The labels by the other system.
        metric: The metric, ``"f1"`` (of entities, in the scheme that the labels' letters show)
            or ``"accuracy"``.
        num_resamples: The number of times that the outputs are swapped.
        seed: The seed of the swaps.

    Returns:
        The difference, the two-sided p-value, and the number of sentences.

    Raises:
        TypeError: If the labels are not one sequence per sentence.
        ValueError: If `gold` has no labels; if the numbers of sentences or labels differ; if labels
            for F1 are not of one scheme; or if the metric is unknown.
        ImportError: If scipy is not installed.

    Example:
        >>> gold, worse = [["DET", "NOUN"]] * 8, [["DET", "VERB"]] * 8
        >>> approximate_randomization(gold, gold, worse, metric="accuracy")[:3]
        (0.5, 0.0078125, 8)
    """
    check_choice("metric", metric, ("f1", "accuracy"))
    check_labels({"gold": gold, "first": first, "second": second}, empty=False)
    counts = _count(gold, first, metric), _count(gold, second, metric)
    return _randomize(*counts, num_resamples, seed)


def significance_table(
    result: ProtocolResult,
    against: str,
    *,
    test: Literal["sign", "randomization"] = "randomization",
    num_resamples: int = 10_000,
    seed: int = 0,
) -> Table:
    """Test every system of a protocol against one of them, in each language (as in van der Heijden
    2019, table 2).

    A sentence's counts are summed over all seeds, so a sentence is drawn or swapped with all its
    runs. The test answers whether the mean difference of these trained systems would hold on other
    sentences; the result's own table has the spread over seeds.

    The last column has the p-values of Holm (1979), corrected for the number of rows ``m``. With
    the p-values in rising order, ``holm_i = max over j <= i of min(1, (m - j + 1) * p_j)``.

    Args:
        result: The result of a protocol. Its metric is tested; the sign test counts right labels
            for any metric.
        against: The system that all others are tested against.
        test: The test, ``"sign"`` or ``"randomization"``, both over sentences.
        num_resamples: The number of resamples; see `approximate_randomization`.
        seed: The seed of the resamples.

    Returns:
        A row per system and language: the difference to `against` (as the test defines it), the
        p-value, the number of sentences that count, and the corrected p-value.

    Raises:
        ValueError: If the test or the system is unknown; if randomization is to test a metric that
            is neither F1 nor accuracy; or if a system has other seeds than `against`.
        ImportError: If scipy is not installed.

    Example:
        >>> from polyembed.evaluation.results import SystemRun
        >>> from polyembed.training import Epoch, FitResult
        >>> fitted = FitResult(Epoch(1, 0.5, 0.7, 1.0), ())
        >>> runs = [
        ...     SystemRun(name, 0, ("es",), fitted, {"es": score}, {"es": [["X", tag]] * 8})
        ...     for name, score, tag in (("MME", 1.0, "V"), ("BPE", 0.5, "X"))
        ... ]
        >>> result = ProtocolResult(tuple(runs), {"es": [["X", "V"]] * 8}, "accuracy")
        >>> significance_table(result, "MME", test="sign").rows
        [('BPE', 'es', -1.0, 0.0078125, 8, 0.0078125)]

    Deviations: the paper tests single runs by the sign test, and does not say whether it corrects
    for the number of tests.
    """
    check_choice("test", test, ("sign", "randomization"))
    if test == "randomization":
        check_choice("metric of the result", result.metric, ("f1", "accuracy"))
    systems = list(dict.fromkeys(run.system for run in result.runs))
    check_choice("against", against, systems)
    tested = {(run.system, language) for run in result.runs for language in run.scores}
    metric = "accuracy" if test == "sign" else result.metric

    def pooled(system: str, language: str) -> Counts:
        predictions = result.predictions(system, language)
        same = predictions.keys() == result.predictions(against, language).keys()
        require(same, f"seeds of {system!r}", f"be those of {against!r}", list(predictions))
        counts = [_count(result.gold[language], found, metric) for found in predictions.values()]
        return np.asarray(np.sum(counts, axis=0))  # (sentence, 2)

    rows = []
    for system in systems:
        for language in result.gold:
            if system != against and {(system, language), (against, language)} <= tested:
                counts = pooled(system, language), pooled(against, language)
                signs = test == "sign"
                found = _sign_test(*counts) if signs else _randomize(*counts, num_resamples, seed)
                rows.append((system, language, *found))
    p_values = np.array([row[3] for row in rows])
    order = np.argsort(p_values, kind="stable")
    weighted = p_values[order] * np.arange(len(rows), 0, -1)
    corrected = np.empty_like(p_values)
    corrected[order] = np.minimum(np.maximum.accumulate(weighted), 1.0)
    columns = ("system", "language", f"difference to {against}", "p", "n", "p, Holm")
    pairs = zip(rows, corrected.tolist(), strict=True)
    return Table(columns, [(*row, p) for row, p in pairs], digits=4)


def _count(gold: GoldLabels, predicted: Labels, metric: str) -> Counts:
    """Return ``(2 * correct, predicted + support)`` per sentence, of entities or of words."""
    score: Any = per_tag
    if metric == "f1":
        names = {name for label in chain(*gold, *predicted) for name in options_of(label)}
        score = partial(per_class, scheme=scheme_of(names - {None}) or "bio")
    totals = [sum_of(score([a], [b])) for a, b in zip(gold, predicted, strict=True)]
    return np.array([(2 * x.correct, x.predicted + x.support) for x in totals], np.int64)


def _sign_test(first: Counts, second: Counts) -> Significance:
    differences = first[:, 0] - second[:, 0]
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    n = wins + losses
    if n == 0:
        return Significance(0.0, 1.0, 0)
    p_value = float(_stats("the sign test").binomtest(wins, n).pvalue)
    return Significance((wins - losses) / n, p_value, n)


def _randomize(first: Counts, second: Counts, num_resamples: int, seed: int) -> Significance:
    check_positive(num_resamples=num_resamples)
    difference = float(_difference(*first.sum(0), *second.sum(0)))
    total = first.sum(0) + second.sum(0)
    # sentences with equal counts can be left out; scipy requires two observations
    change = (first - second)[(first != second).any(1)].astype(np.float64)
    change = np.pad(change, ((0, max(0, 2 - len(change))), (0, 0)))

    def is_as_large(signs: npt.NDArray[np.float64], axis: int) -> npt.NDArray[np.float64]:
        # (resample, sentence) @ (sentence, 2): first - second, a swapped sentence with sign -1
        moved = signs @ change
        found = np.abs(_difference(*((total + moved) / 2).T, *((total - moved) / 2).T))
        return (found >= abs(difference) - TIE).astype(np.float64)

    result = _stats("approximate_randomization").permutation_test(
        (np.ones(len(change)),),
        is_as_large,
        permutation_type="samples",
        vectorized=True,
        n_resamples=num_resamples,
        batch=max(1, CHUNK // len(change)),
        alternative="greater",
        rng=seed,
    )
    return Significance(difference, float(result.pvalue), len(first))


def _difference(a: Any, b: Any, c: Any, d: Any) -> npt.NDArray[np.float64]:
    """Return ``a / b - c / d`` of whole numbers, where ``0 / 0 = 0``."""
    return np.asarray(a / np.maximum(b, 1) - c / np.maximum(d, 1))


def _stats(feature: str) -> Any:
    return import_optional("scipy.stats", pip="scipy", feature=feature)
