"""How many translations does an alignment find? Spanish to English, separately trained vectors,
MUSE's test words.

    python benchmarks/lexicon_induction.py [--seeds 10]

The vectors are from Zhang 2017 (nouns, 50 dimensions). The training pairs are MUSE's file 0-5000.
The test words are from its file 5000-6500, if both vocabularies have their entries. The adversarial
mapping runs with ``--seeds`` seeds and is refined each time. A run counts as converged if it finds
at least half of the words. The sign test compares the first answers of CSLS and of the cosine.
"""

import argparse
import os
import time
from pathlib import Path

import torch
from _results import option, show

from polyembed.data import read_dictionary
from polyembed.evaluation import sign_test
from polyembed.functional import nearest_cosine, nearest_csls
from polyembed.tables import Table, mean_and_deviation
from polyembed.transfer import AdversarialOptions, align_spaces, translation_accuracy
from polyembed.transfer.spaces import pair_ids, read_spaces
from polyembed.vectors import TextVectors, WordVectors

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("POLYEMBED_DATA") or ROOT.parent / "shared" / "data")
# the spaces are small, so the discriminator and the epochs are smaller than in MUSE
ADVERSARIAL = {"hidden_size": 256, "epoch_size": 96_000, "num_epochs": 6}

Pairs = list[tuple[str, str]]


def csls_p_value(aligned: WordVectors, target: WordVectors, test: Pairs) -> float:
    """Return the p-value of the first answers by CSLS against the ones by cosine."""
    one, other = read_spaces(aligned, target, None, None, 200_000, None)
    right: dict[int, set[int]] = {}
    for word, translation in pair_ids(list(dict.fromkeys(test)), one, other):
        right.setdefault(word, set()).add(translation)
    queries = one.rows[list(right)]
    found = [
        nearest_csls(queries, other.rows, 1, space=one.rows),
        nearest_cosine(queries, other.rows, 1),
    ]
    csls, cosine = (
        [
            [str(answer in words)]
            for (answer,), words in zip(x.ids.tolist(), right.values(), strict=True)
        ]
        for x in found
    )
    return sign_test([["True"]] * len(right), csls, cosine).p_value


def holm(p_values: list[float]) -> list[float]:
    """Correct p-values for their number (Holm 1979)."""
    found, least = dict.fromkeys(range(len(p_values)), 1.0), 0.0
    for rank, i in enumerate(sorted(found, key=p_values.__getitem__)):
        found[i] = least = max(least, min(1.0, (len(p_values) - rank) * p_values[i]))
    return list(found.values())


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
    rows = []
    for name, dictionary, refine in (
        ("dictionary", train, 0),
        ("dictionary", train, 5),
        ("identical strings", "identical", 5),
        ("similarity distributions", "similarity", 10),
    ):
        mapping = align_spaces(source, target, dictionary=dictionary, refine=refine)
        plain = translation_accuracy(mapping(source), target, test)
        shares = (plain.cosine[1], plain.csls[1], plain.csls[5], plain.csls[10])
        p_value = csls_p_value(mapping(source), target, test)
        numbers = *(100 * share for share in shares), max(mapping.report["criteria"]), p_value
        rows.append((name, refine, *numbers))
    columns = (
        "first mapping from",
        "refinements",
        "P@1 cosine",
        "P@1 CSLS",
        "P@5 CSLS",
        "P@10 CSLS",
    )
    print(f"\n{plain.num_queries} words, coverage {100 * plain.coverage:.1f} %\n")
    corrected = holm([row[-1] for row in rows])
    rows = [(*row, p) for row, p in zip(rows, corrected, strict=True)]
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
