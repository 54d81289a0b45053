"""Are an encoder's sub-word rows found from characters, and does that help where words are
misspelled?

    python benchmarks/char2subword.py --encoder runs/small_encoder/<name>

``--encoder`` is a folder in the format of transformers with an encoder and its tokenizer;
`examples/small_encoder.py` trains one. First a `Char2Subword` is fitted to the encoder's table and
kept in ``--cache``. Its accuracy is the share of rows that are nearest to their computed vector,
for trained rows and for held-out rows. Then taggers of parts of speech are trained on SAGT's clean
text, and tested with errors in the given shares of the words. An error drops, doubles, swaps or
replaces a letter, in words of four letters or more. The systems differ in the input of the same
encoder, and the input is trained together with the encoder:

- ``table``: the rows of the encoder's table, as usual;
- ``characters, pieces``: vectors of the same pieces, computed from characters;
- ``characters, words``: one vector per word, computed from characters.
"""

import argparse
import os
import random
import time
from pathlib import Path

import torch
from _results import option, show
from transformers.utils import logging

import polyembed as pe
from polyembed.data import TaggedSentence, read_conllu
from polyembed.encoders import Char2Subword
from polyembed.metrics import accuracy
from polyembed.tables import Table, mean_and_deviation
from polyembed.text import piece_surfaces
from polyembed.training import FitOptions, fit

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("POLYEMBED_DATA") or ROOT.parent / "shared" / "data")
RATES = (0.0, 0.1, 0.2, 0.4)
SYSTEMS = {"table": None, "characters, pieces": "piece", "characters, words": "word"}


def build_encoder(folder: Path) -> pe.PretrainedWordEncoder:
    encoder = pe.PretrainedWordEncoder(folder, pooling="mean")
    encoder.model.pooler = None
    return encoder


def fitted(arguments: argparse.Namespace) -> Path:
    """Fit the module and print its scores, unless it is in the cache; return its folder."""
    folder: Path = arguments.cache / f"{arguments.encoder.resolve().name}-{arguments.epochs}"
    if (folder / "config.json").exists():
        print(f"fitted before: {folder}\n")
        return folder
    encoder = build_encoder(arguments.encoder)
    table = encoder.model.get_input_embeddings().weight
    vocabulary = piece_surfaces(encoder.tokenizer)
    torch.manual_seed(0)
    module = Char2Subword.for_vocabulary(vocabulary, table.shape[1])
    start = time.perf_counter(), time.process_time()
    found = module.fit_to(
        table,
        vocabulary,
        num_train_epochs=arguments.epochs,
        progress=arguments.progress,
    )
    seconds = time.perf_counter() - start[0], time.process_time() - start[1]
    module.save_pretrained(folder)
    columns = ("rows", "how many", "nearest is right, %", "mean cosine")
    rows = [
        (name, f"{score.rows:,}", 100 * score.accuracy, score.cosine)
        for name, score in (("trained", found.trained), ("held out", found.held_out))
    ]
    show(arguments.json, "table", Table(columns, rows))
    count = sum(value.numel() for value in module.parameters() if value.requires_grad)
    print(
        f"{count:,} parameters for {table.numel():,}; {arguments.epochs} epochs, {seconds[0]:.0f} s",
        end=" ",
    )
    print(
        f"({seconds[1]:.0f} s of CPU); loss {found.losses[0]:.2f} to {found.losses[-1]:.2f}\n",
        flush=True,
    )
    return folder


def misspell(word: str, letters: str, draw: random.Random) -> str:
    """Change one letter of a word: drop it, double it, swap it with the next, or replace it."""
    if len(word) < 4:
        return word
    place = draw.randrange(len(word))
    before, letter, after = word[:place], word[place : place + 1], word[place + 1 :]
    kinds = ("", letter * 2, after[:1] + letter, draw.choice(letters))
    kind = draw.randrange(4)
    return before + kinds[kind] + (after[1:] if kind == 2 else after)


def misspelled(
    sentences: list[TaggedSentence], rate: float, letters: str, seed: int
) -> list[list[str]]:
    """Misspell a random share of the words, the same words for every system."""
    draw = random.Random(seed)
    return [
        [misspell(word, letters, draw) if draw.random() < rate else word for word in sentence.words]
        for sentence in sentences
    ]


def run(system: str, seed: int, module: Path | None, arguments: argparse.Namespace) -> list[float]:
    """Train a tagger, and return its test accuracy at each rate of errors."""
    folder = DATA / "code_switched" / "ud_turkish_german_sagt"
    train, dev, test = (
        read_conllu(folder / f"qtd_sagt-ud-{split}.conllu") for split in ("train", "dev", "test")
    )
    train, dev, test = train[: arguments.sentences], dev[: arguments.dev], test[: arguments.test]
    tags = sorted(
        {tag for part in (train, dev, test) for sentence in part for tag in sentence.tags}
    )
    letters = "".join(
        sorted({letter for sentence in train for word in sentence.words for letter in word.lower()})
    )
    letters = "".join(letter for letter in letters if letter.isalpha())
    torch.manual_seed(seed)
    encoder: pe.PretrainedWordEncoder | pe.CharWordEncoder = build_encoder(arguments.encoder)
    if module is not None and SYSTEMS[system]:
        characters = Char2Subword.from_pretrained(module)
        encoder = pe.CharWordEncoder(encoder, characters, unit=SYSTEMS[system])
    decoder = pe.SoftmaxDecoder(encoder.embedding_dim, len(tags))
    tagger = pe.SequenceTagger(encoder, tags, decoder=decoder)
    epochs = arguments.tagging_epochs
    options = FitOptions(
        num_train_epochs=epochs,
        batch_size=16,
        optimizer=lambda model: torch.optim.AdamW(
            (p for p in model.parameters() if p.requires_grad), lr=5e-4
        ),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.LinearLR(
            optimizer, 1.0, 0.1, total_iters=epochs
        ),
        metric="accuracy",
    )
    fit(tagger, train, dev, options, seed=seed, progress=arguments.progress)
    gold = [list(sentence.tags) for sentence in test]
    scores = [
        accuracy(gold, tagger.predict(misspelled(test, rate, letters, seed))) for rate in RATES
    ]
    print(f"{system}, seed {seed}:", *(f"{100 * score:.2f}" for score in scores), flush=True)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=30, help="epochs of the fit to the table")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sentences", type=int, help="training sentences; default: all")
    parser.add_argument("--dev", type=int, default=100, help="development sentences")
    parser.add_argument("--test", type=int, help="test sentences; default: all")
    parser.add_argument("--tagging-epochs", type=int, default=6)
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "char2subword")
    parser.add_argument("--progress", action="store_true", default=None)
    option(parser)
    arguments = parser.parse_args()
    if not DATA.is_dir():
        parser.error(f"no real data at {DATA}: set POLYEMBED_DATA")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    module = fitted(arguments) if any(SYSTEMS[system] for system in arguments.systems) else None
    columns = (
        "what the encoder reads",
        *(f"{100 * rate:.0f} % misspelled" for rate in RATES),
        "seconds a run",
    )
    rows = []
    for system in arguments.systems:
        start = time.perf_counter()
        scores = [run(system, seed, module, arguments) for seed in range(arguments.seeds)]
        seconds = (time.perf_counter() - start) / arguments.seeds
        cells = [
            mean_and_deviation([100 * score for score in column])
            for column in zip(*scores, strict=True)
        ]
        rows.append((system, *cells, round(seconds)))
    print()
    show(arguments.json, "tagging", Table(columns, rows), seeds=range(arguments.seeds))


if __name__ == "__main__":
    main()
