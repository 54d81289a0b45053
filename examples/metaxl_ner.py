r"""MetaXL on entities: much data in one language, a hundred sentences in another (Xia 2021, tables
2 to 6).

    python examples/metaxl_ner.py --target am --size small  # pretrains an encoder first, cached
    python examples/metaxl_ner.py --target ig rw yo sw --model xlm-roberta-base --device cuda \
        --sweep table4
    python examples/metaxl_ner.py --wikiann FOLDER --related --model xlm-roberta-base \
        --device cuda  # the paper's eight
    python examples/metaxl_ner.py --target ig rw yo sw --model FOLDER --authors \
        --source-size 5000 --layers 0 3 6 \
        --methods target_only joint joint_rtn metaxl printed  # FOLDER of fetch_weights.py
    python examples/metaxl_ner.py --source-train es.conll --train mine.txt --dev dev.txt \
        --test test.txt --model FOLDER

Source and target are WikiAnn of the data folder (``$POLYEMBED_DATA``, else ``../shared/data``
beside the repository). With ``--wikiann`` they are WikiAnn as Rahimi et al. 2019 split it
(``FOLDER/qu/train``, ``FOLDER/en/train``), and ``--target`` is the languages of table 1 if missing.
They may also be your own files in any of WikiAnn's layouts.

The methods are target only, joint training (JT, with a batch of each language per step or on the
concatenation), JT with the network, and MetaXL, each over seeds. For each method the program prints
the entity F1 on test, with the epoch chosen on dev, and the Hausdorff distance of source and
target. It also prints the tests of every method against MetaXL, and draws the representations of
both languages. Finished runs are kept in ``--out``, so the same call continues an interrupted one.
``--authors`` trains as the commands of the paper's code do.
"""

import argparse
from functools import cache
from pathlib import Path

import torch
from _cache import DATA
from _files import kinds_of
from _metaxl import (
    RECIPES,
    Found,
    across_targets,
    add_arguments,
    build_encoder,
    compare,
    find_model,
    print_tests,
)

import polyembed as pe
from polyembed.data import TaggedSentence, read_wikiann
from polyembed.metrics import entity_f1

RECIPE = RECIPES["ner"]
TARGETS = {"am": "amh", "ig": "ibo", "rw": "kin", "yo": "yor", "sw": "swa"}
PARTS = ("train", "dev", "test")
Data = tuple[list[TaggedSentence], dict[str, list[TaggedSentence]]]


def target_files(arguments: argparse.Namespace, target: str) -> dict[str, Path]:
    """Return the target's files: the caller's, WikiAnn's of ``--wikiann``, or the data folder's."""
    if arguments.wikiann:
        files = {part: arguments.wikiann / target / part for part in PARTS}
    else:
        folder = DATA / "wikiann" / "low_resource" / TARGETS.get(target, target)
        files = {part: folder / f"{part}.txt" for part in PARTS}
    return {part: getattr(arguments, part) or path for part, path in files.items()}


def source_files(arguments: argparse.Namespace, target: str) -> list[Path]:
    """Return the files of the sources; with ``--related``, of the target's related language."""
    if arguments.source_train:
        return [arguments.source_train]
    languages = [RECIPE["related"][target]] if arguments.related else arguments.source
    if arguments.wikiann:
        return [arguments.wikiann / language / "train" for language in languages]
    return [
        DATA / "wikiann" / "high_resource" / language / "train.conllu" for language in languages
    ]


@cache
def read(path: Path) -> list[TaggedSentence]:
    return [sentence for sentence in read_wikiann(path) if len(sentence.words)]


def read_data(arguments: argparse.Namespace, target: str) -> Data:
    """Read source and target; exit if dev or test has labels that the training sentences lack."""
    try:
        source = [sentence for path in source_files(arguments, target) for sentence in read(path)]
        parts = {part: read(path) for part, path in target_files(arguments, target).items()}
    except ValueError as error:  # an error in a file: a traceback would not help
        raise SystemExit(str(error)) from error
    known = kinds_of([*source, *parts["train"]])
    for part in ("dev", "test"):
        unseen = sorted(kinds_of(parts[part]) - known)
        if unseen:
            raise SystemExit(
                f"{part} of {target} must have labels of training, {sorted(known)}, got {unseen}"
            )
    return source, parts


def check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Exit if the languages and the files do not fit together."""
    own = [part for part in PARTS if getattr(arguments, part)]
    if own and len(arguments.target) > 1:
        parser.error(
            f"--target must be one language where --{own[0]} is given, got {' '.join(arguments.target)}"
        )
    known = TARGETS if len(own) < len(PARTS) and not arguments.wikiann else arguments.target
    unrelated = [
        target
        for target in arguments.target
        if arguments.related and target not in RECIPE["related"]
    ]
    strange = [target for target in arguments.target if target not in known]
    if unrelated:
        parser.error(
            f"--target must be of {' '.join(RECIPE['related'])} with --related, got {' '.join(unrelated)}"
        )
    if strange:
        parser.error(
            f"--target must be of {' '.join(known)} in the data folder, got {' '.join(strange)}"
        )
    for target in arguments.target:
        for path in (*source_files(arguments, target), *target_files(arguments, target).values()):
            if not path.is_file():
                parser.error(
                    f"there must be a file {path} (see --wikiann, --source-train, --train)"
                )


def run_target(arguments: argparse.Namespace, target: str, name: str, data: Data) -> Found:
    source, parts = data
    tags = sorted({tag for sentence in (*source, *parts["train"]) for tag in sentence.tags})
    rows = parts["train"][: arguments.target_size]
    print(f"{target}: {len(source)} source sentences, {len(rows)} of the target, {name}")

    def build() -> pe.SequenceTagger:
        encoder = build_encoder(name, RECIPE["max_length"], arguments, rows)
        return pe.SequenceTagger(
            encoder, tags, decoder=pe.SoftmaxDecoder(encoder.embedding_dim, len(tags))
        )

    def score(tagger: torch.nn.Module, part: str) -> float:
        predicted = tagger.predict([sentence.words for sentence in parts[part]])
        return entity_f1([sentence.tags for sentence in parts[part]], predicted, mode="conll").f1

    return compare(
        build,
        source,
        rows,
        score,
        arguments,
        arguments.out / target,
        predict=lambda tagger: tagger.predict([sentence.words for sentence in parts["test"]]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--target",
        nargs="+",
        metavar="LANG",
        help="the target languages: am, ig, rw, yo or sw of the data folder (am if missing), or "
        "any of --wikiann (the languages of table 1 if missing)",
    )
    parser.add_argument(
        "--source",
        nargs="+",
        default=["en"],
        metavar="LANG",
        help="the source languages, which are merged; en if missing",
    )
    parser.add_argument(
        "--related",
        action="store_true",
        help="take the related source language of each target (table 1)",
    )
    parser.add_argument(
        "--wikiann", type=Path, help="a folder of WikiAnn with <language>/train, dev and test"
    )
    parser.add_argument(
        "--source-train", type=Path, help="your own file of the source's training sentences"
    )
    for part in PARTS:
        parser.add_argument(
            f"--{part}", type=Path, help=f"your own file of the target's {part} sentences"
        )
    add_arguments(parser, RECIPE)
    parser.add_argument("--out", type=Path, default=Path("runs") / "metaxl_ner")
    arguments = parser.parse_args()
    arguments.target = arguments.target or (
        list(RECIPE["related"]) if arguments.wikiann else ["am"]
    )
    check(parser, arguments)
    data = {target: read_data(arguments, target) for target in arguments.target}
    related = [RECIPE["related"][target] for target in arguments.target if arguments.related]
    name = find_model(
        arguments, list(dict.fromkeys([*(related or arguments.source), *arguments.target]))
    )
    found = {
        target: run_target(arguments, target, name, data[target]) for target in arguments.target
    }
    across_targets(found)
    print_tests(
        found,
        {
            target: [list(sentence.tags) for sentence in parts["test"]]
            for target, (_, parts) in data.items()
        },
    )


if __name__ == "__main__":
    main()
