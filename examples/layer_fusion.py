r"""Which layers to read: the last one, a weighted sum of all, or a lower one fused into the last (Chen & Guo 2022).

    python examples/layer_fusion.py --task sagt-pos sagt-lid --pretrain de tr en       # pretrains an encoder first
    python examples/layer_fusion.py --task wikiann --model bert-base-multilingual-cased --device cuda --layers 6 8 10 12
    python examples/layer_fusion.py --train es.conll --dev dev.conll --test test.conll --model FOLDER

Tasks of the data folder (``$POLYEMBED_DATA``, else ``../shared/data`` beside the repository): ``sagt-pos`` and
``sagt-lid``, parts of speech and languages of Turkish-German code-switched speech; ``wikiann``, entities, trained on
English and tested on German, Spanish, Dutch and Russian; or files of yours in any layout that `read_tagged` knows.

Every system is trained twice: over the frozen encoder (fusion and tagger alone learn) and fine-tuned. Prints the
encoder's layers ranked by parallel sentences, without training; then for each task last layer, ScalarMix and DLFA of
each lower layer, over seeds, the epoch chosen on dev; and draws scores against layers.
"""

import argparse
import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _cache import DATA
from _encoder import add_encoder_arguments, find_model, load_encoder
from _files import add_file_arguments, read_all_files, tags_of

import polyembed as pe
from polyembed.data import TaggedSentence, read_conllu, read_wikiann
from polyembed.encoders import LayerFusion
from polyembed.experiments import Corpus, plot_layers, rank_layers, sweep_layers
from polyembed.training import FitOptions

RECIPE = tomllib.loads(Path(__file__).with_name("recipes.toml").read_text("utf-8"))["chenguo2022"]
TARGETS = ("de", "es", "nl", "ru")
FREEZE = {"frozen": "all", "fine-tuned": "none"}


def load_sagt(tag: str) -> tuple[Corpus, list[Corpus]]:
    """Read Turkish-German speech, one corpus."""
    folder = DATA / "code_switched" / "ud_turkish_german_sagt"
    parts = (read_conllu(folder / f"qtd_sagt-ud-{part}.conllu", tag=tag) for part in ("train", "dev", "test"))
    return Corpus("SAGT", *parts), []


def load_wikiann() -> tuple[Corpus, list[Corpus]]:
    """Read English to train on, four languages to test on."""
    folder = DATA / "wikiann" / "high_resource"
    english = (read_wikiann(folder / "en" / f"{part}.conllu") for part in ("train", "val", "test"))
    return Corpus("en", *english), [Corpus(name, test=read_wikiann(folder / name / "test.conllu")) for name in TARGETS]


TASKS = {
    "sagt-pos": (partial(load_sagt, "upos"), "accuracy"),
    "sagt-lid": (partial(load_sagt, "misc:CSID"), "accuracy"),
    "wikiann": (load_wikiann, "f1"),
}


def spread(sentences: Sequence[TaggedSentence], count: int | None) -> list[TaggedSentence]:
    """Take so many sentences with words, evenly spread; all if None."""
    sentences = [sentence for sentence in sentences if len(sentence.words)]
    return sentences if count is None else sentences[:: max(1, len(sentences) // count)][:count]


def print_ranking(name: str, arguments: argparse.Namespace) -> None:
    """Rank the layers by sentences and their translations."""
    folder = DATA / "parallel" / "flores_dev"
    if not folder.is_dir():
        print(f"No parallel sentences at {folder}: the layers are not ranked.\n")
        return
    encoder = load_encoder(name, RECIPE["max_length"]).to(arguments.device)

    def batches(language: str) -> list[dict[str, torch.Tensor]]:
        lines = (folder / f"flores-dev.{language}").read_text("utf-8").splitlines()[: arguments.parallel]
        parts = (encoder.pieces([line.split() for line in lines[i : i + 50]]) for i in range(0, len(lines), 50))
        return [{"input_ids": part.piece_ids, "attention_mask": part.piece_mask.long()} for part in parts]

    table = rank_layers(encoder.model, batches("en"), {language: batches(language) for language in TARGETS})
    print(f"Layers by {arguments.parallel} sentences of FLORES and their translations from English:\n")
    print(table.to_markdown() + "\n", flush=True)


def training_options(arguments: argparse.Namespace, freeze: str, metric: str) -> FitOptions:
    rate = arguments.learning_rate if freeze == "fine-tuned" else arguments.frozen_learning_rate

    def adamw(tagger: pe.SequenceTagger) -> torch.optim.Optimizer:
        return torch.optim.AdamW([value for value in tagger.parameters() if value.requires_grad], lr=rate)

    return FitOptions(
        num_train_epochs=arguments.epochs, batch_size=arguments.batch_size, optimizer=adamw, metric=metric
    )


def run_task(title: str, source: Corpus, targets: list[Corpus], metric: str, name: str, arguments: Any) -> None:
    """Train all systems on one task; print the table, draw scores against layers."""
    tags = tags_of(*(part for corpus in (source, *targets) for part in corpus[1:]))
    sizes = (arguments.train_size, arguments.dev_size, arguments.test_size)
    source = Corpus(source.language, *(spread(part, size) for part, size in zip(source[1:], sizes, strict=True)))
    targets = [corpus._replace(test=spread(corpus.test, arguments.test_size)) for corpus in targets]
    config = load_encoder(name, RECIPE["max_length"]).model.config
    size, count = config.hidden_size, config.num_hidden_layers
    layers = arguments.layers or list(range(1, count + 1))
    tested = {corpus.language for corpus in (source, *targets)}

    def build(freeze: str, fusion: LayerFusion, train: object, seed: int) -> pe.SequenceTagger:
        encoder = load_encoder(name, RECIPE["max_length"], fusion=fusion, freeze=FREEZE[freeze])
        decoder = pe.SoftmaxDecoder(encoder.embedding_dim, len(tags))
        return pe.SequenceTagger(encoder, tags, decoder=decoder).to(arguments.device)

    drawn = {}
    for freeze in arguments.freeze:
        swept = sweep_layers(
            partial(build, freeze),
            source,
            targets,
            training_options(arguments, freeze, metric),
            layers=layers,
            fusion=lambda layer: pe.DLFA(size, layer, weighting=arguments.weighting),
            beside={"ScalarMix": lambda: pe.ScalarMix(count + 1)},
            family=tested.intersection(RECIPE["family"]) if targets else None,
            seeds=range(arguments.seeds),
            folder=arguments.out / title / freeze,
            progress=False,
        )
        count_of = f"{len(source.train)} training sentences, {arguments.seeds} seeds"
        print(f"{title}, {freeze} encoder, {metric}, {count_of}:\n")
        print(swept.table.to_markdown() + "\n", flush=True)
        drawn[freeze] = next(iter(swept.scores.values()))
    try:
        ax = plot_layers(drawn, ylabel=metric)
    except ImportError as error:
        print(error)
        return
    path = arguments.out / title / "layers.png"
    ax.figure.savefig(path, dpi=150)
    print(f"Scores against layers: {path}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    add_file_arguments(parser, "a task")
    parser.add_argument("--metric", choices=("f1", "accuracy"), default="accuracy", help="of files of yours")
    add_encoder_arguments(parser)
    parser.add_argument("--layers", nargs="+", type=int, help="the lower layers of DLFA; all, the last too, if missing")
    parser.add_argument("--weighting", choices=("sigmoid", "literal"), default="sigmoid", help="of DLFA")
    parser.add_argument("--freeze", nargs="+", choices=FREEZE, default=list(FREEZE))
    for part in ("train", "dev", "test"):
        parser.add_argument(f"--{part}-size", type=int, help="sentences, evenly spread; all if missing")
    parser.add_argument("--parallel", type=int, default=200, help="sentences to rank the layers by")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=RECIPE["training"]["num_train_epochs"])
    parser.add_argument("--batch-size", type=int, default=RECIPE["training"]["batch_size"])
    parser.add_argument("--learning-rate", type=float, default=RECIPE["training"]["learning_rate"])
    parser.add_argument("--frozen-learning-rate", type=float, default=1e-3, help="over the frozen encoder")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("runs") / "layer_fusion")
    arguments = parser.parse_args()
    files = read_all_files(parser, arguments, DATA)
    if not (arguments.model or arguments.pretrain):
        arguments.pretrain = ["en", "tr", *TARGETS]
    name = find_model(arguments, ())
    print(f"Encoder: {name}\n")
    if files:
        run_task("files", Corpus("files", *files), [], arguments.metric, name, arguments)
        return
    print_ranking(name, arguments)
    for task in arguments.task:
        load, metric = TASKS[task]
        run_task(task, *load(), metric, name, arguments)


if __name__ == "__main__":
    main()
