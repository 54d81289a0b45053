"""The results of a protocol: one run per system and seed, and the table of all runs."""

from dataclasses import dataclass
from typing import NamedTuple

from polyembed._checks import require
from polyembed.metrics import Labels
from polyembed.tables import Table, mean_and_deviation
from polyembed.training import FitResult

Cells = dict[tuple[str, str, int], float]
"""A number for each system, language and seed."""


class SystemRun(NamedTuple):
    """One system, trained once.

    Attributes:
        system: The system's name.
        seed: The seed of the initial weights, of dropout and of the order of the batches.
        trained_on: The languages of the training sentences.
        training: The result of `fit`.
        scores: The metric on the test sentences of each language.
        predictions: The predicted labels of each language's test sentences, one list per sentence.
            A classifier's lists hold one label.
    """

    system: str
    seed: int
    trained_on: tuple[str, ...]
    training: FitResult
    scores: dict[str, float]
    predictions: dict[str, list[list[str]]]


@dataclass(frozen=True)
class ProtocolResult:
    """The result of a protocol; ``one + other`` has the runs of both.

    Results can be added if they have the same metric, the same test sentences in each language that
    they share, and no run in common. So systems with different `FitOptions`, or tested on other
    languages, can be in one table.

    Args:
        runs: The runs, one per system and seed.
        gold: The right labels of each language's test sentences.
        metric: The name of the metric.

    Example:
        >>> from polyembed.training import Epoch
        >>> fitted = FitResult(Epoch(1, 0.5, 0.7, 1.0), ())
        >>> def result(system, score):
        ...     run = SystemRun(system, 0, ("es",), fitted, {"es": score}, {"es": [["O"]]})
        ...     return ProtocolResult((run,), {"es": [["O"]]}, "f1")
        >>> print((result("MME", 0.5) + result("HME", 0.75)).table.to_markdown())
        | system | es     |
        | ------ | ------ |
        | MME    | 0.5000 |
        | HME    | 0.7500 |
        >>> result("MME", 0.75).gain_over(result("MME", 0.5)).rows[0][1].mean
        0.25
    """

    runs: tuple[SystemRun, ...]
    gold: dict[str, list[list[str]]]
    metric: str

    @property
    def table(self) -> Table:
        """A row per system, a column per language: the mean and the deviation over the seeds."""
        return _tabulate(self._cells())

    def scores(self, system: str, language: str) -> dict[int, float]:
        """Return a system's score in one language for each seed.

        Args:
            system: A row of the table.
            language: A column of the table.

        Returns:
            The score of each seed.

        Raises:
            ValueError: If the system was not tested on the language.
        """
        return {run.seed: run.scores[language] for run in self._runs_of(system, language)}

    def predictions(self, system: str, language: str) -> dict[int, Labels]:
        """Return the labels that a system predicted in one language for each seed.

        Args:
            system: A row of the table.
            language: A column of the table.

        Returns:
            The predicted labels of each seed.

        Raises:
            ValueError: If the system was not tested on the language.
        """
        return {run.seed: run.predictions[language] for run in self._runs_of(system, language)}

    def gain_over(self, before: "ProtocolResult") -> Table:
        """Return the differences to another result's scores, computed seed by seed.

        Args:
            before: The result of the same systems, languages and seeds, such as scenario A of
                `run_joint` where this is scenario B.

        Returns:
            A row per system, a column per language: the mean and the deviation of
            ``self - before`` over the seeds.

        Raises:
            ValueError: If the two results have different systems, languages, seeds or metrics.

        Deviations: table 3 of van der Heijden 2019 has the difference of two scores; here it is
            the mean over the seeds.
        """
        _check_metrics(self, before)
        old, new = before._cells(), self._cells()
        odd = sorted(old.keys() ^ new.keys())
        rule = "have the same systems, languages and seeds"
        require(not odd, "both results", rule, f"{odd[:3]} in one alone")
        return _tabulate({key: new[key] - score for key, score in old.items()})

    def __add__(self, other: "ProtocolResult") -> "ProtocolResult":
        _check_metrics(self, other)
        twice = sorted(self._cells().keys() & other._cells().keys())
        require(not twice, "results", "have each run once", f"{twice[:3]} twice")
        odd = [
            name for name in other.gold if self.gold.get(name, other.gold[name]) != other.gold[name]
        ]
        require(not odd, "results", "test each language on the same sentences", f"others of {odd}")
        return ProtocolResult(self.runs + other.runs, {**self.gold, **other.gold}, self.metric)

    def _cells(self) -> Cells:
        return {
            (run.system, language, run.seed): score
            for run in self.runs
            for language, score in run.scores.items()
        }

    def _runs_of(self, system: str, language: str) -> list[SystemRun]:
        found = [run for run in self.runs if run.system == system and language in run.scores]
        rule = f"be a system that was tested on {language!r}"
        require(len(found) > 0, "system", rule, repr(system))
        return found


def _check_metrics(*results: ProtocolResult) -> None:
    names = sorted({result.metric for result in results})
    require(len(names) == 1, "results", "have one metric", names)


def _tabulate(cells: Cells) -> Table:
    """Return means and deviations over the seeds; a cell without a run is None."""
    found: dict[str, dict[str, list[float]]] = {}
    for (system, language, _), value in cells.items():
        found.setdefault(system, {}).setdefault(language, []).append(value)
    languages = list(dict.fromkeys(language for _, language, _ in cells))
    rows = [
        (name, *(mean_and_deviation(row[one]) if one in row else None for one in languages))
        for name, row in found.items()
    ]
    return Table(("system", *languages), rows, digits=4)
