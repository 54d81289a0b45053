"""How well is Hinglish spelt in Devanagari? Character error rates of a dictionary, a model and scheme conversion.

    python benchmarks/transliteration.py [--text FILE] [--save FOLDER]

Training pairs are synthetic: Devanagari words of a Hindi text (the data folder's, if there), romanised by
`polyembed.text.social_romanizations`. A thousand word types are held out, and the answers for 300 word types of real
tweets were written by hand: data/hinglish_ner_300.tsv, whose words `draw` drew from hinglish_ner.
"""

import argparse
import csv
import lzma
import os
import random
import re
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from polyembed.tables import Table
from polyembed.text import (
    HINGLISH_WORDS,
    CharacterTransliterator,
    DictionaryTransliterator,
    SchemeTransliterator,
    Transliterator,
    WordPrior,
    character_error_rate,
    fold_devanagari,
    social_romanizations,
    synthetic_pairs,
    train_transliterator,
)
from polyembed.text.romanize import is_devanagari

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("POLYEMBED_DATA") or ROOT.parent / "shared" / "data")
ANSWERS = Path(__file__).parent / "data" / "hinglish_ner_300.tsv"
LANGUAGES = {"Hindi": ("hi",), "names": ("name",), "English": ("en",), "all": ("hi", "name", "en")}


class Answer(NamedTuple):
    """A word type of the tweets with its Devanagari spellings.

    Attributes:
        word: In lower case.
        draws: How many of the drawn tokens are this word.
        language: ``hi``, ``en``, ``name``, or ``-`` for what is no word.
        spellings: The right ones, several where the word is several words; none for ``-``.
    """

    word: str
    draws: int
    language: str
    spellings: tuple[str, ...]


def draw(path: Path, *, types: int = 300, seed: int = 0) -> dict[str, int]:
    """Draw tokens of ASCII letters from hinglish_ner until so many different ones are there, in lower case."""
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


def count_words(path: Path) -> dict[str, int]:
    """Count the Devanagari words of a text."""
    counts: Counter[str] = Counter()
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as lines:
        for line in lines:
            line = unicodedata.normalize("NFC", line).replace("\u200c", "").replace("\u200d", "")
            counts.update(re.findall("[\u0900-\u0963\u0970-\u097f]+", line))
    return {word: count for word, count in counts.items() if is_devanagari(word)}


def error_rates(transliterator: Transliterator, pairs: Sequence[tuple[str, Sequence[str], int]]) -> tuple[float, float]:
    """Give the character error rate and the share of right words, each pair as often as its last entry says."""
    predicted = [fold_devanagari(word) for word in transliterator.transliterate([source for source, _, _ in pairs])]
    expected = [[fold_devanagari(answer) for answer in answers] for _, answers, _ in pairs]
    weights = [weight for _, _, weight in pairs]
    words = [word for word, weight in zip(predicted, weights, strict=True) for _ in range(weight)]
    answers = [answer for answer, weight in zip(expected, weights, strict=True) for _ in range(weight)]
    right = sum(word in answer for word, answer in zip(words, answers, strict=True))
    return character_error_rate(words, answers), right / len(words)


def systems(model: CharacterTransliterator, prior: WordPrior) -> Iterator[tuple[str, Transliterator]]:
    """Name the systems in the order of the table."""
    try:
        yield "ITRANS, indic-transliteration", SchemeTransliterator("itrans")
    except ImportError as error:
        print(f"left out: {error}\n")
    model.prior = None
    yield "model without prior", model
    model.prior = prior
    yield "model", model
    yield "dictionary + model", DictionaryTransliterator(HINGLISH_WORDS, fallback=model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, default=DATA / "text" / "mono" / "hi.txt.xz", help="Hindi, .xz or plain")
    parser.add_argument("--held-out", type=int, default=1000, help="word types that training does not see")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="a folder for the model")
    parser.add_argument("--load", type=Path, help="a saved model instead of training one")
    arguments = parser.parse_args()

    counts = count_words(arguments.text)
    types = sorted(counts)
    random.Random(arguments.seed).shuffle(types)
    held_out, known = types[: arguments.held_out], {word: counts[word] for word in types[arguments.held_out :]}
    pairs = synthetic_pairs(known, seed=arguments.seed)
    prior = WordPrior(known)
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads; {len(known):,} word types, {len(pairs):,} pairs"
    )
    if arguments.load:
        model = CharacterTransliterator.from_pretrained(arguments.load)
    else:
        start = time.process_time()
        model = train_transliterator(pairs, num_train_epochs=arguments.epochs, seed=arguments.seed)
        print(f"trained in {time.process_time() - start:.0f} s of processor time")
    model.prior = prior
    if arguments.save:
        model.save_pretrained(arguments.save)

    for limit in (1, 2, 4, 8, 16):
        reached = sum(word in social_romanizations(answer, limit=limit) for word, answer in HINGLISH_WORDS.items())
        print(f"{limit:2} romanisations reach {reached / len(HINGLISH_WORDS):.1%} of the dictionary's spellings")
    answers = read_answers()
    real = [answer for answer in answers if answer.spellings]
    listed = sum(answer.word in HINGLISH_WORDS for answer in real)
    print(f"{listed} of the {len(real)} word types with answers are in the dictionary\n")

    tests: dict[str, list[tuple[str, Sequence[str], int]]] = {
        "held-out, synthetic": [
            (source, [word], 1) for source, word in synthetic_pairs(held_out, per_word=1, seed=arguments.seed + 1)
        ]
    }
    for name, languages in LANGUAGES.items():
        tests[name] = [(a.word, a.spellings, 1) for a in real if a.language in languages]
    tests["Hindi, not in the dictionary"] = [
        (a.word, a.spellings, 1) for a in real if a.language == "hi" and a.word not in HINGLISH_WORDS
    ]
    folded = {fold_devanagari(word) for word in known}
    tests["Hindi, not in the text"] = [
        (a.word, a.spellings, 1)
        for a in real
        if a.language == "hi" and folded.isdisjoint(map(fold_devanagari, a.spellings))
    ]
    tests["Hindi, by tokens"] = [(a.word, a.spellings, a.draws) for a in real if a.language == "hi"]
    tests["all, by tokens"] = [(a.word, a.spellings, a.draws) for a in real]
    results: dict[str, dict[str, str]] = {}
    for name, transliterator in systems(model, prior):
        start = time.process_time()
        rates = {test: error_rates(transliterator, pairs) for test, pairs in tests.items()}
        seconds = time.process_time() - start
        results[name] = {test: f"{rate:.3f} ({right:.0%})" for test, (rate, right) in rates.items()}
        print(f"{name}: {sum(map(len, tests.values())) / seconds:,.0f} words/s")
    rows = [(test, len(pairs), *(result[test] for result in results.values())) for test, pairs in tests.items()]
    print("\nCharacter error rate, and the share of words that are right as a whole:\n")
    print(Table(("words", "types", *results), rows).to_markdown())


if __name__ == "__main__":
    main()
