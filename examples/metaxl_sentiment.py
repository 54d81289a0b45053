r"""MetaXL on sentiment: any two files of text and label, one row a line (Xia 2021, tables 3 and 6).

    python examples/metaxl_sentiment.py --source-train en.tsv --train te.tsv --dev te.dev.tsv --test te.test.tsv \
        --model xlm-roberta-base --device cuda
    python examples/metaxl_sentiment.py --source-train en.tsv --train te.tsv --pretrain en te    # pretrains an encoder

A line is ``label<TAB>text``. Without ``--dev`` and ``--test`` the last fifths of the target's rows serve. Prints target
only, joint training (JT, by a batch of each or on the concatenation), JT with the network and MetaXL over seeds,
the mean F1 of the labels on test with the epoch chosen on dev. ``--authors`` trains as the paper's code does.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from _metaxl import RECIPES, add_arguments, compare, draw, find_model, load_encoder

import polyembed as pe
from polyembed.metrics import macro_f1


class Text(NamedTuple):
    """Words with a label."""

    words: tuple[str, ...]
    label: str


def read_texts(path: Path) -> list[Text]:
    """Read ``label<TAB>text`` lines."""
    texts = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        label, tab, text = line.partition("\t")
        if not tab or not text.split():
            raise ValueError(f"{path}:{number} must be a label, a tab and a text, got {line!r}")
        texts.append(Text(tuple(text.split()), label))
    return texts


def mean_f1(model: pe.SequenceClassifier, texts: Sequence[Text]) -> float:
    """Return the mean F1 of the labels; the paper has F1 and does not name its kind."""
    found = model.predict([text.words for text in texts], batch_size=32)
    return macro_f1([[text.label] for text in texts], [[label] for label in found])


def main() -> None:
    recipe = RECIPES["sentiment"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source-train", type=Path, required=True)
    parser.add_argument("--train", type=Path, required=True, help="of the target")
    parser.add_argument("--dev", type=Path)
    parser.add_argument("--test", type=Path)
    add_arguments(parser, recipe)
    parser.add_argument("--out", type=Path, default=Path("runs") / "metaxl_sentiment")
    arguments = parser.parse_args()
    if not (arguments.model or arguments.pretrain):
        parser.error("--model must name a checkpoint, or --pretrain the languages to pretrain one on")
    source, rows = read_texts(arguments.source_train), read_texts(arguments.train)
    fifth = len(rows) // 5
    target = {
        "dev": read_texts(arguments.dev) if arguments.dev else rows[-fifth:],
        "test": read_texts(arguments.test) if arguments.test else rows[-2 * fifth : -fifth],
    }
    kept = rows[: len(rows) - fifth * ((not arguments.dev) + (not arguments.test))][: arguments.target_size]
    labels = sorted({text.label for text in (*source, *kept, *target["dev"], *target["test"])})
    name = find_model(arguments, ())
    print(f"{len(source)} source texts, {len(kept)} of the target, labels {labels}, {name}")

    def build(seed: int) -> pe.SequenceClassifier:
        return pe.SequenceClassifier(load_encoder(name, recipe["max_length"]), labels, pooling="mean", dropout=0.0)

    table, models = compare(build, source, kept, lambda model, part: mean_f1(model, target[part]), arguments)
    print("\n" + table.to_markdown() + "\n")
    words = [[text.words for text in part[:100]] for part in (source, kept)]
    draw(models, *words, arguments.out / "clouds.png", arguments.device)


if __name__ == "__main__":
    main()
