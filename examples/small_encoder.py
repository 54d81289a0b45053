r"""Pretrain a small multilingual encoder by masked language modelling; the second call loads it.

    python examples/small_encoder.py --size small  # the 23 languages of the data folder
    python examples/small_encoder.py --size useful --device cuda --leave-out am  # never seen
    python examples/small_encoder.py --size tiny --languages es en --lines 2000 --max-steps 200

The text is ``text/mono/<lang>.txt.xz`` of the data folder (`$POLYEMBED_DATA`, else
``../shared/data`` beside the repository), or ``--text``, a folder of such files.

**Test sets that the encoder may be evaluated on.** The sentences of these sets were removed from
the text, as its README.md says: LASER's Tatoeba v1 and SAGT, CoNLL-2002 testa and testb, FLORES
devtest, the UD and UNER test sets, MasakhaNER dev and test, the test sets of lafand and menyo,
WikiAnn dev and test. Lines were matched exactly, on letters and digits, so near-duplicates and
sentences inside longer lines may survive. FLORES dev was not matched. Chinese Wikipedia (lines
19083-63845 of ``zh``) is left out unless ``--zh`` is "all", since WikiAnn's Chinese comes from it.
NTREX, TICO-19 and other translation test sets are in the text, so no score on them is valid.

**Tokenizer**: a unigram model over whitespace-marked words in NFKC, with XLM-R's special pieces.
Rare characters become bytes, so no piece is unknown.

**Languages** are balanced by exponent sampling: language l with n_l lines gives the share
n_l^0.5 / sum n_k^0.5 of all lines (alpha 0.5; Conneau & Lample 2019, section 3.1). This holds for
the text of the tokenizer and for an epoch, which has as many lines as the text. Lines of small
languages are repeated. 200 lines of each language, or a tenth if that is fewer, are held out;
perplexity is measured on them before and after the training.
"""

import argparse
import json
import lzma
import random
import shutil
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from _cache import DATA, cached, read_report, write_report
from _recipes import positive
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    PreTrainedTokenizerFast,
    TrainingArguments,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
)

from polyembed.tables import Table
from polyembed.training import adapt_masked_lm, perplexity

TEXT = DATA / "text" / "mono"
RECIPES = tomllib.loads(Path(__file__).with_name("recipes.toml").read_text("utf-8"))[
    "small_encoder"
]
LANGUAGES = (
    "am",
    "ar",
    "de",
    "en",
    "es",
    "fa",
    "gn",
    "hi",
    "id",
    "ig",
    "ilo",
    "mi",
    "nl",
    "qu",
    "ru",
    "rw",
    "sw",
)
LANGUAGES += ("te", "tk", "tr", "xmf", "yo", "zh")
WIKIPEDIA = (19083, 63845)  # lines of the data folder's zh, counted from 1
SPECIAL = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>"}
ALPHA = 0.5
HELD_OUT = 200
FORMAT = 1  # the version of the cache


def read_lines(folder: Path, language: str, limit: int | None, zh: str) -> list[str]:
    """Read at most `limit` lines of a language, at random, since a file is sorted by source."""
    path = folder / f"{language}.txt.xz"
    with (
        lzma.open(path, "rt", encoding="utf-8")
        if path.exists()
        else path.with_suffix("").open(encoding="utf-8") as f
    ):
        lines = [line.strip() for line in f]
    if language == "zh" and zh != "all" and folder == TEXT:
        lines = lines[: WIKIPEDIA[0] - 1] + lines[WIKIPEDIA[1] :]
    lines = [line for line in lines if line]
    random.Random(language).shuffle(lines)
    return lines[:limit]


def shares(sizes: dict[str, int], total: int) -> dict[str, int]:
    """Compute the number of each language's lines among `total`, by exponent sampling."""
    weights = {language: size**ALPHA for language, size in sizes.items()}
    return {
        language: round(total * weight / sum(weights.values()))
        for language, weight in weights.items()
    }


def balance(lines: dict[str, list[str]], total: int, seed: int) -> list[str]:
    """Sample the share of each language: all its lines as often as they fit, and some once more."""
    chosen: list[str] = []
    for language, count in shares({name: len(part) for name, part in lines.items()}, total).items():
        times, rest = divmod(count, len(lines[language]))
        chosen += lines[language] * times + random.Random(f"{language} {seed}").sample(
            lines[language], rest
        )
    random.Random(seed).shuffle(chosen)
    return chosen


def train_tokenizer(lines: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train a unigram model with byte fallback.

    The rarest characters, which make up at most 0.05 % of the text, become bytes. Two trainings on
    one text may differ in which of several pieces of equal score they keep.
    """
    normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " ")])
    lines = [normalizer.normalize_str(line) for line in lines]
    counts = Counter(character for line in lines for character in line)
    rare, left = {}, int(0.0005 * sum(counts.values()))
    for character, count in sorted(counts.items(), key=lambda item: (item[1], item[0])):
        left -= count
        if left < 0:
            break
        rare[ord(character)] = " "
    core = Tokenizer(models.Unigram())
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    room = vocab_size - len(SPECIAL) - 256 - 1
    if len(counts) - len(rare) > room - 100:
        raise SystemExit(
            f"vocab_size must leave room for {len(counts) - len(rare)} characters, got {vocab_size}"
        )
    trainer = trainers.UnigramTrainer(
        vocab_size=room + 1, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )  # fmt: skip
    core.train_from_iterator((line.translate(rare) for line in lines), trainer)
    found = [
        (piece, score)
        for piece, score in json.loads(core.to_str())["model"]["vocab"]
        if piece != "<unk>"
    ]
    # characters outside the trained vocabulary are added with scores whose order differs between
    # runs
    least = min(score for piece, score in found if len(piece) > 1)
    floor = round(least - 1, 4)
    scored = (
        (piece, floor if len(piece) == 1 and score < least else round(score, 4))
        for piece, score in found
    )
    pieces = sorted(scored, key=lambda item: (-item[1], item[0]))
    vocabulary = [(piece, 0.0) for piece in SPECIAL.values()]
    vocabulary += [(f"<0x{byte:02X}>", floor - 2) for byte in range(256)] + pieces
    core = Tokenizer(models.Unigram(vocabulary, unk_id=3, byte_fallback=True))
    core.normalizer = normalizer
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(), decoders.Fuse()]
    )
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        **{f"{name}_token": piece for name, piece in SPECIAL.items()},
        cls_token="<s>",
        sep_token="</s>",
        mask_token=AddedToken("<mask>", lstrip=True, special=True),
    )


def build_model(
    tokenizer: PreTrainedTokenizerFast, sizes: dict[str, int], seed: int
) -> XLMRobertaForMaskedLM:
    """Build an untrained model for sequences of up to 512 pieces."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return XLMRobertaForMaskedLM(
            XLMRobertaConfig(
                vocab_size=len(tokenizer),
                max_position_embeddings=514,
                type_vocab_size=1,
                bos_token_id=0,
                pad_token_id=1,
                eos_token_id=2,
                **sizes,
            )
        )


def small_encoder(
    size: str = "small",
    *,
    languages: Sequence[str] = LANGUAGES,
    leave_out: Sequence[str] = (),
    lines: int | None = None,
    zh: str = "no-wikipedia",
    text: Path | None = None,
    max_steps: int | None = None,
    seed: int = 0,
    device: str | None = None,
    cache: Path | None = None,
    progress: bool | None = None,
) -> Path:
    """Return the folder of a pretrained encoder, trained first if it does not exist yet.

    The folder opens with transformers' ``AutoModel``, ``AutoModelForMaskedLM`` and
    ``AutoTokenizer``. Its ``report.json`` has the settings, tokens by language and perplexities.

    Args:
        size: The name of the recipe: tiny, small or useful.
        languages: The languages, which are the names of files in the folder of text.
        leave_out: The languages that are left out of these.
        lines: The largest number of lines of a language, which are chosen at random; all if None.
        zh: The lines of the data folder's Chinese that are read: "no-wikipedia" or "all".
        text: A folder of ``<lang>.txt.xz`` or ``<lang>.txt``; the data folder's if None.
        max_steps: The number of steps; the recipe's epochs if None.
        seed: The seed of the sampling, the first weights, the order and the masks.
        device: The device to train on; if None, a GPU if there is one.
        cache: The folder; ``runs/small_encoder/<hash of the settings>`` if None.
        progress: Whether to show a progress bar; if None, only on a terminal.

    Returns:
        The folder.
    """
    recipe: dict[str, Any] = RECIPES[size]
    text = TEXT if text is None else text
    names = [language for language in languages if language not in leave_out]
    settings = {
        "format": FORMAT,
        "recipe": recipe,
        "languages": names,
        "lines": lines,
        "zh": zh if "zh" in names else None,
        "text": None if text == TEXT else str(text.resolve()),
        "max_steps": max_steps,
        "seed": seed,
    }
    folder, finished = cached("small_encoder", settings, cache)
    if finished:
        return folder
    train, held = {}, {}
    for language in names:
        found = read_lines(text, language, lines, zh)
        cut = min(HELD_OUT, len(found) // 10)
        held[language], train[language] = found[:cut], found[cut:]
    total = sum(map(len, train.values()))
    pieces = folder / "training" / "tokenizer"
    if not (pieces / "tokenizer.json").exists():
        lines_seen = balance(train, min(total, recipe["tokenizer"]["lines"]), seed)
        train_tokenizer(lines_seen, recipe["tokenizer"]["vocab_size"]).save_pretrained(pieces)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(
        pieces
    )  # a run that was killed keeps its tokenizer: see `train_tokenizer`
    counts = {}
    for language, part in train.items():
        ids = tokenizer(part, add_special_tokens=False, return_attention_mask=False)["input_ids"]
        counts[language] = sum(map(len, ids))
    quotas = shares({language: len(part) for language, part in train.items()}, total)
    model = build_model(tokenizer, recipe["model"], seed)
    model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    start = time.perf_counter()
    max_length = recipe["training"]["max_length"]

    def measure() -> dict[str, float]:
        sizes = {"max_length": max_length, "batch_size": 64}
        return {name: perplexity(model, tokenizer, part, **sizes) for name, part in held.items()}

    before = measure()
    training = {
        name: value
        for name, value in recipe["training"].items()
        if name not in ("batch_size", "max_length")
    }
    args = TrainingArguments(
        **training,
        per_device_train_batch_size=recipe["training"]["batch_size"],
        max_steps=max_steps or -1,
        logging_steps=50,
        save_steps=1000,
        seed=seed,
        use_cpu=model.device.type == "cpu",
    )
    texts = balance(train, total, seed)
    result = adapt_masked_lm(
        model,
        tokenizer,
        texts,
        args,
        max_length=max_length,
        folder=folder / "training",
        progress=progress,
    )
    after = measure()
    tokenizer.model_max_length = 512
    model.cpu().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    shutil.rmtree(folder / "training")  # the last weights are in the folder itself
    columns = {
        "lines": {language: len(part) for language, part in train.items()},
        "tokens": counts,
        "share": {language: quota / sum(quotas.values()) for language, quota in quotas.items()},
        "before": before,
        "after": after,
    }
    content = {
        "settings": settings,
        "languages": {
            name: {key: column[name] for key, column in columns.items()} for name in names
        },
        "steps": result.steps,
        "losses": result.losses,
        "parameters": model.num_parameters(),
        "seconds": round(time.perf_counter() - start),
    }
    write_report(folder, content)
    return folder


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=RECIPES, default="small")
    parser.add_argument("--languages", nargs="+", default=LANGUAGES)
    parser.add_argument(
        "--leave-out",
        nargs="+",
        default=[],
        help="languages to leave out, so that the encoder has not seen them",
    )
    parser.add_argument(
        "--lines", type=positive, help="the largest number of lines of a language; all if missing"
    )
    parser.add_argument("--zh", choices=("no-wikipedia", "all"), default="no-wikipedia")
    parser.add_argument(
        "--text",
        type=Path,
        help="a folder of <lang>.txt.xz or <lang>.txt; the data folder's if missing",
    )
    parser.add_argument(
        "--max-steps", type=positive, help="the number of steps; the recipe's epochs if missing"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device")
    parser.add_argument(
        "--cache",
        type=Path,
        help="the folder of the encoder; runs/small_encoder/<hash of the settings> if missing",
    )
    return parser.parse_args()


def main() -> None:
    folder = small_encoder(**vars(parse_arguments()))
    report = read_report(folder)
    columns = ("language", "lines", "tokens", "share %", "perplexity before", "after")
    rows = [
        (
            language,
            f"{row['lines']:,}",
            f"{row['tokens']:,}",
            100 * row["share"],
            row["before"],
            row["after"],
        )
        for language, row in report["languages"].items()
    ]
    print(Table(columns, rows).to_markdown())
    print(f"{report['parameters']:,} parameters, {report['steps']:,} steps, {report['seconds']} s")
    print(f"Encoder: {folder}")


if __name__ == "__main__":
    main()
