"""Is one system better than another, or does it look so on these sentences only?

All tests are paired: two systems on the same sentences. The entity F1 and the accuracy of a set of sentences are
ratios of sums over its sentences,

    f1 = sum(2 * correct) / sum(predicted + support),   accuracy = sum(right) / sum(words),

so that two whole numbers a sentence are all that resampling needs (`sentence_counts`). Where there is nothing below
the line, the ratio is 0.0.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from polyembed._checks import check_choice, check_positive, require
from polyembed.experiments._labels import check_labels
from polyembed.metrics import Labels, entities
from polyembed.tables import Table
from polyembed.training.protocols import ProtocolResult

Counts = npt.NDArray[np.int64]
"""A numerator and a denominator for each sentence, ``(sentence, 2)``."""

CHUNK = 2**22  # numbers drawn at once: 32 MB
TIE = 1e-12  # ratios of whole numbers that are equal may differ by rounding


class Significance(NamedTuple):
    """How sure a difference is.

    Attributes:
        difference: The first system's score minus the second's.
        p_value: How often a difference of this size or more, in either direction, shows where there is none.
        n: How many sentences were compared; of the sign test, how many units without ties.
    """

    difference: float
    p_value: float
    n: int


class BootstrapSignificance(NamedTuple):
    """How sure a difference is, and where it lies.

    Attributes:
        difference: The first system's score minus the second's.
        p_value: How often a difference of this size or more, in either direction, shows where there is none.
        n: How many sentences were compared.
        low: The lower end of the interval that holds the difference with the confidence asked for.
        high: Its upper end.
    """

    difference: float
    p_value: float
    n: int
    low: float
    high: float


def sentence_counts(gold: Labels, predicted: Labels, *, metric: Literal["f1", "accuracy"] = "f1") -> Counts:
    """Give what each sentence adds above and below the line of a metric.

    ``"f1"``: ``(2 * correct, predicted + support)`` entities, as conlleval counts; ``"accuracy"``:
    ``(right, words)``.

    Args:
        gold: The right labels of each sentence.
        predicted: The predicted labels of each sentence.
        metric: ``"f1"`` or ``"accuracy"``.

    Returns:
        ``(sentence, 2)`` int64; ``sum(counts[:, 0]) / sum(counts[:, 1])`` is the metric.

    Raises:
        TypeError: If the labels are not one sequence a sentence.
        ValueError: If there are no labels, the lengths differ, or there is no such metric.

    Example:
        >>> sentence_counts([["B-PER", "O"], ["O"]], [["B-PER", "B-LOC"], ["O"]]).tolist()
        [[2, 3], [0, 0]]
    """
    check_choice("metric", metric, ("f1", "accuracy"))
    check_labels(gold, predicted=predicted)
    return _counts(gold, predicted, metric)


def sign_test(
    gold: Labels, first: Labels, second: Labels, *, unit: Literal["sentence", "token"] = "sentence"
) -> Significance:
    """Test whether one system is right more often than the other (van der Heijden 2019, "Results").

    With `wins` units where the first system has more right labels than the second, and `losses` where it has fewer,

        p = min(1, 2 * P(X <= min(wins, losses))),   X ~ Binomial(wins + losses, 1/2),

    exactly. Units where both are as good say nothing and are left out. Tokens of one sentence are not independent,
    so tokens give p-values that are too small; sentences do not.

    Args:
        gold: The right labels of each sentence.
        first: The labels by one system.
        second: The labels by the other.
        unit: ``"sentence"`` or ``"token"``.

    Returns:
        ``(wins - losses) / (wins + losses)`` as the difference, 0.0 if all are ties; the two-sided p-value; and
        ``wins + losses``.

    Raises:
        TypeError: If the labels are not one sequence a sentence.
        ValueError: If there are no labels, the lengths differ, or there is no such unit.

    Example:
        >>> gold = [["DET", "NOUN"]] * 8
        >>> sign_test(gold, gold, [["DET", "VERB"]] * 8)
        Significance(difference=1.0, p_value=0.0078125, n=8)

    Deviations: the paper names the sign test and alpha = 0.05, not the unit, nor what it does with ties.
    """
    check_choice("unit", unit, ("sentence", "token"))
    check_labels(gold, first=first, second=second)
    right = _right_tokens if unit == "token" else _right_sentences
    return _sign_test(right(gold, first) - right(gold, second))


def approximate_randomization(
    gold: Labels,
    first: Labels,
    second: Labels,
    *,
    metric: Literal["f1", "accuracy"] = "f1",
    num_resamples: int = 10_000,
    seed: int = 0,
) -> Significance:
    """Test a difference by swapping the systems' outputs at random (Noreen 1989; Yeh 2000).

    If the systems were alike, who said what in a sentence would not matter. With ``d`` the difference found and
    ``d*`` the difference after swapping each sentence with probability 1/2,

        ``p = (1 + #{|d*| >= |d|}) / (1 + num_resamples)``.

    Args:
        gold: The right labels of each sentence.
        first: The labels by one system.
        second: The labels by the other.
        metric: ``"f1"`` (entities, as conlleval counts) or ``"accuracy"``.
        num_resamples: How many times the outputs are swapped.
        seed: Of the swaps.

    Returns:
        The difference, the two-sided p-value, and the number of sentences.

    Raises:
        TypeError: If the labels are not one sequence a sentence.
        ValueError: If there are no labels, the lengths differ, a label is not BIO, or there is no such metric.

    Example:
        >>> gold, worse = [["DET", "NOUN"]] * 8, [["DET", "VERB"]] * 8
        >>> found = approximate_randomization(gold, gold, worse, metric="accuracy")
        >>> found.difference, found.p_value < 0.02
        (0.5, True)

    Deviations: none of Yeh's text; its F1 is over phrases, too.
    """
    check_choice("metric", metric, ("f1", "accuracy"))
    check_positive(num_resamples=num_resamples)
    check_labels(gold, first=first, second=second)
    return _randomize(_counts(gold, first, metric), _counts(gold, second, metric), num_resamples, seed)


def paired_bootstrap(
    gold: Labels,
    first: Labels,
    second: Labels,
    *,
    metric: Literal["f1", "accuracy"] = "f1",
    num_resamples: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> BootstrapSignificance:
    """Test a difference on sentences drawn anew, with replacement (Koehn 2004; Berg-Kirkpatrick et al. 2012).

    With ``d`` the difference found and ``d*`` that on as many sentences drawn from these, both systems' together,

        ``p = (1 + #{|d* - d| >= |d|}) / (1 + num_resamples)``,

    and the interval runs between quantiles of ``d*``.

    Args:
        gold: The right labels of each sentence.
        first: The labels by one system.
        second: The labels by the other.
        metric: ``"f1"`` (entities, as conlleval counts) or ``"accuracy"``.
        num_resamples: How many times sentences are drawn.
        confidence: Of the interval, in (0, 1).
        seed: Of the draws.

    Returns:
        The difference, the two-sided p-value, the number of sentences, and the interval.

    Raises:
        TypeError: If the labels are not one sequence a sentence.
        ValueError: If there are no labels, the lengths differ, a label is not BIO, there is no such metric, or the
            confidence is outside (0, 1).

    Example:
        >>> gold = [["DET", "NOUN"]] * 20
        >>> second = [["DET", "VERB"]] * 10 + gold[10:]
        >>> found = paired_bootstrap(gold, gold, second, metric="accuracy")
        >>> found.difference, found.p_value < 0.01, 0.1 < found.low < 0.25 < found.high < 0.4
        (0.25, True, True)

    Deviations: Berg-Kirkpatrick et al. count ``d* > 2 d`` (one-sided), Koehn the samples in which the order of the
    systems turns; here both directions count, and the sample found counts as one of those drawn, so that p is never 0.
    """
    check_choice("metric", metric, ("f1", "accuracy"))
    check_positive(num_resamples=num_resamples)
    require(0 < confidence < 1, "confidence", "lie in (0, 1)", confidence)
    check_labels(gold, first=first, second=second)
    counts = _counts(gold, first, metric), _counts(gold, second, metric)
    return _bootstrap(*counts, num_resamples, confidence, seed)


def significance_table(
    result: ProtocolResult,
    against: str,
    *,
    test: Literal["sign", "randomization", "bootstrap"] = "randomization",
    num_resamples: int = 10_000,
    seed: int = 0,
) -> Table:
    """Test every system of a protocol against one of them, in each language (as in van der Heijden 2019, table 2).

    All seeds count at once: a sentence's counts are summed over them, so a sentence is drawn or swapped with all its
    runs. The question is whether the mean difference of these trained taggers would hold on other sentences; how far
    other seeds would lie apart is what the result's own table says.

    Args:
        result: What a protocol gave; its metric is the one tested (the sign test counts right labels, whatever the
            metric).
        against: The system that all others are tested against.
        test: ``"sign"`` (over sentences), ``"randomization"`` or ``"bootstrap"``.
        num_resamples: Of the last two.
        seed: Of the last two.

    Returns:
        A row a system and language: the difference to `against` (of the sign test, as `sign_test` gives it), the
        p-value, and how many sentences count. Nothing is corrected for the number of tests.

    Raises:
        ValueError: No such test or system, a metric that is neither F1 nor accuracy, two systems with other seeds.

    Example:
        >>> from polyembed.training import Epoch, FitResult
        >>> from polyembed.training.protocols import Run, merge
        >>> gold, fit = {"es": [["X", "V"]] * 8}, FitResult(Epoch(1, 0.5, 0.7, 1.0), ())
        >>> runs = [
        ...     Run(name, 0, ("es",), fit, {"es": score}, {"es": [["X", tag]] * 8})
        ...     for name, score, tag in (("MME", 1.0, "V"), ("BPE", 0.5, "X"))
        ... ]
        >>> result = ProtocolResult(Table((), ()), tuple(runs), gold, "accuracy")
        >>> significance_table(result, "MME", test="sign").rows
        [('BPE', 'es', -1.0, 0.0078125, 8)]

    Deviations: the paper tests single runs by the sign test.
    """
    check_choice("test", test, ("sign", "randomization", "bootstrap"))
    check_positive(num_resamples=num_resamples)
    check_choice("metric of the result", result.metric, ("f1", "accuracy"))
    systems = list(dict.fromkeys(run.system for run in result.runs))
    check_choice("against", against, systems)
    tested = {(run.system, language) for run in result.runs for language in run.scores}

    def pooled(system: str, language: str, count: Callable[[Labels, Labels], Counts]) -> Counts:
        predictions = result.predictions(system, language)
        require(
            predictions.keys() == result.predictions(against, language).keys(),
            f"seeds of {system!r}",
            f"be those of {against!r}",
            list(predictions),
        )
        gold = result.gold[language]
        for predicted in predictions.values():
            check_labels(gold, predicted=predicted)
        total: Counts = np.sum([count(gold, predicted) for predicted in predictions.values()], axis=0)
        return total

    def compare(system: str, language: str) -> Significance | BootstrapSignificance:
        if test == "sign":
            return _sign_test(pooled(system, language, _right_sentences) - pooled(against, language, _right_sentences))

        def count(gold: Labels, predicted: Labels) -> Counts:
            return _counts(gold, predicted, result.metric)

        counts = pooled(system, language, count), pooled(against, language, count)
        if test == "randomization":
            return _randomize(*counts, num_resamples, seed)
        return _bootstrap(*counts, num_resamples, 0.95, seed)

    rows = []
    for system in systems:
        for language in result.gold:
            if system != against and {(system, language), (against, language)} <= tested:
                found = compare(system, language)
                rows.append((system, language, found.difference, found.p_value, found.n))
    return Table(("system", "language", f"difference to {against}", "p", "n"), rows, digits=4)


def _counts(gold: Labels, predicted: Labels, metric: str) -> Counts:
    if metric == "accuracy":
        lengths = np.array([len(labels) for labels in gold], np.int64)
        return np.stack([_right_sentences(gold, predicted), lengths], axis=1)
    rows = np.zeros((len(gold), 2), np.int64)
    for row, right, guess in zip(rows, gold, predicted, strict=True):
        there, found = entities(right), entities(guess)
        row[:] = 2 * len(set(there) & set(found)), len(there) + len(found)
    return rows


def _right_tokens(gold: Labels, predicted: Labels) -> Counts:
    pairs = zip(gold, predicted, strict=True)
    return np.array([a == b for right, guess in pairs for a, b in zip(right, guess, strict=True)], np.int64)


def _right_sentences(gold: Labels, predicted: Labels) -> Counts:
    pairs = zip(gold, predicted, strict=True)
    return np.array([sum(a == b for a, b in zip(right, guess, strict=True)) for right, guess in pairs], np.int64)


def _sign_test(differences: Counts) -> Significance:
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    n = wins + losses
    ways = term = 1  # of n over k, summed up to the smaller of the two, in whole numbers
    for k in range(min(wins, losses)):
        term = term * (n - k) // (k + 1)
        ways += term
    return Significance((wins - losses) / n if n else 0.0, min(1.0, 2 * ways / 2**n), n)


def _randomize(first: Counts, second: Counts, num_resamples: int, seed: int) -> Significance:
    difference = float(_difference(first.sum(0), second.sum(0)))
    apart = (first != second).any(1)  # to swap the others changes nothing
    change = (second - first)[apart].astype(np.float64)  # exact: whole numbers far below 2^53
    generator = np.random.default_rng(seed)
    as_large = 0
    for count in _chunks(num_resamples, len(change)):
        moved = (generator.random((count, len(change))) < 0.5).astype(np.float64) @ change
        found = _difference(first.sum(0) + moved, second.sum(0) - moved)
        as_large += int((np.abs(found) >= abs(difference) - TIE).sum())
    return Significance(difference, (1 + as_large) / (1 + num_resamples), len(first))


def _bootstrap(
    first: Counts, second: Counts, num_resamples: int, confidence: float, seed: int
) -> BootstrapSignificance:
    n = len(first)
    difference = float(_difference(first.sum(0), second.sum(0)))
    counts = np.concatenate([first, second], axis=1).astype(np.float64)
    generator = np.random.default_rng(seed)
    found: list[npt.NDArray[Any]] = []
    for count in _chunks(num_resamples, n):
        drawn = generator.integers(n, size=(count, n)) + n * np.arange(count)[:, None]
        times = np.bincount(drawn.ravel(), minlength=count * n).reshape(count, n)
        sums = times.astype(np.float64) @ counts
        found.append(_difference(sums[:, :2], sums[:, 2:]))
    differences = np.concatenate(found)
    as_large = int((np.abs(differences - difference) >= abs(difference) - TIE).sum())
    low, high = np.quantile(differences, [(1 - confidence) / 2, (1 + confidence) / 2])
    p_value = (1 + as_large) / (1 + num_resamples)
    return BootstrapSignificance(difference, p_value, n, float(low), float(high))


def _difference(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Subtract the ratios of two numerators and denominators, which stand in the last axis."""
    return np.asarray(_ratio(first) - _ratio(second))


def _ratio(sums: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return np.where(sums[..., 1] > 0, sums[..., 0] / np.maximum(sums[..., 1], 1), 0.0)


def _chunks(num_resamples: int, width: int) -> Iterator[int]:
    """Cut the resamples so that what is drawn at once stays small."""
    size = max(1, CHUNK // max(1, width))
    for start in range(0, num_resamples, size):
        yield min(size, num_resamples - start)
