"""What a protocol returns: a table, the runs behind it, and how two results compare."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from polyembed._checks import require
from polyembed.evaluation.compare import SystemRun
from polyembed.metrics import Labels
from polyembed.tables import Table, mean_and_deviation

DIGITS = 4


class ProtocolResult(NamedTuple):
    """The result of a protocol.

    Attributes:
        table: A row a system, a column a language: mean and deviation over the seeds, between 0 and
            1.
        runs: All runs, with their predictions.
        gold: The right tags of each language's test sentences.
        metric: The name of the metric.
    """

    table: Table
    runs: tuple[SystemRun, ...]
    gold: dict[str, list[list[str]]]
    metric: str

    def scores(self, system: str, language: str) -> dict[int, float]:
        """Return a system's scores in one language.

        Args:
            system: A row of the table.
            language: A column of the table.

        Returns:
            The score of each seed.
        """
        return {run.seed: run.scores[language] for run in self._runs_of(system, language)}

    def predictions(self, system: str, language: str) -> dict[int, Labels]:
        """Return the tags that a system predicted for the test sentences of one language.

        Args:
            system: A row of the table.
            language: A column of the table.

        Returns:
            The predicted tags of each seed.
        """
        return {run.seed: run.predictions[language] for run in self._runs_of(system, language)}

    def _runs_of(self, system: str, language: str) -> list[SystemRun]:
        found = [run for run in self.runs if run.system == system and language in run.scores]
        rule = f"be a system that was tested on {language!r}"
        require(len(found) > 0, "system", rule, repr(system))
        return found


def merge_results(*results: ProtocolResult) -> ProtocolResult:
    """Merge results into one table: of systems that are trained in different ways, or of different
    languages.

    Args:
        *results: With one metric, and the same test sentences where they share a language.

    Returns:
        All runs, and their table; a cell without a run is None.

    Raises:
        ValueError: No results, different metrics or test sentences, or a run twice.

    Example:
        >>> from polyembed.training import Epoch, FitResult
        >>> run = SystemRun("MME", 0, ("es",), FitResult(Epoch(1, 0.5, 0.7, 1.0), ()), {"es": 0.7}, {"es": [["O"]]})
        >>> one = ProtocolResult(Table((), ()), (run,), {"es": [["O"]]}, "f1")
        >>> merge_results(one, one._replace(runs=(run._replace(system="HME"),))).table.rows
        (('MME', MeanAndDeviation(mean=0.7, deviation=None)), ('HME', MeanAndDeviation(mean=0.7,
        deviation=None)))
    """
    require(len(results) > 0, "results", "hold at least one result", "none")
    metrics = sorted({result.metric for result in results})
    require(len(metrics) == 1, "results", "have one metric", metrics)
    gold: dict[str, list[list[str]]] = {}
    seen: set[tuple[str, str, int]] = set()
    for result in results:
        for language, tags in result.gold.items():
            same = gold.setdefault(language, tags) == tags
            require(
                same,
                "results",
                "test each language on the same sentences",
                f"others of {language!r}",
            )
        for run in result.runs:
            for language in run.scores:
                key = (run.system, language, run.seed)
                require(key not in seen, "results", "hold each run once", f"{key} twice")
                seen.add(key)
    return make_result([run for result in results for run in result.runs], gold, metrics[0])


def gain_table(before: ProtocolResult, after: ProtocolResult) -> Table:
    """Compare two results seed by seed: ``after - before``, mean and deviation over the seeds.

    Args:
        before: For example of scenario A.
        after: For example of scenario B, of the same systems and seeds.

    Returns:
        A row a system, a column a language.

    Raises:
        ValueError: If the two have other systems, languages or seeds, or different metrics.

    Example:
        >>> from polyembed.training import Epoch, FitResult
        >>> run = SystemRun("MME", 0, ("es",), FitResult(Epoch(1, 0.5, 0.7, 1.0), ()), {"es": 0.5}, {"es": [["O"]]})
        >>> before = merge_results(ProtocolResult(Table((), ()), (run,), {"es": [["O"]]}, "f1"))
        >>> after = before._replace(runs=(run._replace(scores={"es": 0.75}),))
        >>> gain_table(before, after).rows
        [('MME', MeanAndDeviation(mean=0.25, deviation=None))]

    Deviations: the paper's table 3 gives the difference of two scores; here it is the mean over
        seeds.
    """
    require(
        before.metric == after.metric,
        "after",
        f"have the metric {before.metric!r}",
        repr(after.metric),
    )

    def cells(result: ProtocolResult) -> dict[tuple[str, str, int], float]:
        runs = result.runs
        return {
            (run.system, language, run.seed): score
            for run in runs
            for language, score in run.scores.items()
        }

    old, new = cells(before), cells(after)
    odd = sorted(old.keys() ^ new.keys())
    require(
        not odd,
        "after",
        "hold the systems, languages and seeds of before",
        f"only one has {odd[:3]}",
    )
    systems, languages = _names(before.runs)
    rows = []
    for system in systems:
        row: list[Any] = [system]
        for language in languages:
            changes = [new[key] - old[key] for key in old if key[:2] == (system, language)]
            row.append(mean_and_deviation(changes) if changes else None)
        rows.append(tuple(row))
    return Table(("system", *languages), rows, DIGITS)


def make_result(
    runs: Sequence[SystemRun], gold: dict[str, list[list[str]]], metric: str
) -> ProtocolResult:
    """Return a result with the table of its runs."""
    systems, languages = _names(runs)
    rows = []
    for system in systems:
        row: list[Any] = [system]
        for language in languages:
            scores = [
                run.scores[language]
                for run in runs
                if run.system == system and language in run.scores
            ]
            row.append(mean_and_deviation(scores) if scores else None)
        rows.append(tuple(row))
    return ProtocolResult(
        Table(("system", *languages), tuple(rows), DIGITS), tuple(runs), gold, metric
    )


def _names(runs: Sequence[SystemRun]) -> tuple[list[str], list[str]]:
    """Return the systems and languages of the runs, in order."""
    systems = dict.fromkeys(run.system for run in runs)
    return list(systems), list(dict.fromkeys(language for run in runs for language in run.scores))
