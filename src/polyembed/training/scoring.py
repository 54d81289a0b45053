"""The metrics that an epoch is chosen by."""

from collections.abc import Callable, Sequence

from polyembed._checks import class_name
from polyembed.metrics import GoldLabels, Labels, accuracy, entity_f1, macro_f1

Metric = Callable[[GoldLabels, Labels], float]


def _micro_f1(gold: GoldLabels, predicted: Labels) -> float:
    return entity_f1(gold, predicted, mode="conll").f1


METRICS: dict[str, Metric] = {"f1": _micro_f1, "accuracy": accuracy, "macro_f1": macro_f1}


def measure(
    metric: str | Metric, gold: GoldLabels, predicted: Sequence[Sequence[str] | str]
) -> float:
    """Return the score of predictions, one list of labels a text or one label, by a metric or its name."""
    labels = [[found] if isinstance(found, str) else found for found in predicted]
    # a checkpoint cannot hold another library's number
    return float(metric(gold, labels)) if callable(metric) else METRICS[metric](gold, labels)


def metric_name(metric: str | Metric) -> str:
    """Return the name of a metric, of a function its own."""
    return (
        metric if isinstance(metric, str) else str(getattr(metric, "__name__", class_name(metric)))
    )
