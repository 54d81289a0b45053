"""How many translations does an alignment find? Spanish to English, separately trained vectors,
MUSE's test words.

    python benchmarks/lexicon_induction.py [--seeds 10]

The vectors are those of Zhang 2017 (nouns, 50 dimensions), the pairs to learn from MUSE's 0-5000,
the words to find those of 5000-6500 whose entries both vocabularies hold. The weight of the
spelling is chosen by cross-validation on the pairs to learn from, never on the words to find. The
adversarial mapping runs with ``--seeds`` seeds, each refined, and counts as converged where it
finds half of the words or more.
"""

import argparse
import os
import time
from pathlib import Path

import torch
from _results import option, show

from polyembed.data import read_dictionary
from polyembed.tables import Table, mean_and_deviation
from polyembed.transfer import AdversarialOptions, align_spaces, translation_accuracy
from polyembed.vectors import TextVectors

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("POLYEMBED_DATA") or ROOT.parent / "shared" / "data")
# small spaces: a smaller discriminator and shorter epochs than MUSE's, everything else as there
ADVERSARIAL = {"hidden_size": 256, "epoch_size": 96_000, "num_epochs": 6}

Pairs = list[tuple[str, str]]


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
    found = Table((*columns, "criterion"), rows)
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
