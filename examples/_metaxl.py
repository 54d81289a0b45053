"""The part that the MetaXL examples share: methods over seeds, their tables and a picture.

The methods are from tables 2, 3, 5 and 6. The picture shows two clouds of points, the
representations of the source and of the target.
"""

import argparse
import hashlib
import json
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from _cache import read_report, write_report
from _encoder import add_encoder_arguments, find_model, load_encoder
from _recipes import RECIPES as PAPERS
from _recipes import check_keys, positive

import polyembed as pe
from polyembed.evaluation import (
    ProtocolResult,
    collect_hidden_states,
    plot_representations,
    representation_distances,
    significance_table,
)
from polyembed.evaluation.results import SystemRun
from polyembed.tables import MeanAndDeviation, Table, mean_and_deviation
from polyembed.training import Epoch, FitResult, MetaXLOptions, MetaXLTrainer
from polyembed.transfer import encoder_layer, extend_vocabulary

__all__ = [
    "RECIPES",
    "Found",
    "across_targets",
    "add_arguments",
    "build_encoder",
    "compare",
    "find_model",
    "print_tests",
]

RECIPES = PAPERS["metaxl"]
OWN = ("meta_learning_rates", "target_size", "extended_vocabulary", "ner", "sentiment", "authors")
TASK = ("max_length", "source_size", "source_sizes", "related", "splits", "dropout", "training")
TRAINING = ("num_train_epochs", "batch_size", "learning_rate")
METHODS = {
    "target_only": "target only",
    "joint": "JT",
    "joint_half": "JT, half the target rows",
    "concatenation": "JT, concatenated",
    "joint_rtn": "JT with RTN",
    "joint_matched": "JT with MetaXL's RTN, half the target rows",
    "metaxl": "MetaXL",
    "printed": "MetaXL as printed",
}
OBJECTIVES = {
    "concatenation": "target_only",
    "joint_half": "joint",
    "joint_matched": "joint_rtn",
    "printed": "metaxl",
}
# methods whose steps have half a batch of target rows, as many as MetaXL's model sees in a step
HALF = ("joint_half", "joint_matched")
CLOUD = 100  # the number of sentences of each language whose representations are compared
CHOICES = (
    "methods",
    "layers",
    "seeds",
    "source_size",
    "meta_learning_rate",
    "target",
    "out",
    "device",
    "cache",
)
Found = dict[
    tuple[str, int], list[dict[str, Any]]
]  # the runs of each method and number of source rows


def add_arguments(parser: argparse.ArgumentParser, recipe: dict[str, Any]) -> None:
    check_keys("metaxl", RECIPES, None, OWN)
    check_keys("metaxl.<task>", recipe, None, TASK)
    check_keys("metaxl.<task>.training", recipe["training"], None, TRAINING)
    training, sizes = recipe["training"], recipe["source_sizes"]
    add_encoder_arguments(parser)
    parser.add_argument(
        "--extend-vocabulary",
        type=positive,
        nargs="?",
        const=RECIPES["extended_vocabulary"],
        metavar="SIZE",
        help="extend the vocabulary by up to this number of pieces from the target's training text "
        "(appendix C)",
    )
    parser.add_argument(
        "--source-size",
        nargs="+",
        type=positive,
        default=[recipe["source_size"]],
        help="the number of source rows; several numbers make a sweep",
    )
    parser.add_argument(
        "--sweep",
        action=Sweep,
        sizes=sizes,
        choices=sizes,
        help="take the numbers of source rows from this table of the paper",
    )
    parser.add_argument("--target-size", type=positive, default=RECIPES["target_size"])
    parser.add_argument(
        "--layers",
        nargs="+",
        type=lambda text: tuple(map(int, text.split(","))),
        help="the layers whose output a network transforms; 0,12 means one network after each of "
        "the two. If missing, MetaXL is trained with layer 0, the middle layer, the last layer, "
        "and 0 and the last together; JT with RTN is trained with layer 0 and with the last layer",
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=METHODS,
        default=[method for method in METHODS if method not in (*HALF, "printed")],
        help="the methods to train. joint_half: joint training with half a batch of target rows "
        "per step, as many as MetaXL's model sees; joint_matched: the same with MetaXL's network; "
        "printed: MetaXL with a target weight of 0. If missing, all methods except these three",
    )
    parser.add_argument("--seeds", type=positive, default=3)
    parser.add_argument("--epochs", type=positive, default=training["num_train_epochs"])
    parser.add_argument("--batch-size", type=positive, default=training["batch_size"])
    parser.add_argument("--learning-rate", type=float, default=training["learning_rate"])
    parser.add_argument(
        "--meta-learning-rate",
        nargs="+",
        type=float,
        default=RECIPES["meta_learning_rates"][:1],
        help="the learning rate of the network; of several rates, the best on dev is taken for "
        "each seed",
    )
    parser.add_argument(
        "--target-weight",
        type=float,
        default=1.0,
        help="the weight of the target's loss in MetaXL's inner loss; 0 is MetaXL as printed",
    )
    parser.add_argument(
        "--bottleneck",
        type=positive,
        help="the size of the network's bottleneck; half of the encoder's hidden size if missing",
    )
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument(
        "--warmup-ratio",
        type=float,
        help="the share of the steps in which the learning rate rises; a linear decay to zero "
        "follows. If missing, the rate is constant",
    )
    parser.add_argument("--max-grad-norm", type=float, default=1.0)
    parser.add_argument(
        "--freeze-embeddings", action="store_true", help="freeze the encoder's embedding layer"
    )
    parser.add_argument(
        "--authors",
        action=Authors,
        nargs=0,
        help="train with Adam, the network and the numbers of the authors' commands; options after "
        "this one replace its numbers",
    )
    parser.set_defaults(authors=False, network={}, joint_network={})
    parser.add_argument(
        "--backoff-epochs",
        type=int,
        default=0,
        help="the number of epochs of joint training after MetaXL (section 4.6)",
    )
    parser.add_argument("--device", default="cpu")


class Authors(argparse.Action):
    """An option that takes the numbers from the authors' commands."""

    def __call__(
        self,
        parser: object,
        namespace: argparse.Namespace,
        values: object,
        option: str | None = None,
    ) -> None:
        check_keys("metaxl.authors", RECIPES["authors"], None, vars(namespace))
        vars(namespace).update(RECIPES["authors"], authors=True)


class Sweep(argparse.Action):
    """An option that takes the numbers of source rows from a table of the paper."""

    def __init__(self, *, sizes: dict[str, list[int]], **options: Any) -> None:
        super().__init__(**options)
        self.sizes = sizes

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        namespace.source_size = self.sizes[values]


def build_encoder(
    name: str, max_length: int, arguments: argparse.Namespace, rows: Sequence[Any]
) -> pe.PretrainedWordEncoder:
    """Load the encoder.

    With ``--extend-vocabulary``, its vocabulary is extended by pieces from the text of `rows`.
    """
    if arguments.extend_vocabulary and arguments.freeze_embeddings:
        raise SystemExit("--extend-vocabulary must have trained pieces, got --freeze-embeddings")
    freeze: Any = "embeddings" if arguments.freeze_embeddings else "none"
    encoder = load_encoder(name, max_length, freeze=freeze)
    if not arguments.extend_vocabulary:
        return encoder
    texts = [" ".join(row.words) for row in rows]
    extended = extend_vocabulary(
        encoder.tokenizer, encoder.model, texts, arguments.extend_vocabulary
    )
    return pe.PretrainedWordEncoder(encoder.model, extended.tokenizer, overflow="truncate")


def warmed_up(
    optimizer: torch.optim.Optimizer, steps: int, ratio: float
) -> torch.optim.lr_scheduler.LambdaLR:
    """Raise the rate linearly over a share of the steps, then let it fall to zero."""
    first = int(ratio * steps)
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: step / first if step < first else (steps - step) / max(steps - first, 1),
    )


def systems(arguments: argparse.Namespace, last: int) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Yield each method with its layers and its name in the table."""
    ends = [(one,) for one in sorted({0, last})]
    places = {
        "joint_rtn": arguments.layers or ends,
        "joint_matched": arguments.layers or ends,
        "metaxl": arguments.layers
        or [*((one,) for one in sorted({0, last // 2, last})), (0, last)],
    }
    places["printed"] = places["metaxl"]
    for method in arguments.methods:
        for layers in places.get(method, [()]):
            numbers = (
                f", layer{'s' * (len(layers) > 1)} {' and '.join(map(str, layers))}"
                if layers
                else ""
            )
            yield method, layers, METHODS[method] + numbers


def compare(
    build: Callable[[], torch.nn.Module],
    source: Sequence[Any],
    target: Sequence[Any],
    score: Callable[[torch.nn.Module, str], float],
    arguments: argparse.Namespace,
    folder: Path,
    level: Literal["token", "cls"] = "token",
    predict: Callable[[torch.nn.Module], list[list[str]]] | None = None,
) -> Found:
    """Train every method with every seed and print a table; the epoch is chosen on dev.

    Source rows are drawn at random, the same ones for every method and seed. Each finished run is
    written to ``report.json`` in the folder, so the same call continues after the last finished
    run. If `predict` is given, the report also has its tags of the test sentences, with which
    `print_tests` tests the differences.
    """
    embedder = build().embedder
    last = embedder.model.config.num_hidden_layers
    for layers in arguments.layers or ():
        if not all(0 <= layer <= last for layer in layers):
            raise SystemExit(f"--layers must be among the encoder's 0 to {last}, got {layers}")
    meta = "metaxl" in arguments.methods and arguments.target_weight > 0
    if (meta or set(HALF) & {*arguments.methods}) and arguments.batch_size % 2:
        got = arguments.batch_size
        raise SystemExit(f"--batch-size must be even for MetaXL, which halves batches, got {got}")
    if arguments.extend_vocabulary:
        print(f"{len(embedder.tokenizer)} pieces in the extended vocabulary")
    report = open_report(folder, arguments, (source, target))
    source = random.Random(0).sample(source, len(source))
    found: Found = {}
    clouds: dict[str, dict[str, torch.Tensor]] = {}
    for most in arguments.source_size:
        for method, layers, name in systems(arguments, last):
            size = 0 if method == "target_only" else most
            if (name, size) in found:
                continue
            runs = found[name, size] = []
            for seed in range(arguments.seeds):
                tried = []
                for rate in arguments.meta_learning_rate if layers else [None]:
                    which = {
                        "method": method,
                        "layers": [*layers],
                        "source rows": size,
                        "seed": seed,
                        "rate": rate,
                    }
                    done = [
                        run for run in report["runs"] if {key: run[key] for key in which} == which
                    ]
                    if not done:
                        torch.manual_seed(seed)
                        model = build().to(arguments.device)
                        networks = [
                            make_network(model, method, arguments).to(arguments.device)
                            for _ in layers
                        ]
                        rows = source[:size], target
                        dev = train(
                            model, networks, layers, method, rows, seed, rate, score, arguments
                        )
                        clouds[name] = measure(
                            model, networks, layers, last, source, target, level, arguments.device
                        )
                        distances = representation_distances(*clouds[name].values())._asdict()
                        done = [
                            {
                                **which,
                                "dev": 100 * dev,
                                "test": 100 * score(model, "test"),
                                **distances,
                            }
                        ]
                        if predict is not None:
                            done[0]["predicted"] = predict(model)
                        report["runs"] += done
                        folder.mkdir(parents=True, exist_ok=True)
                        write_report(folder, report)
                    tried += done
                runs.append(max(tried, key=lambda run: run["dev"]))
            print(f"{name}, {size} source rows: {mean(runs, 'test')}", flush=True)
    rows = [
        (*system, mean(runs, "test"), mean(runs, "hausdorff")) for system, runs in found.items()
    ]
    print(
        "\n"
        + Table(("method", "source rows", "test score", "Hausdorff"), rows).to_markdown()
        + "\n"
    )
    draw(clouds, folder / "clouds.png")
    return found


def mean(runs: Sequence[Mapping[str, Any]], key: str) -> MeanAndDeviation:
    return mean_and_deviation([run[key] for run in runs])


def open_report(folder: Path, arguments: argparse.Namespace, rows: object) -> dict[str, Any]:
    """Read the runs of an earlier call with these settings, or begin with none."""
    settings = {name: value for name, value in vars(arguments).items() if name not in CHOICES}
    settings["rows"] = hashlib.sha256(repr(rows).encode()).hexdigest()[:12]
    settings = json.loads(json.dumps(settings, default=str))
    if not (folder / "report.json").exists():
        return {"settings": settings, "runs": []}
    report = read_report(folder)
    theirs = report["settings"]
    if theirs != settings:
        differ = {name: theirs.get(name) for name in settings if theirs.get(name) != settings[name]}
        raise ValueError(
            f"--out must hold runs of these settings, got others in {folder}: {differ}"
        )
    return report


def train(
    model: torch.nn.Module,
    networks: list[torch.nn.Module],
    layers: tuple[int, ...],
    method: str,
    rows: tuple[Sequence[Any], Sequence[Any]],
    seed: int,
    rate: float | None,
    score: Callable[[torch.nn.Module, str], float],
    arguments: argparse.Namespace,
) -> float:
    """Train a model and the networks, and return the best epoch's score on dev."""
    source, target = rows
    alone = method in ("target_only", "concatenation")
    objective = OBJECTIVES.get(method, method)
    weight = arguments.target_weight if objective == "metaxl" else 1.0  # 1 in joint training
    decay = {"weight_decay": arguments.weight_decay}
    meta_decay = decay if arguments.authors else {}
    optimizer = torch.optim.Adam if arguments.authors else torch.optim.AdamW
    trained = [value for value in model.parameters() if value.requires_grad]
    phi = [value for network in networks for value in network.parameters()]
    trainer = MetaXLTrainer(
        model,
        networks or None,
        layers,
        options=MetaXLOptions(
            objective=objective,
            target_weight=0.0 if method == "printed" else weight,
            num_train_epochs=arguments.epochs,
            backoff_epochs=arguments.backoff_epochs if method in ("metaxl", "printed") else 0,
            batch_size=arguments.batch_size,
            target_batch_size=arguments.batch_size // 2 if method in HALF else None,
            max_grad_norm=arguments.max_grad_norm,
            seed=seed,
        ),
        optimizer=optimizer(trained, arguments.learning_rate, **decay),
        meta_optimizer=torch.optim.Adam(phi, rate, **meta_decay) if phi else None,
        scheduler=partial(warmed_up, ratio=arguments.warmup_ratio)
        if arguments.warmup_ratio
        else None,
        loss=lambda model, batch: model(**batch),
    )
    result = trainer.train(
        None if alone else source,
        [*source, *target] if method == "concatenation" else target,
        evaluate=lambda model: score(model, "dev"),
        collate=model.collate,
    )
    return result.best.score


def make_network(
    model: torch.nn.Module, method: str, arguments: argparse.Namespace
) -> pe.RepresentationTransformationNetwork:
    size = model.embedder.embedding_dim
    options = arguments.joint_network if method == "joint_rtn" else arguments.network
    return pe.RepresentationTransformationNetwork(
        size, arguments.bottleneck or size // 2, **options
    )


def measure(
    model: torch.nn.Module,
    networks: list[torch.nn.Module],
    layers: tuple[int, ...],
    last: int,
    source: Sequence[Any],
    target: Sequence[Any],
    level: Literal["token", "cls"],
    device: str,
) -> dict[str, torch.Tensor]:
    """Collect both languages' representations at the last layer.

    The networks transform the source's.
    """
    encoder = model.embedder.model
    place = encoder_layer(encoder, last)
    transformed = pe.transformed_output(
        [encoder_layer(encoder, layer) for layer in layers], networks
    )
    with transformed if layers else nullcontext():
        one = collect_hidden_states(
            encoder, batches_of(model, source[:CLOUD], device), place, level
        )
    other = collect_hidden_states(encoder, batches_of(model, target[:CLOUD], device), place, level)
    return {"source": one.cpu(), "target": other.cpu()}


def batches_of(
    model: torch.nn.Module, rows: Sequence[Any], device: str
) -> Iterator[dict[str, Any]]:
    for start in range(0, len(rows), 32):
        pieces = model.embedder.pieces([row.words for row in rows[start : start + 32]])
        yield {
            "input_ids": pieces.piece_ids.to(device),
            "attention_mask": pieces.piece_mask.long().to(device),
        }


def draw(clouds: Mapping[str, dict[str, torch.Tensor]], path: Path) -> None:
    """Draw source and target of joint training and of MetaXL (figures 1 and 3).

    A method is left out if this call has not trained it. If there are several MetaXL systems, the
    last one is drawn.
    """
    names = ("JT", next((name for name in reversed(clouds) if name.startswith("MetaXL,")), ""))
    pictures = {name: clouds[name] for name in names if name in clouds}
    if not pictures:
        return
    try:
        axes = plot_representations(pictures)
    except ImportError as error:
        print(error)
        return
    axes[0].figure.savefig(path, dpi=150)
    print(f"Source and target: {path}")


def print_tests(found: Mapping[str, Found], gold: Mapping[str, list[list[str]]]) -> None:
    """Print the tests of every method against MetaXL, over the test sentences of each target."""
    every = [run for systems in found.values() for runs in systems.values() for run in runs]
    if not all("predicted" in run for run in every):
        return  # reports of earlier versions have no tags
    tested = tuple(
        SystemRun(
            f"{name}, {size} source rows",
            run["seed"],
            (),
            FitResult(Epoch(0, math.nan, run["dev"], 0.0), ()),
            {target: run["test"]},
            {target: run["predicted"]},
        )
        for target, systems in found.items()
        for (name, size), all_seeds in systems.items()
        for run in all_seeds
    )
    against = next((run.system for run in tested if run.system.startswith("MetaXL,")), None)
    if against is None or len({run.system for run in tested}) < 2:
        return
    try:
        table = significance_table(ProtocolResult(tested, dict(gold), "f1"), against)
    except ImportError as error:
        print(error)
        return
    print(f"\nApproximate randomization, all seeds together:\n\n{table.to_markdown()}\n")


def across_targets(found: Mapping[str, Found]) -> None:
    """Print each method's score on every target, and the average.

    With three or more targets, also print for each MetaXL system how its gain over joint training
    correlates with the drop in the Hausdorff distance.
    """
    if len(found) < 2:
        return
    scores = {
        system: [mean(runs[system], "test").mean for runs in found.values()]
        for system in next(iter(found.values()))
    }
    rows = [(*system, *values, statistics.fmean(values)) for system, values in scores.items()]
    print("\n" + Table(("method", "source rows", *found, "average"), rows).to_markdown() + "\n")
    for name, size in scores:
        if len(found) > 2 and name.startswith("MetaXL") and ("JT", size) in scores:
            pairs = [(runs["JT", size], runs[name, size]) for runs in found.values()]
            gains = [mean(ours, "test").mean - mean(joint, "test").mean for joint, ours in pairs]
            drops = [
                mean(joint, "hausdorff").mean - mean(ours, "hausdorff").mean
                for joint, ours in pairs
            ]
            try:
                from scipy.stats import pearsonr, spearmanr

                found_r = [test(gains, drops).statistic for test in (pearsonr, spearmanr)]
                print(
                    f"{name}, {size} source rows, correlation of gain and drop in distance: "
                    f"Pearson {found_r[0]:.3f}, Spearman {found_r[1]:.3f}"
                )
            except (ImportError, ValueError) as error:
                print(f"No correlation for {name}: {error}")
