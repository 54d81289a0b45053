"""Entity F1 against seqeval, on random sequences."""

import random

import pytest

from polyembed.metrics import EntityMode, Scores, entities, entity_f1, per_class

# seqeval warns of every ratio without a denominator
pytestmark = pytest.mark.filterwarnings("ignore")

LABELS = ("O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-A-B", "I-A-B", "B-A", "I-A")


def random_labels(rng: random.Random, count: int) -> list[list[str]]:
    return [rng.choices(LABELS, k=rng.randrange(1, 12)) for _ in range(count)]


def corrupted(rng: random.Random, gold: list[list[str]]) -> list[list[str]]:
    return [
        [label if rng.random() < 0.8 else rng.choice(LABELS) for label in labels] for labels in gold
    ]


def test_entities_of_random_sequences() -> None:
    sequence_labeling = pytest.importorskip("seqeval.metrics.sequence_labeling")
    scheme = pytest.importorskip("seqeval.scheme")
    for labels in random_labels(random.Random(1), 2_000):
        theirs = [
            (kind, start, last + 1) for kind, start, last in sequence_labeling.get_entities(labels)
        ]
        assert entities(labels) == theirs
        strict = scheme.Tokens(labels, scheme.IOB2).entities
        assert entities(labels, mode="strict") == [
            (entity.tag, entity.start, entity.end) for entity in strict
        ]


@pytest.mark.parametrize("mode", ["conll", "strict"])
def test_scores(mode: EntityMode) -> None:
    seqeval = pytest.importorskip("seqeval.metrics")
    scheme = pytest.importorskip("seqeval.scheme")
    options = {"mode": "strict", "scheme": scheme.IOB2} if mode == "strict" else {}
    rng = random.Random(2)
    for count in [*[1] * 60, *[20] * 9, 300]:
        gold = random_labels(rng, count)
        predicted = corrupted(rng, gold)
        ours = entity_f1(gold, predicted, mode=mode)
        assert ours.f1 == pytest.approx(seqeval.f1_score(gold, predicted, **options))
        assert ours.precision == pytest.approx(seqeval.precision_score(gold, predicted, **options))
        assert ours.recall == pytest.approx(seqeval.recall_score(gold, predicted, **options))
        if ours.predicted + ours.support:  # seqeval's report fails on sentences without any entity
            report = seqeval.classification_report(gold, predicted, output_dict=True, **options)
            for name, scores in per_class(gold, predicted, mode=mode).items():
                assert as_report(scores) == pytest.approx(report[name])


def as_report(scores: Scores) -> dict[str, float]:
    values = scores.precision, scores.recall, scores.f1, scores.support
    return dict(zip(("precision", "recall", "f1-score", "support"), values, strict=True))
