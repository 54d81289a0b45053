"""How many translations does an alignment find? Spanish to English, separately trained vectors,
MUSE's test words.

    python benchmarks/lexicon_induction.py [--seeds 10]

The vectors are from Zhang 2017 (nouns, 50 dimensions). The training pairs are MUSE's file 0-5000.
The test words are from its file 5000-6500, if both vocabularies have their entries. The adversarial
mapping runs with ``--seeds`` seeds and is refined each time. A run counts as converged if it finds
at least half of the words. The sign test compares the first answers of CSLS and of the cosine.
"""

import argparse
import math
import os
import time
from pathlib import Path

import torch
from _results import option, show

from polyembed.data import read_dictionary
from polyembed.evaluation import ProtocolResult, significance_table
from polyembed.evaluation.results import SystemRun
from polyembed.functional import nearest_cosine, nearest_csls
from polyembed.tables import Table, mean_and_deviation
from polyembed.training import Epoch, FitResult
from polyembed.transfer import AdversarialOptions, align_spaces, translation_accuracy
from polyembed.transfer.spaces import pair_ids, read_spaces
from polyembed.vectors import TextVectors, WordVectors

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("POLYEMBED_DATA") or ROOT.parent / "shared" / "data")
# the spaces are small, so the discriminator and the epochs are smaller than in MUSE
ADVERSARIAL = {"hidden_size": 256, "epoch_size": 96_000, "num_epochs": 6}

Pairs = list[tuple[str, str]]
Answers = list[list[str]]


def first_answers(aligned: WordVectors, target: WordVectors, test: Pairs) -> dict[str, Answers]:
    """Return whether each test word's first answer is right, by CSLS and by the cosine."""
    one, other = read_spaces(aligned, target, None, None, 200_000, None)
    right: dict[int, set[int]] = {}
    for word, translation in pair_ids(list(dict.fromkeys(test)), one, other):
        right.setdefault(word, set()).add(translation)
    queries = one.rows[list(right)]
    nearest = {
        "CSLS": nearest_csls(queries, other.rows, 1, space=one.rows),
        "cosine": nearest_cosine(queries, other.rows, 1),
    }
    return {
        name: [
            [str(answer in words)]
            for (answer,), words in zip(found.ids.tolist(), right.values(), strict=True)
        ]
        for name, found in nearest.items()
    }


def sign_tests(answers: dict[str, dict[str, Answers]]) -> list[tuple[float, float]]:
    """Return the p-value of CSLS against the cosine for each mapping, and Holm's correction."""
    fitted = FitResult(Epoch(0, math.nan, 0.0, 0.0), ())
    runs = tuple(
        SystemRun(name, 0, (), fitted, {mapping: 0.0}, {mapping: found})
        for mapping, both in answers.items()
        for name, found in both.items()
    )
    gold = {mapping: [["True"]] * len(both["CSLS"]) for mapping, both in answers.items()}
    table = significance_table(ProtocolResult(runs, gold, "accuracy"), "cosine", test="sign")
    return [(row[3], row[5]) for row in table.rows]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    option(parser)
    arguments = parser.parse_args()
    if not DATA.is_dir():
        parser.error(f"no real data at {DATA}: set POLYEMBED_DATA")
    torch.set_num_threads(1)
    folder = DATA / "vectors" / "zhang2017" / "es-en"
    source, target = TextVectors(folder / "word2vec.es"), TextVectors(folder / "word2vec.en")
    train, test = (
        read_dictionary(DATA / "bilingual_dictionaries" / "muse" / f"es-en.{part}.txt")
        for part in ("0-5000", "5000-6500")
    )
    rows, answers = [], {}
    for name, dictionary, refine in (
        ("dictionary", train, 0),
        ("dictionary", train, 5),
        ("identical strings", "identical", 5),
        ("similarity distributions", "similarity", 10),
    ):
        mapping = align_spaces(source, target, dictionary=dictionary, refine=refine)
        plain = translation_accuracy(mapping(source), target, test)
        shares = (plain.cosine[1], plain.csls[1], plain.csls[5], plain.csls[10])
        answers[f"{name} {refine}"] = first_answers(mapping(source), target, test)
        rows.append(
            (name, refine, *(100 * share for share in shares), max(mapping.report["criteria"]))
        )
    columns = (
        "first mapping from",
        "refinements",
        "P@1 cosine",
        "P@1 CSLS",
        "P@5 CSLS",
        "P@10 CSLS",
    )
    print(f"\n{plain.num_queries} words, coverage {100 * plain.coverage:.1f} %\n")
    rows = [(*row, *tested) for row, tested in zip(rows, sign_tests(answers), strict=True)]
    found = Table((*columns, "criterion", "p, CSLS against cosine", "p, Holm"), rows, digits=4)
    show(arguments.json, "main", found, seeds=range(arguments.seeds))

    rows = []
    for seed in range(arguments.seeds):
        start = time.perf_counter()
        options = AdversarialOptions(**ADVERSARIAL, seed=seed, progress=False)
        mapping = align_spaces(source, target, adversarial=options)
        spent = time.perf_counter() - start
        found = translation_accuracy(mapping(source), target, test, ks=(1,))
        (epochs,), criteria = mapping.report["restarts"], mapping.report["criteria"]
        shares = (100 * found.cosine[1], 100 * found.csls[1])
        rows.append((seed, f"{max(epochs):.3f}", f"{max(criteria):.3f}", *shares, f"{spent:.0f}"))
        print(
            f"seed {seed}: P@1 CSLS {shares[1]:.1f}, criteria of its epochs {[round(x, 3) for x in epochs]}",
            flush=True,
        )
    columns = ("seed", "criterion, adversarial", "refined", "P@1 cosine", "P@1 CSLS", "seconds")
    print()
    show(arguments.json, "adversarial", Table(columns, rows), seeds=range(arguments.seeds))
    good = [row[4] for row in rows if row[4] >= 50]
    print(
        f"\n{len(good)} of {len(rows)} converged", f"P@1 {mean_and_deviation(good)}" if good else ""
    )


if __name__ == "__main__":
    main()
