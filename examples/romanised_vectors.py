r"""Train fastText vectors for romanised text, from text in the language's own script.

    python examples/romanised_vectors.py --pairs hi.translit.sampled.train.tsv --text hi.txt.xz \
        --save hi-latin.bin

People write Hindi in Roman letters on social media; published Hindi vectors have only words in
Devanagari. A model learns from pairs of spellings (Dakshina, Roark et al. 2020: Roman, Devanagari
and a count on each line) how people romanise words. The text is then written in Roman letters, each
word in a spelling that is drawn anew at each position, and fastText is trained on it. So *nahi*,
*nahin* and *nhi* get similar vectors. A word of the pairs has the spellings of the pairs, and
another word has the candidates of the model.
"""

import argparse
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import regex
from _files import read_lines
from _recipes import positive
from _transliterator import (
    Candidate,
    CharacterTransliterator,
    draw_spellings,
    train_transliterator,
)

from polyembed.vectors import FastTextVectors


def read_pairs(path: Path) -> dict[str, Counter[str]]:
    """Read the spellings of each word, and how often people write each of them."""
    found: dict[str, Counter[str]] = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        match line.split("\t"):
            case [roman, word, count] if count.isdecimal() and roman and word:
                found.setdefault(word, Counter())[roman] += int(count)
            case _:
                raise SystemExit(
                    f"{path}, line {number} must be a spelling, a word and a count, got {line!r}"
                )
    return found


def read_text(path: Path) -> Iterator[list[str]]:
    r"""Read sentences, with words and punctuation as separate tokens.

    A vowel sign belongs to its letter, which Python's own ``\w`` does not know.
    """
    for line in read_lines(path):
        yield regex.findall(r"\w+|[^\w\s]", line)


def spellings_of(
    sentences: list[list[str]], pairs: dict[str, Counter[str]], model: CharacterTransliterator
) -> dict[str, list[Candidate]]:
    """Return the spellings of each word: from the pairs, or else from the model.

    The model spells words of fewer than 50 letters, all of which it knows.
    """
    known = {
        word: [Candidate(roman, math.log(n)) for roman, n in counts.items() if n]
        for word, counts in pairs.items()
    }
    letters = set(model.letters)
    words = {word for words in sentences for word in words}
    missing = sorted(
        word for word in words - known.keys() if letters.issuperset(word) and len(word) < 50
    )
    print(f"{len(words):,} different words, {len(missing):,} of them in the model's spelling")
    return known | dict(zip(missing, model.candidates(missing), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pairs",
        type=Path,
        required=True,
        help="a file with a spelling, a word and a count on each line, separated by tabs",
    )
    parser.add_argument(
        "--text",
        type=Path,
        required=True,
        help="a text with a sentence on each line, plain or .xz",
    )
    parser.add_argument(
        "--save", type=Path, required=True, help="the .bin file to write the vectors to"
    )
    parser.add_argument(
        "--model",
        type=Path,
        help="the folder of the model of spellings; it is read if it exists, else written",
    )
    parser.add_argument("--write-text", type=Path, help="the file to write the romanised text to")
    parser.add_argument(
        "--epochs", type=positive, default=3, help="the number of epochs of the model of spellings"
    )
    parser.add_argument(
        "--dim", type=positive, default=100, help="the number of dimensions of the vectors"
    )
    arguments = parser.parse_args()
    counts = read_pairs(arguments.pairs)
    if arguments.model and arguments.model.exists():
        model = CharacterTransliterator.from_pretrained(arguments.model)
    else:
        pairs = [(word, roman) for word, found in counts.items() for roman in found.elements()]
        model = train_transliterator(pairs, num_train_epochs=arguments.epochs, batch_size=128)
        if arguments.model:
            model.save_pretrained(arguments.model)
    sentences = list(read_text(arguments.text))
    romanised = list(draw_spellings(sentences, spellings_of(sentences, counts, model)))
    print("\n".join(" ".join(words) for words in romanised[:3]))
    if arguments.write_text:
        arguments.write_text.write_text(
            "\n".join(" ".join(words) for words in romanised), encoding="utf-8"
        )
    vectors = FastTextVectors.train(
        romanised, arguments.save, dim=arguments.dim, min_count=2, epochs=10
    )
    print(
        f"{len(vectors.words):,} words in {arguments.save}: FastTextVectors({str(arguments.save)!r})"
    )


if __name__ == "__main__":
    main()
