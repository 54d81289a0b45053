r"""Adapt a masked language model to code-switched text, then read tags and sentiment off it, frozen (2503.07990).

    python examples/adapt_code_switched.py --mix sagt --pretrain de tr                # pretrains an encoder first
    python examples/adapt_code_switched.py --model bert-base-multilingual-cased --device cuda
    python examples/adapt_code_switched.py --train tweets.conll --dev dev.conll --test test.conll --model FOLDER

Mixes of the data folder (``$POLYEMBED_DATA``, else ``../shared/data`` beside the repository): ``sagt``, Turkish-German
speech (parts of speech, language identification); ``spanglish``, Spanish-English tweets (language identification);
``hinglish``, Hindi-English tweets (entities, sentiment, language identification). Or files of yours in any layout that
`read_tagged` knows. Adaptation reads the training sentences alone.

For each share of the text (0 is the encoder as it was): perplexity on dev; accuracy on masked pieces where the language
switches and elsewhere; and the score of a linear head over the frozen encoder for each task, over seeds, each head's
epoch chosen on dev. Then the two languages' words, each encoded alone, in a picture before and after.
"""

import argparse
import os
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch
from _encoder import add_encoder_arguments, be_quiet, find_model, load_encoder
from _files import add_file_arguments, read_all_files, tags_of

import polyembed as pe
from polyembed.data import TaggedSentence, read_conllu, read_csv, read_inline, read_sentimix
from polyembed.experiments import cloud_distances, plot_clouds, representations
from polyembed.metrics import accuracy, entity_f1
from polyembed.tables import Table, mean_and_deviation
from polyembed.training import FitOptions, adapt_masked_lm, fit, perplexity, switch_points

RECIPE = tomllib.loads(Path(__file__).with_name("recipes.toml").read_text("utf-8"))["codeswitch2025"]
DATA = Path(os.environ.get("POLYEMBED_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
Sentences = list[TaggedSentence]
Parts = tuple[Sentences, Sentences, Sentences]


class Task(NamedTuple):
    """What a head learns: train, dev and test, and its score."""

    parts: Parts
    metric: str
    sentiment: bool = False


class Mix(NamedTuple):
    """Text of two languages: what is adapted to, what is looked at, and the tasks."""

    train: Sentences
    dev: Sentences
    languages: tuple[str, str]
    tasks: dict[str, Task]


def load_sagt() -> Mix:
    """Read Turkish-German speech."""
    folder = DATA / "code_switched" / "ud_turkish_german_sagt"
    parts = tuple(
        read_conllu(folder / f"qtd_sagt-ud-{part}.conllu", language="misc:CSID") for part in ("train", "dev", "test")
    )
    tasks = {"POS": Task(parts, "accuracy"), "LID": Task(tuple(map(languages_as_tags, parts)), "accuracy")}
    return Mix(parts[0], parts[1], ("TR", "DE"), tasks)


def load_spanglish() -> Mix:
    """Read Spanish-English tweets."""
    folder = DATA / "code_switched" / "spanglish_lid_calcs"
    tweets, test = (read_inline(folder / name) for name in ("train.enes.txt", "test_enes.txt"))
    train, dev, _ = split([replace(tweet, languages=tweet.tags) for tweet in tweets], 0.9, 1.0)
    return Mix(train, dev, ("lang1", "lang2"), {"LID": Task((train, dev, test), "accuracy")})


def load_hinglish() -> Mix:
    """Read Hindi-English tweets, of two corpora."""
    folder = DATA / "code_switched"
    tagged = split(read_csv(folder / "hinglish_ner" / "annotatedData.csv"), 0.8, 0.9)
    rated = split(read_sentimix(folder / "hinglish_sentimix" / "dev_3k_split_conll.txt"), 0.8, 0.9)
    tasks = {
        "NER": Task(tagged, "f1"),
        "sentiment": Task(rated, "accuracy", sentiment=True),
        "LID": Task(rated, "accuracy"),
    }
    return Mix(tagged[0] + rated[0], rated[1], ("Hin", "Eng"), tasks)


MIXES: dict[str, Callable[[], Mix]] = {"sagt": load_sagt, "spanglish": load_spanglish, "hinglish": load_hinglish}


def split(sentences: Sentences, *cuts: float) -> Parts:
    """Cut a corpus into train, dev and test."""
    first, second = (round(cut * len(sentences)) for cut in cuts)
    return sentences[:first], sentences[first:second], sentences[second:]


def languages_as_tags(sentences: Sentences) -> Sentences:
    """Make each word's language its tag."""
    return [replace(sentence, tags=sentence.languages) for sentence in sentences]


def head_score(task: Task, folder: str, arguments: argparse.Namespace, seed: int) -> float:
    """Train a head over the frozen encoder; the epoch is chosen on dev. Gives the score on test."""
    encoder = load_encoder(folder, RECIPE["adaptation"]["max_length"], freeze="all")
    torch.manual_seed(seed)
    parts = tuple([sentence for sentence in part if len(sentence.words)] for part in task.parts)
    if task.sentiment:
        model = pe.SequenceClassifier(encoder, sorted({text.label for part in parts for text in part}))
    else:
        model = pe.TokenClassifier(encoder, tags_of(*parts))
    model.to(arguments.device)

    def adamw(model: torch.nn.Module) -> torch.optim.Optimizer:
        trained = [value for value in model.parameters() if value.requires_grad]
        return torch.optim.AdamW(trained, lr=arguments.head_learning_rate)

    options = FitOptions(
        num_train_epochs=arguments.head_epochs,
        batch_size=RECIPE["heads"]["batch_size"],
        optimizer=adamw,
        metric=task.metric,
    )
    fit(model, parts[0], parts[1], options, seed=seed, progress=False)
    predicted = model.predict([item.words for item in parts[2]])
    if task.sentiment:
        return 100 * accuracy([[text.label for text in parts[2]]], [predicted])
    gold = [list(sentence.tags) for sentence in parts[2]]
    return 100 * (entity_f1(gold, predicted, mode="conll").f1 if task.metric == "f1" else accuracy(gold, predicted))


def frequent_words(mix: Mix, language: str, count: int) -> list[list[str]]:
    """Give the words that most often stand in a language, each a text of its own."""
    counts = Counter(
        word.lower()
        for sentence in (*mix.train, *mix.dev)
        for word, found in zip(sentence.words, sentence.languages or (), strict=False)
        if found == language and word.isalpha()
    )
    return [[word] for word, _ in counts.most_common(count)]


def word_clouds(folder: str, mix: Mix, arguments: argparse.Namespace) -> dict[str, torch.Tensor]:
    """Encode each language's words, each alone: the vectors of ``[CLS]`` at the last layer."""
    encoder = load_encoder(folder, RECIPE["adaptation"]["max_length"])
    encoder.to(arguments.device)
    last = encoder.model.config.num_hidden_layers
    clouds = {}
    for language in mix.languages:
        pieces = encoder.pieces(frequent_words(mix, language, arguments.words))
        batch = {"input_ids": pieces.piece_ids, "attention_mask": pieces.piece_mask.long()}
        clouds[language] = representations(encoder.model, [batch], last, "cls")
    return clouds


def draw(pictures: dict[str, dict[str, torch.Tensor]], path: Path) -> None:
    """Draw the words of both languages before and after, by UMAP where it is installed."""
    method = "umap" if find_spec("umap") else "pca"
    try:
        axes = plot_clouds(pictures, method)
    except ImportError as error:
        print(error)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    axes[0].figure.savefig(path, dpi=150)
    print(f"Words of both languages, by {method}: {path}\n")


def study(title: str, mix: Mix, model_name: str, arguments: argparse.Namespace) -> None:
    """Adapt to each share of the text, and score all of it."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer, TrainingArguments

    def texts_of(sentences: Sentences) -> list[str]:
        return [" ".join(sentence.words) for sentence in sentences if len(sentence.words)]

    texts, held_out = texts_of(mix.train), texts_of(mix.dev)
    seen = [sentence for sentence in mix.dev if sentence.languages and len(sentence.words)][
        : arguments.switch_sentences
    ]
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0)).tolist()
    rows, pictures = [], {}
    for share in (0.0, *arguments.shares):
        model = AutoModelForMaskedLM.from_pretrained(model_name).to(arguments.device)
        tokenizer = AutoTokenizer.from_pretrained(model_name)
        part = [texts[i] for i in order[: round(share * len(texts))]]
        if part:
            args = TrainingArguments(
                num_train_epochs=arguments.epochs,
                learning_rate=arguments.learning_rate,
                per_device_train_batch_size=RECIPE["adaptation"]["batch_size"],
                use_cpu=arguments.device == "cpu",
                seed=0,
            )
            options = {name: RECIPE["adaptation"][name] for name in ("mlm_probability", "max_length")}
            adapt_masked_lm(model, tokenizer, part, args, truncation=True, progress=False, **options)
        folder = str(arguments.out / title / f"share-{share:g}")
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        row = [f"{100 * share:g} %", len(part), perplexity(model, tokenizer, held_out)]
        if seen:
            points = switch_points(model, tokenizer, seen, folds=4)
            row += [100 * points.switch.accuracy, 100 * points.rest.accuracy]
        for task in mix.tasks.values():
            row.append(mean_and_deviation([head_score(task, folder, arguments, s) for s in range(arguments.seeds)]))
        rows.append(tuple(row))
        print(f"{title}, {rows[-1][0]}: " + ", ".join(str(cell) for cell in row[1:]), flush=True)
        if seen and share in (0.0, max(arguments.shares)):
            pictures["before" if share == 0.0 else "after"] = word_clouds(folder, mix, arguments)
    columns = ["text", "sentences", "perplexity"] + (["at switches %", "elsewhere %"] if seen else [])
    columns += [f"{name} {task.metric}" for name, task in mix.tasks.items()]
    print(f"\n{title}, {len(texts)} training sentences, heads over the frozen encoder, {arguments.seeds} seeds:\n")
    print(Table(columns, rows).to_markdown() + "\n", flush=True)
    if pictures:
        for name, clouds in pictures.items():
            print(f"{name}: {cloud_distances(*clouds.values())}")
        draw(pictures, arguments.out / title / "words.png")


def mix_of_files(train: Sentences, dev: Sentences, test: Sentences, metric: str) -> Mix:
    """Make a mix of files of yours."""
    languages = sorted({name for sentence in train for name in sentence.languages or ()})
    return Mix(train, dev, tuple(languages[:2]), {"tags": Task((train, dev, test), metric)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mix", nargs="+", choices=MIXES, default=list(MIXES))
    add_file_arguments(parser, "a mix")
    parser.add_argument("--metric", choices=("f1", "accuracy"), default="accuracy", help="of files of yours")
    add_encoder_arguments(parser)
    parser.add_argument("--shares", nargs="+", type=float, default=[0.1, 0.5, 1.0], help="of the text to adapt to")
    parser.add_argument("--epochs", type=int, default=RECIPE["adaptation"]["num_train_epochs"])
    parser.add_argument("--learning-rate", type=float, default=RECIPE["adaptation"]["learning_rate"])
    parser.add_argument("--head-epochs", type=int, default=RECIPE["heads"]["num_train_epochs"])
    parser.add_argument("--head-learning-rate", type=float, default=RECIPE["heads"]["learning_rate"])
    parser.add_argument("--size-of-parts", type=int, help="sentences of each part, the first; all if missing")
    parser.add_argument("--switch-sentences", type=int, default=300, help="of dev, to score switches on")
    parser.add_argument("--words", type=int, default=300, help="of each language, in the picture")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("runs") / "adapt_code_switched")
    arguments = parser.parse_args()
    files = read_all_files(parser, arguments, DATA)
    if not (arguments.model or arguments.pretrain):
        arguments.pretrain = ["de", "tr", "en", "es", "hi"]
    name = find_model(arguments, ())
    be_quiet()
    print(f"Encoder: {name}\n")
    mixes = (
        {"files": mix_of_files(*files, arguments.metric)} if files else {name: MIXES[name]() for name in arguments.mix}
    )
    for title, mix in mixes.items():
        study(title, shortened(mix, arguments.size_of_parts), name, arguments)


def shortened(mix: Mix, size: int | None) -> Mix:
    """Take the first sentences of each part; all if None."""
    tasks = {name: task._replace(parts=tuple(part[:size] for part in task.parts)) for name, task in mix.tasks.items()}
    return mix._replace(train=mix.train[:size], dev=mix.dev[:size], tasks=tasks)


if __name__ == "__main__":
    main()
