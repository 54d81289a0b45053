"""How well is romanised Hindi spelt in Devanagari? A model, a dictionary and scheme conversion on
real words.

    python benchmarks/transliteration.py [--epochs 15] [--save FOLDER | --load FOLDER]

The model learns from the training pairs of Dakshina's Hindi lexicon (Roark et al. 2020), in the
data folder. It is tested on the lexicon's other words, and on 300 word types of real tweets. Their
answers were written by hand (data/hinglish_ner_300.tsv), and `draw` drew the words from
hinglish_ner.
"""

import argparse
import csv
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from _results import option, show

from polyembed.tables import Table
from polyembed.text import DictionaryTransliterator, SchemeTransliterator, hinglish_words

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "examples"))
from _transliterator import (  # noqa: E402
    CharacterTransliterator,
    character_error_rate,
    fold_devanagari,
    train_transliterator,
)

Transliterator = Callable[[list[str]], Sequence[str]]
DATA = Path(os.environ.get("POLYEMBED_DATA") or ROOT.parent / "shared" / "data")
LEXICON = DATA / "transliteration" / "dakshina_hi"
ANSWERS = Path(__file__).parent / "data" / "hinglish_ner_300.tsv"
LANGUAGES = {"Hindi": ("hi",), "names": ("name",), "English": ("en",), "all": ("hi", "name", "en")}
Test = list[tuple[str, Sequence[str], int]]


class Answer(NamedTuple):
    """A word type of the tweets with its Devanagari spellings.

    Attributes:
        word: The word in lower case.
        draws: The number of drawn tokens that are this word.
        language: ``hi``, ``en``, ``name``, or ``-`` for a token that is not a word.
        spellings: The right spellings: several if the token is several words, none for ``-``.
    """

    word: str
    draws: int
    language: str
    spellings: tuple[str, ...]


def draw(path: Path, *, types: int = 300, seed: int = 0) -> dict[str, int]:
    """Draw tokens from hinglish_ner until there are `types` different ones; return their counts.

    The tokens consist of ASCII letters and are in lower case.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file) if len(row) == 3][1:]
    tokens = [word.lower() for _, word, _ in rows if re.fullmatch("[A-Za-z]+", word)]
    random.Random(seed).shuffle(tokens)
    drawn: Counter[str] = Counter()
    for token in tokens:
        if len(drawn) == types and token not in drawn:
            break
        drawn[token] += 1
    return dict(drawn)


def read_answers(path: Path = ANSWERS) -> list[Answer]:
    """Read the answers that were written by hand."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Answer(
                row["word"],
                int(row["draws"]),
                row["language"],
                () if row["answers"] == "-" else tuple(row["answers"].split("|")),
            )
            for row in csv.DictReader(file, delimiter="\t")
        ]


def read_lexicon(split: str) -> list[tuple[str, str]]:
    """Read the pairs of a romanised and a Devanagari word."""
    lines = (LEXICON / f"hi.translit.sampled.{split}.tsv").read_text("utf-8").splitlines()
    return [(roman, word) for roman, word, _ in (line.split("\t") for line in lines)]


def group(pairs: Sequence[tuple[str, str]]) -> Test:
    """Return each romanisation once, with all of its Devanagari words."""
    words: dict[str, list[str]] = {}
    for roman, word in pairs:
        words.setdefault(roman, []).append(word)
    return [(roman, answers, 1) for roman, answers in words.items()]


def error_rates(
    transliterator: Transliterator, pairs: Test, fold: Callable[[str], str] = fold_devanagari
) -> tuple[float, float]:
    """Compute the character error rate and the share of right words.

    The last entry of each tuple in `pairs` is its number of repetitions.
    """
    predicted = map(fold, transliterator([source for source, _, _ in pairs]))
    rows = [
        (word, [fold(answer) for answer in answers])
        for word, (_, answers, weight) in zip(predicted, pairs, strict=True)
        for _ in range(weight)
    ]
    right = sum(word in answers for word, answers in rows)
    return character_error_rate(*map(list, zip(*rows, strict=True))), right / len(rows)


def systems(model: CharacterTransliterator) -> Iterator[tuple[str, Transliterator]]:
    """Yield the names and functions of the systems, in the order of the table."""
    try:
        yield "ITRANS, indic-transliteration", SchemeTransliterator("itrans")
    except ImportError as error:
        print(f"left out: {error}\n")
    yield "model", model.transliterate
    yield (
        "dictionary + model",
        DictionaryTransliterator(hinglish_words(), fallback=model.transliterate),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument(
        "--every", type=int, default=1, help="train on every n-th pair only, for a quick test"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="the folder to save the model in")
    parser.add_argument("--load", type=Path, help="the folder of a saved model to use instead")
    option(parser)
    arguments = parser.parse_args()

    if arguments.load:
        model = CharacterTransliterator.from_pretrained(arguments.load)
    else:
        pairs = read_lexicon("train")[:: arguments.every]
        start = time.process_time()
        model = train_transliterator(pairs, num_train_epochs=arguments.epochs, seed=arguments.seed)
        print(f"trained in {time.process_time() - start:.0f} s of processor time")
    if arguments.save:
        model.save_pretrained(arguments.save)
    size = sum(parameter.numel() for parameter in model.parameters())
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {size:,} parameters")

    answers = [answer for answer in read_answers() if answer.spellings]
    dictionary = hinglish_words()
    tests = {f"Dakshina, {split}": group(read_lexicon(split)) for split in ("dev", "test")}
    for name, languages in LANGUAGES.items():
        tests[f"tweets, {name}"] = [
            (a.word, a.spellings, 1) for a in answers if a.language in languages
        ]
    tests["tweets, Hindi, not in the dictionary"] = [
        (a.word, a.spellings, 1) for a in answers if a.language == "hi" and a.word not in dictionary
    ]
    tests["tweets, Hindi, by tokens"] = [
        (a.word, a.spellings, a.draws) for a in answers if a.language == "hi"
    ]
    tests["tweets, all, by tokens"] = [(a.word, a.spellings, a.draws) for a in answers]
    results: dict[str, dict[str, str]] = {}
    for name, transliterator in systems(model):
        start = time.process_time()
        rates = {  # Dakshina's spellings are not folded
            test: error_rates(
                transliterator, pairs, str if test.startswith("Dakshina") else fold_devanagari
            )
            for test, pairs in tests.items()
        }
        seconds = time.process_time() - start
        results[name] = {test: f"{rate:.3f} ({right:.1%})" for test, (rate, right) in rates.items()}
        print(f"{name}: {sum(map(len, tests.values())) / seconds:,.0f} words/s")
    rows = [
        (test, len(pairs), *(result[test] for result in results.values()))
        for test, pairs in tests.items()
    ]
    print("\nCharacter error rate, and the share of words that are right as a whole:\n")
    show(arguments.json, "main", Table(("words", "types", *results), rows), seeds=[arguments.seed])


if __name__ == "__main__":
    main()
