"""How fast are LASER's word vectors, beside a bare `nn.LSTM` over the same padded batches?

    python benchmarks/laser.py [--device cuda] [--sentences 1000] [--runs 3] [--threads 1]

The encoder has the released size (five layers of 512 per direction) and random weights. The amount
of work does not depend on the numbers. If the data folder exists, the sentences are Spanish text,
split by a SentencePiece model of 8,000 pieces. Otherwise similar lengths are drawn at random. A
batch has sentences of similar length. All systems run on each batch in turn, and another system is
first on each batch. The time of a run is the sum over its batches. Gradients are off.
"""

import argparse
import lzma
import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import sentencepiece
import torch
from _ratios import note
from _results import option, show
from torch import nn

from polyembed import Pieces
from polyembed.encoders import BPEGRU, BPEBow, LaserElmo, LaserEncoder, LaserTop
from polyembed.tables import Table
from polyembed.text import LaserTokenizer, SentencePieceTokenizer

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("POLYEMBED_DATA") or ROOT.parent / "shared" / "data")
MODEL = "subwords/sentencepiece_wiki8k/eswiki.8k.2023-11-17.model"
TEXT = "text/mono/es.txt.xz"
SYNTHETIC_PIECES = 8_001
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def natural(count: int, batch_size: int) -> tuple[list[Pieces], str]:
    """Return batches of pieces from real sentences of similar length."""
    tokenizer: LaserTokenizer = SentencePieceTokenizer(
        sentencepiece.SentencePieceProcessor(str(DATA / MODEL))
    )
    with lzma.open(DATA / TEXT, "rt", encoding="utf-8") as file:
        lines = [line.split() for line in file]
    chosen = random.Random(0).sample(lines, count)
    cut = sorted(chosen, key=lambda words: sum(len(tokenizer.cut_word(word)) for word in words))
    batches = [tokenizer.pieces(cut[i : i + batch_size]) for i in range(0, count, batch_size)]
    return batches, "Spanish sentences"


def synthetic(count: int, batch_size: int) -> tuple[list[Pieces], str]:
    """Return batches of random lengths and random pieces, with two pieces per word."""
    generator = random.Random(0)
    lengths = sorted(max(2, round(generator.lognormvariate(3.2, 0.6))) for _ in range(count))
    batches = []
    for start in range(0, count, batch_size):
        part = torch.tensor(lengths[start : start + batch_size])
        mask = torch.arange(int(part.max())) < part[:, None]
        ids = torch.randint(4, SYNTHETIC_PIECES, mask.shape).where(mask, 1)
        index = torch.arange(mask.shape[1]).div(2, rounding_mode="floor").where(mask, -1)
        batches.append(Pieces(ids, mask, index, int(index.max()) + 1))
    return batches, "drawn lengths"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu is for a busy machine and one thread"
    )
    parser.add_argument("--hidden-size", type=int, default=512)
    option(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    real = (DATA / MODEL).exists() and (DATA / TEXT).exists()
    batches, source = (natural if real else synthetic)(arguments.sentences, arguments.batch_size)
    device = torch.device(arguments.device)
    largest = max(int(batch.piece_ids.max()) for batch in batches)
    encoder = LaserEncoder(largest + 1, hidden_size=arguments.hidden_size).to(device).eval()
    bare = nn.LSTM(320, arguments.hidden_size, 5, batch_first=True, bidirectional=True).to(device)
    bare.load_state_dict(encoder.lstm.state_dict())
    top, elmo = LaserTop(encoder).to(device), LaserElmo(encoder).to(device)
    bow, gru = BPEBow(encoder.embed_tokens), BPEGRU(encoder.embed_tokens).to(device)
    calls: dict[str, Callable[[Pieces], object]] = {
        "bare nn.LSTM, padded": lambda pieces: bare(encoder.embed_tokens(pieces.piece_ids)),
        "LaserEncoder, last layer": lambda pieces: encoder.last_hidden_state(pieces.piece_ids),
        "LaserEncoder, all layers": lambda pieces: encoder.hidden_states(pieces.piece_ids),
        "LaserTop": top,
        "LaserElmo": elmo,
        "BPEGRU": gru,
        "BPEBow": bow,
    }
    times = in_turns(calls, batches, arguments.runs, device, CLOCKS[arguments.clock])
    medians = {name: statistics.median(runs) for name, runs in times.items()}
    unit, words = (
        medians["bare nn.LSTM, padded"],
        sum(int(batch.word_index.amax(1).add(1).sum()) for batch in batches),
    )
    rows = [[name, spent, spent / unit, f"{words / spent:,.0f}"] for name, spent in medians.items()]
    columns = ["system", "seconds", "of the bare LSTM's time", "words a second"]
    where = f"{arguments.threads} thread(s), {device}, {arguments.clock} time"
    print(f"{arguments.sentences} {source}, {words} words, {where}\n")
    show(arguments.json, "main", Table(columns, rows, digits=3))
    print()
    note("LaserTop over a bare LSTM", medians["LaserTop"] / unit)
    states = medians["LaserEncoder, all layers"] / medians["LaserEncoder, last layer"]
    note("all layers over the last alone", states)
    note("LaserTop over BPEBow", medians["LaserTop"] / medians["BPEBow"], steady=False)


@torch.no_grad()
def in_turns(
    calls: dict[str, Callable[[Pieces], object]],
    batches: list[Pieces],
    runs: int,
    device: torch.device,
    clock: Callable[[], float],
) -> dict[str, list[float]]:
    """Return the seconds of each run of each system.

    All systems are timed on each batch in turn, and another system is first on each batch.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    moved = [batch.to(device) for batch in batches]
    for name in order:  # the first call builds some parts
        calls[name](moved[0])
    for _ in range(runs):
        total = dict.fromkeys(calls, 0.0)
        for pieces in moved:
            order.append(order.pop(0))
            for name in order:
                start = clock()
                calls[name](pieces)
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                total[name] += clock() - start
        for name, spent in total.items():
            times[name].append(spent)
    return times


if __name__ == "__main__":
    main()
