"""What half-known labels, exact probabilities, guaranteed sets and selection are worth.

    python benchmarks/few_labels.py --seeds 3

All systems are built by `polyembed.build_tagger` without any source, and trained with the defaults
of `fit`. The tasks are defined in `tagging_quality.py`.

- ``labels``: the type of a share of the entities is not known. The words of these entities have the
  set of all types, or of two types. One tagger is trained on the sets, another without these
  sentences, and a third on types drawn at random from the sets. The control is trained on the full
  labels.
- ``entities``: are the probabilities of `predict_entities` right? The table has the expected
  calibration error over ten bins of candidates above 0.05, before and after a temperature that the
  development set chooses. It also has the precision of entities above 0.9, and the same with
  products of the words' probabilities.
- ``sets``: the realised coverage of `ConformalTagger` over 20 splits, on the half of the test set
  that did not calibrate it. The control is the set of the most probable tags that together have a
  probability of 1 - error.
- ``selection``: the score after a simulated annotator tagged a hundred random sentences and then a
  hundred that a rule chose. It is compared with two and three hundred random sentences. It is also
  compared with random sentences of as many words, interpolated between the measured sizes. Two
  hundred development sentences choose the epoch. Three taggers vote; the first of them is scored.
- ``speed``: the time of `span_log_probs` compared with `marginals`, and of `predict_entities`
  compared with `predict`, measured in turns in one process.

Finished runs are kept in ``--cache`` and not repeated.
"""

import argparse
import copy
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from _results import option, show
from tagging_quality import DATA, ROOT, TASKS, Sentences, score

import polyembed as pe
from polyembed.crf import CRF, marginals, span_log_probs
from polyembed.data import TaggedSentence
from polyembed.embeddings.surface import FeatureSum
from polyembed.encoders import WideAndDeepEncoder
from polyembed.evaluation import rank_for_annotation
from polyembed.metrics import entities, scheme_of
from polyembed.tables import Table, mean_and_deviation
from polyembed.tagging import ConformalTagger

SHARE = 0.3
"""The share of the entities whose type is hidden."""

BINS, SURE = 10, 0.9
RULES = ("random", "entropy", "margin", "length-normalised", "vote")
ROUND, DEV_SENTENCES, VOTERS = 100, 200, 3
"""The numbers of sentences that the simulated annotator tags at once, of development sentences that
choose the epoch, and of taggers that vote."""


def train(
    sentences: Sentences, dev: Sentences, tags: Sequence[str], seed: int
) -> pe.SequenceTagger:
    """Train a tagger without sources."""
    torch.manual_seed(seed)
    tagger = pe.build_tagger(sentences, tags=tags)
    pe.fit(tagger, sentences, dev, seed=seed, progress=False)
    return tagger


def tags_of(*parts: Sentences) -> list[str]:
    return sorted({tag for part in parts for one in part for tag in one.tags})


def cached(path: Path, make: Callable[[], Any]) -> Any:
    """Return the content of a JSON file; make and write it first if the file does not exist."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(make()))
    return json.loads(path.read_text())


def half_known(sentences: Sentences, how: str, seed: int) -> Sentences:
    """Return the sentences with the types of a share of the entities hidden.

    `how` is ``"sets"`` for sets of possible tags, or ``"guess"`` for a random tag of the set.
    ``"drop"`` leaves out the sentences with a hidden type.
    """
    rng = random.Random(seed)
    known = {tag for one in sentences for tag in one.tags}
    types = sorted({tag[2:] for tag in known if tag != "O"})
    found = []
    for one in sentences:
        tags: list[Any] = list(one.tags)
        hidden = False
        for entity in entities(one.tags):
            if rng.random() >= SHARE:
                continue
            hidden = True
            other = rng.choice([name for name in types if name != entity.type])
            some = types if rng.random() < 0.5 else [entity.type, other]
            guess = rng.choice(some)
            for i in range(entity.start, entity.end):
                letter = "B" if i == entity.start else "I"
                several = frozenset(f"{letter}-{name}" for name in some) & known
                tags[i] = several if how == "sets" else f"{letter}-{guess}"
                tags[i] = tags[i] if how == "sets" or tags[i] in known else one.tags[i]
        if not (hidden and how == "drop"):
            found.append(TaggedSentence(one.words, tuple(tags)))
    return found


def trained_on(task: str, how: str, seed: int) -> float:
    """Train on sentences with some hidden labels, and return the score on the test set."""
    first, dev, test = TASKS[task].load()
    known = first if how == "full" else half_known(first, how, seed)
    tagger = train(known, dev, tags_of(first, dev), seed)
    return score(task, test, tagger.predict([one.words for one in test]))


def labels(tasks: Sequence[str], seeds: int, cache: Path) -> Table:
    """Compare the ways to train on entities of unknown type."""
    rows = []
    for task in tasks:
        scores = {
            how: [
                cached(
                    cache / "labels" / f"{task}.{how}.{seed}.json",
                    partial(trained_on, task, how, seed),
                )
                for seed in range(seeds)
            ]
            for how in ("full", "sets", "drop", "guess")
        }
        full, sets, drop = (statistics.mean(scores[how]) for how in ("full", "sets", "drop"))
        lost = (full - sets) / (full - drop) if full > drop else None
        rows.append((task, *map(mean_and_deviation, scores.values()), lost))
    columns = (
        "task",
        "all known",
        "sets",
        "left out",
        "guessed",
        "share of the loss that remains with sets",
    )
    return Table(columns, rows, digits=4)


def cooled(tagger: pe.SequenceTagger, temperature: float) -> pe.SequenceTagger:
    """Return a copy of a tagger whose scores are divided by a temperature.

    All scores are linear in the parameters that are divided here.
    """
    found = copy.deepcopy(tagger)
    values = [found.decoder.linear.weight, found.decoder.linear.bias]
    for part in found.modules():
        if isinstance(part, CRF):
            values += [part.transitions, part.start_transitions, part.end_transitions]
        if isinstance(part, FeatureSum):
            values.append(part.embedding.weight)
        if isinstance(part, WideAndDeepEncoder):
            values.append(part.edges)
    with torch.no_grad():
        for value in values:
            value /= temperature
    return found


def candidates(
    tagger: pe.SequenceTagger, sentences: Sentences, exact: bool = True
) -> list[tuple[float, bool]]:
    """Return the probability of each candidate entity, and whether the entity is right.

    If not `exact`, the candidates are the predicted entities, and a probability is the product of
    the words' probabilities.
    """
    texts = [one.words for one in sentences]
    scheme = scheme_of(tagger.tags) or "bio"
    right = [
        {(x.type, x.start, x.end) for x in entities(one.tags, scheme=scheme)} for one in sentences
    ]
    found = []
    if exact:
        predicted = tagger.predict_entities(texts, min_probability=0.05, overlapping=True)
        for known, row in zip(right, predicted, strict=True):
            found += [(x.probability, (x.label, x.start, x.end) in known) for x in row]
        return found
    for known, labels, rows in zip(
        right, tagger.predict(texts), tagger.predict_probabilities(texts), strict=True
    ):
        for x in entities(labels, scheme=scheme):
            places = range(x.start, x.end)
            share = 1.0
            for i in places:
                share *= float(rows[i, tagger.tags.index(labels[i])])
            found.append((share, (x.type, x.start, x.end) in known))
    return found


def calibration_error(found: Sequence[tuple[float, bool]]) -> float:
    """Return the expected calibration error of candidates.

    It is the mean gap between probability and share of right candidates over bins, weighted by the
    size of the bins.
    """
    bins: dict[int, list[tuple[float, bool]]] = {}
    for share, right in found:
        bins.setdefault(min(BINS - 1, int(share * BINS)), []).append((share, right))
    gaps = (
        len(one) * abs(statistics.mean(x for x, _ in one) - statistics.mean(y for _, y in one))
        for one in bins.values()
    )
    return sum(gaps) / len(found)


def sure(found: Sequence[tuple[float, bool]]) -> tuple[float | None, int]:
    kept = [right for share, right in found if share >= SURE]
    return (statistics.mean(kept) if kept else None), len(kept)


def reliability_of(task: str, seed: int) -> dict[str, Any]:
    """Train a tagger, and measure its calibration before and after a temperature."""
    first, dev, test = TASKS[task].load()
    tagger = train(first, dev, tags_of(first, dev), seed)
    heat = min(
        (0.8, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0),
        key=lambda t: calibration_error(candidates(cooled(tagger, t), dev)),
    )
    cool = cooled(tagger, heat)
    before, after = candidates(tagger, test), candidates(cool, test)
    return {
        "before": calibration_error(before),
        "after": calibration_error(after),
        "temperature": heat,
        "exact": sure(after),
        "products": sure(candidates(cool, test, exact=False)),
    }


def reliability(tasks: Sequence[str], seeds: int, cache: Path) -> Table:
    """Measure whether the probabilities of entities are right."""
    rows = []
    for task in tasks:
        found = [
            cached(cache / "entities" / f"{task}.{seed}.json", partial(reliability_of, task, seed))
            for seed in range(seeds)
        ]
        row: list[Any] = [task]
        row += [mean_and_deviation([one[key] for one in found]) for key in ("before", "after")]
        row.append(statistics.mean(one["temperature"] for one in found))
        for key in ("exact", "products"):
            shares = [one[key][0] for one in found if one[key][1]]
            row.append(mean_and_deviation(shares) if shares else None)
            row.append(round(statistics.mean(one[key][1] for one in found)))
        rows.append(tuple(row))
    columns = (
        "task",
        "calibration error",
        "after temperature",
        "temperature",
        "precision above 0.9",
        "entities",
        "precision of products above 0.9",
        "their entities",
    )
    return Table(columns, rows, digits=4)


def kept_tags(rows: torch.Tensor, sets: ConformalTagger | None, error: float) -> torch.Tensor:
    """Return a mask of the tags in each word's set.

    If `sets` is None, a set has the most probable tags whose probabilities together reach
    1 - `error`. Such a set has no guarantee.
    """
    if sets is not None:
        return sets(rows)
    values, places = rows.sort(-1, descending=True)
    inside = values.cumsum(-1) - values < 1 - error
    return torch.zeros_like(inside).scatter(-1, places, inside)


def coverage_of(task: str, splits: int) -> list[list[Any]]:
    """Train a tagger, and measure the coverage of its sets over random splits of the test set.

    One half of the test set calibrates the sets, and the other half measures them.
    """
    first, dev, test = TASKS[task].load()
    tagger = train(first, dev, tags_of(first, dev), 0)
    test = [one for one in test if one.words and all(tag in tagger.tags for tag in one.tags)]
    known = tagger.predict_probabilities([one.words for one in test])
    found = []
    for error in (0.1, 0.05):
        for kind in ("adaptive", "probability", "naive"):
            shares, words, sizes = [], [], []
            for split in range(splits):
                order = random.Random(split).sample(range(len(test)), len(test))
                half = len(order) // 2
                held_out = [test[i] for i in order[:half]]
                sets = (
                    None
                    if kind == "naive"
                    else ConformalTagger.calibrate(tagger, held_out, error, score=kind)
                )
                hits = []
                for i in order[half:]:
                    kept = kept_tags(known[i], sets, error)
                    ids = torch.tensor([tagger.tags.index(tag) for tag in test[i].tags])
                    hits.append(kept.gather(1, ids[:, None])[:, 0].float().tolist())
                    sizes.append(float(kept.sum(-1).float().mean()))
                shares.append(statistics.mean(map(statistics.mean, hits)))
                words.append(statistics.mean(x for row in hits for x in row))
            found.append([kind, 1 - error, shares, words, statistics.mean(sizes)])
    return found


def coverage(tasks: Sequence[str], cache: Path, splits: int = 20) -> Table:
    """Measure how often the right tag is in the set of its word."""
    rows = []
    for task in tasks:
        path = cache / "sets" / f"{task}.json"
        for kind, nominal, shares, words, size in cached(path, partial(coverage_of, task, splits)):
            row = (nominal, mean_and_deviation(shares), mean_and_deviation(words), size)
            rows.append((f"{task}, {kind}", *row))
    columns = (
        "task and sets",
        "nominal",
        "mean share of a sentence",
        "of all words",
        "tags in a set",
    )
    return Table(columns, rows, digits=4)


@lru_cache(1)
def first_round(task: str, seed: int) -> tuple[Sentences, Sentences, Sentences, list[Any]]:
    """Shuffle the sentences, draw a small development set, and train on a hundred sentences.

    The last part of the result is the committee of trained taggers.
    """
    first, dev, test = TASKS[task].load()
    tags = tags_of(first, dev)
    first, dev = ([one for one in part if one.words] for part in (first, dev))
    if len(first) < 3 * ROUND or len(dev) < DEV_SENTENCES:
        raise SystemExit(
            f"{task} must have {3 * ROUND} training and {DEV_SENTENCES} development sentences for selection, "
            f"got {len(first)} and {len(dev)}"
        )
    first = random.Random(seed).sample(first, len(first))
    dev = random.Random(seed).sample(dev, DEV_SENTENCES)
    committee = [train(first[:ROUND], dev, tags, seed + 1000 * k) for k in range(VOTERS)]
    return first, dev, test, committee


def selected(task: str, by: str, seed: int, words: int = 0) -> list[tuple[float, int]]:
    """Return the scores of taggers and the numbers of words that they are trained on.

    They are trained on a hundred and on two hundred sentences. The rule ``"random"`` continues with
    three hundred sentences, and with more until they have `words` words.
    """
    first, dev, test, committee = first_round(task, seed)
    tags, texts = committee[0].tags, [one.words for one in test]
    chosen, rest, found = first[:ROUND], first[ROUND:], list[tuple[float, int]]()
    while len(found) < (3 if by == "random" else 2) or found[-1][1] < words:
        if found:
            places = list(range(ROUND))
            if by != "random":
                model = pe.VotingEnsemble(committee) if by == "vote" else committee[0]
                pool = [one.words for one in rest]
                places = rank_for_annotation(model, pool, by=by, count=ROUND)
            chosen = chosen + [rest[place] for place in places]
            rest = [one for i, one in enumerate(rest) if i not in set(places)]
            committee = [train(chosen, dev, tags, seed)]
        points = score(task, test, committee[0].predict(texts))
        found.append((points, sum(len(one.words) for one in chosen)))
    return found


def of_as_many_words(random_run: Sequence[Sequence[float]], words: float) -> float:
    """Return the score of random sentences with `words` words, by linear interpolation."""
    return next(
        below + (above - below) * (words - few) / (many - few)
        for (below, few), (above, many) in pairwise(random_run)
        if few <= words <= many
    )


def selection(tasks: Sequence[str], seeds: int, cache: Path) -> Table:
    """Compare the scores after a simulated annotator, by the rule that chose the sentences."""
    rows = []
    for task in tasks:
        runs: dict[str, list[Any]] = {by: [] for by in RULES}
        for seed in range(seeds):
            most = 0
            for by in sorted(RULES, key="random".__eq__):  # the control comes last
                path = cache / "selection" / f"{task}.{by}.{seed}.json"
                enough = most if by == "random" else 0
                runs[by].append(cached(path, partial(selected, task, by, seed, enough)))
                most = max(most, runs[by][-1][-1][1])
        for by, found in runs.items():
            scores = [
                mean_and_deviation([points for points, _ in size])
                for size in zip(*(run[:3] for run in found), strict=True)
            ]
            words = [run[1][1] for run in found]
            pairs = zip(runs["random"], words, strict=True)
            like = [of_as_many_words(run, number) for run, number in pairs]
            fair = None if by == "random" else mean_and_deviation(like)
            count = round(statistics.mean(words))
            rows.append((f"{task}, {by}", *scores, *[None] * (3 - len(scores)), count, fair))
    columns = (
        "task and rule",
        *(f"{k * ROUND} sentences" for k in (1, 2, 3)),
        f"words of the {2 * ROUND}",
        "random sentences of as many words",
    )
    return Table(columns, rows, digits=4)


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def in_turn(first: Callable[[], object], second: Callable[[], object], runs: int) -> list[float]:
    """Return the median seconds of two calls, and the median ratio of the second to the first."""
    first(), second()
    pairs = [(seconds(first), seconds(second)) for _ in range(runs)]
    return [
        statistics.median(found)
        for found in (*zip(*pairs, strict=True), [later / before for before, later in pairs])
    ]


def speed(task: str) -> Table:
    """Compare the time of spans with that of marginals, and of entities with that of tags."""
    torch.manual_seed(0)
    tags = ["O", *(f"{letter}-{name}" for name in ("PER", "LOC", "ORG", "X") for letter in "BI")]
    emissions, mask = torch.randn(32, 64, 9), torch.ones(32, 64, dtype=torch.bool)
    scores = torch.randn(9, 9), torch.randn(9), torch.randn(9)
    spans = in_turn(
        lambda: marginals(emissions, mask, *scores),
        lambda: span_log_probs(emissions, mask, *scores, tags, scheme="bio", max_length=8),
        50,
    )
    first, dev, test = TASKS[task].load()
    tagger = pe.build_tagger(first[:300], tags=tags_of(first, dev))
    options = pe.training.FitOptions(num_train_epochs=5)
    pe.fit(tagger, first[:300], dev, options, progress=False)
    texts = [one.words for one in test]
    found = in_turn(lambda: tagger.predict(texts), lambda: tagger.predict_entities(texts), 20)
    rows = [
        ("`span_log_probs` beside `marginals`, 32 x 64 words, 9 tags, spans up to 8", *spans),
        (f"`predict_entities` beside `predict`, {task}", *found),
    ]
    return Table(("calls", "seconds beside", "seconds", "ratio"), rows, digits=4)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ("labels", "entities", "sets", "selection", "speed")
    parser.add_argument("--part", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, help="default: each part's own tasks")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "few_labels")
    option(parser)
    arguments = parser.parse_args()
    if not DATA.is_dir():
        parser.error(f"no real data at {DATA}: set POLYEMBED_DATA")
    torch.set_num_threads(1)
    named, seeds, cache = arguments.tasks, arguments.seeds, arguments.cache
    makers: dict[str, Callable[[], Table]] = {
        "labels": lambda: labels(
            named or ("am", "ig", "rw", "yo", "hinglish-shuffled"), seeds, cache
        ),
        "entities": lambda: reliability(named or ("hinglish-shuffled", "sw"), seeds, cache),
        "sets": lambda: coverage(named or ("sagt", "hinglish-shuffled"), cache),
        "selection": lambda: selection(named or ("sagt", "hinglish-shuffled", "es"), seeds, cache),
        "speed": lambda: speed("hinglish-shuffled"),
    }
    for part in arguments.part:
        show(arguments.json, part, makers[part](), seeds=range(seeds))


if __name__ == "__main__":
    main()
