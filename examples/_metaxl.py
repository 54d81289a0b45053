"""What the MetaXL examples share: the methods of tables 2, 3 and 6 over seeds, and the two clouds."""

import argparse
import random
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _encoder import add_encoder_arguments, find_model, load_encoder

import polyembed as pe
from polyembed.experiments import cloud_distances, plot_clouds, representations
from polyembed.tables import Table, mean_and_deviation
from polyembed.training import MetaXLOptions, MetaXLTrainer
from polyembed.transfer import encoder_layer

__all__ = ["RECIPES", "add_arguments", "compare", "draw", "find_model", "load_encoder"]

RECIPES = tomllib.loads(Path(__file__).with_name("recipes.toml").read_text("utf-8"))["metaxl"]
METHODS = {
    "target_only": "target only",
    "joint": "JT",
    "concatenation": "JT, concatenated",
    "joint_rtn": "JT with RTN",
    "metaxl": "MetaXL",
}
Row = tuple[Sequence[str], Any]


def add_arguments(parser: argparse.ArgumentParser, recipe: dict[str, Any]) -> None:
    training = recipe["training"]
    add_encoder_arguments(parser)
    parser.add_argument(
        "--source-size", nargs="+", type=int, default=[recipe["source_size"]], help="several make a sweep"
    )
    parser.add_argument("--target-size", type=int, default=RECIPES["target_size"])
    parser.add_argument(
        "--layers",
        nargs="+",
        type=lambda text: tuple(map(int, text.split(","))),
        help="of the network; 0,12 has one after each. If missing: 0, the middle, the last, and both ends",
    )
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=training["num_train_epochs"])
    parser.add_argument("--batch-size", type=int, default=training["batch_size"])
    parser.add_argument("--learning-rate", type=float, default=training["learning_rate"])
    parser.add_argument("--meta-learning-rate", type=float, default=RECIPES["meta_learning_rates"][0])
    parser.add_argument(
        "--target-weight", type=float, default=1.0, help="of the target's loss in the inner one; 0: as printed"
    )
    parser.add_argument("--bottleneck", type=int, help="half of the encoder's hidden size if missing")
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--warmup-ratio", type=float, help="with linear decay after it; a constant rate if missing")
    parser.add_argument("--max-grad-norm", type=float, default=1.0)
    parser.add_argument(
        "--authors",
        action=Authors,
        nargs=0,
        help="Adam, the network and the numbers of the authors' commands; options that follow replace numbers",
    )
    parser.set_defaults(authors=False, network={})
    parser.add_argument("--backoff-epochs", type=int, default=0, help="on joined data after MetaXL (section 4.6)")
    parser.add_argument("--device", default="cpu")


class Authors(argparse.Action):
    """Takes every number from the authors' commands."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: object, option: str | None = None
    ) -> None:
        vars(namespace).update(RECIPES["authors"], authors=True)


def warmed_up(optimizer: torch.optim.Optimizer, steps: int, ratio: float) -> torch.optim.lr_scheduler.LambdaLR:
    """Raise the rate linearly over a share of the steps, then let it fall to zero."""
    first = int(ratio * steps)
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: step / first if step < first else (steps - step) / max(steps - first, 1)
    )


def compare(
    build: Callable[[int], torch.nn.Module],
    source: Sequence[Any],
    target: Sequence[Any],
    score: Callable[[torch.nn.Module, str], float],
    arguments: argparse.Namespace,
) -> tuple[Table, dict[str, torch.nn.Module]]:
    """Train every method with every seed; the epoch is chosen on dev. Gives the table and the last seed's models.

    Source rows are drawn at random, the same ones for every method and seed.
    """
    last = build(0).embedder.model.config.num_hidden_layers
    layers = arguments.layers or [*((one,) for one in sorted({0, last // 2, last})), (0, last)]
    source = random.Random(0).sample(source, len(source))
    ratio = arguments.warmup_ratio
    rows, models = [], {}
    for size in arguments.source_size:
        for method in arguments.methods:
            for layer in layers if method == "metaxl" else [(last,)]:
                scores = []
                for seed in range(arguments.seeds):
                    torch.manual_seed(seed)
                    model = build(seed).to(arguments.device)
                    networks = [make_network(model, arguments).to(arguments.device) for _ in layer]
                    rtn = torch.nn.ModuleList(networks)
                    alone = method in ("target_only", "concatenation")
                    optimizer = torch.optim.Adam if arguments.authors else torch.optim.AdamW
                    decay = {"weight_decay": arguments.weight_decay}
                    trained = [value for value in model.parameters() if value.requires_grad]
                    trainer = MetaXLTrainer(
                        model,
                        None if alone or method == "joint" else networks,
                        layer,
                        options=MetaXLOptions(
                            objective="target_only" if alone else method,
                            target_weight=arguments.target_weight,
                            num_train_epochs=arguments.epochs,
                            backoff_epochs=arguments.backoff_epochs if method == "metaxl" else 0,
                            batch_size=arguments.batch_size,
                            max_grad_norm=arguments.max_grad_norm,
                            seed=seed,
                        ),
                        optimizer=optimizer(trained, arguments.learning_rate, **decay),
                        meta_optimizer=torch.optim.Adam(
                            rtn.parameters(), arguments.meta_learning_rate, **(decay if arguments.authors else {})
                        ),
                        scheduler=partial(warmed_up, ratio=ratio) if ratio else None,
                        loss=lambda model, batch: model(**batch),
                    )
                    trainer.train(
                        None if alone else source[:size],
                        [*source[:size], *target] if method == "concatenation" else target,
                        evaluate=lambda model: score(model, "dev"),
                        collate=model.collate,
                        progress=False,
                    )
                    scores.append(100 * score(model, "test"))
                places = f"layer{'s' * (len(layer) > 1)} {' and '.join(map(str, layer))}"
                name = f"{METHODS[method]}, {places}" if method == "metaxl" else METHODS[method]
                models[name] = (model, rtn, layer)
                rows.append((name, 0 if method == "target_only" else size, mean_and_deviation(scores)))
                print(f"{name}, {size} source rows: {rows[-1][2]}", flush=True)
    return Table(("method", "source rows", "test score"), rows), models


def make_network(model: torch.nn.Module, arguments: argparse.Namespace) -> pe.RepresentationTransformationNetwork:
    size = model.embedder.embedding_dim
    return pe.RepresentationTransformationNetwork(size, arguments.bottleneck or size // 2, **arguments.network)


def batches_of(model: torch.nn.Module, sentences: Sequence[Sequence[str]], device: str) -> Iterator[dict[str, Any]]:
    for start in range(0, len(sentences), 32):
        pieces = model.embedder.pieces(sentences[start : start + 32])
        yield {"input_ids": pieces.piece_ids.to(device), "attention_mask": pieces.piece_mask.long().to(device)}


def draw(
    models: dict[str, Any], source: Sequence[Sequence[str]], target: Sequence[Sequence[str]], path: Path, device: str
) -> None:
    """Draw source and target at the last transformed layer, of joint training and of MetaXL (figure 3)."""
    pictures = {}
    for name in ("JT", next((name for name in reversed(models) if name.startswith("MetaXL")), "")):
        if name not in models:
            continue
        model, rtn, layer = models[name]
        encoder = model.embedder.model
        places = [encoder_layer(encoder, number) for number in layer]
        with pe.transformed_output(places, list(rtn)) if name != "JT" else nullcontext():
            one = representations(encoder, batches_of(model, source, device), places[-1])
        other = representations(encoder, batches_of(model, target, device), places[-1])
        pictures[name] = {"source": one.cpu(), "target": other.cpu()}
        print(f"{name}: {cloud_distances(one, other)}")
    if not pictures:
        return
    try:
        figure = plot_clouds(pictures)
    except ImportError as error:
        print(error)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    (figure.figure if hasattr(figure, "figure") else figure[0].figure).savefig(path, dpi=150)
    print(f"Source and target: {path}")
