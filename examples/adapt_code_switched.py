r"""Adapt a masked language model to code-switched text, then read tags and sentiment off it, frozen
(2503.07990).

    python examples/adapt_code_switched.py --mix sagt --pretrain de tr  # pretrains an encoder first
    python examples/adapt_code_switched.py --lince FOLDER --model bert-base-multilingual-cased \
        --epochs 1 3 5
    python examples/adapt_code_switched.py --train tweets.conll --dev dev.conll --test test.conll \
        --model FOLDER

The text is one or more mixes of the data folder (``$POLYEMBED_DATA``, else ``../shared/data``
beside the repository): ``sagt``, Turkish-German speech (parts of speech, language identification);
``spanglish``, Spanish-English tweets (language identification); ``hinglish``, Hindi-English tweets
(entities, sentiment, language identification). It may also be your own files, in any layout that
`read_tagged` knows.

As in the paper, it may be LinCE's four Spanglish tasks: a folder of ``pos_spaeng``, ``lid_spaeng``,
``ner_spaeng`` and ``sa_spaeng``, with ``train.conll`` and ``dev.conll`` in each. LinCE's test files
have no labels, so the heads are tested on its dev files, and the last tenth of train is their dev
set. Perplexity and the accuracy on masked pieces are measured on the dev file of ``lid_spaeng``.

Adaptation reads the training sentences alone. ``--control de.txt.xz tr.txt.xz`` adapts to the same
number of words of these texts instead, to show the effect of further training and more text alone.

For each share of the text and each number of epochs, the program adapts the encoder anew with every
seed; 0 epochs is the encoder without adaptation. It prints the perplexity on dev, the accuracy on
masked pieces at switches of language and elsewhere, and the scores of a linear head over the frozen
encoder for each task. A head's epoch is chosen on dev. F1, precision and recall are of whole
entities if the tags are of entities, else means over the labels. A picture shows the words of the
two languages, each encoded alone, before and after adaptation.
"""

import argparse
import random
from collections import Counter
from importlib.util import find_spec
from itertools import accumulate, chain
from pathlib import Path

import torch
from _cache import DATA
from _encoder import add_encoder_arguments, be_quiet, find_model, load_encoder
from _files import add_file_arguments, read_all_files, read_lines, tags_of
from _mixes import MIXES, Mix, Task, load_lince, mix_of_files, shortened
from _recipes import RECIPES, check_keys, positive
from _switches import switch_accuracy

import polyembed as pe
from polyembed.data import TaggedSentence
from polyembed.evaluation import (
    collect_hidden_states,
    plot_representations,
    representation_distances,
)
from polyembed.metrics import accuracy, entity_f1, per_tag
from polyembed.tables import Table, mean_and_deviation
from polyembed.tagging import FocalLoss, LabelCrossEntropy, class_weights
from polyembed.training import FitOptions, adapt_masked_lm, fit, perplexity

RECIPE = RECIPES["codeswitch2025"]
EXAMPLES = ("mlm_probability", "max_length", "truncation")
TAKES = {
    "adaptation": ("num_train_epochs", "learning_rate", "batch_size", *EXAMPLES),
    "heads": ("num_train_epochs", "learning_rate", "batch_size", "weight_decay", "max_grad_norm"),
}


def make_loss(name: str, labels: list[str], names: list[str]) -> torch.nn.Module:
    """Return the loss of a head, given the training labels and the names of all labels."""
    if name == "weighted":
        return LabelCrossEntropy(class_weights(labels, names))
    return FocalLoss() if name == "focal" else LabelCrossEntropy()


def head_scores(task: Task, folder: str, arguments: argparse.Namespace, seed: int) -> list[float]:
    """Train a head over the frozen encoder, and return its scores on test in percent.

    The epoch is chosen on dev. The scores are accuracy, F1, precision and recall.
    """
    encoder = load_encoder(folder, RECIPE["adaptation"]["max_length"], freeze="all")
    torch.manual_seed(seed)
    parts = tuple([sentence for sentence in part if len(sentence.words)] for part in task.parts)
    if task.sentiment:
        names = sorted({text.label for part in parts for text in part})
        loss = make_loss(arguments.loss, [text.label for text in parts[0]], names)
        model = pe.SequenceClassifier(encoder, names, criterion=loss)
    else:
        names = tags_of(*parts)
        labels = [tag for sentence in parts[0] for tag in sentence.tags if tag in names]
        model = pe.TokenClassifier(
            encoder, names, criterion=make_loss(arguments.loss, labels, names)
        )
    model.to(arguments.device)

    def adamw(model: torch.nn.Module) -> torch.optim.Optimizer:
        trained = [value for value in model.parameters() if value.requires_grad]
        rates = {
            "lr": arguments.head_learning_rate,
            "weight_decay": RECIPE["heads"]["weight_decay"],
        }
        return torch.optim.AdamW(trained, **rates)

    options = FitOptions(
        num_train_epochs=arguments.head_epochs,
        batch_size=RECIPE["heads"]["batch_size"],
        max_grad_norm=RECIPE["heads"]["max_grad_norm"],
        optimizer=adamw,
        metric=task.metric,
    )
    fit(model, parts[0], parts[1], options, seed=seed)
    gold = [model.labels_of(item) for item in parts[2]]
    predicted = [
        [found] if task.sentiment else found
        for found in model.predict([item.words for item in parts[2]])
    ]
    scores = (
        [entity_f1(gold, predicted)]
        if task.metric == "f1"
        else list(per_tag(gold, predicted).values())
    )
    means = [
        sum(getattr(score, name) for score in scores) / len(scores)
        for name in ("f1", "precision", "recall")
    ]
    return [100 * value for value in (accuracy(gold, predicted), *means)]


def frequent_words(mix: Mix, language: str, count: int) -> list[list[str]]:
    """Return the most frequent words of a language, each as a text of one word."""
    counts = Counter(
        word.lower()
        for sentence in (*mix.train, *mix.dev)
        for word, found in zip(sentence.words, sentence.languages or (), strict=False)
        if found == language and word.isalpha()
    )
    return [[word] for word, _ in counts.most_common(count)]


def word_clouds(folder: str, mix: Mix, arguments: argparse.Namespace) -> dict[str, torch.Tensor]:
    """Return the last layer's ``[CLS]`` vectors of each language's words, each encoded alone."""
    encoder = load_encoder(folder, RECIPE["adaptation"]["max_length"])
    encoder.to(arguments.device)
    last = encoder.model.config.num_hidden_layers
    clouds = {}
    for language in mix.languages:
        pieces = encoder.pieces(frequent_words(mix, language, arguments.words))
        batch = {"input_ids": pieces.piece_ids, "attention_mask": pieces.piece_mask.long()}
        clouds[language] = collect_hidden_states(encoder.model, [batch], last, "cls")
    return clouds


def draw(pictures: dict[str, dict[str, torch.Tensor]], path: Path) -> None:
    """Draw the words of both languages before and after, by UMAP if it is installed, else PCA."""
    method = "umap" if find_spec("umap") else "pca"
    try:
        axes = plot_representations(pictures, method)
    except ImportError as error:
        print(error)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    axes[0].figure.savefig(path, dpi=150)
    print(f"Words of both languages, by {method}: {path}\n")


def read_control(paths: list[Path]) -> list[str]:
    """Shuffle the lines of each text, and return one line of each text in turn."""
    try:
        texts = [[line.strip() for line in read_lines(path) if line.strip()] for path in paths]
    except (OSError, ValueError) as error:
        raise SystemExit(f"--control must be texts that open: {error}") from error
    for number, lines in enumerate(texts):
        random.Random(number).shuffle(lines)
    return list(chain.from_iterable(zip(*texts, strict=False)))


def of_as_many_words(lines: list[str], part: list[TaggedSentence]) -> list[str]:
    """Return the first lines that together have at least as many words as the sentences."""
    words = sum(len(sentence.words) for sentence in part)
    for count, size in enumerate(accumulate(len(line.split()) for line in lines), start=1):
        if size >= words:
            return lines[:count]
    raise SystemExit(f"--control must be texts of {words} words, got fewer")


def study(
    title: str, mix: Mix, model_name: str, control: list[str], arguments: argparse.Namespace
) -> None:
    """Adapt to each share of the text, or to as many words of the control, and print the scores."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer, TrainingArguments

    train, dev = (
        [sentence for sentence in part if len(sentence.words)] for part in (mix.train, mix.dev)
    )
    held_out = [" ".join(sentence.words) for sentence in dev]
    seen = [sentence for sentence in dev if sentence.languages][: arguments.switch_sentences]
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0)).tolist()
    rows, heads, pictures = [], [], {}
    settings = [
        (0.0, 0),
        *((share, epochs) for share in arguments.shares for epochs in arguments.epochs),
    ]
    for share, epochs in settings:
        part = [train[i] for i in order[: round(share * len(train))]]
        numbers, scores = [], {name: [] for name in mix.tasks}
        for seed in range(arguments.seeds):
            folder = model_name
            if part or not seed:  # without text all seeds have the same encoder
                model = AutoModelForMaskedLM.from_pretrained(model_name).to(arguments.device)
                tokenizer = AutoTokenizer.from_pretrained(model_name)
            if part:
                args = TrainingArguments(
                    num_train_epochs=epochs,
                    learning_rate=arguments.learning_rate,
                    per_device_train_batch_size=RECIPE["adaptation"]["batch_size"],
                    use_cpu=arguments.device == "cpu",
                    seed=seed,
                )
                texts = (
                    part
                    if arguments.mask_switches
                    else [" ".join(sentence.words) for sentence in part]
                )
                if control:
                    texts = of_as_many_words(control, part)
                options = {name: RECIPE["adaptation"][name] for name in EXAMPLES}
                adapt_masked_lm(
                    model,
                    tokenizer,
                    texts,
                    args,
                    mask_switches=arguments.mask_switches,
                    **options,
                )
                folder = str(arguments.out / title / f"share-{share:g}-epochs-{epochs}-seed-{seed}")
                model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)
            if part or not seed:
                measured = [perplexity(model, tokenizer, held_out)]
                if seen:
                    found = switch_accuracy(model, tokenizer, seen)
                    measured += [100 * found["switch"], 100 * found["rest"]]
                numbers.append(measured)
            for name, task in mix.tasks.items():
                scores[name].append(head_scores(task, folder, arguments, seed))
        about = (f"{100 * share:g} %", len(part), epochs)
        rows.append((*about, *map(mean_and_deviation, zip(*numbers, strict=True))))
        print(f"{title}, {about[0]}: " + ", ".join(map(str, rows[-1][1:])), flush=True)
        for name, runs in scores.items():
            heads.append(
                (name, about[0], epochs, *map(mean_and_deviation, zip(*runs, strict=True)))
            )
            print(f"{title}, " + ", ".join(map(str, heads[-1])), flush=True)
        drawn = len(mix.languages) == 2 and all(
            frequent_words(mix, language, 1) for language in mix.languages
        )
        if drawn and (share, epochs) in (settings[0], settings[-1]):
            pictures["after" if epochs else "before"] = word_clouds(folder, mix, arguments)
    columns = ["text", "sentences", "epochs", "perplexity"] + (
        ["at switches %", "elsewhere %"] if seen else []
    )
    print(f"\n{title}, {len(train)} training sentences:\n\n{Table(columns, rows).to_markdown()}\n")
    columns = ["task", "text", "epochs", "accuracy", "F1", "precision", "recall"]
    heads.sort(key=lambda row: list(mix.tasks).index(row[0]))
    print(f"{title}, heads over the frozen encoder, {arguments.loss}, {arguments.seeds} seeds:\n")
    print(Table(columns, heads).to_markdown() + "\n", flush=True)
    if pictures:
        for name, clouds in pictures.items():
            print(f"{name}: {representation_distances(*clouds.values())}")
        draw(pictures, arguments.out / title / "words.png")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mix", nargs="+", choices=MIXES, default=list(MIXES))
    parser.add_argument(
        "--lince",
        type=Path,
        metavar="FOLDER",
        help="the folder of LinCE's Spanglish tasks, instead of a mix",
    )
    add_file_arguments(parser, "a mix")
    parser.add_argument(
        "--metric",
        choices=("f1", "accuracy"),
        default="accuracy",
        help="the metric for your own files",
    )
    add_encoder_arguments(parser)
    parser.add_argument(
        "--shares",
        nargs="+",
        type=float,
        default=[0.1, 0.5, 1.0],
        help="the shares of the text to adapt to",
    )
    epochs = [RECIPE["adaptation"]["num_train_epochs"]]
    parser.add_argument(
        "--epochs",
        nargs="+",
        type=positive,
        default=epochs,
        help="the numbers of epochs of adaptation; each number is a separate training",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--control",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="texts to adapt to instead, with the same number of words",
    )
    instead.add_argument(
        "--mask-switches",
        action="store_true",
        help="mask words at switches of language with priority",
    )
    parser.add_argument(
        "--loss",
        choices=("cross-entropy", "weighted", "focal"),
        default="cross-entropy",
        help="the loss of the heads",
    )
    parser.add_argument(
        "--learning-rate", type=float, default=RECIPE["adaptation"]["learning_rate"]
    )
    parser.add_argument("--head-epochs", type=positive, default=RECIPE["heads"]["num_train_epochs"])
    parser.add_argument(
        "--head-learning-rate", type=float, default=RECIPE["heads"]["learning_rate"]
    )
    parser.add_argument(
        "--size-of-parts",
        type=positive,
        help="the number of sentences of each part to use, from its start; all if missing",
    )
    parser.add_argument(
        "--switch-sentences",
        type=positive,
        default=300,
        help="the largest number of dev sentences for the accuracy at switches",
    )
    parser.add_argument(
        "--words",
        type=int,
        default=300,
        help="the largest number of words of each language in the picture",
    )
    parser.add_argument(
        "--seeds",
        type=positive,
        default=3,
        help="the number of seeds; each is the seed of an adaptation and of its heads",
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("runs") / "adapt_code_switched")
    arguments = parser.parse_args()
    if not all(0 < share <= 1 for share in arguments.shares):
        parser.error(f"--shares must be in (0, 1], got {arguments.shares}")
    check_keys("codeswitch2025", RECIPE, None, TAKES)
    for section, keys in TAKES.items():
        check_keys(f"codeswitch2025.{section}", RECIPE[section], None, keys)
    if arguments.lince:
        mixes = {"lince": load_lince(arguments.lince)}
    elif files := read_all_files(parser, arguments, DATA):
        mixes = {"files": mix_of_files(*files, arguments.metric)}
    else:
        mixes = {name: MIXES[name]() for name in arguments.mix}
    for title, mix in mixes.items():
        if arguments.mask_switches and not all(
            sentence.languages for sentence in mix.train if len(sentence.words)
        ):
            raise SystemExit(
                f"--mask-switches must have a language for each word, got none in {title}"
            )
    mixes = {name: shortened(mix, arguments.size_of_parts) for name, mix in mixes.items()}
    control = read_control(arguments.control or [])
    for mix in mixes.values():  # exit if the texts are too short, before anything trains
        if arguments.control:
            of_as_many_words(control, mix.train)
    if not (arguments.model or arguments.pretrain):
        arguments.pretrain = ["de", "tr", "en", "es", "hi"]
    name = find_model(arguments, ())
    be_quiet()
    print(f"Encoder: {name}\n")
    for title, mix in mixes.items():
        study(title, mix, name, control, arguments)


if __name__ == "__main__":
    main()
