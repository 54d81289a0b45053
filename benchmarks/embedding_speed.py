"""What do `bake` and `UniqueWords` save? Embedding throughput and training steps of an HME, on
natural text.

    python benchmarks/embedding_speed.py [--text FILE]

The HME has word vectors of two languages (300 dimensions), two sub-word sources (100 dimensions)
and a character CNN (100 dimensions), as in Winata 2021. The values of vectors do not change the
speed, so the word vectors are random. The words and their frequencies are from the text: the
Spanish text of the data folder if that exists, else the bundled sample. Every ratio compares
medians within one run.
"""

import argparse
import lzma
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import regex
import torch
from _ratios import note
from _results import option, show

import polyembed as pe
from polyembed.data import load_sample
from polyembed.tables import Table
from polyembed.vectors import BPEmbVectors

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("POLYEMBED_DATA") or ROOT.parent / "shared" / "data")
BATCH, LENGTH = 32, 32


class RandomVectors:
    """Random vectors with the shape of pretrained ones."""

    def __init__(self, dim: int, seed: int) -> None:
        self.dim = dim
        self.generator = np.random.default_rng(seed)

    def vectors(self, words: Sequence[str]) -> np.ndarray:
        """Return one random row per word."""
        return self.generator.standard_normal((len(words), self.dim), dtype=np.float32)


def read_sentences(path: Path | None, count: int = 20_000) -> list[list[str]]:
    """Read at most `count` sentences of natural text, one per line.

    If the file does not exist, return the bundled sample.
    """
    path = path or DATA / "text" / "mono" / "es.txt.xz"
    if not path.exists():
        return [list(s.words) for pair in ("es-en", "hi-en") for s in load_sample(pair, "train")]
    with (
        lzma.open(path, "rt", encoding="utf-8")
        if path.suffix == ".xz"
        else path.open(encoding="utf-8") as lines
    ):
        return [
            regex.findall(r"\w+|[^\w\s]", line)
            for _, line in zip(range(count), lines, strict=False)
        ]


def build_hme(
    lexicon: pe.Lexicon, pieces: Sequence[BPEmbVectors], *, surface: bool = False
) -> pe.HierarchicalMetaEmbedding:
    words = [pe.SourceEmbedding(RandomVectors(300, seed), lexicon) for seed in range(2)]
    subwords = [pe.SpelledEmbedding.from_pieces(source, lexicon) for source in pieces]
    return pe.HierarchicalMetaEmbedding(
        words=pe.MetaEmbedding.self_attention(words, embedding_dim=300),
        subwords=pe.MetaEmbedding.self_attention(subwords, embedding_dim=100),
        characters=pe.SpelledEmbedding.from_characters(
            lexicon, pe.CharCNN(lexicon.num_characters, 100)
        ),
        surface=pe.SpelledEmbedding.from_surface(lexicon, embedding_dim=100) if surface else None,
    )


def median_ms(
    calls: dict[str, Callable[[], object]], runs: int, device: torch.device
) -> dict[str, float]:
    """Return the median ms of each call, timed in turns so that other load affects them all."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for run in range(runs + 3):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if run >= 3:
                times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, help="a text with one sentence per line, .xz or plain")
    parser.add_argument("--device", default="cpu", type=torch.device)
    parser.add_argument("--sentences", type=int, default=20_000, help="sentences for the lexicon")
    parser.add_argument("--runs", type=int, default=30)
    option(parser)
    arguments = parser.parse_args()
    device = arguments.device
    torch.manual_seed(0)

    sentences = read_sentences(arguments.text, arguments.sentences)
    lexicon = pe.Lexicon.from_sentences(sentences)
    with tempfile.TemporaryDirectory() as folder:
        pieces = [
            BPEmbVectors.train(
                sentences[:5000], f"{folder}/{i}", vocab_size=2000 + 1000 * i, dim=100, epochs=1
            )
            for i in range(2)
        ]
        hme = build_hme(lexicon, pieces).to(device)
        surface = pe.UniqueWords(build_hme(lexicon, pieces, surface=True)).to(device)
    stream = [word for sentence in sentences for word in sentence]
    rows = [stream[i : i + LENGTH] for i in range(0, BATCH * LENGTH, LENGTH)]
    ids, mask = (part.to(device) for part in lexicon.encode(rows))
    types = len(ids.unique())
    print(
        f"torch {torch.__version__}, {device}, {torch.get_num_threads()} threads; {len(lexicon):,} words known;"
    )
    print(f"a batch of {BATCH} x {LENGTH} = {ids.numel()} words holds {types} types\n")

    baked, unique = pe.bake(hme), pe.UniqueWords(hme)
    tags = [f"T{i}" for i in range(9)]
    gold = torch.randint(len(tags), ids.shape, device=device)
    encoder = pe.TransformerSequenceEncoder(hme.embedding_dim).to(device)
    taggers = {
        name: pe.SequenceTagger(embedder, tags, encoder=encoder).to(device)
        for name, embedder in {"HME": hme, "UniqueWords(HME)": unique, "bake(HME)": baked}.items()
    }
    for tagger in taggers.values():
        tagger.decoder = taggers["HME"].decoder

    for tagger in taggers.values():
        tagger.eval()
    with torch.no_grad():
        difference = float((baked(ids) - hme(ids)).abs().max())
        same = bool(
            (taggers["bake(HME)"].decode(ids, mask) == taggers["HME"].decode(ids, mask)).all()
        )
        look_ups = {
            "HME": lambda: hme(ids),
            "UniqueWords(HME)": lambda: unique(ids),
            "bake(HME)": lambda: baked(ids),
        }
        embedding = median_ms(look_ups, arguments.runs, device)

    def training_step(name: str) -> Callable[[], None]:
        tagger = taggers[name].train()

        def step() -> None:
            tagger.zero_grad(set_to_none=True)
            tagger(ids, tags=gold, mask=mask).backward()

        return step

    def embedding_step(embedder: torch.nn.Module) -> Callable[[], None]:
        def step() -> None:
            embedder.zero_grad(set_to_none=True)
            embedder(ids).sum().backward()

        return step

    training = median_ms(
        {name: training_step(name) for name in ("HME", "UniqueWords(HME)")}, arguments.runs, device
    )
    hme.train()
    with_surface = "UniqueWords(HME + surface)"
    backward = median_ms(
        {
            "HME": embedding_step(hme),
            "UniqueWords(HME)": embedding_step(unique),
            with_surface: embedding_step(surface.train()),
        },
        arguments.runs,
        device,
    )
    words = ids.numel()
    table = [
        (
            "embedding, eval",
            name,
            f"{ms:.3f}",
            f"{words / ms * 1e3:,.0f}",
            f"{embedding['HME'] / ms:.1f}",
        )
        for name, ms in embedding.items()
    ]
    for what, times in (
        ("embedding, forward and backward", backward),
        ("tagger, training step", training),
    ):
        table += [
            (what, name, f"{ms:.3f}", f"{words / ms * 1e3:,.0f}", f"{times['HME'] / ms:.2f}")
            for name, ms in times.items()
        ]
    show(
        arguments.json, "main", Table(("what", "embedder", "ms", "words/s", "times faster"), table)
    )
    note("HME over baked HME, embedding", embedding["HME"] / embedding["bake(HME)"], steady=False)
    note("HME over UniqueWords, training step", training["HME"] / training["UniqueWords(HME)"])
    note(
        "UniqueWords, with surface features over without, embedding",
        backward[with_surface] / backward["UniqueWords(HME)"],
    )
    print(f"\nbaked against plain: largest difference {difference:.1e}, same tags: {same}")


if __name__ == "__main__":
    main()
