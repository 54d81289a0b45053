"""Which sentences should be annotated next? A simulated annotator compares the rules.

    python examples/annotate_next.py --rules random entropy length-normalised
    python examples/annotate_next.py --train train.conll --dev dev.conll --test test.conll

The tags of the training sentences are hidden at first. The annotator reveals the tags of a few
random sentences, a tagger is trained on them, a rule chooses the next sentences, and so on. Rules
that add up the uncertainty of all words choose long sentences, which take longer to annotate. So
the table has the number of words beside each score. The data is the bundled Spanish-English sample,
or your own files.
"""

import argparse
import random
from typing import Any

import torch
from _files import add_file_arguments, read_all_files, tags_of
from _recipes import positive

import polyembed as pe
from polyembed.data import TaggedSentence, load_sample
from polyembed.evaluation import rank_for_annotation
from polyembed.metrics import accuracy, entity_f1, scheme_of
from polyembed.tables import Table
from polyembed.training import FitOptions

RULES: dict[str, dict[str, Any]] = {
    "entropy": {"by": "entropy"},
    "margin": {"by": "margin"},
    "length-normalised": {"by": "length-normalised"},
    "diverse": {"by": "length-normalised", "diverse": True},
}
"""The options of `rank_for_annotation`."""

Sentences = list[TaggedSentence]


def choose(rule: str, tagger: pe.SequenceTagger, pool: Sentences, count: int) -> list[int]:
    """Return the positions of the sentences to annotate next; the pool is in random order."""
    if rule == "random":
        return list(range(count))
    return rank_for_annotation(tagger, [one.words for one in pool], count=count, **RULES[rule])


class Annotator:
    """A simulated annotator of a pool, which also trains and scores taggers."""

    def __init__(
        self, train: Sentences, dev: Sentences, test: Sentences, arguments: argparse.Namespace
    ) -> None:
        self.dev, self.test, self.arguments = dev, test, arguments
        self.tags = tags_of(train, dev)
        order = random.Random(arguments.seed).sample(train, len(train))
        self.known, self.pool = order[: arguments.start], order[arguments.start :]
        self.first = self.trained(self.known)

    def trained(self, known: Sentences) -> tuple[pe.SequenceTagger, float]:
        """Train a tagger, and score it on test: F1 if the tags are of entities, else accuracy."""
        torch.manual_seed(self.arguments.seed)
        tagger = pe.build_tagger(known, tags=self.tags)
        options = FitOptions(num_train_epochs=self.arguments.epochs)
        pe.fit(tagger, known, self.dev, options, seed=self.arguments.seed, progress=False)
        gold = [tagger.labels_of(one) for one in self.test]
        predicted = tagger.predict([one.words for one in self.test])
        scheme = scheme_of(self.tags)
        if scheme:
            return tagger, entity_f1(gold, predicted, scheme=scheme).f1
        return tagger, accuracy(gold, predicted)

    def rounds(self, rule: str) -> list[tuple[int, int, float]]:
        """Return each round's number of annotated sentences, number of their words, and score."""
        known, pool, (tagger, points) = self.known, self.pool, self.first
        found = [(len(known), sum(len(one.words) for one in known), points)]
        for _ in range(self.arguments.rounds):
            places = choose(rule, tagger, pool, self.arguments.count)
            known = known + [pool[i] for i in places]  # their tags are revealed
            pool = [one for i, one in enumerate(pool) if i not in set(places)]
            tagger, points = self.trained(known)
            found.append((len(known), sum(len(one.words) for one in known), points))
        return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_file_arguments(parser, "the sample's")
    rules = ("random", *RULES)
    parser.add_argument("--rules", nargs="+", choices=rules, default=rules)
    parser.add_argument(
        "--start", type=positive, default=40, help="the number of random sentences at first"
    )
    parser.add_argument(
        "--count", type=positive, default=20, help="the number of sentences that a round adds"
    )
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument(
        "--epochs", type=positive, help="the number of epochs; the default of `fit` if missing"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    parts = read_all_files(parser, arguments, None)
    parts = parts or [
        load_sample("es-en", "train"),
        load_sample("es-en", "dev"),
        load_sample("es-en", "test"),
    ]
    train, dev, test = ([one for one in part if one.words] for part in parts)
    if len(train) < arguments.start + arguments.rounds * arguments.count:
        parser.error(f"{len(train)} training sentences are too few for so many rounds")
    annotator = Annotator(train, dev, test, arguments)
    rows = [(rule, *found) for rule in arguments.rules for found in annotator.rounds(rule)]
    print(Table(("rule", "sentences", "words", "score"), rows, digits=4).to_markdown())


if __name__ == "__main__":
    main()
