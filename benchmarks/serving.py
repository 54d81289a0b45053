"""Words per second of `predict` with several threads and processes, of the README's tagger.

    python benchmarks/serving.py --sentences 600 --runs 9

All ways tag the same sentences. They take turns, so that other load on the machine affects them
all.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch
from _results import option, show

import polyembed as pe
from polyembed.data import load_sample
from polyembed.tables import Table
from polyembed.vectors import BPEmbVectors, FastTextVectors

Sentences = list[tuple[str, ...]]


def build(folder: Path) -> pe.SequenceTagger:
    """Build the tagger of the README without training, which does not change its speed."""
    train = load_sample("es-en", "train")
    sentences = [sentence.words for sentence in train]
    lexicon = pe.Lexicon.from_sentences(sentences)
    sources = []
    for language in ("es", "en"):
        words = [
            [
                w
                for w, found in zip(s.words, s.languages or (), strict=True)
                if found in (language, "other", "ne")
            ]
            for s in train
        ]
        path = folder / f"{language}.bin"
        sources.append(FastTextVectors.train(words, path, dim=50, min_count=1, bucket=5000))
    words = pe.MetaEmbedding.self_attention(
        [pe.SourceEmbedding(s, lexicon) for s in sources], embedding_dim=100
    )
    pieces = BPEmbVectors.train(sentences, folder / "pieces", vocab_size=500, dim=50)
    characters = pe.CharCNN(lexicon.num_characters, embedding_dim=50)
    hme = pe.HierarchicalMetaEmbedding(
        words=words,
        subwords=pe.SpelledEmbedding.from_pieces(pieces, lexicon),
        characters=pe.SpelledEmbedding.from_characters(lexicon, characters),
        surface=pe.SpelledEmbedding.from_surface(lexicon),
    )
    encoder = pe.TransformerSequenceEncoder(hme.embedding_dim, hidden_size=100, num_layers=2)
    tags = sorted({tag for sentence in train for tag in sentence.tags})
    return pe.SequenceTagger(pe.UniqueWords(hme), tags, encoder=encoder).eval()


opened: dict[str, pe.SequenceTagger] = {}


def predict(folder: str, sentences: Sentences) -> int:
    """Tag the sentences in this process, which opens the folder once; return their number."""
    if folder not in opened:
        torch.set_num_threads(1)
        opened[folder] = pe.SequenceTagger.from_pretrained(folder)
    return len(opened[folder].predict(sentences)) if sentences else 0


def shared(
    call: Callable[[Sentences], object], executor: Executor, parts: int, sentences: Sentences
) -> None:
    """Tag the sentences in `parts` simultaneous calls."""
    list(executor.map(call, [sentences[i::parts] for i in range(parts)]))


def with_torch_threads(
    number: int, call: Callable[[Sentences], object], sentences: Sentences
) -> None:
    """Tag the sentences in one call with `number` threads of torch."""
    torch.set_num_threads(number)
    try:
        call(sentences)
    finally:
        torch.set_num_threads(1)


def main() -> None:
    """Measure the words per second, and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=600)
    parser.add_argument("--runs", type=int, default=9)
    option(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    sample = [sentence.words for sentence in load_sample("es-en", "dev")]
    sentences: Sentences = (sample * (options.sentences // len(sample) + 1))[: options.sentences]
    num_words = sum(map(len, sentences))
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(4) as threads:
        folder = Path(name)
        build(folder).save_pretrained(folder / "tagger")
        call = partial(predict, str(folder / "tagger"))
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
            ways: dict[str, Callable[[Sentences], object]] = {
                "1 thread": partial(shared, call, threads, 1),
                "2 threads": partial(shared, call, threads, 2),
                "4 threads": partial(shared, call, threads, 4),
                "1 thread, 2 of torch": partial(with_torch_threads, 2, call),
                "2 processes": partial(shared, call, processes, 2),
            }
            found: dict[str, list[float]] = {way: [] for way in ways}
            for run in range(options.runs + 1):
                for way, tag in ways.items():
                    started = time.perf_counter()
                    tag(sentences)
                    if run:  # the first run opens the folders and warms up
                        found[way].append(num_words / (time.perf_counter() - started))
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(
        f"torch {torch.__version__}, {os.cpu_count()} cores{load}; {num_words} words, {options.runs} runs\n"
    )
    rows = [
        (way, f"{statistics.median(speeds):,.0f}", f"{max(speeds):,.0f}")
        for way, speeds in found.items()
    ]
    show(options.json, "main", Table(("callers", "words a second, median", "fastest"), rows))


if __name__ == "__main__":
    main()
