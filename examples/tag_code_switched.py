r"""Tag code-switched text with FastText, MUSE, meta-embeddings (MME) and hierarchical meta-embeddings (HME).

    python examples/tag_code_switched.py                                     # the bundled Spanish-English sample
    python examples/tag_code_switched.py --pair hi-en --tag entities
    python examples/tag_code_switched.py --format conllu --train a.conllu --dev b.conllu --test c.conllu \
        --languages tr de --text tr.txt.xz de.txt.xz                         # vectors trained on your raw text
    python examples/tag_code_switched.py --recipe winata2021 --published hin-eng ...  # the paper's, downloaded

The matrix language (ML), the one of more tokens, comes first, the embedded language (EL) second; published vectors are
put in this order by the task. Without vectors or text of your own, fastText and byte-pair embeddings are trained on the
training sentences' words of each language: enough to see everything run, no more. The MUSE systems lay one language's
space over the other's: by the words that both vocabularies hold, or as ``--align`` says. Under the paper's recipe
users, URLs and emoji become special tokens: give the saved tagger text through the same `Normalizer`.

The result is the table of Winata 2021's table 4 for these systems, the best tagger in ``--out``/tagger, and a picture
of which language each word's attention leans on. A test file without labels, as LinCE's are, is tagged by the best
system into ``--out``/predictions.txt.
"""

import argparse
import copy
import lzma
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from _files import add_file_arguments, format_options, read_files, tags_of
from _recipes import RECIPES, check_keys

import polyembed as pe
from polyembed.data import LINCE_TASKS, TaggedSentence, load_sample, read_dictionary, write_lince_predictions
from polyembed.embeddings import PieceTransformer
from polyembed.experiments import plot_source_attention
from polyembed.metrics import accuracy, entity_f1
from polyembed.tables import Table
from polyembed.training import FitOptions, adam_for, fit, noam
from polyembed.transfer import AdversarialOptions
from polyembed.vectors import BPEmbVectors, FastTextVectors, JoinedVectors, TextVectors

# What takes the keys of a recipe's sections, and the keys that this program takes itself.
TAKES = {
    "training": (FitOptions, {"optimizer", "learning_rate", "betas", "warmup_steps"}),
    "encoder": (pe.TransformerSequenceEncoder, set()),
    "embedder": (None, {"embedding_dim", "characters", "character_dim", "vocab_size"}),
    "pieces": (PieceTransformer, set()),
    "align": (AdversarialOptions, {"refine"}),
    "normalizer": (pe.Normalizer, set()),
    "matrix_languages": (None, set(LINCE_TASKS)),
    "vectors": (None, {"hin-eng", "spa-eng", "msa-ea"}),
}


def check_recipe(name: str, recipe: dict[str, Any]) -> None:
    """End the program where a recipe has a section or a key that nothing takes."""
    for section, found in {"": recipe, **recipe}.items():
        check_keys(f"{name}.{section}" if section else name, found, *(TAKES[section] if section else (None, TAKES)))


def read_data(arguments: argparse.Namespace) -> list[list[TaggedSentence]]:
    """Read training, development and test sentences; the last tenth of train is dev where there is none."""
    if arguments.train is None:
        return [load_sample(arguments.pair, split, tag=arguments.tag) for split in ("train", "dev", "test")]
    parts = read_files(arguments, needs_labels=False)
    train = parts["train"]
    if "dev" not in parts:
        if len(train) < 2:
            raise SystemExit(f"--train must hold sentences to train on and to develop on, got {len(train)}: give --dev")
        cut = min(len(train) - len(train) // 10, len(train) - 1)
        train, parts["dev"] = train[:cut], train[cut:]
    return [train, parts["dev"], parts.get("test", parts["dev"])]


def normalized(sentences: Sequence[TaggedSentence], normalize: pe.Normalizer) -> list[TaggedSentence]:
    """Replace users, URLs and emoji by special tokens."""
    return [replace(sentence, words=tuple(normalize.words(sentence.words))) for sentence in sentences]


def matrix_first(languages: Sequence[str], train: Sequence[TaggedSentence], task: str | None) -> list[str]:
    """Put the matrix language first: that of the paper's table 1 for its tasks, else the one with more tokens."""
    known = RECIPES["winata2021"]["matrix_languages"]
    counts = Counter(language for sentence in train for language in sentence.languages or ())
    first = known[task] if task in known else max(languages[:2], key=counts.__getitem__)
    return sorted(languages, key=lambda language: language != first)


def read_text(path: Path) -> list[list[str]]:
    """Read raw text, one sentence a line, words and punctuation apart."""
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as lines:
        return [re.findall(r"\w+|[^\w\s]", line) for line in lines]


def words_of_language(sentences: Iterable[TaggedSentence], language: str) -> list[list[str]]:
    """Keep the words of one language and those of none; all of them where sentences have no language tags."""
    shared = {language, "other", "ne", "mixed"}
    return [
        [word for word, tag in zip(s.words, s.languages or (language,) * len(s), strict=True) if tag in shared]
        for s in sentences
    ]


def get_vectors(
    arguments: argparse.Namespace, train: Sequence[TaggedSentence], folder: Path
) -> tuple[list[Any], list[BPEmbVectors], list[str]]:
    """Give each language's word vectors and sub-word vectors: published, from files, or trained here."""
    languages = arguments.languages or (arguments.pair.split("-") if arguments.train is None else ["ML", "EL"])
    if arguments.published:
        lists = RECIPES["winata2021"]["vectors"][arguments.published]
        vocab_size = RECIPES["winata2021"]["embedder"]["vocab_size"]
        names = matrix_first(lists["fasttext"], train, format_options(arguments).get("task"))
        words: list[Any] = [FastTextVectors.from_pretrained(language) for language in names]
        if "glove" in lists:
            words.append(TextVectors(lists["glove"]))
            names.append("glove")
        return words, [BPEmbVectors(language, vocab_size=vocab_size, dim=300) for language in lists["bpemb"]], names
    words, pieces = [], []
    for i, language in enumerate(languages):
        corpus = words_of_language(train, language)
        if arguments.text:
            corpus += read_text(arguments.text[i])
        large = sum(map(len, corpus)) > 50_000
        if arguments.vectors:
            path = arguments.vectors[i]
            words.append(FastTextVectors(path) if path.suffix in (".bin", ".ftz") else TextVectors(path))
        else:
            path = folder / f"{language}.bin"
            options = {"min_count": 2, "bucket": 100_000} if large else {"min_count": 1, "bucket": 5_000, "epochs": 30}
            words.append(FastTextVectors.train(corpus, path, dim=100 if large else 50, **options))
        size = 5_000 if large else 500
        pieces.append(BPEmbVectors.train(corpus, folder / f"pieces-{language}", vocab_size=size, dim=50, epochs=10))
    return words, pieces, languages


def join_spaces(words: Sequence[Any], how: str, recipe: dict[str, Any]) -> dict[str, JoinedVectors]:
    """Return the two joint spaces of MUSE; a word that both languages have gets the vector of the target's language."""
    ml, el = words[:2]
    if ml.dim != el.dim:
        print(f"No MUSE: vectors of {ml.dim} and {el.dim} numbers")
        return {}
    if how == "adversarial":
        options = AdversarialOptions(**{name: value for name, value in recipe.items() if name != "refine"})
        mapping = pe.align_spaces(ml, el, refine=recipe["refine"], adversarial=options)
    else:
        dictionary = how if how in ("identical", "similarity") else read_dictionary(how)
        mapping = pe.align_spaces(ml, el, dictionary=dictionary, refine=recipe["refine"])
    found = {key: value for key, value in mapping.report.items() if key not in ("criteria", "restarts")}
    print(f"aligned: {found}, criterion {max(mapping.report['criteria']):.3f}")
    return {
        "MUSE (ML -> EL)": JoinedVectors([el, mapping(ml)]),
        "MUSE (EL -> ML)": JoinedVectors([ml, mapping.inverse()(el)]),
    }


def build_embedders(
    words: Sequence[Any],
    joined: dict[str, JoinedVectors],
    pieces: Sequence[BPEmbVectors],
    lexicon: pe.Lexicon,
    recipe: dict[str, Any],
) -> dict[str, torch.nn.Module]:
    """Compose the systems of Winata 2021's table 4 that rest on word vectors, and HME with surface features."""
    size, characters = recipe["embedder"]["embedding_dim"], recipe["embedder"]["characters"]

    def sources() -> list[pe.SourceEmbedding]:
        return [pe.SourceEmbedding(source, lexicon) for source in words]

    def hierarchical(**surface: pe.SpelledEmbedding) -> pe.HierarchicalMetaEmbedding:
        if "pieces" in recipe:
            options = {"hidden_size": characters, **recipe["pieces"]}
            table = torch.randn(lexicon.num_characters, recipe["embedder"]["character_dim"])
            encoder: torch.nn.Module = PieceTransformer(table, freeze=False, **options)
            subwords = [pe.SpelledEmbedding.from_pieces(p, lexicon, pooling="transformer", **options) for p in pieces]
        else:
            encoder = pe.CharCNN(lexicon.num_characters, embedding_dim=characters, dropout=0.2)
            subwords = [pe.SpelledEmbedding.from_pieces(p, lexicon) for p in pieces]
        return pe.HierarchicalMetaEmbedding(
            words=pe.MetaEmbedding.self_attention(sources(), embedding_dim=size),
            subwords=pe.MetaEmbedding.self_attention(
                subwords, embedding_dim=characters if "pieces" in recipe else size
            ),
            characters=pe.SpelledEmbedding.from_characters(lexicon, encoder),
            **surface,
        )

    return {
        "FastText (ML)": sources()[0],
        "FastText (EL)": sources()[1],
        **{name: pe.SourceEmbedding(source, lexicon) for name, source in joined.items()},
        "Concat": pe.MetaEmbedding.concat(sources()),
        "Linear": pe.MetaEmbedding.linear(sources(), embedding_dim=size),
        "Attention (MME)": pe.MetaEmbedding.self_attention(sources(), embedding_dim=size),
        "HME": hierarchical(),
        "HME + surface": hierarchical(surface=pe.SpelledEmbedding.from_surface(lexicon, embedding_dim=characters)),
    }


def train_tagger(
    tagger: pe.SequenceTagger, data: list[list[TaggedSentence]], recipe: dict[str, Any], metric: str, seed: int
) -> float:
    """Train by a recipe; give the best development score."""
    training = {"max_grad_norm": None, **recipe["training"]}
    kind, rate, betas = (training.pop(name, None) for name in ("optimizer", "learning_rate", "betas"))
    warmup_steps = training.pop("warmup_steps", None)

    def optimizer(model: pe.SequenceTagger) -> torch.optim.Optimizer:
        if kind == "adam_for":
            return adam_for(model, rate)
        trained = [value for value in model.parameters() if value.requires_grad]
        return torch.optim.Adam(trained, lr=rate, betas=tuple(betas))

    def schedule(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LambdaLR:
        return noam(optimizer, recipe["encoder"]["hidden_size"], warmup_steps=warmup_steps)

    options = FitOptions(
        optimizer=optimizer,
        scheduler=schedule if warmup_steps else None,
        scheduler_interval="step",
        metric=metric,
        **training,
    )
    result = fit(tagger, data[0], data[1], options, seed=seed)
    return result.best.score


def draw_attention(
    embedding: pe.MetaEmbedding, names: Sequence[str], words: Sequence[str], ids: torch.Tensor, path: Path
) -> None:
    """Draw how much each source counts for each word."""
    try:
        weights = embedding.attention_weights(ids)[:, 0]
        ax = plot_source_attention(weights, words, sources=names, title="Which source each word leans on")
    except ImportError as error:
        print(f"No picture: {error}")
        return
    ax.figure.savefig(path, dpi=150)
    print(f"Attention over the sources: {path}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", choices=("es-en", "hi-en"), default="es-en", help="of the bundled sample")
    parser.add_argument("--tag", choices=("upos", "entities"), default="upos", help="of the bundled sample")
    add_file_arguments(parser, "the sample; --dev is the last tenth of --train if missing, --test is --dev")
    parser.add_argument("--languages", nargs="+", help="names of the languages, the matrix language first")
    parser.add_argument("--vectors", nargs="+", type=Path, help="one file a language: .bin, .vec or GloVe text")
    parser.add_argument("--text", nargs="+", type=Path, help="one file of raw text a language, to train vectors on")
    parser.add_argument("--published", choices=RECIPES["winata2021"]["vectors"], help="download the paper's vectors")
    parser.add_argument(
        "--align", default="identical", help="of MUSE: identical, similarity, adversarial, or a dictionary's file"
    )
    parser.add_argument("--recipe", choices=[name for name in RECIPES if "embedder" in RECIPES[name]], default="small")
    parser.add_argument("--systems", nargs="+", help="a choice of the table's rows")
    parser.add_argument("--epochs", type=int, help="instead of the recipe's")
    parser.add_argument("--metric", choices=("accuracy", "f1"), help="by the tags if missing")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs") / "tag_code_switched")
    arguments = parser.parse_args()
    if len(arguments.languages or "12") < 2:
        parser.error(f"--languages must name two or more, got {arguments.languages}")
    if len(set(arguments.languages or ())) < len(arguments.languages or ()):
        parser.error(f"--languages must name each language once, got {arguments.languages}")
    if (arguments.dev or arguments.test) and not arguments.train:
        parser.error("--dev and --test must come with --train")
    for name in ("vectors", "text"):
        files, languages = getattr(arguments, name), arguments.languages or ["ML", "EL"]
        if files is not None and len(files) != len(languages):
            parser.error(f"--{name} must name one file for each of {languages}, got {len(files)}")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    recipe = copy.deepcopy(RECIPES[arguments.recipe])
    check_recipe(arguments.recipe, recipe)
    data = read_data(arguments)
    if "normalizer" in recipe:
        data = [normalized(part, pe.Normalizer(**recipe["normalizer"])) for part in data]
    train, dev, test = data
    labelled = bool(tags_of(test))
    tags = tags_of(*data)
    metric = arguments.metric or ("f1" if any(tag.startswith("B-") for tag in tags) else "accuracy")
    if arguments.epochs:
        recipe["training"]["num_train_epochs"] = arguments.epochs
    print(f"{len(train)} / {len(dev)} / {len(test)} sentences, {len(tags)} tags, metric: {metric}")

    with tempfile.TemporaryDirectory() as folder:
        words, pieces, names = get_vectors(arguments, train, Path(folder))
        lexicon = pe.Lexicon.from_sentences(sentence.words for sentence in train)
        torch.manual_seed(arguments.seed)
        wanted = arguments.systems is None or any(name.startswith("MUSE") for name in arguments.systems)
        joined = join_spaces(words, arguments.align, recipe["align"]) if wanted else {}
        embedders = build_embedders(words, joined, pieces, lexicon, recipe)
        unknown = [name for name in arguments.systems or () if name not in embedders]
        if unknown:
            raise SystemExit(f"--systems must be among {list(embedders)}, got {unknown}")
        rows, taggers = [], {}
        for name in arguments.systems or embedders:
            embedder = pe.UniqueWords(embedders[name])
            encoder = pe.TransformerSequenceEncoder(embedder.embedding_dim, **recipe["encoder"])
            tagger = pe.SequenceTagger(embedder, tags, encoder=encoder)
            start = time.perf_counter()
            dev_score = train_tagger(tagger, data, recipe, metric, arguments.seed)
            test_score = f"{100 * evaluate(metric, test, tagger):.2f}" if labelled else "no labels"
            seconds = f"{time.perf_counter() - start:.0f}"
            trained = sum(p.numel() for p in tagger.parameters() if p.requires_grad)
            frozen = sum(p.numel() for p in tagger.parameters() if not p.requires_grad)
            taggers[name] = (dev_score, tagger)
            rows.append((name, f"{trained:,}", f"{frozen:,}", 100 * dev_score, test_score, seconds))
            print(f"{name}: dev {100 * dev_score:.2f}, test {test_score}, {seconds} s", flush=True)
        columns = ("system", "trained", "frozen", f"dev {metric}", f"test {metric}", "seconds")
        print("\n" + Table(columns, rows).to_markdown() + "\n")

        best = max(taggers, key=lambda name: taggers[name][0])
        saved = arguments.out / "tagger"
        # the vector files too: words that nobody has seen yet get their n-gram vectors wherever the folder goes
        taggers[best][1].save_pretrained(saved, copy_vectors=True)
        print(f"Best on dev: {best}, saved to {saved}")
        if not labelled:
            predictions = arguments.out / "predictions.txt"
            write_lince_predictions(predictions, taggers[best][1].predict([sentence.words for sentence in test]))
            print(f"Tags of --test by {best}, one a line: {predictions}")

        tagger = pe.SequenceTagger.from_pretrained(saved)
        for sentence in test[:3]:
            tagged = zip(sentence.words, tagger.predict([sentence.words])[0], strict=True)
            print(" ".join(f"{word}/{tag}" for word, tag in tagged))
        sentence = list(max(test[:20], key=len).words[:20])
        for name, short in (("Attention (MME)", "mme"), ("HME", "hme"), ("HME + surface", "hme-surface")):
            if name in taggers:
                embedder = taggers[name][1].embedder.embedder
                meta = embedder if name == "Attention (MME)" else embedder.words
                meta = meta.covering(sentence)  # rows for the words that training had not
                ids, _ = meta.encode([sentence])
                draw_attention(meta, names, sentence, ids, arguments.out / f"attention-{short}.png")


def evaluate(metric: str, test: Sequence[TaggedSentence], tagger: pe.SequenceTagger) -> float:
    predicted = tagger.predict([sentence.words for sentence in test])
    gold = [tagger.labels_of(sentence) for sentence in test]
    return accuracy(gold, predicted) if metric == "accuracy" else entity_f1(gold, predicted).f1


if __name__ == "__main__":
    main()
