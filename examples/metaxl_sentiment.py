r"""MetaXL on sentiment: reviews in one language, a hundred texts in another (Xia 2021, tables 3 to
6).

    python examples/metaxl_sentiment.py --source-train dataset_en_train.json \
        --train SentiPers/data --split sentipers --model xlm-roberta-base --device cuda
    python examples/metaxl_sentiment.py --source-train en.tsv --train te.tsv --dev te.dev.tsv \
        --test te.test.tsv --pretrain en te  # pretrains an encoder

A path is one of these. Neutral texts are left out, except if they have a ``label`` in one of the
first two kinds:

- a file of ``label<TAB>text`` lines, with any labels;
- a ``.json`` file of reviews with ``review_body`` and ``stars`` or ``label``, one per line (MARC)
  or in a list: 1 and 2 stars are ``negative``, 4 and 5 ``positive``;
- a folder of SentiPers, ``data`` or a part of it: each sentence of its ``.xml`` files once, with
  the sign of its polarity as its label;
- a folder of Sentiraama with ``*_pos.txt`` and ``*_neg.txt``, which have lines of underscores
  between reviews;
- a folder of Hu and Liu's product reviews, with ``camera[+2]##text`` lines in ``.txt`` files, which
  may be zipped: the sentences whose opinions are all of one sign;
- a file of SentiMix, ``*_conll.txt``.

A part without a file, ``--dev`` or ``--test``, is drawn at random from the target's texts: a fifth
of them, or as many as in the paper with ``--split``.

The methods are target only, joint training (JT, with a batch of each language per step or on the
concatenation), JT with the network, and MetaXL, each over seeds. For each method the program prints
the F1 on test, with the epoch chosen on dev, and the Hausdorff distance of both languages' states
of ``[CLS]``. It draws these states. Finished runs are kept in ``--out``. ``--authors`` trains as
the paper's code does.
"""

import argparse
import json
import random
import re
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from _metaxl import RECIPES, add_arguments, build_encoder, compare, find_model

import polyembed as pe
from polyembed.data import read_sentimix
from polyembed.metrics import macro_f1, per_tag

RECIPE = RECIPES["sentiment"]
SIGNS = {-1: "negative", 1: "positive"}


class Text(NamedTuple):
    """A text: its words and its label."""

    words: tuple[str, ...]
    label: str


def read_texts(path: Path) -> list[Text]:
    """Read texts in one of the layouts that the module's docstring lists."""
    if path.is_dir():
        layouts = {"*.xml": read_sentipers, "*_pos.txt": read_sentiraama}
        reader = next((layouts[name] for name in layouts if any(path.rglob(name))), read_opinions)
    elif path.name.endswith("_conll.txt"):
        reader = read_tweets
    else:
        reader = read_reviews if path.suffix in (".json", ".jsonl") else read_lines
    texts = [Text(tuple(text.split()), label) for label, text in reader(path) if text.split()]
    if not texts:
        raise ValueError(f"{path} must hold texts with labels, got none")
    return texts


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        label, tab, text = line.partition("\t")
        if not tab or not text.split():
            raise ValueError(f"{path}:{number} must be a label, a tab and a text, got {line!r}")
        yield label, text


def read_reviews(path: Path) -> Iterator[tuple[str, str]]:
    content = path.read_text("utf-8")
    reviews: Iterable[Any] = (
        json.loads(content)
        if content.lstrip().startswith("[")
        else map(json.loads, content.splitlines())
    )
    for number, review in enumerate(reviews, 1):
        try:
            stars, text = int(review.get("stars", 0)), str(review["review_body"])
            label = (
                review["label"] if "label" in review else SIGNS.get((stars > 3) - (0 < stars < 3))
            )
        except (AttributeError, KeyError, ValueError) as error:
            raise ValueError(
                f"{path}: review {number} must have review_body, and stars or a label, got {review}"
            ) from error
        if label is not None:
            yield label, text


def read_sentipers(folder: Path) -> Iterator[tuple[str, str]]:
    seen = set()
    for path in sorted(folder.rglob("*.xml")):
        for value, text in sentences_of(path):
            if text not in seen and int(value or 0):
                yield SIGNS[1 if int(value) > 0 else -1], text
            seen.add(text)


def sentences_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the polarity and the text of each sentence of a file.

    The file is XML, or has lines of numbered words and of polarities, ``[+1]`` (folder `extra`).
    """
    content = path.read_text("utf-8-sig")
    if content.lstrip().startswith("<"):
        for element in ET.fromstring(content).iter("Sentence"):
            yield element.get("Value", ""), "".join(element.itertext()).strip()
        return
    for block in content.split("[@@@]"):
        words = re.findall(r"^\d+\t([^\t\n]*)", block, re.MULTILINE)
        value = re.search(r"^\[([+-]?\d)\]", block, re.MULTILINE)
        yield value[1] if value else "", " ".join(" ".join(words).split())


def read_sentiraama(folder: Path) -> Iterator[tuple[str, str]]:
    for sign, label in (("pos", "positive"), ("neg", "negative")):
        for path in sorted(folder.rglob(f"*_{sign}.txt")):
            yield from (
                (label, text)
                for text in re.split(r"^\s*_{5,}\s*$", path.read_text("utf-8"), flags=re.MULTILINE)
            )


def read_opinions(folder: Path) -> Iterator[tuple[str, str]]:
    files = [path.read_text("utf-8", errors="replace") for path in sorted(folder.rglob("*.txt"))]
    for path in sorted(folder.rglob("*.zip")):
        with zipfile.ZipFile(path) as archive:
            names = sorted(name for name in archive.namelist() if name.endswith(".txt"))
            files += [archive.read(name).decode("utf-8", errors="replace") for name in names]
    for line in "\n".join(files).splitlines():
        opinions, found, text = line.partition("##")
        signs = set(re.findall(r"\[([+-])\d?\]", opinions))
        if found and len(signs) == 1:
            yield SIGNS[int(f"{signs.pop()}1")], text


def read_tweets(path: Path) -> Iterator[tuple[str, str]]:
    for tweet in read_sentimix(path):
        if tweet.label in SIGNS.values():
            yield str(tweet.label), " ".join(tweet.words)


def split(rows: list[Text], arguments: argparse.Namespace) -> dict[str, list[Text]]:
    """Read the target's parts; draw missing ones at random from its training texts."""
    sizes = RECIPE["splits"].get(arguments.split, {"dev": len(rows) // 5, "test": len(rows) // 5})
    given = {part: getattr(arguments, part) for part in ("dev", "test")}
    if None in given.values():
        rows = random.Random(0).sample(rows, len(rows))
    parts = {}
    for part, path in given.items():
        if path:
            parts[part] = read_texts(path)
        else:
            rows, parts[part] = rows[sizes[part] :], rows[: sizes[part]]
    return {**parts, "train": rows[: arguments.target_size]}


def f1(model: pe.SequenceClassifier, texts: Sequence[Text]) -> float:
    """Return the F1 of the positive texts, as the authors' code does.

    If there are other labels than positive and negative, return the mean F1 of the labels.
    """
    gold = [[text.label] for text in texts]
    found = [[label] for label in model.predict([text.words for text in texts], batch_size=32)]
    if set(model.labels) == set(SIGNS.values()):
        scores = per_tag(gold, found)
        return scores["positive"].f1 if "positive" in scores else 0.0
    return macro_f1(gold, found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source-train", type=Path, required=True)
    parser.add_argument("--train", type=Path, required=True, help="the texts of the target")
    parser.add_argument("--dev", type=Path)
    parser.add_argument("--test", type=Path)
    parser.add_argument(
        "--split",
        choices=RECIPE["splits"],
        help="take the sizes of dev and test from the paper, for this data set",
    )
    add_arguments(parser, RECIPE)
    parser.add_argument("--out", type=Path, default=Path("runs") / "metaxl_sentiment")
    arguments = parser.parse_args()
    if not (arguments.model or arguments.pretrain):
        parser.error(
            "--model must name a checkpoint, or --pretrain the languages to pretrain one on"
        )
    try:
        source, target = (
            read_texts(arguments.source_train),
            split(read_texts(arguments.train), arguments),
        )
    except (OSError, ValueError, ET.ParseError) as error:
        parser.error(str(error))
    short = [part for part, texts in target.items() if not texts]
    if short:
        parser.error(f"--train must hold texts for {', '.join(short)} too, or name files for them")
    labels = sorted({text.label for text in (*source, *target["train"])})
    unseen = sorted({text.label for text in (*target["dev"], *target["test"])}.difference(labels))
    if unseen:
        parser.error(f"--dev and --test must have labels of training, {labels}, got {unseen}")
    name = find_model(arguments, ())
    sizes = " / ".join(str(len(target[part])) for part in ("train", "dev", "test"))
    print(f"{len(source)} source texts, {sizes} of the target, labels {labels}, {name}")

    def build() -> pe.SequenceClassifier:
        encoder = build_encoder(name, RECIPE["max_length"], arguments, target["train"])
        size, pooler = encoder.embedding_dim, getattr(encoder.model, "pooler", None)
        model = pe.SequenceClassifier(
            encoder, labels, pooling="cls", hidden_size=size, dropout=RECIPE["dropout"]
        )
        if hasattr(pooler, "dense"):
            model.hidden.load_state_dict(pooler.dense.state_dict())
        return model

    compare(
        build,
        source,
        target["train"],
        lambda model, part: f1(model, target[part]),
        arguments,
        arguments.out,
        "cls",
    )


if __name__ == "__main__":
    main()
