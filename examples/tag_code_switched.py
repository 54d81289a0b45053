r"""Tag code-switched text with FastText, MUSE, meta-embeddings (MME) and hierarchical
meta-embeddings (HME).

    python examples/tag_code_switched.py  # the bundled Spanish-English sample
    python examples/tag_code_switched.py --pair hi-en --tag entities
    python examples/tag_code_switched.py --format conllu --train a.conllu --dev b.conllu \
        --test c.conllu --languages tr de --text tr.txt.xz de.txt.xz  # vectors of your raw text
    python examples/tag_code_switched.py --recipe winata2021 --published hin-eng ...  # the paper's
    python examples/tag_code_switched.py --recipe winata2021 --format lince --published task \
        --tasks lince/ner_hineng lince/pos_spaeng --transliterate pairs.tsv \
        --model xlm-roberta-base --systems HME HME-Ensemble "Scratch (2L)" xlm-roberta-base

The matrix language (ML) comes first, the embedded language (EL) second. The order is that of
``--languages``. If it is missing and the files have language tags, the language with more words is
first. The task determines the order of published vectors. Without vectors or text of your own,
fastText and byte-pair embeddings are trained on the training sentences' words of each language:
this is enough to see everything run, but not for good scores.

The MUSE systems align one language's space with the other's: by the words that both vocabularies
hold, by adversarial training under the paper's recipe, or as ``--align`` says. Under the paper's
recipe users, hashtags, URLs and emoji become special tokens. ``--transliterate`` spells Hindi in
Devanagari. The saved tagger does both by itself.

HME-Ensemble, the Scratch models (untrained BERTs) and ``--model`` (pretrained models) are trained
only if they are asked for, as in the paper's sections 2.5, 3.2.1 and 3.2.3. So is "HME, wide", the
control of "HME + surface": HME under a sequence encoder that is four times as wide, which under the
small recipe has about as many trained numbers. With ``--beside MODEL --layer 12`` there is one more
row: HME with surface features, joined to a frozen layer of a pretrained model, which is computed
once.

The results are the rows of Winata 2021's table 4 for these systems, tests of every system against
HME, the best tagger that this call trained in ``--out``/tagger, and pictures of how much the
vectors of each language contribute to each word. ``--seeds 3`` trains each system three times and
prints means; ``--runs FILE`` keeps finished runs, so that a later call does not repeat them. If the
test file has no labels, as LinCE's, the tags of the best system are written to
``--out``/predictions.txt.
"""

import argparse
import json
import math
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import regex
import torch
from _encoder import be_quiet, load_encoder
from _files import add_file_arguments, format_options, read_files, read_lines, tags_of
from _recipes import RECIPES, check_keys, positive
from _transliterator import RUN, CharacterTransliterator, Speller, train_transliterator

import polyembed as pe
from polyembed.data import (
    MISSING_TAG,
    TaggedSentence,
    load_sample,
    read_dictionary,
    write_lince_predictions,
)
from polyembed.data.lince import LINCE_TASKS
from polyembed.embeddings import PieceTransformer
from polyembed.encoders import CachedEmbedder, SingleLayer, cache_features
from polyembed.evaluation import ProtocolResult, plot_source_attention, significance_table
from polyembed.evaluation.results import SystemRun
from polyembed.metrics import accuracy, entity_f1, scheme_of
from polyembed.tables import MeanAndDeviation, Table, mean_and_deviation
from polyembed.training import (
    Epoch,
    FitOptions,
    FitResult,
    default_optimizer,
    fit,
    fit_ensemble,
    noam_schedule,
)
from polyembed.transfer import AdversarialOptions
from polyembed.vectors import BPEmbVectors, FastTextVectors, JoinedVectors, TextVectors

OPTIMIZER = {"optimizer", "learning_rate", "betas", "warmup_steps", "decay"}
ROWS = [
    "FastText (ML)",
    "FastText (EL)",
    "MUSE (ML -> EL)",
    "MUSE (EL -> ML)",
    "Concat",
    "Linear",
    "Attention (MME)",
]
ROWS += ["HME", "HME + surface"]
MIXED = "HME + surface + layer"
WIDE = "HME, wide"
SCRATCH = [f"Scratch ({n}L)" for n in RECIPES["winata2021"]["scratch"]["num_layers"]]
ON_REQUEST = ["HME-Ensemble", WIDE, *SCRATCH]

SHARED = {"other", "ne", "mixed", "rest"}  # tags of words that are not of one language

# For each section of a recipe: the function or class that takes its keys, and the keys that this
# program takes itself.
TAKES = {
    "training": (FitOptions, OPTIMIZER),
    "scratch_training": (FitOptions, OPTIMIZER),
    "pretrained_training": (FitOptions, OPTIMIZER),
    "scratch": (None, {"tokenizer", "hidden_size", "num_heads", "max_length", "num_layers"}),
    "pretrained": (None, {"max_length", "large"}),
    "transliterate": (None, {"keep"}),
    "encoder": (pe.TransformerSequenceEncoder, set()),
    "embedder": (None, {"embedding_dim", "characters", "character_dim", "vocab_size"}),
    "pieces": (PieceTransformer, set()),
    "align": (AdversarialOptions, {"refine", "method"}),
    "normalizer": (pe.Normalizer, set()),
    "matrix_languages": (None, set(LINCE_TASKS)),
    "vectors": (None, {"hin-eng", "spa-eng", "msa-ea"}),
}


def check_recipe(name: str, recipe: dict[str, Any]) -> None:
    """Exit if a recipe has a section or a key that is not used."""
    for section, found in {"": recipe, **recipe}.items():
        check_keys(
            f"{name}.{section}" if section else name,
            found,
            *(TAKES[section] if section else (None, TAKES)),
        )


def read_data(arguments: argparse.Namespace) -> list[list[TaggedSentence]]:
    """Read train, dev and test sentences.

    Without a dev file, dev is the last tenth of train. Without a test file, test is dev.
    """
    if arguments.train is None:
        return [
            load_sample(arguments.pair, split, tag=arguments.tag)
            for split in ("train", "dev", "test")
        ]
    parts = read_files(arguments, needs_labels=False)
    train = parts["train"]
    if "dev" not in parts:
        if len(train) < 2:
            raise SystemExit(
                f"--train must hold sentences to train on and to develop on, got {len(train)}: give --dev"
            )
        cut = min(len(train) - len(train) // 10, len(train) - 1)
        train, parts["dev"] = train[:cut], train[cut:]
    return [train, parts["dev"], parts.get("test", parts["dev"])]


def prepared(
    sentences: Sequence[TaggedSentence], steps: Sequence[Callable[[list[str]], Sequence[str]]]
) -> list[TaggedSentence]:
    """Return the sentences with their words as a tagger with ``prepare=steps`` reads them."""
    rows = [list(sentence.words) for sentence in sentences]
    for step in steps:
        rows = [list(step(words)) for words in rows]
    return [
        replace(sentence, words=tuple(words))
        for sentence, words in zip(sentences, rows, strict=True)
    ]


def open_transliterator(path: Path, out: Path) -> CharacterTransliterator:
    """Load a saved transliterator, or train one on a file of pairs.

    A line of the file has a word in Roman letters, a tab, and the word in the other script.
    """
    if path.is_dir():
        return CharacterTransliterator.from_pretrained(path)
    lines = [line.split("\t") for line in path.read_text("utf-8").splitlines() if line.strip()]
    for number, line in enumerate(lines, start=1):
        if len(line) < 2 or not (line[0].strip() and line[1].strip()):
            raise ValueError(
                f"{path} must have two words and a tab between in each line, got {line} in line {number}"
            )
    if not lines:
        raise ValueError(f"{path} must have pairs of words, got none")
    model = train_transliterator([(line[0], line[1]) for line in lines])
    model.save_pretrained(out / "transliterator")
    print(f"Transliterator trained on {len(lines)} pairs: {out / 'transliterator'}")
    return model


def transliterator_of(
    model: CharacterTransliterator, data: Sequence[Sequence[TaggedSentence]], keep: str
) -> Speller:
    """Return a speller whose dictionary has the words of the data.

    It keeps words that are mostly in the language `keep` in the training sentences.
    """
    counts: dict[str, Counter[bool]] = {}
    for sentence in data[0]:
        for word, language in zip(
            sentence.words, sentence.languages or (None,) * len(sentence), strict=True
        ):
            counts.setdefault(word.lower(), Counter())[language == keep] += 1
    kept = {word for word, found in counts.items() if found[True] > found[False]}
    words = {word.lower() for part in data for sentence in part for word in sentence.words}
    runs = sorted({run for word in words for run in RUN.findall(word)} - kept)
    found = dict(zip(runs, model.transliterate(runs), strict=True))
    known = {run: word for run, word in found.items() if run == run.lower()}
    return Speller(model, known, kept)


def matrix_first(
    languages: Sequence[str], train: Sequence[TaggedSentence], task: str | None
) -> list[str]:
    """Return the languages, the matrix language first.

    The matrix language is the paper's for this task (table 1), else that with more words.
    """
    known = RECIPES["winata2021"]["matrix_languages"]
    counts = Counter(language for sentence in train for language in sentence.languages or ())
    first = known[task] if task in known else max(languages[:2], key=counts.__getitem__)
    return sorted(languages, key=lambda language: language != first)


def read_text(path: Path) -> list[list[str]]:
    """Read raw text, one sentence per line; words and punctuation are separate tokens."""
    return [regex.findall(r"\w+|[^\w\s]", line) for line in read_lines(path)]


def languages_of(arguments: argparse.Namespace, train: Sequence[TaggedSentence]) -> list[str]:
    """Return the names of the languages: the given ones, the sample's, or the two most frequent.

    If the words are not in two languages, or if vectors or text are given, the names are ML and EL.
    """
    if arguments.languages or arguments.train is None:
        return list(arguments.languages or arguments.pair.split("-"))
    counts = Counter(
        tag for sentence in train for tag in sentence.languages or () if tag not in SHARED
    )
    found = [language for language, _ in counts.most_common(2)]
    return ["ML", "EL"] if len(found) < 2 or arguments.vectors or arguments.text else found


def words_of_language(sentences: Sequence[TaggedSentence], language: str) -> list[list[str]]:
    """Return the words of each sentence that are of this language or of no single language.

    Return all words of a sentence without language tags, and of all sentences if no word is tagged
    as this language.
    """
    shared = {language, *SHARED}
    tagged = any(language in (sentence.languages or ()) for sentence in sentences)
    return [
        [word for word, tag in zip(s.words, s.languages, strict=True) if tag in shared]
        if tagged and s.languages
        else list(s.words)
        for s in sentences
    ]


def get_vectors(
    arguments: argparse.Namespace, train: Sequence[TaggedSentence], folder: Path
) -> tuple[list[Any], list[BPEmbVectors], list[str]]:
    """Return the word vectors and sub-word vectors of each language, and the names of the former.

    They are published vectors, vectors from files, or vectors that are trained here.
    """
    languages = languages_of(arguments, train)
    if arguments.published:
        lists = RECIPES["winata2021"]["vectors"][pair_of(arguments)]
        vocab_size = RECIPES["winata2021"]["embedder"]["vocab_size"]
        names = matrix_first(lists["fasttext"], train, format_options(arguments).get("task"))
        words: list[Any] = [FastTextVectors.from_pretrained(language) for language in names]
        if "glove" in lists:
            words.append(TextVectors(lists["glove"]))
            names.append("glove")
        return (
            words,
            [
                BPEmbVectors.from_pretrained(language, vocab_size=vocab_size, dim=300)
                for language in lists["bpemb"]
            ],
            names,
        )
    words, pieces = [], []
    for i, language in enumerate(languages):
        # words of csv files may have white space, at which fastText and SentencePiece split them
        corpus = [" ".join(words).split() for words in words_of_language(train, language)]
        if arguments.text:
            corpus += read_text(arguments.text[i])
        large = sum(map(len, corpus)) > 50_000
        if arguments.vectors:
            path = arguments.vectors[i]
            words.append(FastTextVectors(path) if path.suffix == ".bin" else TextVectors(path))
        else:
            path = folder / f"{language}.bin"
            options = (
                {"min_count": 2, "bucket": 100_000}
                if large
                else {"min_count": 1, "bucket": 5_000, "epochs": 30}
            )
            words.append(FastTextVectors.train(corpus, path, dim=100 if large else 50, **options))
        size = 5_000 if large else 500
        pieces.append(
            BPEmbVectors.train(
                corpus, folder / f"pieces-{language}", vocab_size=size, dim=50, epochs=10
            )
        )
    return words, pieces, languages


def pair_of(arguments: argparse.Namespace) -> str:
    """Return the language pair of the published vectors: the named one, or that of LinCE's task."""
    task = format_options(arguments).get("task", "")
    pairs = {pair.replace("-", ""): pair for pair in RECIPES["winata2021"]["vectors"]}
    if arguments.published != "task":
        return str(arguments.published)
    found = pairs.get(str(task).rpartition("_")[2])
    if found is None:
        raise SystemExit(
            f"--published task must come with a task of {sorted(pairs)}, got {task or 'none'!r}"
        )
    return found


def join_spaces(words: Sequence[Any], how: str, recipe: dict[str, Any]) -> dict[str, JoinedVectors]:
    """Return the two joint spaces of MUSE.

    A word that both languages have gets the vector of the target language.
    """
    ml, el = words[:2]
    if ml.dim != el.dim:
        print(f"No MUSE: vectors of {ml.dim} and {el.dim} numbers")
        return {}
    if how == "adversarial":
        given = {name: value for name, value in recipe.items() if name not in ("refine", "method")}
        options = AdversarialOptions(**given)
        mapping = pe.align_spaces(ml, el, refine=recipe["refine"], adversarial=options)
    else:
        dictionary = how if how in ("identical", "similarity") else read_dictionary(how)
        mapping = pe.align_spaces(ml, el, dictionary=dictionary, refine=recipe["refine"])
    found = {
        key: value for key, value in mapping.report.items() if key not in ("criteria", "restarts")
    }
    print(f"aligned: {found}, criterion {max(mapping.report['criteria']):.3f}")
    return {
        "MUSE (ML -> EL)": JoinedVectors([el, mapping(ml)]),
        "MUSE (EL -> ML)": JoinedVectors([ml, mapping.inverse()(el)]),
    }


def build_hme(
    words: Sequence[Any],
    pieces: Sequence[BPEmbVectors],
    lexicon: pe.Lexicon,
    recipe: dict[str, Any],
    *,
    surface: bool = False,
) -> pe.HierarchicalMetaEmbedding:
    """Compose HME from words, pieces and characters, and from surface features if `surface`."""
    size, characters = recipe["embedder"]["embedding_dim"], recipe["embedder"]["characters"]
    if "pieces" in recipe:
        options = {"hidden_size": characters, **recipe["pieces"]}
        table = torch.randn(lexicon.num_characters, recipe["embedder"]["character_dim"])
        encoder: torch.nn.Module = PieceTransformer(table, freeze=False, **options)
        subwords = [
            pe.SpelledEmbedding.from_pieces(p, lexicon, pooling="transformer", **options)
            for p in pieces
        ]
    else:
        encoder = pe.CharCNN(lexicon.num_characters, embedding_dim=characters, dropout=0.2)
        subwords = [pe.SpelledEmbedding.from_pieces(p, lexicon) for p in pieces]
    sources = [pe.SourceEmbedding(source, lexicon) for source in words]
    return pe.HierarchicalMetaEmbedding(
        words=pe.MetaEmbedding.self_attention(sources, embedding_dim=size),
        subwords=pe.MetaEmbedding.self_attention(
            subwords, embedding_dim=characters if "pieces" in recipe else size
        ),
        characters=pe.SpelledEmbedding.from_characters(lexicon, encoder),
        surface=pe.SpelledEmbedding.from_surface(lexicon, embedding_dim=characters)
        if surface
        else None,
    )


def build_embedders(
    words: Sequence[Any],
    joined: dict[str, JoinedVectors],
    pieces: Sequence[BPEmbVectors],
    lexicon: pe.Lexicon,
    recipe: dict[str, Any],
) -> dict[str, torch.nn.Module]:
    """Compose the systems of Winata 2021's table 4 that use word vectors.

    HME with surface features is one more system.
    """
    size = recipe["embedder"]["embedding_dim"]
    hierarchical = partial(build_hme, words, pieces, lexicon, recipe)

    def sources() -> list[pe.SourceEmbedding]:
        return [pe.SourceEmbedding(source, lexicon) for source in words]

    return {
        "FastText (ML)": sources()[0],
        "FastText (EL)": sources()[1],
        **{name: pe.SourceEmbedding(source, lexicon) for name, source in joined.items()},
        "Concat": pe.MetaEmbedding.concat(sources()),
        "Linear": pe.MetaEmbedding.linear(sources(), embedding_dim=size),
        "Attention (MME)": pe.MetaEmbedding.self_attention(sources(), embedding_dim=size),
        "HME": hierarchical(),
        "HME + surface": hierarchical(surface=True),
    }


def make_options(training: dict[str, Any], metric: str, hidden_size: int) -> FitOptions:
    """Turn a recipe's section into the options of `fit`."""
    training = {"max_grad_norm": None, **training}
    kind, rate, betas = (
        training.pop(name, None) for name in ("optimizer", "learning_rate", "betas")
    )
    warmup_steps, decay = training.pop("warmup_steps", None), training.pop("decay", None)

    def optimizer(model: pe.SequenceTagger) -> torch.optim.Optimizer:
        if kind == "default_optimizer":
            return default_optimizer(model, rate)
        trained = [value for value in model.parameters() if value.requires_grad]
        return getattr(torch.optim, kind)(
            trained, lr=rate, **({"betas": tuple(betas)} if betas else {})
        )

    def schedule(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        if decay:
            return torch.optim.lr_scheduler.ExponentialLR(optimizer, 1 - decay)
        return noam_schedule(optimizer, hidden_size, warmup_steps=warmup_steps)

    return FitOptions(
        optimizer=optimizer,
        scheduler=schedule if warmup_steps or decay else None,
        scheduler_interval="epoch" if decay else "step",
        metric=metric,
        **training,
    )


def build_encoder(name: str, arguments: argparse.Namespace) -> pe.PretrainedWordEncoder:
    """Build a Scratch model, or load a pretrained one; large ones have frozen embeddings."""
    from transformers import AutoTokenizer

    be_quiet()
    paper = RECIPES["winata2021"]
    try:
        if name in SCRATCH:
            sizes = {
                key: paper["scratch"][key] for key in ("hidden_size", "num_heads", "max_length")
            }
            tokenizer = AutoTokenizer.from_pretrained(
                arguments.tokenizer or paper["scratch"]["tokenizer"]
            )
            layers = int(name.removeprefix("Scratch (").removesuffix("L)"))
            return pe.PretrainedWordEncoder.scratch(
                tokenizer, num_layers=layers, overflow="truncate", **sizes
            )
        encoder = load_encoder(name, paper["pretrained"]["max_length"])
        large = encoder.embedding_dim >= paper["pretrained"]["large"]
        return (
            load_encoder(name, paper["pretrained"]["max_length"], freeze="embeddings")
            if large
            else encoder
        )
    except (OSError, ValueError) as error:
        raise SystemExit(
            f"{name} must be a checkpoint, or --tokenizer a tokenizer, that opens: {error}"
        ) from error


def layer_beside(arguments: argparse.Namespace) -> pe.PretrainedWordEncoder:
    """Open the model of ``--beside``, whose word vectors are its layer ``--layer``."""
    fusion = SingleLayer(arguments.layer)
    try:
        encoder = load_encoder(arguments.beside, 512, freeze="all", fusion=fusion)
    except (OSError, ValueError) as error:
        raise SystemExit(f"--beside must be a model that opens: {error}") from error
    last = encoder.num_hidden_states - 1
    if not -last - 1 <= arguments.layer <= last:
        raise SystemExit(f"--layer must be one of the model's 0 to {last}, got {arguments.layer}")
    return encoder.to(arguments.device)


def frozen_layer(
    arguments: argparse.Namespace, sentences: Sequence[TaggedSentence], folder: Path
) -> pe.MetaEmbedding:
    """Compute a layer of a pretrained model once for all words.

    A linear map of its vectors to 200 numbers is trained.
    """
    encoder = layer_beside(arguments)
    words = [sentence.words for sentence in sentences]
    store = cache_features(encoder, words, folder / "features")
    return pe.MetaEmbedding.linear([CachedEmbedder(encoder, store)], embedding_dim=200)


class Result(NamedTuple):
    """A row of the table: percentages and seconds over the seeds."""

    system: str
    trained: int
    frozen: int
    dev: MeanAndDeviation
    test: MeanAndDeviation | str
    seconds: float


class Run(NamedTuple):
    """A trained system: its parameters, its scores in percent, and the tags of the test set."""

    seed: int
    trained: int
    frozen: int
    dev: float
    test: float | None
    predicted: list[list[str]]
    seconds: float


def read_runs(path: Path | None, settings: dict[str, str]) -> dict[str, list[Run]]:
    """Read the finished runs of a file, which must have the same settings."""
    if path is None or not path.exists():
        return {}
    try:
        kept = json.loads(path.read_text("utf-8"))
        odd = [key for key in settings if kept["settings"].get(key) != settings[key]]
        found = {name: [Run(*run) for run in runs] for name, runs in kept["runs"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise SystemExit(f"--runs must be a file that this program wrote: {error!r}") from error
    if odd:
        raise SystemExit(f"--runs: {path} is of other settings ({', '.join(odd)})")
    return found


def write_runs(path: Path | None, settings: dict[str, str], found: dict[str, list[Run]]) -> None:
    """Write all finished runs to a file."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"settings": settings, "runs": found}), "utf-8")


def row_of(system: str, runs: Sequence[Run]) -> Result:
    """Summarise a system's runs with all seeds."""
    tested = [run.test for run in runs if run.test is not None]
    return Result(
        system,
        runs[0].trained,
        runs[0].frozen,
        mean_and_deviation([run.dev for run in runs]),
        mean_and_deviation(tested) if tested else "no labels",
        statistics.fmean(run.seconds for run in runs),
    )


def print_tests(
    found: dict[str, list[Run]], gold: list[list[Any]], metric: str, against: str
) -> None:
    """Print the tests against one system of those with the same seeds, all seeds together."""
    seeds = {name: sorted(run.seed for run in runs) for name, runs in found.items()}
    alike = [name for name in found if seeds[name] == seeds.get(against)]
    if len(alike) < 2:
        return
    runs = tuple(
        SystemRun(
            system,
            run.seed,
            (),
            FitResult(Epoch(0, math.nan, run.dev, 0.0), ()),
            {"test": run.test or 0.0},
            {"test": run.predicted},
        )
        for system in alike
        for run in found[system]
    )
    try:
        table = significance_table(ProtocolResult(runs, {"test": gold}, metric), against)
    except ImportError as error:
        print(f"No tests: {error}")
        return
    print(f"Approximate randomization:\n\n{table.to_markdown()}\n")


def draw_attention(
    embedding: pe.MetaEmbedding, names: Sequence[str], sentence: TaggedSentence, path: Path
) -> None:
    """Draw how much each source contributes to each word."""
    try:
        words, languages = sentence.words[:20], sentence.languages and sentence.languages[:20]
        embedding = embedding.with_words(words)  # adds the words that training lacks
        ids, _ = embedding.encode([words])
        shares = embedding.contributions(ids)[
            :, 0
        ]  # these differ more between words than the attention alone
        title = "Which source each word leans on"
        ax = plot_source_attention(shares, words, sources=names, languages=languages, title=title)
    except ImportError as error:
        print(f"No picture: {error}")
        return
    ax.figure.savefig(path, dpi=150)
    print(f"Attention over the sources: {path}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pair",
        choices=("es-en", "hi-en"),
        default="es-en",
        help="the language pair of the bundled sample",
    )
    parser.add_argument(
        "--tag",
        choices=("upos", "entities"),
        default="upos",
        help="the kind of tags of the bundled sample",
    )
    add_file_arguments(
        parser,
        "the sample; --dev is the last tenth of --train if missing, and --test is --dev if missing",
    )
    parser.add_argument(
        "--languages", nargs="+", help="the names of the languages, the matrix language first"
    )
    parser.add_argument(
        "--vectors",
        nargs="+",
        type=Path,
        help="one file of vectors per language: .bin, .vec or GloVe text",
    )
    parser.add_argument(
        "--text",
        nargs="+",
        type=Path,
        help="one file of raw text per language, to train vectors on",
    )
    parser.add_argument(
        "--published",
        choices=[*RECIPES["winata2021"]["vectors"], "task"],
        help="download the paper's vectors of this language pair, or of the pair of LinCE's task",
    )
    parser.add_argument(
        "--tasks",
        nargs="+",
        type=Path,
        help="folders of train, dev and test files, instead of --train, --dev and --test",
    )
    parser.add_argument(
        "--transliterate",
        type=Path,
        metavar="FILE",
        help="a file of pairs of spellings, or the folder of a saved CharacterTransliterator",
    )
    parser.add_argument(
        "--align",
        help="how MUSE aligns spaces: identical, similarity, adversarial, or the file of a "
        "dictionary; as in the recipe if missing",
    )
    parser.add_argument(
        "--recipe",
        choices=[name for name in RECIPES if "embedder" in RECIPES[name]],
        default="small",
    )
    parser.add_argument(
        "--systems",
        nargs="+",
        help=f"the rows of the table to train, which may also be {', '.join(ON_REQUEST)}",
    )
    parser.add_argument(
        "--model",
        nargs="+",
        default=[],
        help="the names or folders of pretrained encoders, as more rows",
    )
    parser.add_argument(
        "--beside", metavar="MODEL", help="a pretrained model whose layer is one more part of HME"
    )
    parser.add_argument(
        "--layer",
        type=int,
        default=-1,
        help="the layer of --beside: 0 for its embeddings, -1 for the last layer",
    )
    parser.add_argument(
        "--tokenizer",
        help="the name or folder of the Scratch models' tokenizer; mBERT's if missing",
    )
    parser.add_argument(
        "--members", type=positive, default=5, help="the number of members of HME-Ensemble"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--epochs", type=positive, help="the number of epochs, instead of the recipe's"
    )
    parser.add_argument(
        "--metric",
        choices=("accuracy", "f1"),
        help="the metric; if missing, F1 for tags of entities and accuracy for others",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seeds", type=positive, default=1, help="the number of seeds, which begin with --seed"
    )
    parser.add_argument(
        "--runs",
        type=Path,
        metavar="FILE",
        help="a file of one task that keeps finished runs, which are not repeated",
    )
    parser.add_argument(
        "--against", default="HME", help="the system that the others are tested against"
    )
    parser.add_argument("--out", type=Path, default=Path("runs") / "tag_code_switched")
    arguments = parser.parse_args()
    if len(arguments.languages or "12") < 2:
        parser.error(f"--languages must name two or more, got {arguments.languages}")
    if len(set(arguments.languages or ())) < len(arguments.languages or ()):
        parser.error(f"--languages must name each language once, got {arguments.languages}")
    known = [*ROWS, *ON_REQUEST, *([MIXED] if arguments.beside else []), *arguments.model]
    unknown = [name for name in arguments.systems or () if name not in known]
    if unknown:
        parser.error(f"--systems must be among {known}, got {unknown}")
    if arguments.tasks and arguments.runs:
        parser.error("--runs must not come with --tasks")
    if arguments.tasks and (arguments.train or arguments.dev or arguments.test):
        parser.error("--tasks must not come with --train, --dev or --test")
    if len({folder.resolve().name for folder in arguments.tasks or ()}) < len(
        arguments.tasks or ()
    ):
        parser.error(
            f"--tasks must be folders of different names, got {[str(folder) for folder in arguments.tasks]}"
        )
    for path in (arguments.transliterate, *(arguments.tasks or ())):
        if path is not None and not path.exists():
            parser.error(f"there must be something at {path}")
    if (arguments.dev or arguments.test) and not arguments.train:
        parser.error("--dev and --test must come with --train")
    for name in ("vectors", "text"):
        files, languages = getattr(arguments, name), arguments.languages or ["ML", "EL"]
        if files is not None and len(files) != len(languages):
            parser.error(f"--{name} must name one file for each of {languages}, got {len(files)}")
    return arguments


def tasks_of(arguments: argparse.Namespace) -> dict[str, argparse.Namespace]:
    """Return the arguments of each task by its name; each folder of ``--tasks`` is a task."""
    tasks = {}
    for folder in arguments.tasks or ():
        name, one = folder.resolve().name, copy(arguments)
        for part in ("train", "dev", "test"):
            found = sorted(path for path in folder.glob(f"{part}.*") if path.is_file())
            if len(found) > 1 or (part != "test" and not found):
                got = [path.name for path in found] or "none"
                raise SystemExit(f"--tasks: {folder} must have one file {part}.*, got {got}")
            setattr(one, part, found[0] if found else None)
        if arguments.format == "lince" and "task" not in format_options(arguments):
            one.format_option = [*arguments.format_option, f"task={name}"]
        one.out = arguments.out / name
        tasks[name] = one
    return tasks or {"": arguments}


def main() -> None:
    arguments = parse_arguments()
    for name in {arguments.recipe, "winata2021"}:
        check_recipe(name, RECIPES[name])
    tasks = tasks_of(arguments)
    everything = {}
    for name, one in tasks.items():  # all files are read before anything trains
        everything[name] = read_data(one)
        if one.published:
            pair_of(one)
    for name in (*arguments.model, *SCRATCH):  # all encoders open before anything trains
        if name in (arguments.systems or arguments.model):
            build_encoder(name, arguments)
    if arguments.beside:
        layer_beside(arguments)
    transliterator = None
    if arguments.transliterate:
        try:
            transliterator = open_transliterator(arguments.transliterate, arguments.out)
        except (OSError, ValueError) as error:
            raise SystemExit(f"--transliterate: {error}") from error
    found: dict[str, tuple[str, list[Result]]] = {}
    for name, one in tasks.items():
        if name:
            print(f"\n# {name}")
        found[name] = run_task(one, everything[name], transliterator)
    if len(tasks) > 1:
        print(average_table(found).to_markdown())


def average_table(tasks: dict[str, tuple[str, list[Result]]]) -> Table:
    """Compare systems over tasks by their development scores, as the paper's table 4 does.

    Accuracies and F1 are averaged together.
    """
    by_task = {name: {row.system: row for row in rows} for name, (_, rows) in tasks.items()}
    columns = ["system", "average"]
    columns += [
        text
        for name, (metric, _) in tasks.items()
        for text in (f"{name} parameters", f"{name} {metric}")
    ]
    lines = []
    for system in dict.fromkeys(row.system for _, rows in tasks.values() for row in rows):
        results = [rows.get(system) for rows in by_task.values()]
        scores = [row.dev.mean for row in results if row is not None]
        average = f"{sum(scores) / len(scores):.2f}" if len(scores) == len(results) else "-"
        cells = [
            cell
            for row in results
            for cell in (
                ("-", "-") if row is None else (f"{row.trained + row.frozen:,}", format(row.dev))
            )
        ]
        lines.append((system, average, *cells))
    return Table(tuple(columns), lines)


def run_task(
    arguments: argparse.Namespace,
    data: list[list[TaggedSentence]],
    model: CharacterTransliterator | None,
) -> tuple[str, list[Result]]:
    """Train and compare all systems on one task; return the metric and the rows of the table."""
    recipe, paper = RECIPES[arguments.recipe], RECIPES["winata2021"]
    train, dev, test = data
    labelled = bool(tags_of(test))
    tags = tags_of(*data)
    metric = arguments.metric or ("accuracy" if scheme_of(tags) is None else "f1")
    epochs = {"num_train_epochs": arguments.epochs} if arguments.epochs else {}
    print(f"{len(train)} / {len(dev)} / {len(test)} sentences, {len(tags)} tags, metric: {metric}")
    spelled = (
        [] if model is None else [transliterator_of(model, data, paper["transliterate"]["keep"])]
    )
    steps = [*spelled, *([pe.Normalizer(**recipe["normalizer"])] if "normalizer" in recipe else [])]
    read = prepared(train, steps)
    systems = arguments.systems or [*ROWS, *([MIXED] if arguments.beside else []), *arguments.model]

    with tempfile.TemporaryDirectory() as folder:
        static = [name for name in systems if name in (*ROWS, "HME-Ensemble", WIDE, MIXED)]
        embedders: dict[str, torch.nn.Module] = {}
        if static:
            words, pieces, names = get_vectors(arguments, read, Path(folder))
            lexicon = pe.Lexicon.from_sentences(sentence.words for sentence in read)

        def untrained() -> dict[str, torch.nn.Module]:
            how = arguments.align or recipe["align"]["method"]
            wanted = any(name.startswith("MUSE") for name in systems)
            joined = join_spaces(words, how, recipe["align"]) if wanted else {}
            found = build_embedders(words, joined, pieces, lexicon, recipe)
            missing = [
                name
                for name in arguments.systems or ()
                if name.startswith("MUSE") and name not in found
            ]
            if missing:
                raise SystemExit(
                    f"--systems must be without {missing} for vectors of different sizes"
                )
            return found

        def over_words(
            embedder: torch.nn.Module, *beside: torch.nn.Module, width: int = 1
        ) -> pe.SequenceTagger:
            embedder = pe.UniqueWords(embedder)
            if beside:
                embedder = pe.MetaEmbedding.concat([embedder, *beside])
            sizes = dict(recipe["encoder"])
            for key in ("hidden_size", "feed_forward_size"):
                sizes[key] *= width
            encoder = pe.TransformerSequenceEncoder(embedder.embedding_dim, **sizes)
            return pe.SequenceTagger(embedder, tags, encoder=encoder, prepare=steps or None).to(
                arguments.device
            )

        def member(seed: int) -> pe.SequenceTagger:
            return over_words(build_hme(words, pieces, lexicon, recipe))

        def train_system(name: str, seed: int) -> tuple[Any, float]:
            options = make_options(
                {**recipe["training"], **epochs}, metric, recipe["encoder"]["hidden_size"]
            )
            if name == "HME-Ensemble":
                first = arguments.seed + (seed - arguments.seed) * arguments.members
                seeds = range(first, first + arguments.members)  # no two ensembles share a member
                members = Path(folder, "members")
                ensemble, _ = fit_ensemble(member, train, dev, options, folder=members, seeds=seeds)
                return ensemble, score(metric, dev, ensemble, tags_by(ensemble, dev))
            if name == MIXED:
                every = [*read, *prepared([*dev, *test], steps)]
                layer = frozen_layer(arguments, every, Path(folder, f"layer-{seed}"))
                tagger = over_words(build_hme(words, pieces, lexicon, recipe, surface=True), layer)
            elif name == WIDE:
                tagger = over_words(build_hme(words, pieces, lexicon, recipe), width=4)
            elif name in static:
                tagger = over_words(embedders[name])
            else:
                section = paper["scratch_training" if name in SCRATCH else "pretrained_training"]
                options = make_options({**section, **epochs}, metric, 0)
                encoder = build_encoder(name, arguments)
                tagger = pe.TokenClassifier(encoder, tags, prepare=spelled or None).to(
                    arguments.device
                )
            return tagger, fit(tagger, train, dev, options, seed=seed).best.score

        apart = ("systems", "seed", "seeds", "runs", "against", "out")
        settings = {key: str(x) for key, x in vars(arguments).items() if key not in apart}
        found = read_runs(arguments.runs, settings)
        taggers: dict[str, tuple[float, Any]] = {}
        chosen = range(arguments.seed, arguments.seed + arguments.seeds)
        for seed in chosen:
            torch.manual_seed(seed)
            if static:
                embedders = untrained()
            for name in systems:
                if name.startswith("MUSE") and name not in embedders:
                    continue  # the vectors have different sizes
                if seed in {run.seed for run in found.get(name, ())}:
                    continue
                start = time.perf_counter()
                tagger, dev_score = train_system(name, seed)
                predicted = tags_by(tagger, test)
                test_score = 100 * score(metric, test, tagger, predicted) if labelled else None
                trained = sum(p.numel() for p in tagger.parameters() if p.requires_grad)
                seconds = time.perf_counter() - start
                frozen = count_frozen(tagger)
                run = Run(seed, trained, frozen, 100 * dev_score, test_score, predicted, seconds)
                found.setdefault(name, []).append(run)
                write_runs(arguments.runs, settings, found)
                if name not in taggers or dev_score > taggers[name][0]:
                    taggers[name] = dev_score, tagger
                shown = row_of(name, [run])
                print(f"{name}: dev {shown.dev}, test {shown.test}, {seconds:.0f} s", flush=True)
        found = {name: [run for run in runs if run.seed in chosen] for name, runs in found.items()}
        found = {name: runs for name, runs in found.items() if runs}
        rows = [row_of(name, runs) for name, runs in found.items()]
        columns = ("system", "trained", "frozen", f"dev {metric}", f"test {metric}", "seconds")
        lines = [
            (r.system, f"{r.trained:,}", f"{r.frozen:,}", r.dev, r.test, f"{r.seconds:.0f}")
            for r in rows
        ]
        print("\n" + Table(columns, lines).to_markdown() + "\n")
        if labelled:
            gold = [
                [None if tag == MISSING_TAG and tag not in tags else tag for tag in sentence.tags]
                for sentence in test
            ]
            print_tests(found, gold, metric, arguments.against)

        if not taggers:
            return metric, rows  # all runs were finished
        best = max(taggers, key=lambda name: taggers[name][0])
        saved = arguments.out / "tagger"
        # with the vector files, so that unseen words get their n-gram vectors on every machine
        taggers[best][1].save_pretrained(saved, copy_vectors=True)
        print(f"Best on dev of the systems trained now: {best}, saved to {saved}")
        if not labelled:
            predictions = arguments.out / "predictions.txt"
            write_lince_predictions(
                predictions, taggers[best][1].predict([sentence.words for sentence in test])
            )
            print(f"Tags of --test by {best}, one a line: {predictions}")

        tagger = type(taggers[best][1]).from_pretrained(saved)
        for sentence in test[:3]:
            tagged = zip(sentence.words, tagger.predict([sentence.words])[0], strict=True)
            print(" ".join(f"{word}/{tag}" for word, tag in tagged))
        sentence = prepared([max(test[:20], key=len)], steps)[0]
        for name, short in (
            ("Attention (MME)", "mme"),
            ("HME", "hme"),
            ("HME + surface", "hme-surface"),
        ):
            if name in taggers:
                embedder = taggers[name][1].embedder.embedder
                meta = embedder if name == "Attention (MME)" else embedder.words
                draw_attention(meta, names, sentence, arguments.out / f"attention-{short}.png")
    return metric, rows


def count_frozen(tagger: torch.nn.Module) -> int:
    """Count the frozen parameters of a system.

    A transliterator only prepares words, so it is not part of the system.
    """
    frozen = {n: p for n, p in tagger.named_parameters() if not p.requires_grad}
    return sum(p.numel() for name, p in frozen.items() if "prepare" not in name.split("."))


def tags_by(tagger: Any, sentences: Sequence[TaggedSentence]) -> list[list[str]]:
    return list(tagger.predict([sentence.words for sentence in sentences]))


def score(
    metric: str, sentences: Sequence[TaggedSentence], tagger: Any, predicted: list[list[str]]
) -> float:
    gold = [tagger.labels_of(sentence) for sentence in sentences]
    if metric == "accuracy":
        return accuracy(gold, predicted)
    return entity_f1(gold, predicted, scheme=scheme_of(tagger.tags) or "bio").f1


if __name__ == "__main__":
    main()
