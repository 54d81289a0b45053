r"""Which layers to read: the last one, a weighted sum of all, or a lower one fused into the last
(Chen & Guo 2022).

    python examples/layer_fusion.py --task sagt-pos sagt-lid --pretrain de tr en  # pretrains an
                                                                                  # encoder first
    python examples/layer_fusion.py --task wikiann --model bert-base-multilingual-cased \
        --device cuda --layers 6 8 10 12
    python examples/layer_fusion.py --train en.conll --dev dev.conll --test test.conll \
        --targets es=es.conll --model FOLDER

Tasks of the data folder (``$POLYEMBED_DATA``, else ``../shared/data`` beside the repository):
``sagt-pos`` and ``sagt-lid``, parts of speech and languages of Turkish-German code-switched speech;
``wikiann``, entities, trained on English and tested on German, Spanish, Dutch, Russian, Swahili and
Amharic; ``conll-es`` and ``conll-nl``, entities of CoNLL-2002, trained on one language and tested
on both. Your own files may be in any layout that `read_tagged` knows; ``--targets`` names files of
languages that are only tested.

Every system is trained twice: over the frozen encoder and fine-tuned. Over the frozen encoder only
fusion and tagger are trained, on features that are computed once and kept in ``--out``.
``--freeze LoRA`` trains adapters in a frozen encoder, and ``--freeze embeddings`` trains all of the
encoder except its table of pieces.

For tasks of the data folder, the program first ranks the encoder's layers by parallel sentences,
without training. Then it prints for each task, over seeds and with the epoch chosen on dev, the
scores of the last layer, ScalarMix, and the average of all layers. For each lower layer it prints
DLFA, the layer alone, and the layer scaled by a gate, a control for DLFA of the same size. Over the
frozen encoder it also prints how well the ranking predicts the score of a layer alone. It draws
scores against layers. ``--branches global local both`` is the paper's table V; the recipe has the
paper's best layer of each task.
"""

import argparse
import math
import zlib
from collections.abc import Sequence
from functools import partial
from itertools import cycle, product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from _cache import DATA
from _encoder import add_encoder_arguments, find_model, load_encoder
from _files import add_file_arguments, format_options, kinds_of, read_all_files, tags_of
from _recipes import RECIPES, check_keys, positive
from _sweep import sweep_layers
from torch import nn
from torch.optim.lr_scheduler import LinearLR

import polyembed as pe
from polyembed.data import TaggedSentence, read_conll, read_conllu, read_tagged, read_wikiann
from polyembed.encoders import AIF, CachedEmbedder, SingleLayer, cache_features
from polyembed.evaluation import Corpus, rank_layers
from polyembed.tables import mean_and_deviation
from polyembed.training import FitOptions

RECIPE = RECIPES["chenguo2022"]
OWN = ("max_length", "reduction_ratio", "family", "best_layers", "training")
TRAINING = ("num_train_epochs", "batch_size", "learning_rate", "weight_decay", "max_grad_norm")
TARGETS = ("de", "es", "nl", "ru")
LOW_RESOURCE = {"sw": "swa", "am": "amh"}
CONLL = {"es": "esp", "nl": "ned"}
FAMILY = {*RECIPE["family"], "nl"}  # Dutch is not among the languages of table III
BRANCHES = ("both", "global", "local")
FREEZE = ("frozen", "fine-tuned", "embeddings", "LoRA")


def cached(
    encoder: pe.PretrainedWordEncoder,
    sentences: list[tuple[str, ...]],
    folder: Path,
    layers: Sequence[int],
) -> Path:
    """Return the folder of these sentences' features, which the first call computes."""
    place = folder / f"features-{zlib.crc32(repr(sentences).encode()):08x}"
    if not place.exists():
        cache_features(encoder, sentences, place, layers=layers)
    return place


def load_sagt(tag: str) -> tuple[Corpus, list[Corpus]]:
    """Read Turkish-German speech, a single corpus without targets."""
    folder = DATA / "code_switched" / "ud_turkish_german_sagt"
    parts = (
        read_conllu(folder / f"qtd_sagt-ud-{part}.conllu", tag=tag)
        for part in ("train", "dev", "test")
    )
    return Corpus("SAGT", *parts), []


def load_wikiann() -> tuple[Corpus, list[Corpus]]:
    """Read English to train on, and six languages to test on."""
    folder = DATA / "wikiann"
    high = folder / "high_resource"
    english = (read_wikiann(high / "en" / f"{part}.conllu") for part in ("train", "val", "test"))
    tests = {name: high / name / "test.conllu" for name in TARGETS}
    tests |= {name: folder / "low_resource" / of / "test.txt" for name, of in LOW_RESOURCE.items()}
    return Corpus("en", *english), [
        Corpus(name, test=read_wikiann(path)) for name, path in tests.items()
    ]


def load_conll(source: str, target: str) -> tuple[Corpus, list[Corpus]]:
    """Read Spanish and Dutch news: all of the source, and the test sentences of the target."""

    def read(language: str, part: str) -> list[TaggedSentence]:
        return read_conll(DATA / "conll2002" / f"{CONLL[language]}.{part}")

    parts = (read(source, part) for part in ("train", "testa", "testb"))
    return Corpus(source, *parts), [Corpus(target, test=read(target, "testb"))]


TASKS = {
    "sagt-pos": (partial(load_sagt, "upos"), "accuracy"),
    "sagt-lid": (partial(load_sagt, "misc:CSID"), "accuracy"),
    "wikiann": (load_wikiann, "f1"),
    "conll-es": (partial(load_conll, "es", "nl"), "f1"),
    "conll-nl": (partial(load_conll, "nl", "es"), "f1"),
}


def spread(sentences: Sequence[TaggedSentence], count: int | None) -> list[TaggedSentence]:
    """Return `count` sentences with words, evenly spread; all of them if None."""
    sentences = [sentence for sentence in sentences if len(sentence.words)]
    count = len(sentences) if count is None else min(count, len(sentences))
    return [sentences[i * len(sentences) // count] for i in range(count)]


def print_ranking(
    encoder: pe.PretrainedWordEncoder, arguments: argparse.Namespace
) -> dict[str, dict[int, float]]:
    """Rank the layers by sentences and their translations, and print the table.

    Return the columns of the table by name, each as a mapping from a layer to its number.
    """
    folder = DATA / "parallel" / "flores_dev"
    if not folder.is_dir():
        print(f"No parallel sentences at {folder}: the layers are not ranked.\n")
        return {}

    def sentences(language: str) -> list[list[str]]:
        lines = (
            (folder / f"flores-dev.{language}")
            .read_text("utf-8")
            .splitlines()[: arguments.parallel]
        )
        return [line.split() for line in lines]

    translations = {language: sentences(language) for language in arguments.parallel_languages}
    table = rank_layers(encoder, sentences("en"), translations, center=arguments.center)
    print(
        f"Layers by {arguments.parallel} sentences of FLORES and their translations from English:\n"
    )
    print(table.to_markdown() + "\n", flush=True)
    columns = {
        column: {row[0]: row[i] for row in table.rows}
        for i, column in enumerate(table.columns)
        if i
    }
    draw(
        {name: columns[name] for name in ("retrieval", "cosine")},
        "retrieval, cosine",
        arguments.out / "parallel.png",
    )
    return columns


def draw(scores: Any, ylabel: str, path: Path) -> None:
    """Draw scores against layers, if matplotlib is installed.

    A score is a number, or a list with one number per seed, of which the mean and a band of one
    standard deviation are drawn. A string instead of a layer is drawn as a broken line.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        print(f"{error}: pip install matplotlib")
        return
    figure = Figure(layout="constrained")
    ax = figure.add_subplot(xlabel="layer", ylabel=ylabel)
    for name, part in scores.items():
        found = {
            layer: mean_and_deviation(np.ravel(score).tolist()) for layer, score in part.items()
        }
        layers = sorted(layer for layer in found if not isinstance(layer, str))
        means = np.array([found[layer].mean for layer in layers])
        widths = np.array([found[layer].deviation or 0.0 for layer in layers])
        (line,) = ax.plot(layers, means, marker="o", label=name)
        ax.fill_between(layers, means - widths, means + widths, color=line.get_color(), alpha=0.15)
        beside = [layer for layer in found if isinstance(layer, str)]
        for other, dashes in zip(beside, cycle(("--", ":", "-.")), strict=False):
            style = {"color": line.get_color(), "linestyle": dashes, "label": f"{name}, {other}"}
            ax.axhline(found[other].mean, **style)
    ax.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    print(f"Scores against layers: {path}\n")


def training_options(
    arguments: argparse.Namespace, freeze: str, metric: str, size: int
) -> FitOptions:
    """Return XTREME's settings: AdamW, with a rate that falls linearly to zero.

    `size` is the number of training sentences.
    """
    rate = arguments.frozen_learning_rate if freeze == "frozen" else arguments.learning_rate
    decay, steps = (
        RECIPE["training"]["weight_decay"],
        arguments.epochs * math.ceil(size / arguments.batch_size),
    )

    def adamw(tagger: pe.SequenceTagger) -> torch.optim.Optimizer:
        trained = [value for value in tagger.parameters() if value.requires_grad]
        return torch.optim.AdamW(trained, lr=rate, weight_decay=decay)

    return FitOptions(
        num_train_epochs=arguments.epochs,
        batch_size=arguments.batch_size,
        optimizer=adamw,
        scheduler=lambda optimizer: LinearLR(optimizer, 1.0, 0.0, total_iters=steps),
        scheduler_interval="step",
        max_grad_norm=RECIPE["training"]["max_grad_norm"],
        metric=metric,
    )


def with_adapters(encoder: pe.PretrainedWordEncoder, fusion: nn.Module) -> pe.PretrainedWordEncoder:
    """Freeze an encoder, and add LoRA of rank 8 to the layers that peft chooses for its kind."""
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(encoder.model, LoraConfig(r=8))
    options = {"overflow": "truncate", "max_length": encoder.max_length}
    return pe.PretrainedWordEncoder(model, encoder.tokenizer, fusion=fusion, **options)


def run_task(
    title: str,
    source: Corpus,
    targets: list[Corpus],
    metric: str,
    frozen: pe.PretrainedWordEncoder,
    arguments: Any,
    ranking: dict[str, dict[int, float]] | None = None,
) -> None:
    """Train all systems on one task, print the table, and draw scores against layers."""
    tags = tags_of(*(part for corpus in (source, *targets) for part in corpus[1:]))
    sizes = (arguments.train_size, arguments.dev_size, arguments.test_size)
    source = Corpus(
        source.language, *(spread(part, size) for part, size in zip(source[1:], sizes, strict=True))
    )
    targets = [corpus._replace(test=spread(corpus.test, arguments.test_size)) for corpus in targets]
    size, count = frozen.model.config.hidden_size, frozen.model.config.num_hidden_layers
    layers = arguments.layers or list(range(1, count + 1))
    if not all(-count <= layer <= count for layer in layers):
        raise SystemExit(f"--layers must be among the encoder's 0 to {count}, got {layers}")
    tested = {corpus.language for corpus in (source, *targets)}

    known = store = None
    if "frozen" in arguments.freeze:
        folder, stored = arguments.out / title, range(count + 1)
        texts = [
            sentence.words
            for corpus in (source, *targets)
            for part in corpus[1:]
            for sentence in part
        ]
        # statistics of the training sentences alone: statistics over all languages would show which
        # language a vector is from
        train = [sentence.words for sentence in source.train]
        known = cached(frozen, train, folder, stored)
        store = cached(frozen, texts, folder, stored)

    def build(freeze: str, fusion: nn.Module, train: object, seed: int) -> pe.SequenceTagger:
        encoder: Any
        if freeze == "frozen":
            encoder = CachedEmbedder(
                frozen, known, fusion=fusion, normalize=arguments.normalize
            ).attach(store)
        else:
            fixed: Any = "embeddings" if freeze == "embeddings" else "none"
            encoder = load_encoder(
                arguments.name, RECIPE["max_length"], fusion=fusion, freeze=fixed
            )
            if freeze == "LoRA":
                encoder = with_adapters(encoder, fusion)
        decoder = pe.SoftmaxDecoder(encoder.embedding_dim, len(tags))
        return pe.SequenceTagger(encoder, tags, decoder=decoder).to(arguments.device)

    first, *others = arguments.weighting

    def fused(branches: str, layer: int, weighting: str = first) -> nn.Module:
        ratio = RECIPE["reduction_ratio"]
        return pe.DLFA(size, layer, reduction_ratio=ratio, branches=branches, weighting=weighting)

    split = len(targets) > 1 and source.language in FAMILY and tested - FAMILY
    family = tested & FAMILY if split else None
    drawn = {}
    fusions = {
        "ScalarMix": lambda: pe.ScalarMix(count + 1),
        "LayerAverage": lambda: pe.LayerAverage(range(count + 1)),
    }
    alone = {f"layer {layer}": partial(SingleLayer, layer) for layer in layers}

    def gated(branches: str, layer: int) -> nn.Module:
        gate = AIF(size, reduction_ratio=RECIPE["reduction_ratio"], branches=branches)
        return SingleLayer(layer, gate=gate)

    for freeze, branches in product(arguments.freeze, arguments.branches):
        name_of = freeze if branches == "both" else f"{freeze}, {branches} branch"
        swept = sweep_layers(
            partial(build, freeze),
            source,
            targets,
            training_options(arguments, freeze, metric, len(source.train)),
            layers=layers,
            fusion=partial(fused, branches),
            beside={
                **fusions,
                **alone,
                **{f"layer {layer}, gated": partial(gated, branches, layer) for layer in layers},
                **{
                    f"D_{layer}, {weighting}": partial(fused, branches, layer, weighting)
                    for weighting, layer in product(others, layers)
                },
            },
            family=family,
            seeds=range(arguments.seeds),
            folder=arguments.out
            / title
            / (f"{name_of}, {arguments.normalize}" if freeze == "frozen" else name_of),
        )
        count_of = f"{len(source.train)} training sentences, {arguments.seeds} seeds"
        print(f"{title}, {name_of}, {metric}, {count_of}:\n")
        print(swept.table.to_markdown() + "\n", flush=True)
        drawn[name_of] = next(iter(swept.scores.values()))
        if freeze == "frozen":
            drawn["each layer alone"] = {
                layer: drawn[name_of][f"layer {layer}"] for layer in layers
            }
            for column, scores in swept.scores.items():
                print_agreement(
                    column, {layer: scores[f"layer {layer}"] for layer in layers}, ranking or {}
                )
    draw(drawn, metric, arguments.out / title / "layers.png")


def print_agreement(
    column: str, scores: dict[int, list[float]], ranking: dict[str, dict[int, float]]
) -> None:
    """Print how well the ranking without labels predicts the scores of single layers."""
    by = column if column in ranking else "retrieval"
    retrieval = ranking.get(by, {})
    layers = [layer for layer in scores if layer in retrieval]
    if len(layers) < 4:
        return
    from scipy.stats import spearmanr

    found = spearmanr(
        [retrieval[layer] for layer in layers], [fmean(scores[layer]) for layer in layers]
    )
    best = max(layers, key=retrieval.__getitem__)
    top = max(layers, key=lambda layer: fmean(scores[layer]))
    print(
        f"{column}, layers by retrieval ({by}) and by their own score: Spearman {found.statistic:.2f}, "
        f"p = {found.pvalue:.3f}; layer {best}, the best by retrieval, has {fmean(scores[best]):.4f}, "
        f"layer {top} {fmean(scores[top]):.4f}.\n"
    )


def read_targets(arguments: argparse.Namespace, train: Sequence[TaggedSentence]) -> list[Corpus]:
    """Read the caller's files of languages that are only tested."""
    corpora = []
    for named in arguments.targets:
        language, equals, path = named.partition("=")
        if not (language and equals and path):
            raise SystemExit(f"--targets must be LANG=FILE, got {named!r}")
        try:
            corpus = Corpus(
                language, test=read_tagged(path, arguments.format, **format_options(arguments))
            )
        except (
            OSError,
            TypeError,
            ValueError,
        ) as error:  # an error in the file: a traceback would not help
            raise SystemExit(str(error)) from error
        unseen = sorted(kinds_of(list(corpus.test)) - kinds_of(list(train)))
        if unseen:
            raise SystemExit(f"--targets {named} must have labels of --train, got {unseen}")
        corpora.append(corpus)
    return corpora


def main() -> None:
    check_keys("chenguo2022", RECIPE, None, OWN)
    check_keys("chenguo2022.training", RECIPE["training"], None, TRAINING)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    add_file_arguments(parser, "a task")
    parser.add_argument(
        "--metric",
        choices=("f1", "accuracy"),
        default="accuracy",
        help="the metric for your own files",
    )
    parser.add_argument("--language", default="files", help="the name of the language of --train")
    parser.add_argument(
        "--targets",
        nargs="+",
        metavar="LANG=FILE",
        default=[],
        help="your own files of languages that are only tested",
    )
    add_encoder_arguments(parser)
    parser.add_argument(
        "--layers",
        nargs="+",
        type=int,
        help="the lower layers of DLFA; if missing, layer 1 to the last layer",
    )
    parser.add_argument(
        "--weighting",
        nargs="+",
        choices=("sigmoid", "literal"),
        default=["sigmoid"],
        help="the weighting of DLFA; with two, systems of both are trained",
    )
    parser.add_argument(
        "--branches",
        nargs="+",
        choices=BRANCHES,
        default=["both"],
        help="the branches of AIF, as in table V",
    )
    parser.add_argument(
        "--center",
        action="store_true",
        help="subtract the mean vector of each language before the layers are ranked",
    )
    parser.add_argument(
        "--freeze",
        nargs="+",
        choices=FREEZE,
        default=list(FREEZE[:2]),
        help="the trainings to compare; embeddings: only the table of pieces is frozen; LoRA: only "
        "adapters are trained in the encoder, which needs peft",
    )
    for part in ("train", "dev", "test"):
        parser.add_argument(
            f"--{part}-size",
            type=positive,
            help="the number of sentences, evenly spread; all if missing",
        )
    parser.add_argument(
        "--parallel", type=int, default=200, help="the number of sentences to rank the layers by"
    )
    parser.add_argument(
        "--parallel-languages",
        nargs="+",
        default=TARGETS,
        help="the languages of the translations from English to rank the layers by",
    )
    parser.add_argument("--seeds", type=positive, default=3)
    parser.add_argument("--epochs", type=positive, default=RECIPE["training"]["num_train_epochs"])
    parser.add_argument("--batch-size", type=positive, default=RECIPE["training"]["batch_size"])
    parser.add_argument("--learning-rate", type=float, default=RECIPE["training"]["learning_rate"])
    parser.add_argument(
        "--frozen-learning-rate",
        type=float,
        default=1e-3,
        help="the learning rate over the frozen encoder",
    )
    parser.add_argument(
        "--normalize",
        choices=("standardize", "rms"),
        default="standardize",
        help="how the vectors of the frozen encoder are normalised",
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("runs") / "layer_fusion")
    arguments = parser.parse_args()
    files = read_all_files(parser, arguments, DATA)
    if arguments.targets and not files:
        parser.error("--targets must be given with --train, --dev and --test")
    targets = read_targets(arguments, files[0]) if files else []
    if not (arguments.model or arguments.pretrain):
        arguments.pretrain = ["en", "tr", *TARGETS]
    arguments.name = find_model(arguments, ())
    print(f"Encoder: {arguments.name}\n")
    frozen = load_encoder(arguments.name, RECIPE["max_length"], freeze="all").to(arguments.device)
    if files:
        source = Corpus(arguments.language, *files)
        run_task("files", source, targets, arguments.metric, frozen, arguments)
        return
    ranking = print_ranking(frozen, arguments)
    for task in arguments.task:
        load, metric = TASKS[task]
        run_task(task, *load(), metric, frozen, arguments, ranking)


if __name__ == "__main__":
    main()
