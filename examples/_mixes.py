"""Code-switched text and its tasks, as the adaptation example reads them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from _cache import DATA
from _files import kinds_of

from polyembed.data import (
    TaggedSentence,
    read_conllu,
    read_csv,
    read_inline,
    read_lince,
    read_sentimix,
)

LINCE = {"POS": "pos_spaeng", "LID": "lid_spaeng", "NER": "ner_spaeng", "sentiment": "sa_spaeng"}
Sentences = list[TaggedSentence]
Parts = tuple[Sentences, Sentences, Sentences]


class Task(NamedTuple):
    """The task of a head: its train, dev and test sentences, and the metric of its score."""

    parts: Parts
    metric: str
    sentiment: bool = False


class Mix(NamedTuple):
    """Text of two languages: the sentences to adapt to, development sentences, and the tasks."""

    train: Sentences
    dev: Sentences
    languages: tuple[str, str]
    tasks: dict[str, Task]


def load_sagt() -> Mix:
    """Read Turkish-German speech."""
    folder = DATA / "code_switched" / "ud_turkish_german_sagt"
    parts = tuple(
        read_conllu(folder / f"qtd_sagt-ud-{part}.conllu", language="misc:CSID")
        for part in ("train", "dev", "test")
    )
    tasks = {
        "POS": Task(parts, "accuracy"),
        "LID": Task(tuple(map(languages_as_tags, parts)), "accuracy"),
    }
    return Mix(parts[0], parts[1], ("TR", "DE"), tasks)


def load_spanglish() -> Mix:
    """Read Spanish-English tweets."""
    folder = DATA / "code_switched" / "spanglish_lid_calcs"
    tweets, test = (read_inline(folder / name) for name in ("train.enes.txt", "test_enes.txt"))
    train, dev, _ = split([replace(tweet, languages=tweet.tags) for tweet in tweets], 0.9, 1.0)
    return Mix(train, dev, ("lang1", "lang2"), {"LID": Task((train, dev, test), "accuracy")})


def load_hinglish() -> Mix:
    """Read Hindi-English tweets from two corpora."""
    folder = DATA / "code_switched"
    tagged = split(read_csv(folder / "hinglish_ner" / "annotatedData.csv"), 0.8, 0.9)
    rated = split(read_sentimix(folder / "hinglish_sentimix" / "dev_3k_split_conll.txt"), 0.8, 0.9)
    tasks = {
        "NER": Task(tagged, "f1"),
        "sentiment": Task(rated, "accuracy", sentiment=True),
        "LID": Task(rated, "accuracy"),
    }
    return Mix(tagged[0] + rated[0], rated[1], ("Hin", "Eng"), tasks)


def load_lince(folder: Path) -> Mix:
    """Read LinCE's Spanglish tasks.

    Exit if a file is of another task, has no labels, or has labels that the train file lacks.
    """
    train, test, tasks = {}, {}, {}
    for title, task in LINCE.items():
        paths = [folder / task / f"{part}.conll" for part in ("train", "dev")]
        try:
            found = [
                [one_language(sentence) for sentence in read_lince(path, task=task)]
                for path in paths
            ]
        except (OSError, ValueError) as error:
            raise SystemExit(str(error)) from error
        sentiment = title == "sentiment"
        kinds = [
            {sentence.label for sentence in part} if sentiment else kinds_of(part) for part in found
        ]
        for path, labels in zip(paths, kinds, strict=True):
            if not labels or None in labels:
                raise SystemExit(f"{path} must have labels for {task}, got none")
            if labels - kinds[0]:
                raise SystemExit(
                    f"{path} must have labels of train, {sorted(kinds[0])}, got {sorted(labels - kinds[0])}"
                )
        cut = min(round(0.9 * len(found[0])), len(found[0]) - 1)
        tasks[title] = Task(
            (found[0][:cut], found[0][cut:], found[1]),
            "f1" if title == "NER" else "accuracy",
            sentiment,
        )
        train |= {sentence.words: sentence for sentence in found[0]}
        test |= {sentence.words: sentence for sentence in found[1]}
    texts = [sentence for words, sentence in train.items() if words not in test]
    return Mix(texts, tasks["LID"].parts[2], ("lang1", "lang2"), tasks)


def one_language(sentence: TaggedSentence) -> TaggedSentence:
    """Rename the languages of ``pos_spaeng`` as LinCE's other Spanglish tasks name them."""
    names = {"eng": "lang1", "spa": "lang2"}
    return replace(
        sentence,
        languages=tuple(names.get(language, language) for language in sentence.languages or ()),
    )


MIXES: dict[str, Callable[[], Mix]] = {
    "sagt": load_sagt,
    "spanglish": load_spanglish,
    "hinglish": load_hinglish,
}


def split(sentences: Sentences, *cuts: float) -> Parts:
    """Cut a corpus into train, dev and test at two shares of its sentences."""
    first, second = (round(cut * len(sentences)) for cut in cuts)
    return sentences[:first], sentences[first:second], sentences[second:]


def languages_as_tags(sentences: Sentences) -> Sentences:
    """Return the sentences with each word's language as its tag."""
    return [replace(sentence, tags=sentence.languages) for sentence in sentences]


def mix_of_files(train: Sentences, dev: Sentences, test: Sentences, metric: str) -> Mix:
    """Build a mix from your own files."""
    languages = sorted({name for sentence in train for name in sentence.languages or ()})
    return Mix(train, dev, tuple(languages[:2]), {"tags": Task((train, dev, test), metric)})


def shortened(mix: Mix, size: int | None) -> Mix:
    """Return the mix with the first `size` sentences of each part; all sentences if None."""
    tasks = {
        name: task._replace(parts=tuple(part[:size] for part in task.parts))
        for name, task in mix.tasks.items()
    }
    return mix._replace(train=mix.train[:size], dev=mix.dev[:size], tasks=tasks)
