"""Entity F1 against seqeval, on random sequences."""

import random

import pytest

from polyembed.metrics import Scores, bio_labels, entities, entity_f1, per_class, to_iob2

seqeval = pytest.importorskip("seqeval.metrics")
sequence_labeling = pytest.importorskip("seqeval.metrics.sequence_labeling")
scheme = pytest.importorskip("seqeval.scheme")

# seqeval warns about every ratio with a denominator of 0
pytestmark = pytest.mark.filterwarnings("ignore")

BIO = ("O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-A-B", "I-A-B", "B-A", "I-A")


def random_labels(rng: random.Random, count: int, labels=BIO) -> list[list[str]]:
    return [rng.choices(labels, k=rng.randrange(1, 12)) for _ in range(count)]


def corrupted(rng: random.Random, gold: list[list[str]], labels=BIO) -> list[list[str]]:
    return [[one if rng.random() < 0.8 else rng.choice(labels) for one in row] for row in gold]


def test_entities_of_random_sequences():
    for labels in random_labels(random.Random(1), 2_000):
        theirs = [
            (kind, start, last + 1) for kind, start, last in sequence_labeling.get_entities(labels)
        ]
        assert entities(labels) == theirs
        strict = scheme.Tokens(labels, scheme.IOB2).entities
        expected = [(entity.tag, entity.start, entity.end) for entity in strict]
        assert entities(labels, mode="strict") == expected


@pytest.mark.parametrize("mode", ["conll", "strict"])
def test_scores(mode: str):
    options = {"mode": "strict", "scheme": scheme.IOB2} if mode == "strict" else {}
    rng = random.Random(2)
    for count in [*[1] * 60, *[20] * 9, 300]:
        gold = random_labels(rng, count)
        predicted = corrupted(rng, gold)
        ours = entity_f1(gold, predicted, mode=mode)
        assert ours.f1 == pytest.approx(seqeval.f1_score(gold, predicted, **options))
        if ours.predicted + ours.support:  # seqeval's report fails on sentences without any entity
            report = seqeval.classification_report(gold, predicted, output_dict=True, **options)
            for name, scores in per_class(gold, predicted, mode=mode).items():
                assert as_report(scores) == pytest.approx(report[name])


def as_report(scores: Scores) -> dict[str, float]:
    values = scores.precision, scores.recall, scores.f1, scores.support
    return dict(zip(("precision", "recall", "f1-score", "support"), values, strict=True))


@pytest.mark.parametrize(
    ("name", "prefixes", "theirs"), [("bioes", "BIES", "IOBES"), ("bilou", "BILU", "BILOU")]
)
def test_closed_schemes(name: str, prefixes: str, theirs: str):
    """Broken sequences count as in seqeval's strict mode."""
    labels = ["O", *(f"{prefix}-{type_}" for prefix in prefixes for type_ in ("X", "Y"))]
    options = {"mode": "strict", "scheme": getattr(scheme, theirs)}
    rng = random.Random(7)
    for _ in range(300):
        gold = random_labels(rng, 1, labels)
        found = corrupted(rng, gold, labels)
        ours = entity_f1(gold, found, scheme=name)
        assert ours.precision == pytest.approx(seqeval.precision_score(gold, found, **options))
        assert ours.recall == pytest.approx(seqeval.recall_score(gold, found, **options))
        parts = entities(gold[0], scheme=name)
        assert entities(bio_labels(parts, len(gold[0]), name), scheme=name) == parts
        assert entities(to_iob2(gold[0], scheme=name)) == parts
