"""Which sentences should be annotated next? A simulated annotator compares the rules.

    python examples/annotate_next.py --rules random entropy length-normalised
    python examples/annotate_next.py --train train.conll --dev dev.conll --test test.conll

The tags of the training sentences are hidden at first. The annotator reveals those of a few random
sentences, a tagger is trained on them, a rule chooses the next ones, and so on. Rules that add up
the uncertainty of all words choose long sentences, which take longer to annotate; so the table has
the number of words beside each score. The data is the bundled Spanish-English sample, or yours.
"""

import argparse
import random
from collections.abc import Sequence

import torch
from _files import PARTS, add_file_arguments, read_files, tags_of
from _recipes import positive

import polyembed as pe
from polyembed.data import TaggedSentence, load_sample
from polyembed.evaluation import rank_for_annotation
from polyembed.metrics import accuracy, entity_f1, scheme_of
from polyembed.tables import Table
from polyembed.training import FitOptions

RULES = ("random", "entropy", "margin", "length-normalised", "diverse")
Sentences = list[TaggedSentence]


def choose(rule: str, tagger: pe.SequenceTagger, pool: Sentences, count: int) -> list[int]:
    """Return the places of the sentences to annotate next; the pool is in random order."""
    if rule == "random":
        return list(range(min(count, len(pool))))
    texts = [one.words for one in pool]
    if rule == "diverse":
        return rank_for_annotation(tagger, texts, by="length-normalised", count=count, diverse=True)
    return rank_for_annotation(tagger, texts, by=rule, count=count)  # type: ignore[arg-type]


def score(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """Return the F1 of entities where the tags are of entities, and else the accuracy."""
    scheme = scheme_of({tag for tags in gold for tag in tags})
    return entity_f1(gold, predicted, scheme=scheme).f1 if scheme else accuracy(gold, predicted)


def simulate(
    rule: str, train: Sentences, dev: Sentences, test: Sentences, arguments: argparse.Namespace
) -> list[tuple[int, int, float]]:
    """Return the number of annotated sentences, their words and the score of each round."""
    pool = random.Random(arguments.seed).sample(train, len(train))
    known, pool = pool[: arguments.start], pool[arguments.start :]
    rounds = []
    for number in range(arguments.rounds + 1):
        torch.manual_seed(arguments.seed)
        tagger = pe.build_tagger(known, tags=tags_of(train, dev))
        options = FitOptions(num_train_epochs=arguments.epochs)
        pe.fit(tagger, known, dev, options, seed=arguments.seed, progress=False)
        points = score([one.tags for one in test], tagger.predict([one.words for one in test]))
        rounds.append((len(known), sum(len(one.words) for one in known), points))
        if number < arguments.rounds:
            places = choose(rule, tagger, pool, arguments.count)
            known = known + [pool[i] for i in places]  # the annotator reveals their tags
            pool = [one for i, one in enumerate(pool) if i not in set(places)]
    return rounds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_file_arguments(parser, "the sample's")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=RULES)
    parser.add_argument("--start", type=positive, default=40, help="random sentences at first")
    parser.add_argument("--count", type=positive, default=20, help="sentences of each round")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--epochs", type=positive, help="instead of those of `fit`")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    given = [part for part in PARTS if getattr(arguments, part)]
    if given and len(given) < len(PARTS):
        parser.error("--train, --dev and --test must be given together")
    parts = [
        load_sample("es-en", "train"),
        load_sample("es-en", "dev"),
        load_sample("es-en", "test"),
    ]
    if given:
        parts = list(read_files(arguments, needs_labels=True).values())
    train, dev, test = ([one for one in part if one.words] for part in parts)
    if len(train) < arguments.start + arguments.rounds * arguments.count:
        parser.error(f"{len(train)} training sentences are too few for so many rounds")
    rows = [
        (rule, *found)
        for rule in arguments.rules
        for found in simulate(rule, train, dev, test, arguments)
    ]
    print(Table(("rule", "sentences", "words", "score"), rows, digits=4).to_markdown())


if __name__ == "__main__":
    main()
