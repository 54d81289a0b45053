"""What do layer fusion and the pooling of words cost, compared with their encoder?

    python benchmarks/fusion.py [--device cuda] [--shape 8x64] [--runs 9]

The encoder has the shape of XLM-R base (12 layers of 768, 12 heads, dropout 0.1) and random
weights. Its vocabulary is small, since all other costs would look small beside a large table. The
unit is a training step of the encoder with its last layer: the forward pass, the pooling of words,
the mean square of the vectors and the backward pass, without an optimiser. Words have 1 to 4
pieces.

Pooling is measured at 32 x 128 pieces, forward and backward. It is compared with a Python loop over
words, and with the encoder's forward and backward pass at that shape. ``--no-large`` leaves out the
encoder. Times are medians of calls in turns. Peak memory is the peak of one call in a separate
process, without the parameters.
"""

import argparse
import os
from collections.abc import Callable

import torch
from _memory import memory_option, peak_mb, processes
from _ratios import note
from _results import option, show
from metaxl_step import time_ms
from torch import Tensor, nn
from transformers import XLMRobertaConfig, XLMRobertaModel

import polyembed as pe
from polyembed.encoders import pool_words
from polyembed.tables import Table

LAYERS, HIDDEN, VOCABULARY = 12, 768, 5003
FUSIONS: dict[str, Callable[[], nn.Module]] = {
    "last layer": pe.LastLayer,
    "ScalarMix": lambda: pe.ScalarMix(LAYERS + 1),
    "DLFA, layer 8": lambda: pe.DLFA(HIDDEN, 8),
    "DLFA, layer 8, literal": lambda: pe.DLFA(HIDDEN, 8, weighting="literal"),
}
UNIT = "last layer"


def make_pieces(shape: tuple[int, int], device: str) -> pe.Pieces:
    """Build sentences of random pieces, with a special piece at either end."""
    rows, width = shape
    torch.manual_seed(1)
    index = torch.repeat_interleave(torch.arange(width), torch.randint(1, 5, (width,)))[: width - 2]
    index = torch.cat([torch.tensor([-1]), index, torch.tensor([-1])]).expand(rows, -1).contiguous()
    ids = torch.randint(5, VOCABULARY, shape)
    return pe.Pieces(ids, torch.ones(shape, dtype=torch.bool), index, int(index.max()) + 1).to(
        device
    )


def make_model(device: str) -> XLMRobertaModel:
    """Build an encoder of XLM-R base's shape."""
    torch.manual_seed(0)
    sizes = {
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
    }
    config = XLMRobertaConfig(
        vocab_size=VOCABULARY, max_position_embeddings=514, pad_token_id=1, **sizes
    )
    return XLMRobertaModel(config, add_pooling_layer=False).to(device).train()


def make_steps(shape: tuple[int, int], device: str) -> dict[str, Callable[[], object]]:
    """Build a training step of one encoder for each fusion."""
    model, pieces = make_model(device), make_pieces(shape, device)

    def step(fusion: nn.Module) -> Callable[[], object]:
        encoder = pe.PretrainedWordEncoder(model, fusion=fusion).to(device).train()
        parameters = [value for value in encoder.parameters() if value.requires_grad]
        return lambda: torch.autograd.grad(
            encoder(pieces).square().mean(), parameters, allow_unused=True
        )

    return {name: step(fusion()) for name, fusion in FUSIONS.items()}


def peak_memory_mb(name: str, shape: tuple[int, int], device: str) -> float:
    """Return the peak memory of one step in MB, after a step on a small batch."""
    make_steps((2, 5), device)[name]()
    return peak_mb(make_steps(shape, device)[name], device)


LOOPED: dict[str, Callable[[Tensor], Tensor]] = {
    "first": lambda states: states[0],
    "last": lambda states: states[-1],
    "mean": lambda states: states.mean(0),
    "max": lambda states: states.amax(0),
    "sum": lambda states: states.sum(0),
}


def loop_over_words(hidden: Tensor, index: Tensor, num_words: int, pooling: str) -> Tensor:
    """Pool each word's pieces, one word after the other."""
    nothing = hidden.new_zeros(hidden.shape[-1])
    rows = []
    for states, owners in zip(hidden, index, strict=True):
        found = [states[owners == word] for word in range(num_words)]
        rows.append(
            torch.stack([LOOPED[pooling](part) if len(part) else nothing for part in found])
        )
    return torch.stack(rows)


def pooling_calls(shape: tuple[int, int], device: str) -> dict[str, Callable[[], object]]:
    """Build the forward and backward pass of each pooling, by `pool_words` and by the loop."""
    pieces = make_pieces(shape, device)
    hidden = torch.randn(*shape, HIDDEN, device=device, requires_grad=True)
    words = pieces.count_words()

    def call(pool: Callable[..., Tensor], name: str) -> Callable[[], object]:
        return lambda: torch.autograd.grad(
            pool(hidden, pieces.word_index, words, pooling=name).sum(), hidden
        )

    calls = {name: call(pool_words, name) for name in LOOPED}
    return {**calls, **{f"{name}, loop": call(loop_over_words, name) for name in LOOPED}}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shape", default="8x64", help="sentences x pieces of the training step")
    parser.add_argument("--pooling-shape", default="32x128", help="sentences x pieces pooled")
    parser.add_argument(
        "--no-large", action="store_true", help="do not run the encoder at the pooling's shape"
    )
    parser.add_argument("--runs", type=int, default=9)
    memory_option(parser)
    option(parser)
    arguments = parser.parse_args()
    device, runs = arguments.device, arguments.runs
    os.environ.setdefault(
        "MALLOC_MMAP_THRESHOLD_", "65536"
    )  # returns freed tensors to the system, so that the peak counts live tensors only
    shape, large = (
        tuple(map(int, text.split("x"))) for text in (arguments.shape, arguments.pooling_shape)
    )
    where = (
        torch.cuda.get_device_name(device)
        if device.startswith("cuda")
        else f"{os.cpu_count()} CPU cores"
    )
    print(f"torch {torch.__version__}, {where}, {torch.get_num_threads()} threads\n")

    steps = make_steps(shape, device)
    ms = time_ms(steps, device, runs)
    with processes(arguments.device, skip=arguments.no_memory) as alone:
        mb = {name: alone(peak_memory_mb, (name, shape, device)) for name in steps}
    rows = [(name, ms[name], ms[name] / ms[UNIT], mb[name], mb[name] / mb[UNIT]) for name in steps]
    columns = (
        f"training step, {arguments.shape}",
        "ms",
        "time / last layer",
        "MB",
        "memory / last layer",
    )
    show(arguments.json, "step", Table(columns, rows, digits=3))

    note("DLFA over the last layer, training step", rows[list(steps).index("DLFA, layer 8")][2])
    encoder = {} if arguments.no_large else {UNIT: make_steps(large, device)[UNIT]}
    ms = time_ms(pooling_calls(large, device), device, 3 * runs)
    unit = time_ms(encoder, device, max(1, runs // 3)).get(UNIT)
    rows = []
    for name in LOOPED:
        share = None if unit is None else 100 * ms[name] / unit
        rows.append((name, ms[name], ms[f"{name}, loop"] / ms[name], share))
    note("loop over mean pooling", ms["mean, loop"] / ms["mean"], steady=False)
    columns = (
        f"pooling, {arguments.pooling_shape}",
        "ms",
        "times faster than the loop",
        "% of the encoder's step",
    )
    print()
    show(arguments.json, "pooling", Table(columns, rows, digits=2))


if __name__ == "__main__":
    main()
