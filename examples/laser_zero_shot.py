r"""LASER's states as word vectors, zero-shot and in joint training (van der Heijden 2019), on
CoNLL-2002 and 2003.

    python examples/laser_zero_shot.py --encoder FOLDER  # entities, es -> nl and nl -> es
    python examples/laser_zero_shot.py --task pos --device cuda  # over the paper's encoder, LASER 1
    python examples/laser_zero_shot.py --languages en es nl de eu hu --sources en \
        --data FOLDER FOLDER  # the paper's table 2
    python examples/laser_zero_shot.py --encoder FOLDER --protocols joint  # scenarios A and B
    python examples/laser_zero_shot.py --encoder FOLDER --search 10  # choose dropout and L2 on dev
    python examples/laser_zero_shot.py --model bert-base-multilingual-cased  # of transformers

``--encoder`` is a folder of examples/pretrain_laser.py, or ``laser1`` or ``laser2``. For zero-shot
transfer a system is trained on each source language alone and tested on all languages, so the table
has its scores on its own language and on the others.

The systems are the five word encoders of the paper (``BPEBow``, ``BPEGRU``, ``LaserTop``,
``LaserElmo``, and ``LSTM``, which is LaserElmo over two random layers), static vectors of all
languages aligned into one space (``MUSE``), and with ``--model`` any encoder of transformers. With
``--aligned`` the ``--vectors`` are not aligned again: MUSE's own files share a space already. All
systems except the encoder of transformers have the paper's task model, a Transformer and a CRF. All
systems read words in lower case, with normalised punctuation.

The sentences are from CoNLL-2002 in the data folder (`$POLYEMBED_DATA`, else ``../shared/data``
beside the repository), or from ``--data``: folders of the shared tasks' own files (``esp``,
``ned``, ``eng`` and ``deu``, ``.train``, ``.testa`` and ``.testb``, in UTF-8) or of
``<lang>.train.conll``, ``<lang>.dev.conll`` and ``<lang>.test.conll`` (word first, tag last). The
shared tasks' parts of speech become the 12 universal tags; entities in IOB1 become IOB2. A language
that has only a test file is only tested.

For zero-shot transfer the program also prints the sign test against LaserTop. For entities it
prints the confusion of B, I and O, and the entities that MUSE gets wrong with every seed and
LaserTop (else LaserElmo) right with every seed. For joint training it draws the chart of B - A
(figures 3 and 4). Runs are kept in ``--folder``, so the same command continues an interrupted run.
"""

import argparse
import copy
import math
import operator
import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import regex
import torch
from _cache import DATA
from _conll import normalizer, read_corpora
from _files import read_lines
from _laser import (
    RECIPES,
    bio_confusion,
    build_tagger,
    build_transformer_tagger,
    check_recipe,
    training_options,
)
from _recipes import positive

import polyembed as pe
from polyembed.data import TaggedSentence
from polyembed.encoders import LaserEncoder, LaserSentences, load_laser
from polyembed.evaluation import (
    Corpus,
    ProtocolResult,
    run_code_switched,
    run_joint,
    run_zero_shot,
    significance_table,
)
from polyembed.evaluation.protocols import Build
from polyembed.metrics import entities, macro_f1
from polyembed.tables import Table
from polyembed.training import FitOptions
from polyembed.vectors import FastTextVectors, JoinedVectors, TextVectors

BASELINES = ("MUSE", "BPEBow", "BPEGRU")
LASER = ("LSTM", "LaserTop", "LaserElmo")
WORDS = (*BASELINES, *LASER)
Settings = dict[str, float]
"""The values that replace the recipe's in a search, by name."""
SEARCH_SENTENCES = 500


def open_encoder(name: str) -> tuple[LaserEncoder, Any]:
    """Load a released encoder by its name, or an encoder from a folder."""
    if name in ("laser1", "laser2"):
        return load_laser(name)
    sentences = LaserSentences.from_pretrained(name)
    return sentences.encoder, sentences.tokenizer


def raw_text(path: Path, arguments: argparse.Namespace) -> Iterator[Sequence[str]]:
    """Read text, split into words and punctuation and then normalised."""
    words = normalizer(arguments)
    for line in islice(read_lines(path), arguments.lines):
        yield words(regex.findall(r"\w+|[^\w\s]", line))


def open_vectors(
    language: str, arguments: argparse.Namespace, train: Sequence[TaggedSentence]
) -> Any:
    """Load a language's static vectors.

    If no file is named, they are trained first, on raw text and the training sentences.
    """
    given = dict(pair.split("=", 1) for pair in arguments.vectors).get(language)
    if given is not None:
        return FastTextVectors(given) if Path(given).suffix == ".bin" else TextVectors(given)
    path = (
        arguments.folder
        / "vectors"
        / f"{language}{'-normalized' if arguments.normalize else ''}.bin"
    )
    if path.exists():
        return FastTextVectors(path)
    corpus = [" ".join(sentence.words).split() for sentence in train]
    texts = [arguments.text / f"{language}{end}" for end in (".txt.xz", ".txt")]
    for text in [text for text in texts if text.exists()][:1]:
        corpus += raw_text(text, arguments)
    if not corpus:
        raise SystemExit(
            f"--vectors must name vectors of {language!r}, which has no text to train them on, got none"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = {"dim": arguments.dim, "min_count": 2, "bucket": 100_000, "epochs": 10}
    return FastTextVectors.train(corpus, path, **sizes)


def aligned_vectors(corpora: Sequence[Corpus], arguments: argparse.Namespace) -> JoinedVectors:
    """Align all languages' static vectors to the first language's.

    With ``--aligned`` they share a space already, and are only joined.
    """
    first, *others = (open_vectors(corpus.language, arguments, corpus.train) for corpus in corpora)
    if arguments.aligned:
        return JoinedVectors([first, *others])
    turned = [
        pe.align_spaces(other, first, dictionary="identical", max_words=20_000)(other)
        for other in others
    ]
    return JoinedVectors([first, *turned])


def make_systems(
    corpora: Sequence[Corpus], arguments: argparse.Namespace
) -> dict[str, Callable[[Settings], Build]]:
    """Return the systems by name, each as a function of its settings.

    The first corpus is the source.
    """
    tags = sorted(
        {
            tag
            for corpus in corpora
            for part in corpus[1:]
            for sentence in part
            for tag in sentence.tags
        }
    )
    encoder, tokenizer = open_encoder(arguments.encoder) if arguments.encoder else (None, None)
    static = aligned_vectors(corpora, arguments) if "MUSE" in arguments.systems else None
    freeze = arguments.freeze

    def random_encoder() -> LaserEncoder:
        sizes = (encoder.num_embeddings, encoder.embedding_dim, encoder.hidden_size)
        return LaserEncoder(*sizes, num_layers=2, dictionary=encoder.dictionary)

    def table() -> torch.nn.Embedding:
        return copy.deepcopy(encoder.embed_tokens)

    embeddings = "none" if freeze == "none" else "embeddings"
    words: dict[str, Callable[[], Any]] = {
        "BPEBow": lambda: pe.encoders.BPEBow(table(), tokenizer, freeze=embeddings),
        "BPEGRU": lambda: pe.encoders.BPEGRU(table(), tokenizer, freeze=embeddings),
        "LaserTop": lambda: pe.encoders.LaserTop(copy.deepcopy(encoder), tokenizer, freeze=freeze),
        "LaserElmo": lambda: pe.encoders.LaserElmo(
            copy.deepcopy(encoder), tokenizer, freeze=freeze
        ),
        "LSTM": lambda: pe.encoders.LaserElmo(random_encoder(), tokenizer),
    }

    def over_words(name: str, settings: Settings) -> Build:
        changes = {key: value for key, value in settings.items() if key in RECIPES["encoder"]}

        def build(train: Sequence[TaggedSentence], seed: int) -> pe.SequenceTagger:
            if name != "MUSE":
                return build_tagger(words[name](), tags, **changes).to(arguments.device)
            lexicon = pe.Lexicon.from_sentences(sentence.words for sentence in train)
            vectors = pe.SourceEmbedding(static, lexicon)
            return build_tagger(vectors, tags, **changes).to(arguments.device)

        return build

    def of_transformers(settings: Settings) -> Build:
        from transformers import logging

        logging.set_verbosity_error()  # it warns that the head is left out, which is intended

        def build(train: Sequence[TaggedSentence], seed: int) -> pe.SequenceTagger:
            return build_transformer_tagger(pe.PretrainedWordEncoder(arguments.model), tags).to(
                arguments.device
            )

        return build

    found = {
        name: lambda settings, name=name: over_words(name, settings) for name in arguments.systems
    }
    return found | ({Path(arguments.model).name: of_transformers} if arguments.model else {})


def training(
    name: str, arguments: argparse.Namespace, sentences: int, settings: Settings, metric: str
) -> FitOptions:
    """Return the options of a system's training: the recipe of its kind, with changes.

    `sentences` is the number of training sentences.
    """
    kind = (
        "laser"
        if name in LASER and not arguments.adam
        else "baselines"
        if name in WORDS
        else "transformers"
    )
    changes: dict[str, Any] = {"num_train_epochs": arguments.epochs} if arguments.epochs else {}
    changes |= {key: value for key, value in settings.items() if key in RECIPES[kind]["training"]}
    return training_options(kind, sentences, **changes, metric=metric)


def propose(trials: int) -> Iterator[tuple[Settings, Callable[[float], None]]]:
    """Propose settings, each with a function that takes its score.

    The settings are drawn by Optuna if it is installed, else at random.
    """
    ranges = RECIPES["laser"]["search"]
    try:
        import optuna
    except ImportError:
        order = random.Random(0)
        for _ in range(trials):
            found = {}
            for name, (low, high) in ranges.items():
                exponent = name == "weight_decay"
                value = (
                    10 ** order.uniform(math.log10(low), math.log10(high))
                    if exponent
                    else order.uniform(low, high)
                )
                found[name] = float(f"{value:.3g}")
            yield found, lambda score: None
        return
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    for _ in range(trials):
        trial = study.ask()
        found = {
            name: trial.suggest_float(name, *ends, log=name == "weight_decay")
            for name, ends in ranges.items()
        }
        yield found, lambda score, trial=trial: study.tell(trial, score)


def search(
    name: str,
    system: Callable[[Settings], Build],
    source: Corpus,
    arguments: argparse.Namespace,
    metric: str,
) -> Settings:
    """Choose dropout and L2 on the source's development sentences.

    ``--search`` is the number of trials. Each trains on the first `SEARCH_SENTENCES` sentences.
    """
    corpus = Corpus(source.language, source.train[:SEARCH_SENTENCES], source.dev, source.dev)
    best: tuple[float, Settings] = (-1.0, {})
    for number, (settings, tell) in enumerate(propose(arguments.search)):
        result = run_code_switched(
            {name: system(settings)},
            [corpus],
            training(name, arguments, len(corpus.train), settings, metric),
            seeds=[0],
            folder=arguments.folder / "search" / f"{number}",
        )
        score = result.runs[0].training.best.score
        tell(score)
        best = max(best, (score, settings), key=lambda pair: pair[0])
    print(f"{name} on {source.language}: {best[1]}, dev {best[0]:.4f}")
    return best[1]


def wins(
    result: ProtocolResult, corpus: Corpus, static: str, contextual: str
) -> list[tuple[str, ...]]:
    """List the entities that `static` gets wrong and `contextual` gets right with every seed."""

    def found(system: str) -> list[list[set[Any]]]:
        runs = result.predictions(system, corpus.language).values()
        return [[set(entities(tags)) for tags in run] for run in runs]

    one, other = found(static), found(contextual)
    said = next(iter(result.predictions(static, corpus.language).values()))
    rows = []
    for i, sentence in enumerate(corpus.test):
        for entity in entities(sentence.tags):
            if any(entity in run[i] for run in one) or not all(entity in run[i] for run in other):
                continue
            start, end = entity.start, entity.end
            before, after = sentence.words[max(0, start - 4) : start], sentence.words[end : end + 4]
            around = " ".join((*before, "[", *sentence.words[start:end], "]", *after))
            rows.append((entity.type, around, " ".join(said[i][start:end])))
    return rows


def confusion(result: ProtocolResult, language: str, systems: Sequence[str]) -> Table:
    """Return each system's confusion of B, I and O as shares of each gold label (figure 5).

    The shares are over the predictions of all seeds.
    """
    rows = []
    for system in systems:
        runs = result.predictions(system, language).values()
        predicted = [tags for run in runs for tags in run]
        table = bio_confusion(result.gold[language] * len(runs), predicted, normalize=True)
        rows += [(system, *row) for row in table.rows]
    return Table(("system", *table.columns), rows, digits=4)


def report(title: str, table: Table, folder: Path, listed: int | None = None) -> None:
    """Print a table, or its first rows, and write the whole table to a file."""
    shown = title if listed is None else f"{title}: {len(table.rows)}"
    print(
        f"\n### {shown}\n\n{Table(table.columns, table.rows[:listed], table.digits).to_markdown()}",
        flush=True,
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{'_'.join(re.findall('[^ ,]+', title))}.md").write_text(
        table.to_markdown() + "\n", "utf-8"
    )


def report_scores(title: str, result: ProtocolResult, arguments: argparse.Namespace) -> None:
    """Report the table of a result.

    For parts of speech, whose accuracy is their micro F1, also report the mean F1 of the tags.
    """
    report(title, result.table, arguments.folder)
    if arguments.task == "pos":
        runs = [
            run._replace(
                scores={
                    name: macro_f1(result.gold[name], tags)
                    for name, tags in run.predictions.items()
                }
            )
            for run in result.runs
        ]
        table = ProtocolResult(tuple(runs), result.gold, "macro_f1").table
        report(f"{title}, mean F1 of the tags", table, arguments.folder)


def report_transfer(
    result: ProtocolResult, source: str, others: Sequence[Corpus], arguments: Any
) -> None:
    """Report the sign test against LaserTop, and for entities a comparison of errors.

    MUSE is compared with LaserTop, or with LaserElmo if LaserTop is missing.
    """
    systems = {run.system for run in result.runs}
    if "LaserTop" in systems and len(systems) > 1:
        if find_spec("scipy"):
            table = significance_table(result, "LaserTop", test="sign")
            report(
                f"{arguments.task} trained on {source}, sign test against LaserTop",
                table,
                arguments.folder,
            )
        else:
            print("No sign test: pip install scipy")
    contextual = next((name for name in ("LaserTop", "LaserElmo") if name in systems), None)
    if arguments.task == "pos" or "MUSE" not in systems or contextual is None:
        return
    for corpus in others:
        title = f"{corpus.language} trained on {source}"
        table = confusion(result, corpus.language, ["MUSE", contextual])
        report(f"{title}, confusion of B, I and O", table, arguments.folder)
        table = Table(("type", "entity", "MUSE said"), wins(result, corpus, "MUSE", contextual))
        title += f", entities that {contextual} gets right and MUSE wrong"
        report(title, table, arguments.folder, arguments.listed)


def draw_gain(result: Table, path: Path, title: str) -> None:
    """Draw B - A as bars, with a group of bars per language, as in figures 3 and 4.

    The figures compare English with its own score.
    """
    try:
        import matplotlib
    except ImportError:
        print("No picture: pip install matplotlib")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    languages = result.columns[1:]
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    width = 0.8 / len(result.rows)
    for number, (system, *cells) in enumerate(result.rows):
        places = [language + number * width for language in range(len(languages))]
        errors = [100 * (cell.deviation or 0.0) for cell in cells]
        axes.bar(places, [100 * cell.mean for cell in cells], width, yerr=errors, label=system)
    axes.axhline(0, color="0.3", linewidth=0.8)
    axes.set_xticks([language + 0.4 - width / 2 for language in range(len(languages))], languages)
    axes.set_ylabel("B - A, points")
    axes.set_title(title)
    axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    print(f"\nB - A: {path}")


def run(
    protocol: str, source: Corpus, others: Sequence[Corpus], systems: dict[str, Callable[[Settings], Build]],
    chosen: dict[str, Settings], arguments: argparse.Namespace, metric: str,
) -> ProtocolResult:  # fmt: skip
    """Run a protocol, and train each system by the recipe of its kind."""
    results = []
    count = len(source.train)
    trained, tested = (
        [corpus for corpus in others if bool(corpus.train) is kind] for kind in (True, False)
    )
    if protocol != "zero_shot":
        part = arguments.fraction
        count = max(1, round(part * count)) if protocol == "A" else count
        count += sum(max(1, round(part * len(other.train))) for other in trained)
    for name, system in systems.items():
        options = training(name, arguments, count, chosen[name], metric)
        keep = {
            "seeds": range(arguments.seeds),
            "folder": arguments.folder / source.language,
            "progress": False,
        }
        if protocol == "zero_shot":
            results.append(
                run_zero_shot({name: system(chosen[name])}, source, others, options, **keep)
            )
        else:
            keep |= {"scenario": protocol, "fraction": arguments.fraction, "targets": tested}
            results.append(
                run_joint({name: system(chosen[name])}, source, trained, options, **keep)
            )
        seconds = sum(epoch.seconds for run in results[-1].runs for epoch in run.training.history)
        best = [run.training.best.number for run in results[-1].runs]
        print(
            f"{protocol}, {source.language}, {name}: {seconds:.0f} s, best epochs {best}",
            flush=True,
        )
    return reduce(operator.add, results)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", choices=("ner", "pos"), default="ner")
    parser.add_argument(
        "--protocols", nargs="+", choices=("zero_shot", "joint"), default=["zero_shot"]
    )
    parser.add_argument(
        "--encoder",
        help="the LASER encoder: a folder of pretrain_laser.py, laser1 (if missing) or laser2",
    )
    parser.add_argument(
        "--systems",
        nargs="*",
        choices=WORDS,
        help="the systems to train; if missing all, or none if --model is given without --encoder",
    )
    parser.add_argument(
        "--model", help="the name or folder of a checkpoint of transformers, as one more system"
    )
    parser.add_argument(
        "--freeze",
        choices=("none", "embeddings", "all"),
        default="none",
        help="the part of the pretrained encoder that is not trained further",
    )
    parser.add_argument("--languages", nargs="+", default=["es", "nl"])
    parser.add_argument(
        "--sources",
        nargs="+",
        help="the languages to train on in turn; if missing, all that have files to train and to "
        "develop on",
    )
    parser.add_argument(
        "--data",
        nargs="+",
        type=Path,
        default=[DATA / "conll2002", DATA / "conll2003"],
        help="the folders of the files of sentences",
    )
    parser.add_argument(
        "--normalize",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="put words in lower case and normalise punctuation",
    )
    parser.add_argument(
        "--sentences",
        type=positive,
        help="the number of training sentences of each language; all if missing",
    )
    parser.add_argument(
        "--dev",
        type=positive,
        help="the number of development sentences of each language; all if missing",
    )
    parser.add_argument(
        "--test",
        type=positive,
        help="the number of test sentences of each language; all if missing",
    )
    parser.add_argument(
        "--fraction",
        type=float,
        default=0.25,
        help="the fraction of a language's sentences in joint training",
    )
    parser.add_argument(
        "--epochs", type=positive, help="the number of epochs, instead of the recipe's"
    )
    parser.add_argument(
        "--adam",
        action="store_true",
        help="train the LASER systems and LSTM as the baselines are trained",
    )
    parser.add_argument(
        "--search",
        type=positive,
        default=0,
        metavar="N",
        help="choose dropout and L2 of the LASER systems and LSTM by N trials",
    )
    parser.add_argument(
        "--vectors",
        nargs="+",
        default=[],
        metavar="LANG=FILE",
        help="the static vectors of languages; if missing, they are trained here",
    )
    parser.add_argument(
        "--aligned",
        action="store_true",
        help="the --vectors share a space already; they must be given for every language",
    )
    parser.add_argument(
        "--text",
        type=Path,
        default=DATA / "text" / "mono",
        help="the folder of raw text to train static vectors on",
    )
    parser.add_argument(
        "--lines",
        type=positive,
        default=20_000,
        help="the largest number of lines of each language's raw text",
    )
    parser.add_argument(
        "--dim",
        type=positive,
        default=100,
        help="the number of dimensions of the static vectors that are trained here",
    )
    parser.add_argument("--seeds", type=positive, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--listed",
        type=int,
        default=10,
        help="the number of entities that are printed in a list of errors",
    )
    parser.add_argument("--folder", type=Path, default=Path("runs") / "laser_zero_shot")
    arguments = parser.parse_args()
    if arguments.systems is None:
        arguments.systems = [] if arguments.model and not arguments.encoder else list(WORDS)
    if set(arguments.systems) - {"MUSE"}:
        arguments.encoder = arguments.encoder or RECIPES["pretrained"]
    if not arguments.systems and not arguments.model:
        parser.error("--systems or --model must name a system")
    if len(set(arguments.languages)) < len(arguments.languages):
        parser.error(f"--languages must name each language once, got {arguments.languages}")
    given = [pair.partition("=") for pair in arguments.vectors]
    if not all(language and path for language, _, path in given):
        parser.error(f"--vectors must be LANG=FILE each, got {arguments.vectors}")
    missing = sorted(set(arguments.languages) - {language for language, _, _ in given})
    if arguments.aligned and missing:
        parser.error(f"--aligned must come with --vectors of every language, got none of {missing}")
    arguments.folder = arguments.folder / arguments.task
    return arguments


def main() -> None:
    arguments = parse_arguments()
    check_recipe()
    corpora = read_corpora(arguments)
    metric = "f1" if arguments.task == "ner" else "accuracy"
    for source in corpora:
        if source.language not in arguments.sources:
            continue
        others = [corpus for corpus in corpora if corpus is not source]
        systems = make_systems([source, *others], arguments)
        chosen = {
            name: search(name, system, source, arguments, metric)
            if arguments.search and name in LASER
            else {}
            for name, system in systems.items()
        }
        common = (source, others, systems, chosen, arguments, metric)
        if "zero_shot" in arguments.protocols:
            result = run("zero_shot", *common)
            report_scores(f"{arguments.task} trained on {source.language}", result, arguments)
            report_transfer(result, source.language, others, arguments)
        if "joint" in arguments.protocols:
            a, b = (run(scenario, *common) for scenario in ("A", "B"))
            for scenario, result in (("A", a), ("B", b)):
                report_scores(
                    f"{arguments.task} joint {scenario} with {source.language}", result, arguments
                )
            change = b.gain_over(a)
            report(f"{arguments.task} B - A with {source.language}", change, arguments.folder)
            title = (
                f"{arguments.task}, all of {source.language}, {arguments.fraction:g} of the others"
            )
            draw_gain(change, arguments.folder / f"gain_{source.language}.png", title)


if __name__ == "__main__":
    main()
