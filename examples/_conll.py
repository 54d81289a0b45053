"""The sentences of CoNLL-2002 and CoNLL-2003, prepared as in van der Heijden 2019.

The caller's own files can take the place of the shared tasks' files.
"""

import argparse
from collections.abc import Callable, Sequence

from _files import PARTS, kinds_of
from _laser import RECIPES

import polyembed as pe
from polyembed.data import TaggedSentence, read_conll
from polyembed.evaluation import Corpus
from polyembed.metrics import to_iob2
from polyembed.text import to_universal_tags
from polyembed.text.tagsets import UNIVERSAL_TAGS

# For each language: the name of the shared task's files without the ending, the column of parts of
# speech, and its tag set. Entities are in the last column.
CONLL = {
    "es": ("esp", 1, "conll2002-es"),
    "nl": ("ned", 1, "conll2002-nl"),
    "en": ("eng", 1, "ptb"),
    "de": ("deu", 2, "stts"),
}
ENDS = {"train": "train", "dev": "testa", "test": "testb"}


def normalizer(arguments: argparse.Namespace) -> Callable[[Sequence[str]], Sequence[str]]:
    """Return the function that normalises the words of a sentence, the same for every system."""
    return pe.Normalizer(**RECIPES["normalizer"]) if arguments.normalize else tuple


def read_part(language: str, part: str, arguments: argparse.Namespace) -> list[TaggedSentence]:
    """Read the caller's own file or the shared task's; return an empty list if neither exists."""
    name, column, tagset = CONLL.get(language, (language, -1, ""))
    own, shared = f"{language}.{part}.conll", f"{name}.{ENDS[part]}"
    path = next(
        (
            folder / file
            for folder in arguments.data
            for file in (own, shared)
            if (folder / file).exists()
        ),
        None,
    )
    if path is None:
        return []
    mapped = arguments.task == "pos" and path.name == shared and tagset
    try:
        sentences = read_conll(path, tag_column=column if mapped else -1)
        if mapped:
            tags = [
                tuple(to_universal_tags(tag, tagset=tagset) for tag in sentence.tags)
                for sentence in sentences
            ]
        else:
            tags = [
                to_iob2(sentence.tags) if arguments.task == "ner" else sentence.tags
                for sentence in sentences
            ]
    except ValueError as error:
        raise SystemExit(f"{path}: {error}") from error
    return [TaggedSentence(s.words, row) for s, row in zip(sentences, tags, strict=True)]


def read_corpora(arguments: argparse.Namespace) -> list[Corpus]:
    """Read the sentences of each language; exit if they cannot be used.

    ``--sentences``, ``--dev`` and ``--test`` are the largest numbers of sentences. If a file has
    more, every k-th sentence is read, with the largest whole k that gives this number.
    """
    found = {
        language: [read_part(language, part, arguments) for part in PARTS]
        for language in arguments.languages
    }
    sources = [language for language, (train, dev, _) in found.items() if train and dev]
    strange = sorted({*(arguments.sources or sources)} - {*sources})
    if strange or not sources:
        raise SystemExit(
            f"--sources must have files to train and to develop on, got {strange or arguments.languages}"
        )
    arguments.sources = arguments.sources or sources
    known = set(UNIVERSAL_TAGS if arguments.task == "pos" else ["O"])
    known = known.union(*(kinds_of(found[language][0]) for language in sources))
    corpora, words = [], normalizer(arguments)
    for language, parts in found.items():
        if not parts[-1]:
            raise SystemExit(
                f"--data must have a test file of {language!r}, got none in {[*map(str, arguments.data)]}"
            )
        unseen = sorted(kinds_of([sentence for part in parts for sentence in part]) - known)
        if unseen:
            raise SystemExit(
                f"the files of {language!r} must have labels of those to train on, {sorted(known)}, got {unseen}"
            )
        counts = (arguments.sentences, arguments.dev, arguments.test)
        parts = parts if language in sources else ([], [], parts[-1])
        spread = (
            part[:: max(1, len(part) // (n or len(part) or 1))][:n]
            for part, n in zip(parts, counts, strict=True)
        )
        prepared = (
            [TaggedSentence(tuple(words(s.words)), s.tags) for s in part] for part in spread
        )
        corpora.append(Corpus(language, *prepared))
    return corpora
