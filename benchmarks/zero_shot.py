"""What a trivial rule and a multilingual encoder score where the tables of zero-shot transfer stand.

    python benchmarks/zero_shot.py --encoder FOLDER --seeds 3

The sentences are from CoNLL-2002, as in `examples/laser_zero_shot.py`. Systems are trained on
Spanish or Dutch and tested on both. Parts of speech have 1,000 training sentences, and accuracy is
measured on 600. Entities have 2,000 training sentences, and F1 is measured on 1,000.

The rules are not trained. A word without a letter or digit is punctuation. A word that begins with
a digit is a number. Every other word is a noun. A run of capitalised words that does not begin the
sentence is an entity. Its type is the most frequent one in the training sentences.

The encoder has a CRF above it, with a trained mix of its layers. `fit` trains the tagger with its
defaults. The encoder is either fine-tuned, except for its table of pieces, or frozen. The frozen
encoder's vectors are divided by their root mean square. Finished runs are kept in ``--cache`` and
not repeated.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from _results import option, show
from tagging_quality import DATA, ROOT, Sentences, tuned_encoder

import polyembed as pe
from polyembed.data import TaggedSentence, read_conll
from polyembed.encoders import CachedEmbedder, cache_features
from polyembed.metrics import accuracy, entity_f1, to_iob2
from polyembed.tables import Table, mean_and_deviation
from polyembed.text import to_universal_tags

FILES = {"es": "esp", "nl": "ned"}
SYSTEMS = ("frozen", "fine-tuned")
SIZES = {"pos": (1000, 200, 600), "ner": (2000, 300, 1000)}


def load(task: str, language: str) -> list[Sentences]:
    """Read evenly spaced sentences for training, development and test."""
    parts = []
    for end, count in zip(("train", "testa", "testb"), SIZES[task], strict=True):
        path = DATA / "conll2002" / f"{FILES[language]}.{end}"
        read = read_conll(path, tag_column=1 if task == "pos" else -1)
        chosen = read[:: max(1, len(read) // count)][:count]
        tagset = f"conll2002-{language}"
        parts.append(
            [
                TaggedSentence(
                    one.words,
                    tuple(to_universal_tags(tag, tagset=tagset) for tag in one.tags)
                    if task == "pos"
                    else to_iob2(one.tags),
                )
                for one in chosen
            ]
        )
    return parts


def rule(task: str, words: tuple[str, ...], kind: str) -> list[str]:
    """Return the tags of a sentence by the fixed rules; `kind` is the type of all entities."""
    if task == "pos":
        return [
            "NUM" if word[0].isdigit() else "NOUN" if any(map(str.isalnum, word)) else "."
            for word in words
        ]
    tags: list[str] = []
    for i, word in enumerate(words):
        inside = i > 0 and word[0].isupper()
        tags.append(f"{'I' if tags and tags[-1] != 'O' else 'B'}-{kind}" if inside else "O")
    return tags


def score(task: str, test: Sentences, predicted: list[list[str]]) -> float:
    gold = [list(one.tags) for one in test]
    if task == "pos":
        return accuracy(gold, predicted)
    return entity_f1(gold, predicted).f1


def frozen_encoder(encoder: str, task: str, cache: Path) -> CachedEmbedder:
    """Load the frozen encoder's vectors of all sentences of a task.

    The first call computes and stores them.
    """
    frozen = pe.PretrainedWordEncoder(encoder, freeze="all")
    place = cache / f"{Path(encoder).name}.{task}.features"
    layers = range(frozen.num_hidden_states)
    if not place.exists():
        parts = [part for language in FILES for part in load(task, language)]
        words = dict.fromkeys(tuple(one.words) for part in parts for one in part)
        cache_features(frozen, words, place, layers=layers, batch_size=8)
    return CachedEmbedder(frozen, place, fusion=pe.ScalarMix(len(layers)), normalize="rms")


def run(
    task: str, source: str, seed: int, encoder: str, cache: Path, *, frozen: bool
) -> dict[str, float]:
    """Train a tagger on one language and test it on both, or read the finished run."""
    name = f"{Path(encoder).name}{'.frozen' if frozen else ''}"
    path = cache / f"{name}.{task}.{source}.{seed}.json"
    if path.exists():
        return dict(json.loads(path.read_text()))
    torch.manual_seed(seed)
    train, dev, _ = load(task, source)
    tests = {language: load(task, language)[2] for language in FILES}
    parts = (train, dev, *tests.values())
    tags = sorted({tag for part in parts for one in part for tag in one.tags})
    embedder = frozen_encoder(encoder, task, cache) if frozen else tuned_encoder(encoder)
    tagger = pe.SequenceTagger(embedder, tags)
    start = time.perf_counter()
    pe.fit(tagger, train, dev, seed=seed)
    found = {"seconds": time.perf_counter() - start}
    for language, test in tests.items():
        predicted = tagger.predict([one.words for one in test])
        found[language] = score(task, test, predicted)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found))
    print(name, task, source, seed, found, file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument(
        "--encoder", help="the folder or hub name of an encoder; default: score only the rules"
    )
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--sources", nargs="+", choices=FILES, default=list(FILES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "zero_shot")
    option(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pairs = [("es", "es"), ("es", "nl"), ("nl", "nl"), ("nl", "es")]
    columns = [
        f"{test}, trained on {source}" if test == source else f"{test}, zero-shot from {source}"
        for source, test in pairs
    ]
    for task in arguments.task:
        rows: list[tuple[Any, ...]] = []
        found = []
        for source, language in pairs:
            kinds = Counter(
                tag[2:] for one in load(task, source)[0] for tag in one.tags if tag[1:2] == "-"
            )
            test = load(task, language)[2]
            kind = kinds.most_common(1)[0][0] if kinds else ""
            predicted = [rule(task, one.words, kind) for one in test]
            found.append(None if language == source else score(task, test, predicted))
        rows.append(("rule", *found))
        for system in arguments.systems if arguments.encoder else []:
            runs = {
                source: [
                    run(
                        task,
                        source,
                        seed,
                        arguments.encoder,
                        arguments.cache,
                        frozen=system == "frozen",
                    )
                    for seed in range(arguments.seeds)
                ]
                for source in arguments.sources
            }
            means = [
                mean_and_deviation([one[language] for one in runs[source]])
                if source in runs
                else None
                for source, language in pairs
            ]
            rows.append((f"{Path(arguments.encoder).name}, {system}", *means))
        show(arguments.json, task, Table(("", *columns), rows, digits=4))


if __name__ == "__main__":
    main()
