"""What does voting add? HME over 5 seeds (Winata 2021, HME-Ensemble): each member, the three votes,
their agreement.

    python benchmarks/ensemble_quality.py --task sagt hinglish

The tasks, vectors and settings are the same as in `tagging_quality.py`. `fit_ensemble` trains the
members, so an interrupted run continues. The development sets choose each member's epoch; they are
not used for the vote.
"""

import argparse
import itertools
import os
import statistics
import time
from functools import partial
from pathlib import Path

import torch
from _results import option, show
from tagging_quality import DATA, ROOT, TASKS, Setup, Vectors, build, score

import polyembed as pe
from polyembed.metrics import accuracy
from polyembed.tables import Table, mean_and_deviation
from polyembed.training import EnsembleResult, fit_ensemble

VOTES = ("hard", "entity", "soft")


def train(task: str, cache: Path, dim: int, seeds: int) -> EnsembleResult:
    """Train the members that are not trained yet, and return the ensemble."""
    vectors = Vectors(task, cache, dim)
    for language in TASKS[task].languages:  # once, before the members need them
        vectors.words((language,), dim)
        vectors.pieces(language)
    train_part, dev, _ = TASKS[task].load()
    return fit_ensemble(
        partial(build, "whole", task, Setup(cache, dim, None, -1)),
        train_part,
        dev,
        folder=cache / task / "members",
        seeds=range(seeds),
    )


def judge(task: str, trained: EnsembleResult) -> list[tuple[str, object]]:
    """Score each member and each vote on the test set."""
    test = TASKS[task].load()[2]
    words = [sentence.words for sentence in test]
    members = list(trained.ensemble.members)
    predicted = [member.predict(words) for member in members]
    scores = [score(task, test, tags) for tags in predicted]
    rows: list[tuple[str, object]] = [(f"seed {seed}", value) for seed, value in enumerate(scores)]
    rows.append(("mean of the members", mean_and_deviation(scores)))
    for vote in VOTES:
        if vote == "entity" and TASKS[task].metric == "accuracy":
            continue  # the tags are of words, not of spans
        ensemble = pe.VotingEnsemble(members, vote=vote).eval()
        start = time.perf_counter()
        rows.append((f"{vote} vote", score(task, test, ensemble.predict(words))))
        print(
            f"{task}, {vote} vote: {time.perf_counter() - start:.1f} s for {len(test)} sentences",
            flush=True,
        )
    agreement = [accuracy(one, other) for one, other in itertools.combinations(predicted, 2)]
    rows.append(
        ("two members agree, share of words", statistics.mean(agreement) if agreement else None)
    )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", nargs="+", choices=TASKS, default=["sagt", "hinglish"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--dim", type=int, default=100, help="dimensions of each source's vectors")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "tagging_quality")
    option(parser)
    arguments = parser.parse_args()
    if not DATA.is_dir():
        parser.error(f"no real data at {DATA}: set POLYEMBED_DATA")
    for task in arguments.task:
        start = time.perf_counter()
        trained = train(task, arguments.cache, arguments.dim, arguments.seeds)
        print(
            f"{task}: trained in {time.perf_counter() - start:.0f} s",
            flush=True,
        )
        for seed, result in enumerate(trained.results):
            seconds = sum(epoch.seconds for epoch in result.history)
            print(
                f"  seed {seed}: best epoch {result.best.number} of {len(result.history)}, {seconds:.0f} s"
            )
        print(f"\n{os.cpu_count()} CPU cores, torch {torch.__version__}\n")
        table = Table((task, TASKS[task].metric), judge(task, trained), digits=4)
        show(arguments.json, task, table, seeds=range(arguments.seeds))


if __name__ == "__main__":
    main()
