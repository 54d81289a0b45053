"""Adaptation by masked language modelling: against a plain loop, and every kind of mask."""

import lzma
import math
import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from checks import refused
from tiny_masked_lm import (
    PIECES,
    SIZES,
    SPECIAL,
    TEXTS,
    TOKENIZER,
    Spy,
    build,
    build_texts,
    pieces_of,
)
from tokenizers import Tokenizer, models, normalizers, trainers
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    PreTrainedTokenizerFast,
    TrainingArguments,
)

from polyembed.data import TaggedSentence
from polyembed.training import adapt_masked_lm as adapt_with
from polyembed.training import perplexity
from polyembed.training.masked_lm import AdaptationResult
from polyembed.training.masked_text import ExampleEncoder

pytest.importorskip("accelerate", reason="adapt_masked_lm needs polyembed[train]")
OPTIONS = {"max_length": 17, "batch_size": 3, "learning_rate": 0.01, "logging_steps": 2}


def adapt_masked_lm(
    model: nn.Module, tokenizer: object, texts: object, **options: object
) -> AdaptationResult:
    """Call `adapt_masked_lm` with training arguments by name."""
    options["per_device_train_batch_size"] = options.pop("batch_size", 8)
    fields = {
        name: options.pop(name)
        for name in [*options]
        if name in TrainingArguments.__dataclass_fields__
    }
    fields = {"seed": 0, "use_cpu": True, "output_dir": None, "report_to": [], **fields}
    return adapt_with(model, tokenizer, texts, TrainingArguments(**fields), **options)


@pytest.mark.parametrize("count", [1, 2])
def test_is_the_plain_loop(count):
    """The weights and losses equal the results of a loop by hand over the same batches."""
    model, twin = build(dropout=0.0), build(dropout=0.0)
    spy = Spy(model)
    options = {"max_steps": 7, "max_grad_norm": 0.5, "weight_decay": 0.1, **OPTIONS}
    result = adapt_masked_lm(model, TOKENIZER, TEXTS, gradient_accumulation_steps=count, **options)
    optimizer = torch.optim.AdamW(
        {"params": [p], "weight_decay": 0.0 if n.endswith("bias") or "norm" in n.lower() else 0.1}
        for n, p in twin.named_parameters()
    )
    losses = []
    steps = zip(*(spy.batches[i::count] for i in range(count)), strict=True)
    for step, batches in enumerate(steps):
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * (1 - step / 7)
        loss = 0.0
        for batch in batches:
            ids, mask, labels = (batch[x] for x in ("input_ids", "attention_mask", "labels"))
            chosen = labels != -100
            scores = twin(input_ids=ids, attention_mask=mask).logits.log_softmax(-1)[chosen]
            loss = loss - scores.gather(-1, labels[chosen][:, None]).mean() / count
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(twin.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    for (name, value), expected in zip(model.named_parameters(), twin.parameters(), strict=True):
        if name.endswith("key.bias"):  # its gradient is a rounding error, which Adam makes large
            continue
        torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5, msg=name)
    expected = [sum(losses[i : i + 2]) / 2 for i in (0, 2, 4)]
    assert result.losses == pytest.approx(expected, rel=1e-4)


def test_masking_shares():
    model = build()
    spy = Spy(model)
    options = {**OPTIONS, "batch_size": 50, "num_train_epochs": 2, "mlm_probability": 0.3}
    adapt_masked_lm(model, TOKENIZER, build_texts(300), **options)
    ids = torch.cat([batch["input_ids"].flatten() for batch in spy.batches])
    labels = torch.cat([batch["labels"].flatten() for batch in spy.batches])
    chosen = labels != -100
    assert chosen.sum() / sum(map(len, spy.originals())) == pytest.approx(0.3, abs=0.02)
    assert (ids[chosen] == TOKENIZER.mask_token_id).float().mean() == pytest.approx(0.8, abs=0.03)
    assert (ids[chosen] == labels[chosen]).float().mean() == pytest.approx(
        0.1 + 0.1 / len(TOKENIZER), abs=0.02
    )
    assert labels[chosen].min() > 2  # special pieces are not predicted


def test_whole_words():
    spy = Spy(model := build())
    adapt_masked_lm(
        model, TOKENIZER, build_texts(90), num_train_epochs=2, whole_word_mask=True, **OPTIONS
    )
    words: list[bool] = []
    mixed = 0  # rows with both masked and other words
    for batch in spy.batches:
        forced = (batch["labels"] != -100).sum() == 1  # a batch without a masked piece gets one
        for ids, labels in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
            row: list[bool] = []
            for piece, label in zip(ids, labels, strict=True):
                hit, piece = label != -100, piece if label == -100 else label
                if piece >= len(SPECIAL):
                    if (SPECIAL + PIECES)[piece].startswith("▁"):
                        row.append(hit)
                    assert forced or hit == row[-1], "a word is split"
            words += row
            mixed += not forced and len({*row}) == 2
    assert mixed > 30
    assert sum(words) / len(words) == pytest.approx(0.15, abs=0.04)


SWITCHED = [
    TaggedSentence(tuple(words.split()), ("X",) * 6, tuple(languages.split(" ")))
    for words, languages in (
        ("gato perro casa the runs sleep", "es es es  en en"),  # casa and runs: 4 of 10 pieces
        ("gato perro casa gato perro casa", "es es es es es es"),
    )
]


def masked_switches(
    sentences: list[TaggedSentence], probability: float, **options: object
) -> tuple[Spy, float]:
    """Adapt to repeated sentences; return the batches and the share of masked pieces."""
    spy = Spy(model := build())
    options = {**OPTIONS, "batch_size": 50, "mlm_probability": probability, **options}
    adapt_masked_lm(
        model, TOKENIZER, sentences * 100, num_train_epochs=2, mask_switches=True, **options
    )
    masked = sum(int((batch["labels"] != -100).sum()) for batch in spy.batches)
    return spy, masked / sum(map(len, spy.originals()))


@pytest.mark.parametrize(("probability", "first", "rest"), [(0.2, 0.5, 0.0), (0.6, 1.0, 1 / 3)])
def test_words_at_switches_are_masked_first(probability, first, rest):
    spy, share = masked_switches(SWITCHED[:1], probability)
    assert share == pytest.approx(probability, abs=0.04)
    masked = (torch.cat([batch["labels"] for batch in spy.batches]) != -100).float().mean(0)
    near = [5, 6, 8, 9]  # <s> ga to per ro ca sa the run s sleep </s>
    assert masked[near].mean() == pytest.approx(first, abs=0.05)
    others = [1, 2, 3, 4, 7, 10]
    assert masked[others].mean() == pytest.approx(rest, abs=0.05)
    assert masked[[0, -1]].sum() == 0


def test_sentences_without_a_switch_are_masked_as_ever():
    spy, share = masked_switches(SWITCHED[1:], 0.3)
    assert share == pytest.approx(0.3, abs=0.04)
    assert (torch.cat([batch["labels"] for batch in spy.batches]) != -100)[:, 1:-1].any(0).all()


@pytest.mark.parametrize(
    ("truncation", "rows", "masked"), [(False, {6, 4}, "casa runs"), (True, {6}, "casa")]
)
def test_masked_switches_are_cut(truncation, rows, masked):
    spy, _ = masked_switches(SWITCHED[:1], 0.3, max_length=8, truncation=truncation)
    assert {len(row) for row in spy.originals()} == rows
    labels = {label for batch in spy.batches for label in batch["labels"].flatten().tolist()}
    assert labels - {-100} == {*pieces_of(masked)}


def test_a_batch_without_a_mask_gets_one():
    spy = Spy(model := build())
    options = OPTIONS | {"batch_size": 1, "mlm_probability": 1e-6}
    result = adapt_masked_lm(model, TOKENIZER, TEXTS, num_train_epochs=1, **options)
    assert all((batch["labels"] != -100).sum() == 1 for batch in spy.batches)
    assert Counter(spy.originals()) == Counter(tuple(pieces_of(text)) for text in TEXTS)
    assert all(math.isfinite(loss) for loss in result.losses)


@pytest.mark.parametrize(("truncation", "starts"), [(False, (0, 15, 30)), (True, (0,))])
def test_long_texts_are_cut_up_or_cut_off(truncation, starts):
    long = " ".join(["gato runs"] * 9)  # 36 pieces, 15 per row
    spy = Spy(model := build())
    adapt_masked_lm(model, TOKENIZER, [long], num_train_epochs=1, truncation=truncation, **OPTIONS)
    ids = pieces_of(long)
    assert {*spy.originals()} == {tuple(ids[start : start + 15]) for start in starts}


def sources(folder: Path) -> list[object]:
    (folder / "a.txt").write_text("\n".join(TEXTS), "utf-8")
    with lzma.open(folder / "b.txt.xz", "wt", encoding="utf-8") as file:
        file.write("\r\n".join([*TEXTS[:11], ""]))
    (folder / "c.txt").write_text("\n".join([*TEXTS[11:], ""]), "utf-8")
    return [str(folder / "a.txt"), [folder / "b.txt.xz", folder / "c.txt"], lambda: iter(TEXTS)]


def test_sources_of_texts(tmp_path):
    for texts in sources(tmp_path):
        spy = Spy(model := build())
        adapt_masked_lm(model, TOKENIZER, texts, max_steps=4, **OPTIONS | {"batch_size": 12})
        expected = Counter(tuple(pieces_of(text)) for text in TEXTS)
        first, second = spy.originals(0, 2), spy.originals(2)
        assert Counter(first) == Counter(second) == expected
        assert first != second  # in another order


def run(model: nn.Module, folder: Path | None, **options: object) -> AdaptationResult:
    options = {"num_train_epochs": 2, "save_steps": 4, **OPTIONS, **options}
    return adapt_masked_lm(model, TOKENIZER, TEXTS, folder=folder, **options)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
def test_leaves_no_trace(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    model = build().eval()
    model.lm_head.train()

    def settings():
        names = ("training", "gradient_checkpointing", "forward", "_is_accelerate_prepared")
        found = [getattr(part, name, None) for part in model.modules() for name in names]
        return [*found, model.config.use_cache, len(model.get_input_embeddings()._forward_hooks)]

    before = settings()
    expected = random.getstate(), torch.get_rng_state()
    reached = []
    monkeypatch.setattr("socket.socket.connect", lambda *_: reached.append(1))
    changes = {"gradient_checkpointing": True, "bf16": True, "eval_strategy": "steps"}
    changes["train_sampling_strategy"] = "group_by_length"
    run(model, None, **changes, eval_steps=1, report_to="all")
    assert not reached  # reports and evaluation are off, although the arguments ask for them
    assert random.getstate() == expected[0]
    assert torch.equal(torch.get_rng_state(), expected[1])
    assert settings() == before
    assert all(parameter.grad is None for parameter in model.parameters())
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr().out == ""


def test_an_interrupted_adaptation_goes_on(tmp_path):
    model, steps = build(), []

    def interrupt(*_):
        steps.append(1)
        if len(steps) == 11:
            raise KeyboardInterrupt

    hook = model.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(model, tmp_path)
    hook.remove()
    again = build()
    spy = Spy(again)
    result = run(again, tmp_path)
    assert len(spy.batches) == 16 - 8
    assert result.steps == 16
    assert len(result.losses) == 8
    assert run(build(), tmp_path).losses == result.losses  # all steps are done


def test_words_of_tokenizers_that_split_none():
    """Words are split at spaces if the tokenizer itself does not split them."""
    text = "mañana vamos to the beach con mis friends"
    core = Tokenizer(models.BPE(unk_token="<unk>"))
    core.normalizer = normalizers.Replace(" ", "▁")
    core.train_from_iterator(
        [" " + word for word in text.split()] * 20,
        trainers.BpeTrainer(vocab_size=60, special_tokens=["<pad>", "<unk>", "<mask>"]),
    )
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, **names)
    model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **SIZES))
    (example,) = ExampleEncoder(model, tokenizer, max_length=64).texts([f"{text}  {text}"])
    pieces = tokenizer.convert_ids_to_tokens(example.ids)
    words = [
        "".join(piece for piece, word in zip(pieces, example.words, strict=True) if word == number)
        for number in range(max(example.words) + 1)
    ]
    assert [word.strip("▁") for word in words] == [*text.split(), *text.split()]


def broken() -> nn.Module:
    model = build()
    model.lm_head.bias.data[0] = math.nan
    return model


WITHOUT_MASK = PreTrainedTokenizerFast(tokenizer_object=TOKENIZER.backend_tokenizer)
NO_TEXT = "texts must hold at least one text with a piece, got none"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"max_length": 30}, ValueError, "max_length must be .* model's 29 positions, got 30"),
        ({"texts": ["", " "]}, ValueError, NO_TEXT),
        ({"model": build().roberta}, TypeError, "model must be .* masked .*, got XLMRobertaModel"),
        (
            {"model": BertLMHeadModel(BertConfig(vocab_size=18, **SIZES))},
            TypeError,
            "model must be .* masked .*, got BertLMHeadModel",
        ),
        ({"model": broken()}, ValueError, "loss must stay finite, got .*"),
        ({"tokenizer": "bert"}, TypeError, "tokenizer must be a fast tokenizer of .*, got str"),
        ({"tokenizer": WITHOUT_MASK}, ValueError, "tokenizer must have a mask piece, got none"),
        (
            {"model": BertForMaskedLM(BertConfig(vocab_size=7, **SIZES))},
            ValueError,
            "tokenizer must have at most the model's 7 pieces, got 18",
        ),
        (
            {"texts": [TaggedSentence(("gato",), ("X",))], "mask_switches": True},
            ValueError,
            r"a sentence must have .* a language for each of them \(texts\[0\]\), got languages None",
        ),
        (
            {"texts": SWITCHED, "mask_switches": True, "max_length": 3},
            ValueError,
            r"texts\[0\]\.words\[0\] must have at most 1 pieces .*, got 2",
        ),
        (
            {"texts": SWITCHED, "mask_switches": True, "whole_word_mask": True},
            ValueError,
            "whole_word_mask must be False with mask_switches, got True",
        ),
    ],
)
def test_wrong_values(changes, error, message):
    given = {"model": build(), "tokenizer": TOKENIZER, "texts": TEXTS, **OPTIONS, **changes}
    refused(error, f"^{message}$", adapt_masked_lm, **given)


def test_lone_surrogates_are_left_out():
    """Tokenizers refuse lone surrogates, so a single such tweet would stop a training run."""
    model, texts = build(), TEXTS[:5]
    spoilt = ["\ud800" + text for text in texts] + ["\udc00"]
    found = [perplexity(model, TOKENIZER, part, max_length=17) for part in (spoilt, texts)]
    assert found[0] == found[1]
