"""How good are the taggers? Meta-embeddings against single sources and a hand-featured CRF, on real
text.

    python benchmarks/tagging_quality.py --task sagt hinglish es nl --jobs 2

All vectors are trained here. Each task has fastText and byte-pair embeddings of several languages'
raw text, with the task's own training words added. The systems are compared on equal terms, with
one optimiser and one sequence encoder. The settings are the same for every task and depend only on
the number of training sentences. The systems are:

- ``crf``: the usual alternative, python-crfsuite with hand-made features;
- ``spelling``: `polyembed.build_tagger` without any source: characters, surface features and a
  linear path;
- ``whole``: the same over fastText and byte-pair vectors of each language;
- ``tuned``: the pretrained model of ``--encoder`` alone, fine-tuned under a CRF. Its table of
  pieces is frozen, and a trained mix weights its layers (ScalarMix);
- ``spelling`` or ``whole`` with a suffix: ``-tuned`` adds the fine-tuned model, ``-frozen`` adds
  one frozen layer of the model (for example ``--layer 12``), and ``-mixed`` adds all its frozen
  layers, weighted by a trained mix.

For comparison, there are parts of the whole system:

- ``fasttext-<language>``: one source;
- ``control``: one source trained on all the texts together, as wide as all sources;
- ``mme``: self-attention over the languages' sources (Winata 2021, equations 2 to 4);
- ``hme``: MME over words, MME over sub-words and a character CNN;
- ``hme-surface``: the HME and the surface features of a hand-featured tagger;
- ``surface``: these features alone;
- ``linear``: a linear CRF over the surface features of a word and its neighbours, without network.

``--sizes 100 300 1000`` trains on the first 100, 300 and 1,000 sentences. Finished runs are kept in
``--cache`` and not repeated, and an interrupted run continues after its last epoch. ``--finished``
reports the finished runs without training.
"""

import argparse
import json
import lzma
import os
import random
import re
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import regex
import torch
from _results import option, show, write

import polyembed as pe
from polyembed.data import (
    TaggedSentence,
    read_conll,
    read_conllu,
    read_csv,
    read_inline,
    read_sentimix,
    read_wikiann,
)
from polyembed.embeddings import surface_scores
from polyembed.encoders import (
    CachedEmbedder,
    SingleLayer,
    WideAndDeepEncoder,
    cache_features,
)
from polyembed.encoders.cached import FeatureStore
from polyembed.evaluation import approximate_randomization
from polyembed.metrics import accuracy, entity_f1
from polyembed.tables import MeanAndDeviation, Table, mean_and_deviation
from polyembed.text import Normalizer
from polyembed.vectors import BPEmbVectors, FastTextVectors

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("POLYEMBED_DATA") or ROOT.parent / "shared" / "data")
Sentences = list[TaggedSentence]
Results = dict[tuple[str, int, str], list[dict[str, Any]]]
"""Task, number of training sentences and system -> runs."""
LABELS = {
    "crf": "hand-featured CRF",
    "linear": "linear path",
    "surface": "surface features",
    "mme": "MME",
    "hme": "HME",
    "hme-surface": "HME + surface",
    "spelling": "without sources",
    "whole": "whole system",
    "tuned": "fine-tuned alone",
}
TITLES = {
    "sagt": "SAGT parts of speech (accuracy)",
    "sagt-language": "SAGT languages (accuracy)",
    "hinglish": "Hinglish, last fifth (entity F1)",
    "hinglish-shuffled": "Hinglish, shuffled (entity F1)",
    "hinglish-language": "Hinglish languages (accuracy)",
    "spanglish-language": "Spanglish languages (accuracy)",
    "es": "Spanish (entity F1)",
    "nl": "Dutch (entity F1)",
    "am": "Amharic (entity F1)",
    "ig": "Igbo (entity F1)",
    "rw": "Kinyarwanda (entity F1)",
    "sw": "Swahili (entity F1)",
    "yo": "Yoruba (entity F1)",
}
CAPTION = "Test score of each system with its deviation over seeds; the hand-featured CRF is the dashed line."
BESIDE = {
    "frozen": "frozen layer",
    "mixed": "frozen layers",
    "tuned": "fine-tuned",
}
"""The suffix of a system with a pretrained part -> the name of that part."""
SYSTEMS = ["crf", "spelling", "whole"]


class Setup(NamedTuple):
    """The settings that all runs share."""

    cache: Path
    dim: int
    encoder: str | None
    layer: int
    bfloat16: bool = False

    def frozen(self, system: str) -> Path:
        """Return the folder of the pretrained model and its features."""
        kind = beside(system) or system
        name = {"mixed": "all", "tuned": "tuned"}.get(kind, str(self.layer))
        return self.cache / f"{Path(self.encoder or '').stem}-{name}"


@dataclass(frozen=True)
class Task:
    """A data set, the languages whose text its vectors are trained on, and its metric."""

    load: Callable[[], tuple[Sentences, Sentences, Sentences]]
    languages: tuple[str, ...]
    metric: str


def by_language(sentences: Sentences) -> Sentences:
    """Return the sentences with the language of each word as its tag."""
    return [
        TaggedSentence(one.words, one.languages) for one in sentences if one.languages is not None
    ]


def load_sagt(tag: str = "upos") -> tuple[Sentences, Sentences, Sentences]:
    folder = DATA / "code_switched" / "ud_turkish_german_sagt"
    files = [folder / f"qtd_sagt-ud-{split}.conllu" for split in ("train", "dev", "test")]
    if tag == "upos":
        train, dev, test = (read_conllu(path) for path in files)
    else:
        train, dev, test = (by_language(read_conllu(path, language="misc:CSID")) for path in files)
    return train, dev, test


def in_parts(
    sentences: Sentences, *, shuffle: bool = False
) -> tuple[Sentences, Sentences, Sentences]:
    """Split a corpus into training, development and test sentences.

    The test part is the last fifth. The development part is the last tenth of the rest.
    """
    if shuffle:
        random.Random(0).shuffle(sentences)
    cut = int(0.8 * len(sentences))
    dev = cut - cut // 10
    return sentences[:dev], sentences[dev:cut], sentences[cut:]


def load_hinglish(*, shuffle: bool = False) -> tuple[Sentences, Sentences, Sentences]:
    # hashtags and mentions are kept: a third of the former, two thirds of the latter are entities
    normalize = Normalizer(hashtags=False, mentions=False)
    tweets = [
        TaggedSentence(tuple(normalize(tweet.words)), tweet.tags)
        for tweet in read_csv(DATA / "code_switched" / "hinglish_ner" / "annotatedData.csv")
    ]
    return in_parts(tweets, shuffle=shuffle)


def load_sentimix() -> tuple[Sentences, Sentences, Sentences]:
    tweets = read_sentimix(DATA / "code_switched" / "hinglish_sentimix" / "dev_3k_split_conll.txt")
    return in_parts(by_language(tweets), shuffle=True)


def load_spanglish() -> tuple[Sentences, Sentences, Sentences]:
    folder = DATA / "code_switched" / "spanglish_lid_calcs"
    train, test = (read_inline(folder / name) for name in ("train.enes.txt", "test_enes.txt"))
    cut = len(train) - len(train) // 10
    return train[:cut], train[cut:], test


@cache
def load_conll(language: str) -> tuple[Sentences, Sentences, Sentences]:
    train, dev, test = (
        read_conll(DATA / "conll2002" / f"{language}.{split}")
        for split in ("train", "testa", "testb")
    )
    return train, dev, test


def load_wikiann(language: str) -> tuple[Sentences, Sentences, Sentences]:
    folder = DATA / "wikiann" / "low_resource" / language
    train, dev, test = (read_wikiann(folder / f"{split}.txt") for split in ("train", "dev", "test"))
    return train, dev, test


TASKS = {
    "sagt": Task(load_sagt, ("de", "tr"), "accuracy"),
    "sagt-language": Task(partial(load_sagt, "language"), ("de", "tr"), "accuracy"),
    "hinglish": Task(load_hinglish, ("hi-latin", "en"), "f1"),
    "hinglish-devanagari": Task(load_hinglish, ("hi", "en"), "f1"),
    "hinglish-shuffled": Task(partial(load_hinglish, shuffle=True), ("hi-latin", "en"), "f1"),
    "hinglish-language": Task(load_sentimix, ("hi-latin", "en"), "accuracy"),
    "spanglish-language": Task(load_spanglish, ("es", "en"), "accuracy"),
    "es": Task(partial(load_conll, "esp"), ("es", "nl", "en"), "f1"),
    "nl": Task(partial(load_conll, "ned"), ("nl", "es", "en"), "f1"),
    "am": Task(partial(load_wikiann, "amh"), ("am", "en"), "f1"),
    "ig": Task(partial(load_wikiann, "ibo"), ("ig", "en"), "f1"),
    "rw": Task(partial(load_wikiann, "kin"), ("rw", "sw"), "f1"),
    "sw": Task(partial(load_wikiann, "swa"), ("sw", "en"), "f1"),
    "yo": Task(partial(load_wikiann, "yor"), ("yo", "en"), "f1"),
}


def raw_text(language: str, cache: Path) -> Iterator[list[str]]:
    """Read a language's raw text, split into words and punctuation.

    The text of ``hi-latin`` is written by romanised_vectors.py.
    """
    if language.endswith("-latin"):
        path = cache / f"{language}.txt"
        if not path.exists():
            raise SystemExit(
                f"no romanised text: python examples/romanised_vectors.py --write-text {path} ..."
            )
        yield from map(str.split, path.read_text("utf-8").splitlines())
        return
    with lzma.open(DATA / "text" / "mono" / f"{language}.txt.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield regex.findall(
                r"\w+|[^\w\s]", line
            )  # unlike that of `re`, its \w has vowel signs and accents


class Vectors:
    """The vectors of one task, which are trained on first use."""

    def __init__(self, task: str, cache: Path, dim: int) -> None:
        self.task = task
        self.folder = cache / task
        self.dim = dim
        self.folder.mkdir(parents=True, exist_ok=True)

    def corpus(self, languages: tuple[str, ...]) -> list[list[str]]:
        """Return the text of the languages and the task's training words.

        Words are split at white space, because a word of fastText cannot contain any.
        """
        train = [" ".join(sentence.words).split() for sentence in TASKS[self.task].load()[0]]
        return [
            *(words for language in languages for words in raw_text(language, self.folder.parent)),
            *train,
        ]

    def words(self, languages: tuple[str, ...], dim: int) -> FastTextVectors:
        """Load or train fastText vectors of the languages' joint text."""
        path = self.folder / f"{'-'.join(languages)}.{dim}.bin"
        if path.exists():
            return FastTextVectors(path)
        corpus = self.corpus(languages)
        return FastTextVectors.train(corpus, path, dim=dim, min_count=2, bucket=100_000, epochs=10)

    def pieces(self, language: str) -> BPEmbVectors:
        """Load or train byte-pair vectors of a language's text."""
        folder = self.folder / f"pieces-{language}"
        model_file, vectors_file = folder / "pieces.model", folder / "pieces.vec"
        if vectors_file.exists():
            return BPEmbVectors(model_file=model_file, vectors_file=vectors_file)
        return BPEmbVectors.train(
            self.corpus((language,)), folder, vocab_size=5000, dim=50, epochs=5
        )


def build_part(system: str, task: str, vectors: Vectors, lexicon: pe.Lexicon) -> pe.WordEmbedder:
    """Build a part of the whole system's embedder."""
    languages = TASKS[task].languages
    if system.startswith("fasttext-"):
        return pe.SourceEmbedding(
            vectors.words((system.removeprefix("fasttext-"),), vectors.dim), lexicon
        )
    if system == "surface":
        return pe.SpelledEmbedding.from_surface(lexicon)
    if system == "control":
        return pe.SourceEmbedding(vectors.words(languages, vectors.dim * len(languages)), lexicon)
    sources = [
        pe.SourceEmbedding(vectors.words((language,), vectors.dim), lexicon)
        for language in languages
    ]
    words = pe.MetaEmbedding.self_attention(sources, embedding_dim=2 * vectors.dim)
    if system == "mme":
        return words
    pieces = [
        pe.SpelledEmbedding.from_pieces(vectors.pieces(language), lexicon) for language in languages
    ]
    subwords = pe.MetaEmbedding.self_attention(pieces, embedding_dim=50)
    cnn = pe.CharCNN(lexicon.num_characters, embedding_dim=100, dropout=0.25)
    characters = pe.SpelledEmbedding.from_characters(lexicon, cnn)
    parts = (
        {"surface": pe.SpelledEmbedding.from_surface(lexicon)} if system == "hme-surface" else {}
    )
    return pe.HierarchicalMetaEmbedding(
        words=words, subwords=subwords, characters=characters, **parts
    )


def pretrained(system: str, task: str, setup: Setup) -> pe.WordEmbedder | None:
    """Build a system's pretrained part: an encoder to fine-tune, or frozen layers from disk."""
    kind = beside(system)
    if kind is None:
        return None
    if kind == "tuned":
        return tuned_encoder(str(setup.encoder))
    folder = setup.frozen(system)
    encoder = pe.PretrainedWordEncoder.from_pretrained(folder / "encoder")
    store = FeatureStore(folder / f"features-{task}")
    layers = store.layers or []
    fusion = SingleLayer(layers[0]) if len(layers) == 1 else pe.ScalarMix(len(layers))
    return CachedEmbedder(encoder, store, fusion=fusion)


def tuned_encoder(where: str) -> pe.PretrainedWordEncoder:
    """Load a pretrained model for fine-tuning, with a trained mix of its layers.

    Its table of pieces is frozen.
    """
    encoder = pe.PretrainedWordEncoder(where, freeze="embeddings")
    encoder.fusion = pe.ScalarMix(encoder.num_hidden_states)
    return encoder


def cache_layers(system: str, tasks: list[str], setup: Setup) -> None:
    """Store the pretrained model's layers for all sentences of the tasks, if not stored yet."""
    folder = setup.frozen(system) / "encoder"
    if not folder.exists():
        pe.PretrainedWordEncoder(str(setup.encoder), freeze="all").save_pretrained(folder)
    encoder = pe.PretrainedWordEncoder.from_pretrained(folder)
    layers = range(encoder.num_hidden_states) if beside(system) == "mixed" else [setup.layer]
    for task in tasks:
        sentences = [sentence.words for part in TASKS[task].load() for sentence in part]
        place = setup.frozen(system) / f"features-{task}"
        if not place.exists():
            cache_features(encoder, sentences, place, layers=layers, batch_size=8)


def build(
    system: str, task: str, setup: Setup, seed: int, size: int | None = None
) -> pe.SequenceTagger:
    """Build an untrained system."""
    torch.manual_seed(seed)
    train, dev, _ = TASKS[task].load()
    tags = sorted({tag for sentence in (*train, *dev) for tag in sentence.tags})
    train, name = train[:size], network(system)
    contextual, vectors = pretrained(system, task, setup), Vectors(task, setup.cache, setup.dim)
    if name == "tuned":
        return pe.SequenceTagger(tuned_encoder(str(setup.encoder)), tags)
    if name in ("spelling", "whole"):
        known: dict[str, Any] = {}
        if name == "whole":
            languages = TASKS[task].languages
            known["words"] = [vectors.words((one,), setup.dim) for one in languages]
            known["subwords"] = [vectors.pieces(one) for one in languages]
        return pe.build_tagger(train, tags=tags, contextual=contextual, **known)
    lexicon = pe.Lexicon.from_sentences(sentence.words for sentence in train)
    if name == "linear":
        context = WideAndDeepEncoder(None, len(tags))
        decoder = pe.CRFDecoder(context.embedding_dim, tags, extra_emissions=True)
        scores = surface_scores(lexicon, len(tags))
        return pe.SequenceTagger(scores, tags, encoder=context, decoder=decoder)
    embedder = pe.UniqueWords(build_part(name, task, vectors, lexicon))
    lstm = pe.LSTMSequenceEncoder(embedder.embedding_dim, hidden_size=128, dropout=0.4)
    return pe.SequenceTagger(embedder, tags, encoder=lstm)


def path_of(task: str, system: str, seed: int, size: int | None, setup: Setup) -> Path:
    """Return the path of a run's file."""
    name = [system, *([f"first-{size}"] if size else []), seed, "json"]
    alone = beside(system) is None and network(system) != "tuned"
    folder = setup.cache if alone else setup.frozen(system)
    return folder / task / ".".join(map(str, name))


def run(task: str, system: str, seed: int, size: int | None, setup: Setup) -> dict[str, object]:
    """Train one system once, on all sentences or the first `size`, and tag the test set."""
    path = path_of(task, system, seed, size, setup)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return dict(json.loads(path.read_text()))
    torch.set_num_threads(1)
    train, dev, test = TASKS[task].load()
    train = [sentence for sentence in train if sentence.words][:size]
    state = path.with_suffix(".state")
    start = time.perf_counter()
    best = None
    if system == "crf":
        predicted, parameters, epochs = crfsuite(train, dev, test), 0, 0
        trained = tagged = time.perf_counter()
        seconds = trained - start
    else:
        tagger = build(system, task, setup, seed, size)
        trainable = [value for value in tagger.parameters() if value.requires_grad]
        parameters = sum(value.numel() for value in trainable)
        options = pe.FitOptions(amp_dtype=torch.bfloat16 if setup.bfloat16 else None)
        result = pe.fit(tagger, train, dev, options, seed=seed, checkpoint=state, progress=False)
        epochs, best = len(result.history), result.best.score
        seconds = sum(epoch.seconds for epoch in result.history)
        trained = time.perf_counter()
        predicted = tagger.predict([sentence.words for sentence in test])
        tagged = time.perf_counter()
    data = {
        "task": task,
        "system": system,
        "size": len(train),
        "seed": seed,
        "dev": best,
        "score": score(task, test, predicted),
        "parameters": parameters,
        "epochs": epochs,
        "seconds": round(seconds, 1),
        "words per second": round(sum(len(one.words) for one in test) / max(tagged - trained, 1e-9))
        if tagged > trained
        else None,
        "predicted": predicted,
    }
    path.write_text(json.dumps(data))
    shutil.rmtree(state, ignore_errors=True)
    return data


def speed(task: str, systems: list[str], setup: Setup) -> Table:
    """Measure how many words of the test set each system tags per second, with one thread.

    The time is the median of three runs. The systems are not trained, because training does not
    change their speed.
    """
    torch.set_num_threads(1)
    texts = [one.words for one in TASKS[task].load()[2]]
    rows = []
    for system in systems:
        tagger = build(system, task, setup, 0).eval()
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            tagger.predict(texts)
            seconds.append(time.perf_counter() - start)
        rows.append((label(system), round(sum(map(len, texts)) / statistics.median(seconds))))
    return Table(("system", "words per second"), rows)


def score(task: str, test: Sentences, predicted: list[list[str]]) -> float:
    gold = [list(sentence.tags) for sentence in test]
    return (
        accuracy(gold, predicted)
        if TASKS[task].metric == "accuracy"
        else entity_f1(gold, predicted).f1
    )


def features(words: tuple[str, ...], i: int) -> dict[str, object]:
    """Describe a word and its neighbours by hand, as CRF taggers did before word vectors."""
    word = words[i]
    found: dict[str, object] = {
        "bias": 1.0,
        "lower": word.lower(),
        "shape": re.sub(
            r"(.)\1+",
            r"\1\1",
            re.sub("[0-9]", "0", re.sub("[a-z]", "x", re.sub("[A-Z]", "X", word))),
        ),
        "title": word.istitle(),
        "upper": word.isupper(),
        "digit": any(character.isdigit() for character in word),
        "punctuation": not any(character.isalnum() for character in word),
    }
    for size in (1, 2, 3, 4):
        found[f"prefix{size}"], found[f"suffix{size}"] = word[:size].lower(), word[-size:].lower()
    for offset in (-2, -1, 1, 2):
        if 0 <= i + offset < len(words):
            near = words[i + offset]
            found[f"{offset}:lower"], found[f"{offset}:title"] = near.lower(), near.istitle()
            found[f"{offset}:suffix3"] = near[-3:].lower()
        else:
            found[f"{offset}:edge"] = True
    return found


def crfsuite(train: Sentences, dev: Sentences, test: Sentences) -> list[list[str]]:
    """Train python-crfsuite with L1 and L2 regularisation and tag the test set."""
    import tempfile

    import pycrfsuite

    trainer = pycrfsuite.Trainer(verbose=False)
    for sentence in train:
        words = sentence.words
        trainer.append([features(words, i) for i in range(len(words))], list(sentence.tags))
    trainer.set_params(
        {"c1": 0.1, "c2": 0.1, "max_iterations": 100, "feature.possible_transitions": True}
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer.train(f"{folder}/crf")
        tagger = pycrfsuite.Tagger()
        tagger.open(f"{folder}/crf")
        predicted = [
            tagger.tag([features(sentence.words, i) for i in range(len(sentence.words))])
            for sentence in test
        ]
        tagger.close()
    return predicted


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--task", nargs="+", choices=TASKS, default=["sagt", "hinglish", "es", "nl"]
    )
    parser.add_argument(
        "--systems", nargs="+", default=SYSTEMS, help="the systems; fasttext-de is a single source"
    )
    sizes = "train on this many sentences, the first of the task; 0 means all"
    parser.add_argument(
        "--sizes", nargs="+", type=lambda size: int(size) or None, default=[None], help=sizes
    )
    parser.add_argument(
        "--seeds", type=int, default=3, help="seeds of each system; all of them vote"
    )
    parser.add_argument("--dim", type=int, default=100, help="dimensions of each source's vectors")
    parser.add_argument(
        "--encoder",
        help="the folder or hub name of a pretrained model, for tuned, -tuned, -frozen and -mixed",
    )
    parser.add_argument(
        "--layer",
        type=int,
        default=-1,
        help="the layer of the pretrained model for -frozen; 0 means its embeddings",
    )
    parser.add_argument(
        "--bfloat16",
        action="store_true",
        help="train with autocast to bfloat16, for hardware that supports it",
    )
    parser.add_argument(
        "--finished", action="store_true", help="report the finished runs without training"
    )
    parser.add_argument(
        "--speed", action="store_true", help="measure how fast the systems tag, without training"
    )
    parser.add_argument(
        "--against", default="crf", help="the system that p-values compare the others with"
    )
    option(parser)
    parser.add_argument("--jobs", type=int, default=1, help="the number of processes")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "tagging_quality")
    arguments = parser.parse_args()
    if not DATA.is_dir():
        parser.error(f"no real data at {DATA}: set POLYEMBED_DATA")
    setup = Setup(
        arguments.cache, arguments.dim, arguments.encoder, arguments.layer, arguments.bfloat16
    )
    jobs = []
    for task in arguments.task:
        for system in arguments.systems:
            seeds = 1 if system == "crf" else arguments.seeds  # it uses no random numbers
            jobs += [
                (task, system, seed, size) for size in arguments.sizes for seed in range(seeds)
            ]
    frozen = {
        kind: system for system in arguments.systems if (kind := beside(system)) and kind != "tuned"
    }
    if arguments.encoder is None and (frozen or any("tuned" in x for x in arguments.systems)):
        parser.error("name a pretrained model: --encoder")
    if arguments.speed:
        for task in arguments.task:
            show(arguments.json, f"speed {task}", speed(task, arguments.systems, setup))
        return
    if arguments.finished:
        jobs = [job for job in jobs if path_of(*job, setup).exists()]
    else:
        for task in arguments.task:
            train_vectors(task, arguments.systems, Vectors(task, arguments.cache, arguments.dim))
        for system in frozen.values():
            cache_layers(system, arguments.task, setup)
    jobs.sort(key=lambda job: job[2])  # the first seed of every system, then the second
    results: Results = {}
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(run, *job, setup) for job in jobs]):
            result = future.result()
            key = (str(result["task"]), int(str(result.get("size", 0))), str(result["system"]))
            results.setdefault(key, []).append(result)
            print(
                json.dumps({key: value for key, value in result.items() if key != "predicted"}),
                flush=True,
            )
    report(results, arguments.json, arguments.against)


def train_vectors(task: str, systems: list[str], vectors: Vectors) -> None:
    """Train the vectors that the systems need, once for all processes."""
    languages = TASKS[task].languages
    single = [
        system.removeprefix("fasttext-") for system in systems if system.startswith("fasttext-")
    ]
    several = any(system.startswith(("hme", "mme", "whole")) for system in systems)
    for language in languages if several else single:
        vectors.words((language,), vectors.dim)
    if any(system.startswith(("hme", "whole")) for system in systems):
        for language in languages:
            vectors.pieces(language)
    if "control" in systems:
        vectors.words(languages, vectors.dim * len(languages))


def report(results: Results, path: Path | None, against: str) -> None:
    """Print the systems of each task: scores, vote, p-value and cost; write the tables and charts.

    The p-value compares seed 0 with seed 0 of the system `against`.
    """
    columns = (
        "system",
        "sentences",
        "score",
        "seeds",
        "vote",
        "p against the CRF" if against == "crf" else f"p against {label(against)}",
        "trained parameters",
        "seconds",
        "words per second",
    )
    charts: dict[str, Any] = {}
    for task in dict.fromkeys(task for task, _, _ in results):
        test = TASKS[task].load()[2]
        gold = [list(sentence.tags) for sentence in test]
        sizes = sorted({size for name, size, _ in results if name == task})
        rows = []
        scores: dict[tuple[str, int], MeanAndDeviation] = {}
        found = sorted({system for name, _, system in results if name == task}, key=order)
        for system, size in (
            (one, size) for size in sizes for one in found if (task, size, one) in results
        ):
            runs = sorted(results[task, size, system], key=lambda one: int(str(one["seed"])))
            predicted = [one["predicted"] for one in runs]
            vote = (
                score(task, test, pe.functional.majority_vote(predicted)) if len(runs) > 2 else None
            )
            other, p = results.get((task, size, against)), None
            if other and system != against:
                metric = TASKS[task].metric
                p = approximate_randomization(
                    gold, other[0]["predicted"], predicted[0], metric=metric
                ).p_value
            scores[system, size] = mean_and_deviation([float(str(one["score"])) for one in runs])
            seconds = statistics.median(float(str(one["seconds"])) for one in runs)
            speeds = [x for one in runs if (x := one.get("words per second"))]
            speed = round(statistics.median(speeds)) if speeds else None
            cost = (runs[0]["parameters"] or None, round(seconds), speed)
            rows.append((label(system), size, scores[system, size], len(runs), vote, p, *cost))
        print(f"\n{task}, {TASKS[task].metric}:\n")
        show(path, task, Table(columns, rows, digits=4))
        known = [system for system in found if (system, sizes[-1]) in scores]
        of_all = [scores[system, sizes[-1]] for system in known]
        chart = charts.setdefault(
            f"quality {group_of(task)}", {"kind": "dots", "caption": CAPTION, "series": []}
        )
        chart["reference"] = label("crf")
        chart["series"].append(
            {"label": TITLES.get(task, task), "x": [label(system) for system in known], "y": of_all}
        )
        if len(sizes) > 1:
            lines = [
                (system, [size for size in sizes if (system, size) in scores]) for system in known
            ]
            charts[f"curve {task}"] = {
                "kind": "lines",
                "caption": f"{task}: score against training sentences; bands are deviations over seeds.",
                "reference": label("crf"),
                "x": {"label": "training sentences", "log": True},
                "y": {"label": TASKS[task].metric},
                "series": [
                    {"label": label(system), "x": x, "y": [scores[system, size] for size in x]}
                    for system, x in lines
                ],
            }
    write(path, charts=charts)


def group_of(task: str) -> str:
    """Return the group of corpora whose chart shows a task."""
    low = ("am", "ig", "rw", "sw", "yo")
    return "wikiann" if task in low else "conll" if task in ("es", "nl") else "code-switched"


def label(system: str) -> str:
    """Return the name of a system in the documentation."""
    name = LABELS.get(network(system), network(system))
    kind = beside(system)
    return name if kind is None else f"{name} + {BESIDE[kind]}"


def beside(system: str) -> str | None:
    """Return the suffix of a system with a pretrained part, else None."""
    kind = system.rpartition("-")[2]
    return kind if kind in BESIDE and kind != system else None


def network(system: str) -> str:
    """Return the name of a system without the suffix of its pretrained part."""
    kind = beside(system)
    return system if kind is None else system.removesuffix(f"-{kind}")


def order(system: str) -> tuple[int, str]:
    """Return a sort key of systems: first the systems outside `LABELS`, then the order of `LABELS`.

    A system comes before the same system with a pretrained part.
    """
    name = network(system)
    return (list(LABELS).index(name) if name in LABELS else -1), system


if __name__ == "__main__":
    main()
