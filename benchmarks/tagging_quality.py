"""How good are the taggers? Meta-embeddings against single sources and a hand-featured CRF, on real text.

    python benchmarks/tagging_quality.py --task sagt hinglish es nl --jobs 2

Every vector is trained here: for each task, fastText and byte-pair embeddings of several languages' raw text, each
with the task's own training words added. Systems, on equal terms (one optimiser, one sequence encoder):

- ``fasttext-<language>``: one source; ``control``: one source over all the texts together, as wide as all sources;
- ``mme``: self-attention over the languages' sources (Winata 2021, equations 2 to 4);
- ``hme``: MME over words, MME over sub-words, and a character CNN; ``hme-surface``: the surface features of a
  hand-featured tagger beside them; of both, the vote of 5 seeds; ``surface``: these features alone;
- ``crf``: what a user would otherwise pick, python-crfsuite with hand-made features.

Finished runs are kept in ``--cache`` and not made again, so a run that was stopped goes on.
"""

import argparse
import json
import lzma
import os
import re
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import torch

import polyembed as pe
from polyembed.data import TaggedSentence, read_conll, read_conllu, read_csv
from polyembed.embeddings import FeatureSum, surface_scores
from polyembed.encoders import WideAndDeepEncoder
from polyembed.metrics import accuracy, entity_f1
from polyembed.text import Normalizer
from polyembed.training import FitOptions, fit
from polyembed.vectors import BPEmbVectors, FastTextVectors

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("POLYEMBED_DATA") or ROOT.parent / "shared" / "data")
Sentences = list[TaggedSentence]


@dataclass(frozen=True)
class Task:
    """A data set, the languages whose text its vectors are trained on, and what is measured."""

    load: Callable[[], tuple[Sentences, Sentences, Sentences]]
    languages: tuple[str, ...]
    metric: str
    epochs: int
    batch_size: int
    patience: int
    learning_rate: float


def load_sagt() -> tuple[Sentences, Sentences, Sentences]:
    folder = DATA / "code_switched" / "ud_turkish_german_sagt"
    train, dev, test = (read_conllu(folder / f"qtd_sagt-ud-{split}.conllu") for split in ("train", "dev", "test"))
    return train, dev, test


def load_hinglish() -> tuple[Sentences, Sentences, Sentences]:
    # hashtags and mentions stay: here a third of them, and two thirds, are entities
    normalize = Normalizer(hashtags=False, mentions=False)
    tweets = [
        TaggedSentence(tuple(normalize.words(tweet.words)), tweet.tags)
        for tweet in read_csv(DATA / "code_switched" / "hinglish_ner" / "annotatedData.csv")
    ]
    cut = int(0.8 * len(tweets))
    dev = cut - cut // 10
    return tweets[:dev], tweets[dev:cut], tweets[cut:]


@cache
def load_conll(language: str) -> tuple[Sentences, Sentences, Sentences]:
    train, dev, test = (read_conll(DATA / "conll2002" / f"{language}.{split}") for split in ("train", "testa", "testb"))
    return train, dev, test


TASKS = {
    "sagt": Task(load_sagt, ("de", "tr"), "accuracy", epochs=40, batch_size=16, patience=6, learning_rate=1e-3),
    "hinglish": Task(load_hinglish, ("hi", "en"), "f1", epochs=16, batch_size=16, patience=6, learning_rate=2e-3),
    "es": Task(
        lambda: load_conll("esp"), ("es", "nl", "en"), "f1", epochs=6, batch_size=32, patience=6, learning_rate=2e-3
    ),
    "nl": Task(
        lambda: load_conll("ned"), ("nl", "es", "en"), "f1", epochs=6, batch_size=32, patience=6, learning_rate=2e-3
    ),
}


def raw_text(language: str) -> Iterator[list[str]]:
    """Read a language's raw text, words and punctuation apart."""
    with lzma.open(DATA / "text" / "mono" / f"{language}.txt.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield re.findall(r"\w+|[^\w\s]", line)


class Vectors:
    """The vectors of one task, trained when first asked for."""

    def __init__(self, task: str, cache: Path, dim: int) -> None:
        self.task = task
        self.folder = cache / task
        self.dim = dim
        self.folder.mkdir(parents=True, exist_ok=True)

    def corpus(self, languages: tuple[str, ...]) -> list[list[str]]:
        """Give the languages' text and the task's training words; fastText knows no white space in a word."""
        train = [" ".join(sentence.words).split() for sentence in TASKS[self.task].load()[0]]
        return [*(words for language in languages for words in raw_text(language)), *train]

    def words(self, languages: tuple[str, ...], dim: int) -> FastTextVectors:
        """Give fastText vectors of the languages' text together."""
        path = self.folder / f"{'-'.join(languages)}.{dim}.bin"
        if path.exists():
            return FastTextVectors(path)
        corpus = self.corpus(languages)
        return FastTextVectors.train(corpus, path, dim=dim, min_count=2, bucket=100_000, epochs=10)

    def pieces(self, language: str) -> BPEmbVectors:
        """Give byte-pair vectors of a language's text."""
        folder = self.folder / f"pieces-{language}"
        model_file, vectors_file = folder / "pieces.model", folder / "pieces.vec"
        if vectors_file.exists():
            return BPEmbVectors(model_file=model_file, vectors_file=vectors_file)
        return BPEmbVectors.train(self.corpus((language,)), folder, vocab_size=5000, dim=50, epochs=5)


def build_embedder(system: str, task: str, vectors: Vectors, lexicon: pe.Lexicon) -> torch.nn.Module:
    """Compose the embedder of a system."""
    languages = TASKS[task].languages
    if system.startswith("fasttext-"):
        return pe.SourceEmbedding(vectors.words((system.removeprefix("fasttext-"),), vectors.dim), lexicon)
    if system == "surface":
        return pe.SpelledEmbedding.from_surface(lexicon)
    if system == "control":
        return pe.SourceEmbedding(vectors.words(languages, vectors.dim * len(languages)), lexicon)
    sources = [pe.SourceEmbedding(vectors.words((language,), vectors.dim), lexicon) for language in languages]
    words = pe.MetaEmbedding.self_attention(sources, embedding_dim=2 * vectors.dim)
    if system == "mme":
        return words
    pieces = [pe.SpelledEmbedding.from_pieces(vectors.pieces(language), lexicon) for language in languages]
    subwords = pe.MetaEmbedding.self_attention(pieces, embedding_dim=50)
    cnn = pe.CharCNN(lexicon.num_characters, embedding_dim=100, dropout=0.25)
    characters = pe.SpelledEmbedding.from_characters(lexicon, cnn)
    parts = {"surface": pe.SpelledEmbedding.from_surface(lexicon)} if system == "hme-surface" else {}
    return pe.HierarchicalMetaEmbedding(words=words, subwords=subwords, characters=characters, **parts)


def build_tagger(system: str, task: str, cache: Path, dim: int, encoder: str, seed: int) -> pe.SequenceTagger:
    """Build a system, untrained: its embedder, the encoder that all have, and a CRF."""
    torch.manual_seed(seed)
    train, dev, _ = TASKS[task].load()
    lexicon = pe.Lexicon.from_sentences(sentence.words for sentence in train)
    tags = sorted({tag for sentence in (*train, *dev) for tag in sentence.tags})
    wide = system.endswith("linear")
    scores = surface_scores(lexicon, len(tags))
    if system == "linear":
        context = WideAndDeepEncoder(None, len(tags))
        decoder = pe.CRFDecoder(context.embedding_dim, len(tags), direct_scores=True)
        return pe.SequenceTagger(scores, tags, encoder=context, decoder=decoder)
    embedder = pe.UniqueWords(build_embedder(system.removesuffix("-linear"), task, Vectors(task, cache, dim), lexicon))
    size = embedder.embedding_dim
    context = (
        pe.LSTMSequenceEncoder(size, hidden_size=128, dropout=0.4)
        if encoder == "lstm"
        else pe.TransformerSequenceEncoder(size, dropout=0.2)
    )
    if not wide:
        return pe.SequenceTagger(embedder, tags, encoder=context)
    context = WideAndDeepEncoder(context, len(tags))
    decoder = pe.CRFDecoder(context.embedding_dim, len(tags), direct_scores=True)
    return pe.SequenceTagger(pe.MetaEmbedding.concat([embedder, scores]), tags, encoder=context, decoder=decoder)


def make_optimizer(task: str, tagger: pe.SequenceTagger) -> torch.optim.Optimizer:
    linear = [m.embedding.weight for m in tagger.modules() if isinstance(m, FeatureSum)]
    held = {id(value) for value in linear}
    trainable = [value for value in tagger.parameters() if value.requires_grad and id(value) not in held]
    groups = [{"params": trainable}]
    if linear:
        groups.append({"params": linear, "lr": float(os.environ.get("LR", "1")), "eps": 1.0})
    return torch.optim.Adam(groups, lr=TASKS[task].learning_rate, fused=True)


def make_scheduler(task: str, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=TASKS[task].epochs)


def fit_options(task: str) -> FitOptions:
    return FitOptions(
        num_train_epochs=TASKS[task].epochs,
        batch_size=TASKS[task].batch_size,
        optimizer=partial(make_optimizer, task),
        scheduler=partial(make_scheduler, task),
        metric=TASKS[task].metric,
        patience=TASKS[task].patience,
    )


def run(task: str, system: str, seed: int, cache: Path, dim: int, encoder: str) -> dict[str, object]:
    """Train one system once and tag the test set."""
    path = cache / task / f"{system}.{encoder}.{seed}.json"
    if path.exists():
        return dict(json.loads(path.read_text()))
    torch.set_num_threads(1)
    train, dev, test = TASKS[task].load()
    start = time.perf_counter()
    if system == "crf":
        predicted, parameters, epochs = crfsuite(train, dev, test), 0, 0
    else:
        tagger = build_tagger(system, task, cache, dim, encoder, seed)
        trainable = [value for value in tagger.parameters() if value.requires_grad]
        parameters = sum(value.numel() for value in trainable)
        result = fit(tagger, train, dev, fit_options(task), seed=seed, progress=False)
        epochs = len(result.history)
        predicted = tagger.predict([sentence.words for sentence in test])
    data = {
        "task": task,
        "system": system,
        "seed": seed,
        "score": score(task, test, predicted),
        "parameters": parameters,
        "epochs": epochs,
        "seconds": round(time.perf_counter() - start, 1),
        "predicted": predicted,
    }
    path.write_text(json.dumps(data))
    return data


def score(task: str, test: Sentences, predicted: list[list[str]]) -> float:
    gold = [list(sentence.tags) for sentence in test]
    return accuracy(gold, predicted) if TASKS[task].metric == "accuracy" else entity_f1(gold, predicted).f1


def features(words: tuple[str, ...], i: int) -> dict[str, object]:
    """Describe a word and its neighbours by hand, as CRF taggers did before word vectors."""
    word = words[i]
    found: dict[str, object] = {
        "bias": 1.0,
        "lower": word.lower(),
        "shape": re.sub(r"(.)\1+", r"\1\1", re.sub("[0-9]", "0", re.sub("[a-z]", "x", re.sub("[A-Z]", "X", word)))),
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
    trainer.set_params({"c1": 0.1, "c2": 0.1, "max_iterations": 100, "feature.possible_transitions": True})
    with tempfile.TemporaryDirectory() as folder:
        trainer.train(f"{folder}/crf")
        tagger = pycrfsuite.Tagger()
        tagger.open(f"{folder}/crf")
        predicted = [tagger.tag([features(sentence.words, i) for i in range(len(sentence.words))]) for sentence in test]
        tagger.close()
    return predicted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3, help="of each system; HME always has 5, for the vote")
    parser.add_argument("--dim", type=int, default=100, help="of each source's vectors")
    parser.add_argument("--encoder", choices=("lstm", "transformer"), default="lstm")
    parser.add_argument("--systems", nargs="+", help="a choice of systems")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "tagging_quality")
    arguments = parser.parse_args()
    if not DATA.is_dir():
        parser.error(f"no real data at {DATA}: set POLYEMBED_DATA")
    jobs = []
    for task in arguments.task:
        languages = TASKS[task].languages
        singles = [f"fasttext-{language}" for language in languages[:2]]
        systems = arguments.systems or ["crf", "hme", "hme-surface", "mme", *singles, "control"]
        vectors = Vectors(task, arguments.cache, arguments.dim)
        if set(systems) - {"crf"}:
            for language in languages:
                vectors.words((language,), arguments.dim)
        if {"hme", "hme-surface"} & set(systems):
            for language in languages:
                vectors.pieces(language)
        if "control" in systems:
            vectors.words(languages, arguments.dim * len(languages))
        for system in systems:
            count = {"crf": 1, "hme": 5, "hme-surface": 5}.get(system, arguments.seeds)
            jobs += [(task, system, seed, arguments.cache, arguments.dim, arguments.encoder) for seed in range(count)]
    jobs.sort(key=lambda job: job[2])  # every system's first seed before the second
    results: dict[tuple[str, str], list[dict[str, object]]] = {}
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(run, *job) for job in jobs]):
            result = future.result()
            results.setdefault((str(result["task"]), str(result["system"])), []).append(result)
            shown = {key: value for key, value in result.items() if key != "predicted"}
            print(json.dumps(shown), flush=True)
    print("\n| task | system | parameters | score, mean of 3 | deviation | seconds |\n|---|---|---|---|---|---|")
    for (task, system), runs in sorted(results.items()):
        runs.sort(key=lambda one: int(str(one["seed"])))
        scores = [float(str(one["score"])) for one in runs][: arguments.seeds]
        spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
        seconds = statistics.median(float(str(one["seconds"])) for one in runs)
        line = f"{runs[0]['parameters']:,} | {statistics.mean(scores):.4f} | {spread:.4f} | {seconds:.0f}"
        print(f"| {task} | {system} | {line} |")
        if system.startswith("hme"):
            voted = pe.functional.majority_vote([one["predicted"] for one in runs])
            print(f"| {task} | {system}, vote of {len(runs)} | | {score(task, TASKS[task].load()[2], voted):.4f} | | |")


if __name__ == "__main__":
    main()
