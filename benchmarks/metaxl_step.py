r"""What does a step of MetaXL cost beside a step of joint training? Time and peak memory, in one
run.

    python benchmarks/metaxl_step.py [--device cuda] [--shapes 8x64 16x200] [--places 12 6 0] \
        [--runs 5]
    python benchmarks/metaxl_step.py --model FOLDER --shapes 8x64 --places 6 3 0  # six layers

The encoder has XLM-R's shape: 12 layers, a hidden size of 256 on a CPU and 768 on a GPU, GELU,
post-norm and dropout 0.1. It tags tokens with 7 labels. The vocabulary is small, since the rows of
a table cost the same in all methods. The transformation network is applied after layer 12, 6 or 0
(the embeddings). With ``--model`` the encoder is a model of transformers, with its own vocabulary
and dropout. Each variant computes all gradients of a step on a source and a target batch, without
an optimiser. The unit is a step of joint training on both batches, with the transformation.

"authors" restates the algorithm of the authors' code. Its inner loss also has the target batch. The
gradient of the inner loss keeps its graph, and the target loss after the look-ahead is
differentiated through this graph. Then separate passes compute the model's gradient again; in the
authors' code the transformation is updated before them. "authors, once" leaves out these passes.

Times are medians of calls in turns. Peak memory is the peak of one call in a separate process,
above the memory before the call, without parameters. On a CPU it is the peak of the resident set,
with an allocator that returns freed memory to the system.
"""

import argparse
import gc
import os
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from _memory import memory_option, peak_mb, processes
from _ratios import note
from _results import option, show
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

import polyembed as pe
from polyembed.tables import Table
from polyembed.transfer import encoder_layer

LAYERS, LABELS, VOCABULARY, RATE = 12, 7, 5003, 3e-5
UNIT = "joint training"


class Layer(nn.Module):
    """A layer of XLM-R: attention and a feed-forward network.

    Each of the two has dropout, a residual connection and a norm.
    """

    def __init__(self, hidden: int, dropout: float) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden) for _ in range(4))
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.first, self.second = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.heads, self.dropout = hidden // 64, dropout

    def forward(self, x: Tensor) -> Tensor:
        """Encode words."""
        parts = (
            part(x).unflatten(-1, (self.heads, 64)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        mixed = (
            F.scaled_dot_product_attention(*parts, dropout_p=self.dropout)
            .transpose(1, 2)
            .flatten(2)
        )
        x = self.first(x + F.dropout(self.out(mixed), self.dropout))
        return self.second(x + F.dropout(self.down(F.gelu(self.up(x))), self.dropout))


class Tagger(nn.Module):
    """The encoder with a linear layer that labels each word."""

    def __init__(self, hidden: int, dropout: float) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(VOCABULARY, hidden), nn.LayerNorm(hidden)
        self.layers = nn.ModuleList(Layer(hidden, dropout) for _ in range(LAYERS))
        self.head = nn.Linear(hidden, LABELS)
        self.num_pieces = VOCABULARY

    def forward(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Compute the loss."""
        h = self.norm(self.embedding(batch[0]))
        for layer in self.layers:
            h = layer(h)
        return F.cross_entropy(self.head(h).flatten(0, 1).float(), batch[1].flatten())

    def place(self, number: int) -> nn.Module:
        """Return the module whose output is transformed."""
        return self.layers[number - 1] if number else self.norm


class PretrainedTagger(nn.Module):
    """A transformers encoder in training mode, with a linear layer that labels each piece."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.encoder = pe.PretrainedWordEncoder(name).model.float().train()
        self.encoder.pooler = None  # the loss does not use it
        self.head = nn.Linear(self.encoder.config.hidden_size, LABELS)
        self.num_pieces = self.encoder.config.vocab_size

    def forward(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Compute the loss."""
        states = self.encoder(input_ids=batch[0]).last_hidden_state
        return F.cross_entropy(self.head(states).flatten(0, 1).float(), batch[1].flatten())

    def place(self, number: int) -> nn.Module:
        """Return the module whose output is transformed."""
        return encoder_layer(self.encoder, number)


def make_calls(
    shape: tuple[int, int], place: int, device: str, dropout: float, name: str | None
) -> dict[str, Callable[[], object]]:
    """Build the call of each variant, on the same model and batches."""
    torch.manual_seed(0)
    hidden = 768 if device.startswith("cuda") else 256
    model = PretrainedTagger(name) if name else Tagger(hidden, dropout)
    hidden = model.head.in_features
    model = model.to(device)
    rtn = pe.RepresentationTransformationNetwork(hidden, bottleneck=hidden // 2).to(device)
    source, target = (
        (
            torch.randint(model.num_pieces, shape, device=device),
            torch.randint(LABELS, shape, device=device),
        )
        for _ in range(2)
    )
    theta, phi = dict(model.named_parameters()), dict(rtn.named_parameters())

    def source_loss(values: dict[str, Tensor], metas: dict[str, Tensor]) -> Tensor:
        with pe.transformed_output(model.place(place), lambda h: functional_call(rtn, metas, (h,))):
            return functional_call(model, values, (source,))

    def target_loss(values: dict[str, Tensor]) -> Tensor:
        return functional_call(model, values, (target,))

    def joint() -> object:
        loss = source_loss(theta, phi) + target_loss(theta)
        return torch.autograd.grad(loss, [*theta.values(), *phi.values()])

    def authors_meta() -> tuple[Tensor, ...]:
        with sdpa_kernel(SDPBackend.MATH):
            inner = source_loss(theta, phi) + target_loss(theta)
            grads = torch.autograd.grad(inner, list(theta.values()), create_graph=True)
            ahead = {
                name: value - RATE * grad
                for (name, value), grad in zip(theta.items(), grads, strict=True)
            }
            return torch.autograd.grad(target_loss(ahead), list(phi.values()))

    def authors() -> object:
        metas = authors_meta()
        loss = source_loss(theta, phi) + target_loss(theta)
        return metas, torch.autograd.grad(loss, list(theta.values()))

    def ours(method: str) -> Callable[[], object]:
        def call() -> object:
            for parameter in (*theta.values(), *phi.values()):
                parameter.grad = None
            return pe.metaxl_gradients(
                model, rtn, model.place(place), [source], [target], inner_lr=RATE, method=method,
                # one target pass, as in the joint step
                loss=lambda model, batch: model(batch), target_weight=0.0,
            )  # fmt: skip

        return call

    methods = ("forward_over_reverse", "reverse_over_reverse")
    return {
        UNIT: joint,
        **{method: ours(method) for method in methods},
        "authors": authors,
        "authors, once": authors_meta,
    }


def time_ms(calls: dict[str, Callable[[], object]], device: str, runs: int) -> dict[str, float]:
    """Return the median ms of each call, timed in turns so that other load affects them all."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    gc.collect()
    gc.freeze()  # so that no call pays for a search of imported objects
    for _ in range(runs + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if device.startswith("cuda"):
                torch.cuda.synchronize()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def peak_memory_mb(
    variant: str, shape: tuple[int, int], place: int, device: str, dropout: float, name: str | None
) -> float:
    """Return the peak memory of one call in MB, after a call on a small batch."""
    make_calls((2, 3), place, device, dropout, name)[variant]()
    return peak_mb(make_calls(shape, place, device, dropout, name)[variant], device)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shapes", nargs="+", default=["8x64", "16x200"], help="sentences x words")
    parser.add_argument("--places", nargs="+", type=int, default=[12, 6, 0])
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--model", help="the name or folder of a transformers model, instead of random weights"
    )
    memory_option(parser)
    option(parser)
    arguments = parser.parse_args()
    device, dropout, model = arguments.device, arguments.dropout, arguments.model
    os.environ.setdefault(
        "MALLOC_MMAP_THRESHOLD_", "65536"
    )  # returns freed tensors to the system, so that the peak counts live tensors only
    rows: list[tuple[str | int | float | None, ...]] = []
    with processes(arguments.device, skip=arguments.no_memory) as alone:
        for shape in (tuple(map(int, text.split("x"))) for text in arguments.shapes):
            for place in arguments.places:
                calls = make_calls(shape, place, device, dropout, model)
                ms = time_ms(calls, device, arguments.runs)
                mb = {
                    name: alone(peak_memory_mb, (name, shape, place, device, dropout, model))
                    for name in calls
                }
                size = " x ".join(map(str, shape))
                for name in calls:
                    of = (ms[name] / ms[UNIT], ms[name] / ms["authors"])
                    of_mb = (mb[name] / mb[UNIT], mb[name] / mb["authors"])
                    rows.append((size, place, name, ms[name], *of, mb[name], *of_mb))
    where = (
        torch.cuda.get_device_name(device)
        if device.startswith("cuda")
        else f"{os.cpu_count()} CPU cores"
    )
    print(
        f"torch {torch.__version__}, {where}, {torch.get_num_threads()} threads, dropout {dropout}\n"
    )
    ratios = [("time / joint", "time / authors"), ("memory / joint", "memory / authors")]
    columns = (
        "sentences x words",
        "network after layer",
        "method",
        "ms",
        *ratios[0],
        "MB",
        *ratios[1],
    )
    show(arguments.json, "main", Table(columns, rows, digits=2))
    print()
    for size, place, name, _, of_joint, of_authors, *_ in rows:
        if name == "forward_over_reverse":
            note(f"MetaXL over joint training, {size}, layer {place}", float(of_joint or 0.0))
            note(f"MetaXL over the authors' step, {size}, layer {place}", float(of_authors or 0.0))


if __name__ == "__main__":
    main()
