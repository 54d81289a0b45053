r"""Pretrain a small LASER by translation into English and Spanish; the second call loads it.

    python examples/pretrain_laser.py --size small --languages en es nl de  # of the data folder
    python examples/pretrain_laser.py --size useful --device cuda --bf16  # all 22 of them
    python examples/pretrain_laser.py --size tiny --text my/pairs --max-steps 200

The recipe is LASER's own (Artetxe and Schwenk 2019, sections 3 and 4): pieces shared by all
languages; a BiLSTM encoder that is not told the language; an LSTM decoder; teacher forcing; Adam;
batches of one pair of languages each, in random order. The decoder sees the source only as the
pooled vector of the encoder. A linear layer and tanh map this vector to the decoder's first state,
and at every step it is joined to the embeddings of the last piece and of the target language.

The text is ``text/parallel`` of the data folder (`$POLYEMBED_DATA`, else ``../shared/data`` beside
the repository), or ``--text``, a folder of files ``<one>-<other>.tsv`` or ``.tsv.xz`` with a pair
of sentences per line, separated by a tab. Sentences of two files that have the same English become
pairs too, so that languages with English translations are paired with Spanish as well. A pair is
left out, and counted, if one of its sentences has the same letters and digits as a sentence of the
Tatoeba test sets.

**The folder** holds the encoder and its tokenizer as `polyembed.LaserSentences.from_pretrained`
opens them. It holds them also in the layout of the released files: ``laser.pt`` for
`polyembed.LaserEncoder.from_checkpoint`, and ``laser.spm`` for a ``SentencePieceProcessor``.
``report.json`` has the settings, sizes, losses and the error of similarity search.
"""

import argparse
import json
import math
import random
import shutil
import sys
import tomllib
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import sentencepiece
import torch
import torch.nn.functional as F
from _cache import DATA, cached, read_report, write_report
from _files import read_lines
from _recipes import positive
from torch import Tensor, nn
from tqdm import tqdm

from polyembed.encoders import LaserEncoder, LaserSentences
from polyembed.tables import Table
from polyembed.text import SentencePieceTokenizer
from polyembed.text.laser import MosesRules
from polyembed.training import load_checkpoint, save_checkpoint

RECIPES = tomllib.loads(Path(__file__).with_name("recipes.toml").read_text("utf-8"))["laser_small"]
TARGETS = ("en", "es")
PIVOT = "en"
TATOEBA = {"es": "spa", "de": "deu", "nl": "nld", "tr": "tur", "hi": "hin", "ru": "rus"}
HELD_OUT = 50  # one in HELD_OUT pivot sentences is held out, in every pair that has it
HELD_OUT_PAIRS = 200  # the largest number of held-out pairs of a direction
SAVE_STEPS = 200
FORMAT = 1  # the version of the cache


class Pair(NamedTuple):
    """A sentence, its translation, and the sentence from which both were translated."""

    source: str
    target: str
    pivot: str


class Direction(NamedTuple):
    """The pairs of a source and a target language, as ids of pieces."""

    source: str
    target: str
    train: list[tuple[list[int], list[int]]]
    held_out: list[tuple[list[int], list[int]]]

    @property
    def name(self) -> str:
        """The name of the direction in tables."""
        return f"{self.source} -> {self.target}"


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Read a file of two columns; leave out rows with an empty column."""
    rows = [tuple(line.rstrip("\n").split("\t")) for line in read_lines(path)]
    wrong = [number for number, row in enumerate(rows, 1) if len(row) != 2]
    if wrong:
        raise SystemExit(f"{path} must hold two columns, got others in line {wrong[0]}")
    return [(one.strip(), other.strip()) for one, other in rows if one.strip() and other.strip()]


def read_directions(
    folder: Path, languages: Sequence[str] | None, lines: int | None
) -> dict[str, list[Pair]]:
    """Read every file of the wanted languages, as pairs by source and target language.

    Sentences of different files that have the same English are paired too.
    """
    found: dict[tuple[str, str], dict[Pair, None]] = defaultdict(dict)
    by_pivot: dict[str, dict[str, list[str]]] = {}
    for path in sorted([*folder.glob("*-*.tsv"), *folder.glob("*-*.tsv.xz")]):
        one, other = path.name.split(".")[0].split("-")
        if languages is not None and not {one, other} <= set(languages):
            continue
        rows = read_pairs(path)
        random.Random(path.name).shuffle(rows)
        for a, b in rows[:lines]:
            pivot = b if other == PIVOT else a
            found[one, other][Pair(a, b, pivot)] = found[other, one][Pair(b, a, pivot)] = None
            if PIVOT in (one, other):
                aligned = by_pivot.setdefault(one if other == PIVOT else other, {})
                aligned.setdefault(pivot, []).append(a if other == PIVOT else b)
    for target in TARGETS:
        for language, aligned in by_pivot.items():
            for pivot in (
                aligned.keys() & by_pivot.get(target, {}).keys() if language != target else ()
            ):
                pair = Pair(aligned[pivot][0], by_pivot[target][pivot][0], pivot)
                found[language, target][pair] = None
    wanted = {key: sorted(pairs) for key, pairs in sorted(found.items()) if key[1] in TARGETS}
    if not wanted:
        raise SystemExit(
            f"{folder} must hold <one>-<other>.tsv of languages wanted and {' or '.join(TARGETS)}, got none"
        )
    return {f"{source} {target}": pairs for (source, target), pairs in wanted.items()}


def letters(text: str) -> str:
    """Return a text's letters and digits in folded case, by which test sets are matched."""
    return "".join(character for character in text.casefold() if character.isalnum())


def read_tatoeba(folder: Path, languages: Sequence[str]) -> dict[str, tuple[list[str], list[str]]]:
    """Read the test pairs of each language with English, if the folder has them."""
    pairs = {}
    for language in languages:
        name = f"tatoeba.{TATOEBA.get(language, language)}-eng"
        sides = [folder / f"{name}.{code}" for code in (TATOEBA.get(language, language), "eng")]
        if all(side.exists() for side in sides):
            theirs, english = (side.read_text("utf-8").splitlines() for side in sides)
            pairs[language] = (theirs, english)
    return pairs


def train_tokenizer(texts: Sequence[str], path: Path, vocab_size: int) -> None:
    """Train byte pairs on text that is prepared as the tokenizer prepares it."""
    rules = MosesRules("en")
    draft = path.with_suffix(".draft")
    with draft.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(rules.prepare(text).lower() for text in texts),
            model_writer=file,
            model_type="bpe",
            vocab_size=vocab_size,
            max_sentence_length=2**30,
            hard_vocab_limit=False,
            num_threads=1,
            minloglevel=3,
        )
    draft.replace(path)


class Translator(nn.Module):
    """An encoder, and the decoder that it is trained with."""

    def __init__(
        self, encoder: LaserEncoder, languages: Sequence[str], sizes: dict[str, int], dropout: float
    ) -> None:
        super().__init__()
        count, sentence, hidden = (
            encoder.embed_tokens.num_embeddings,
            2 * encoder.hidden_size,
            sizes["hidden_size"],
        )
        self.encoder = encoder
        self.unknown = encoder.dictionary.unknown_id
        self.dropout = dropout
        self.languages = nn.Embedding(len(languages), sizes["language_dim"])
        self.pieces = nn.Embedding(count, sizes["embedding_dim"], padding_idx=encoder.padding_idx)
        self.start = nn.Linear(sentence, 2 * hidden)
        inputs = sizes["embedding_dim"] + sentence + sizes["language_dim"]
        self.lstm = nn.LSTM(inputs, hidden, batch_first=True)
        self.output = nn.Linear(hidden, count)
        nn.init.uniform_(self.encoder.embed_tokens.weight, -0.1, 0.1)
        nn.init.uniform_(self.pieces.weight, -0.1, 0.1)

    def forward(self, source: Tensor, target: Tensor, language: int) -> tuple[Tensor, Tensor]:
        """Return the sum of the losses of a batch's target pieces, in nats, and their number."""
        padding = self.encoder.padding_idx
        mask = source != padding
        dropped = torch.rand(source.shape, device=source.device) < (
            self.dropout if self.training else 0.0
        )
        vector = self.encoder(torch.where(dropped & mask, self.unknown, source), mask)
        before, after = target[:, :-1], target[:, 1:]
        tongue = self.languages(target.new_tensor(language)).to(vector.dtype)
        inputs = F.dropout(self.pieces(before), self.dropout, self.training).to(vector.dtype)
        joined = [
            part[:, None].expand(-1, before.shape[1], -1)
            for part in (vector, tongue.expand(len(target), -1))
        ]
        state = [
            part[None].to(vector.dtype).contiguous()
            for part in self.start(vector).tanh().chunk(2, -1)
        ]
        states, _ = self.lstm(torch.cat([inputs, *joined], -1), tuple(state))
        real = after != padding
        logits = self.output(F.dropout(states[real], self.dropout, self.training))
        return F.cross_entropy(logits.float(), after[real], reduction="sum"), real.sum()


def lay_out(
    pairs: Sequence[tuple[list[int], list[int]]], encoder: LaserEncoder, device: torch.device
) -> list[Tensor]:
    """Pad a batch; a source ends with the end piece, a target begins and ends with it."""
    end, padding = encoder.dictionary.end_id, encoder.padding_idx
    sides = [[[*source, end] for source, _ in pairs], [[end, *target, end] for _, target in pairs]]
    widths = [max(map(len, side)) for side in sides]
    return [
        torch.tensor([row + [padding] * (width - len(row)) for row in side], device=device)
        for side, width in zip(sides, widths, strict=True)
    ]


def plan_epoch(
    directions: Sequence[Direction], tokens: int, seed: int, epoch: int
) -> list[tuple[int, list[int]]]:
    """Cut each direction into batches of pairs of similar length, and shuffle all batches.

    `tokens` limits the number of pieces of a batch, counted on the longer side of its pairs and
    with padding.
    """
    order = random.Random(f"{seed} {epoch}")
    batches = []
    for number, direction in enumerate(directions):
        lengths = [max(len(source), len(target)) + 1 for source, target in direction.train]
        rows = sorted(range(len(lengths)), key=lambda row: lengths[row] + 2 * order.random())
        batch: list[int] = []
        for row in rows:
            if batch and (len(batch) + 1) * max(lengths[row], lengths[batch[-1]]) > tokens:
                batches.append((number, batch))
                batch = []
            batch.append(row)
        batches += [(number, batch)] if batch else []
    order.shuffle(batches)
    return batches


def held_out_losses(model: Translator, directions: Sequence[Direction]) -> dict[str, float]:
    """Measure the mean loss per target piece, in nats, in each direction."""
    device = model.output.weight.device
    model.eval()
    losses = {}
    with torch.no_grad():
        for direction in directions:
            total, count = 0.0, 0
            rows = sorted(direction.held_out, key=lambda pair: len(pair[1]))
            for i in range(0, len(rows), 50):
                source, target = lay_out(rows[i : i + 50], model.encoder, device)
                loss, pieces = model(source, target, TARGETS.index(direction.target))
                total, count = total + loss.item(), count + int(pieces)
            losses[direction.name] = total / count if count else math.nan
    return losses


def search_errors(
    encoder: LaserEncoder,
    tokenizer: SentencePieceTokenizer,
    test: dict[str, tuple[list[str], list[str]]],
) -> dict[str, list[float]]:
    """Measure how often the nearest sentence is not the translation, in percent.

    Each language has two errors: into English, and out of English.
    """
    sentences = LaserSentences(encoder, tokenizer).eval()
    errors = {}
    for language, sides in test.items():
        theirs, english = (sentences.encode(side, batch_size=100) for side in sides)
        right = torch.arange(len(theirs))
        both = [
            sentences.nearest(*pair).ids[:, 0] for pair in ((theirs, english), (english, theirs))
        ]
        errors[language] = [100 * (found != right).double().mean().item() for found in both]
    return errors


class Progress(NamedTuple):
    """The result of a training."""

    steps: int
    tokens: int
    losses: list[float]


def train(
    model: Translator,
    directions: Sequence[Direction],
    *,
    num_train_epochs: int,
    batch_tokens: int,
    learning_rate: float,
    warmup_steps: int,
    max_grad_norm: float,
    max_steps: int | None,
    stop_at: int | None,
    seed: int,
    bf16: bool,
    checkpoint: Path,
    about: dict[str, Any],
    progress: bool | None,
) -> Progress:
    """Train by teacher forcing.

    A training that was killed continues from its last checkpoint, and gives the same numbers.
    """
    device = model.output.weight.device
    plan = [
        batch
        for epoch in range(num_train_epochs)
        for batch in plan_epoch(directions, batch_tokens, seed, epoch)
    ]
    total = min(len(plan), max_steps or len(plan))
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min(
            (step + 1) / max(1, warmup_steps), 1.0, (total - step) / max(1, total - warmup_steps)
        ),
    )
    done, tokens, losses = 0, 0, []
    state = load_checkpoint(checkpoint, **about)
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        done, tokens, losses = state["done"], state["tokens"], state["losses"]
    last = min(total, stop_at or total)
    if done > last:
        raise SystemExit(f"stop_at must be at least the {done} steps that are done, got {last}")
    sums, counts = torch.zeros((), device=device), torch.zeros((), dtype=torch.int64, device=device)
    model.train()
    for step in tqdm(
        range(done, last),
        initial=done,
        total=last,
        disable=None if progress is None else not progress,
    ):
        number, rows = plan[step]
        direction = directions[number]
        torch.manual_seed(seed * 1_000_003 + step)
        source, target = lay_out([direction.train[row] for row in rows], model.encoder, device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
            loss, pieces = model(source, target, TARGETS.index(direction.target))
        optimizer.zero_grad(set_to_none=True)
        (loss / pieces).backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
        optimizer.step()
        schedule.step()
        sums, counts = sums + loss.detach(), counts + pieces
        if (step + 1) % SAVE_STEPS == 0 or step + 1 == last:
            tokens += int(counts)
            losses.append(float(sums / counts))
            if not math.isfinite(losses[-1]):
                raise SystemExit(f"the loss must stay finite, got {losses[-1]} at step {step + 1}")
            sums, counts = torch.zeros_like(sums), torch.zeros_like(counts)
            parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
            state = {name: part.state_dict() for name, part in parts.items()}
            save_checkpoint(
                checkpoint, {**state, "done": step + 1, "tokens": tokens, "losses": losses}, **about
            )
            tqdm.write(
                f"step {step + 1} of {total}: {losses[-1]:.3f} nats a piece", file=sys.stderr
            )
    return Progress(last, tokens, losses)


def save(encoder: LaserEncoder, tokenizer: SentencePieceTokenizer, folder: Path) -> None:
    """Write the encoder as the library opens it, and in the layout of the released files."""
    LaserSentences(encoder, tokenizer).save_pretrained(folder)
    params = {
        **{
            name: getattr(encoder, name)
            for name in ("num_embeddings", "hidden_size", "num_layers", "padding_idx")
        },
        "embed_dim": encoder.embedding_dim,
        "bidirectional": True,
        "left_pad": True,
        "padding_value": 0.0,
    }
    dictionary = {piece: number for number, piece in enumerate(encoder.dictionary.pieces())}
    torch.save(
        {"params": params, "model": encoder.state_dict(), "dictionary": dictionary},
        folder / "laser.pt",
    )
    (folder / "laser.spm").write_bytes(tokenizer.model.serialized_model_proto())


def in_ids(
    pairs: dict[str, list[Pair]], tokenizer: SentencePieceTokenizer, max_length: int
) -> tuple[list[Direction], int]:
    """Cut pairs into pieces, and hold some pairs out.

    Pairs with a side that is too long or empty are left out, and counted.
    """
    known: dict[str, list[int]] = {}

    def cut(text: str) -> list[int]:
        if text not in known:
            known[text] = tokenizer.cut_text(text).ids
        return known[text]

    directions, long = [], 0
    for name, part in pairs.items():
        sides: dict[bool, list[tuple[list[int], list[int]]]] = {False: [], True: []}
        for source, target, pivot in part:
            ids = (cut(source), cut(target))
            fits = max(map(len, ids)) < max_length and min(map(len, ids)) > 0
            long += not fits
            if fits:
                sides[zlib.crc32(letters(pivot).encode()) % HELD_OUT == 0].append(ids)
        if sides[False]:
            directions.append(Direction(*name.split(), sides[False], sides[True][:HELD_OUT_PAIRS]))
    return directions, long


def pretrain_laser(
    size: str = "small",
    *,
    languages: Sequence[str] | None = None,
    lines: int | None = None,
    text: Path | None = None,
    tatoeba: Path | None = None,
    max_steps: int | None = None,
    stop_at: int | None = None,
    seed: int = 0,
    device: str | None = None,
    bf16: bool = False,
    cache: Path | None = None,
    progress: bool | None = None,
) -> Path:
    """Return the folder of a pretrained encoder, trained first if it does not exist yet.

    Args:
        size: The name of the recipe: tiny, small or useful.
        languages: The languages of the text; all available ones if None.
        lines: The largest number of pairs of a file, which are chosen at random; all if None.
        text: A folder of ``<one>-<other>.tsv`` or ``.tsv.xz``; the data folder's if None.
        tatoeba: A folder of Tatoeba's test pairs; the data folder's if None.
        max_steps: The largest number of steps to plan for; the recipe's epochs if None.
        stop_at: The step of the plan after which training ends, before the learning rate has
            decayed to zero.
        seed: The seed of the first weights, the order and the dropout.
        device: The device to train on; if None, a GPU if there is one.
        bf16: Whether forward passes are in bfloat16.
        cache: The folder; ``runs/laser_small/<hash of the settings>`` if None.
        progress: Whether to show a progress bar; if None, only on a terminal.

    Returns:
        The folder.
    """
    recipe: dict[str, Any] = RECIPES[size]
    default = DATA / "text" / "parallel"
    text = default if text is None else text
    tatoeba = DATA / "parallel" / "tatoeba" if tatoeba is None else tatoeba
    settings = {
        "format": FORMAT,
        "recipe": recipe,
        "languages": None if languages is None else list(languages),
        "lines": lines,
        "text": None if text == default else str(text.resolve()),
        "max_steps": max_steps,
        "seed": seed,
        "bf16": bf16,
    }
    settings |= {} if stop_at is None else {"stop_at": stop_at}
    folder, finished = cached("laser_small", settings, cache)
    if finished:
        return folder
    draft_settings = folder / "training" / "settings.json"
    plan = {key: value for key, value in settings.items() if key != "stop_at"}
    if draft_settings.exists() and json.loads(draft_settings.read_text("utf-8")) != plan:
        raise ValueError(f"cache must hold a training of these settings, got another in {folder}")
    draft_settings.parent.mkdir(parents=True, exist_ok=True)
    draft_settings.write_text(json.dumps(plan), "utf-8")

    start = perf_counter()
    pairs = read_directions(text, languages, lines)
    trained_on = sorted({language for name in pairs for language in name.split()})
    test = read_tatoeba(tatoeba, trained_on)
    tested = {letters(sentence) for sides in test.values() for side in sides for sentence in side}
    clean = {
        name: [p for p in part if not {letters(x) for x in p} & tested]
        for name, part in pairs.items()
    }
    removed = sum(map(len, pairs.values())) - sum(map(len, clean.values()))
    spm = folder / "training" / "laser.spm"
    if not spm.exists():
        texts = dict.fromkeys(side for part in clean.values() for pair in part for side in pair[:2])
        train_tokenizer(list(texts), spm, recipe["tokenizer"]["vocab_size"])
    tokenizer = SentencePieceTokenizer(sentencepiece.SentencePieceProcessor(model_file=str(spm)))
    training = dict(recipe["training"])
    dropout, max_length = training.pop("dropout"), training.pop("max_length")
    directions, long = in_ids(clean, tokenizer, max_length)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = LaserEncoder(
            len(tokenizer.dictionary), dictionary=tokenizer.dictionary, **recipe["encoder"]
        )
        model = Translator(encoder, TARGETS, recipe["decoder"], dropout)
    model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    before = held_out_losses(model, directions), search_errors(encoder, tokenizer, test)
    with torch.random.fork_rng():
        result = train(
            model,
            directions,
            **training,
            max_steps=max_steps,
            stop_at=stop_at,
            seed=seed,
            bf16=bf16,
            checkpoint=folder / "training" / "checkpoint.pt",
            about={"settings": json.dumps(plan, sort_keys=True)},
            progress=progress,
        )
    after = held_out_losses(model, directions), search_errors(encoder, tokenizer, test)
    save(encoder.cpu().eval(), tokenizer, folder)
    content = {
        "settings": settings,
        "directions": {
            d.name: {
                "pairs": len(d.train),
                "pieces": sum(len(target) + 1 for _, target in d.train),
                "before": before[0][d.name],
                "after": after[0][d.name],
            }
            for d in directions
        },
        "tatoeba": {
            language: {"before": before[1][language], "after": after[1][language]}
            for language in test
        },
        "left_out": {"tatoeba": removed, "length": long},
        "steps": result.steps,
        "tokens_seen": result.tokens,
        "losses": result.losses,
        "parameters": {"encoder": _count(encoder), "decoder": _count(model) - _count(encoder)},
        "seconds": round(perf_counter() - start),
    }
    write_report(folder, content)
    shutil.rmtree(folder / "training")
    return folder


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def tables(report: dict[str, Any]) -> Iterator[Table]:
    """Yield the tables of a report."""
    columns = ("direction", "pairs", "target pieces", "nats a piece before", "after")
    rows = [
        (name, f"{row['pairs']:,}", f"{row['pieces']:,}", row["before"], row["after"])
        for name, row in report["directions"].items()
    ]
    yield Table(columns, rows)
    columns = (
        "Tatoeba, error in percent",
        "to English before",
        "after",
        "from English before",
        "after",
    )
    rows = [
        (language, *(row[when][way] for way in (0, 1) for when in ("before", "after")))
        for language, row in report["tatoeba"].items()
    ]
    yield Table(columns, rows, digits=1)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=RECIPES, default="small")
    parser.add_argument(
        "--languages", nargs="+", help="the languages of the text to use; all if missing"
    )
    parser.add_argument(
        "--lines", type=positive, help="the largest number of pairs of a file; all if missing"
    )
    parser.add_argument(
        "--text",
        type=Path,
        help="a folder of <one>-<other>.tsv or .tsv.xz; the data folder's if missing",
    )
    parser.add_argument(
        "--tatoeba", type=Path, help="a folder of Tatoeba's test pairs, tatoeba.spa-eng.spa, ..."
    )
    parser.add_argument(
        "--max-steps",
        type=positive,
        help="the largest number of steps; the recipe's epochs if missing",
    )
    parser.add_argument(
        "--stop-at",
        type=positive,
        help="the step after which training ends, if there is no time for all planned steps",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device")
    parser.add_argument("--bf16", action="store_true", help="run forward passes in bfloat16")
    parser.add_argument(
        "--cache",
        type=Path,
        help="the folder of the encoder; runs/laser_small/<hash of the settings> if missing",
    )
    return parser.parse_args()


def main() -> None:
    folder = pretrain_laser(**vars(parse_arguments()))
    report = read_report(folder)
    for table in tables(report):
        print(table.to_markdown(), end="\n\n")
    sizes = " and ".join(f"{count:,} ({part})" for part, count in report["parameters"].items())
    print(
        f"Parameters: {sizes}. {report['steps']:,} steps over {report['tokens_seen']:,} target pieces",
        end=", ",
    )
    print(
        f"{report['seconds']} s. Pairs left out: {report['left_out']['tatoeba']} of the test sets",
        end=", ",
    )
    print(f"{report['left_out']['length']} by length.")
    print(f"Encoder: {folder}")


if __name__ == "__main__":
    main()
